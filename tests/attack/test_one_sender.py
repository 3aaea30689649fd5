"""What one collector sends hides nothing that another one recorded, also after a restart.

An honest collector fences, and the attacker sends its one fragment. The honest one then records write skews, of which
every one is to be found. The attacker knows all that can be known: also the honest one's tag.
"""

from __future__ import annotations

import json
import struct
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mussurana.verifier.commands.serve import check_fragment, machine_factory
from mussurana.verifier.daemon.configured import load
from mussurana.verifier.daemon.quotas import TAGS_MAX
from mussurana.verifier.rounds.bounds import EPOCH_MAX
from mussurana.wire import EPOCH_BITS, ERA_BEGIN_SECONDS
from mussurana.wire.history_pb2 import INSERT, READ, UPDATE, Coverage, Fragment, SessionEvent
from tests.attack.collectors import ended
from tests.daemon.collector import TestCollector
from tests.daemon.conftest import Running, running
from tests.daemon.watching import is_verified, until

MACHINE = machine_factory(load(None, {}, {}))
ERA_MAX = EPOCH_MAX >> EPOCH_BITS
VICTIM, ATTACKER = b"v" * 16, b"m" * 16
TAG, OTHER_TAG = 4711, 12_345

Operation = tuple[int, int, int, int]  # kind, key, version, the version before
Txn = tuple[int, list[Operation], int]  # session, operations, epoch of a fence


def fragment(sequence: int, *txns: Txn) -> Fragment:
    now_ns = time.time_ns()
    times = struct.pack("<q", now_ns) * len(txns)
    ops = [op for _, operations, _ in txns for op in operations]

    def column(code: str, values: list[int]) -> bytes:
        return struct.pack(f"<{len(values)}{code}", *values)

    return Fragment(
        sequence=sequence,
        sealed_ns=now_ns,
        txn_count=len(txns),
        txn_session=column("I", [session for session, _, _ in txns]),
        txn_status=bytes(len(txns)),
        txn_begin_ns=times,
        txn_begun_ns=times,
        txn_commit_ns=times,
        txn_committed_ns=times,
        txn_op_count=column("I", [len(operations) for _, operations, _ in txns]),
        op_kind=bytes(kind for kind, _, _, _ in ops),
        op_key=column("Q", [key for _, key, _, _ in ops]),
        op_version=column("Q", [version for _, _, version, _ in ops]),
        op_previous=column("Q", [previous for kind, _, _, previous in ops if kind == UPDATE]),
        fence_epoch=column("Q", [epoch for _, operations, epoch in txns for op in operations if op[1] == 0]),
    )


class Honest:
    """Two sessions of one process. The second one fences in every round, the first one as well."""

    def __init__(self) -> None:
        self.era = int(time.time()) - ERA_BEGIN_SECONDS
        self.sequence = self.counter = self.last_fence = self.epoch = 0

    def write_id(self) -> int:
        self.counter += 1
        return (TAG << 32) + self.counter

    def fence(self, session: int) -> Txn:
        version, before, self.epoch = self.write_id(), self.last_fence, self.epoch + 1
        self.last_fence = version
        return session, [(UPDATE, 0, version, before)], (self.era << 32) + self.epoch

    def skew(self, key: int) -> list[Txn]:
        p, q, a, b = (self.write_id() for _ in range(4))
        return [
            (1, [(INSERT, key, p, 0), (INSERT, key + 1, q, 0)], 0),
            (1, [(READ, key, p, 0), (UPDATE, key + 1, a, q)], 0),
            (2, [(READ, key + 1, q, 0), (UPDATE, key, b, p)], 0),
        ]

    def send(self, daemon: Running, *txns: Txn) -> None:
        self.sequence += 1
        made = fragment(self.sequence, *txns)
        made.write_ids.add(tag=TAG, settled=self.counter + 1, drawn=self.counter + 1)
        if self.sequence == 1:
            for session in (1, 2):
                made.session_event.add(what=SessionEvent.OPEN, session=session)
            for key in range(100, 400, 100):
                for one in (key, key + 1):
                    made.key_name.add(key=one, name=f"accounts/{one}")
        with TestCollector(daemon.address, VICTIM, first_sequence=self.sequence) as collector:
            collector.send(made)
            collector.wait_durable(self.sequence)
        until(lambda: is_verified(daemon), 60)

    def works(self, daemon: Running, key: int) -> None:
        self.send(daemon, *self.skew(key))
        self.send(daemon, self.fence(1), self.fence(2))


def gap(*ranges: tuple[int, int, int]) -> Fragment:
    made = Fragment(sequence=1, sealed_ns=time.time_ns())
    declared = made.gap.add(reason="x", txn_count=1)
    for tag, first, end in ranges:
        declared.write_ids.add(tag=tag, first=first, end=end)
    return made


def claims(*tags: int, settled: int) -> Fragment:
    made = Fragment(sequence=1, sealed_ns=time.time_ns())
    for tag in tags:
        made.write_ids.add(tag=tag, settled=settled, drawn=settled)
    return made


def writes_under(tag: int) -> Fragment:
    made = fragment(1, (1, [(INSERT, 999, (tag << 32) + 1, 0)], 0))
    made.write_ids.add(tag=tag, settled=1 << 32)
    made.gap.add(reason="x").write_ids.add(tag=tag, first=1, end=1 << 32)
    return made


def fence_of_era(era: int) -> Fragment:
    made = fragment(1, (1, [(UPDATE, 0, (OTHER_TAG << 32) + 1, 0)], (era << 32) + 1))
    made.write_ids.add(tag=OTHER_TAG, settled=1 << 32)
    made.session_event.add(what=SessionEvent.OPEN, session=1)
    return made


def this_era() -> int:
    return int(time.time()) - ERA_BEGIN_SECONDS


def taint(table: str) -> Fragment:
    made = Fragment(sequence=1, sealed_ns=time.time_ns(), collector_name="mallory")
    made.coverage.add(table=table, shape="COPY", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
    return made


def attacked(
    data: Path, make: Callable[[], Fragment], refused: list[grpc.StatusCode] | None = None
) -> tuple[int, dict[str, Any], str]:
    """How many of three skews were found, the last of them after a restart; the page's rounds, and metrics.

    The attacker's fragment is acknowledged, unless there is a list for the code with which it is refused.
    """
    honest = Honest()
    with running(data, MACHINE, check_fragment()) as daemon:
        honest.send(daemon, honest.fence(1), honest.fence(2))
        with TestCollector(daemon.address, ATTACKER) as attacker:
            attacker.send(make())
            if refused is None:
                attacker.wait_durable(1)
            else:
                refused.append(ended(lambda: attacker.wait_durable(1))[0])
        until(lambda: is_verified(daemon), 60)
        honest.works(daemon, 100)
        honest.works(daemon, 200)
    with running(data, MACHINE, check_fragment()) as daemon:
        honest.works(daemon, 300)
        found = sum("accounts/" in each.summary for each in daemon.service.violations.summaries())
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.http_port}/api/rounds") as answer:
            rounds = json.load(answer)
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.http_port}/metrics") as answer:
            metrics = answer.read().decode()
    return found, rounds, metrics


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: gap((0, 1, 1 << 32)), id="a gap beyond its tag"),
        pytest.param(lambda: gap((TAG, 1, 1 << 32), (OTHER_TAG, 1, 1 << 32)), id="a gap over the other's versions"),
        pytest.param(lambda: claims(TAG, settled=1), id="the other's tag"),
        pytest.param(lambda: claims(*range(TAG - 500, TAG + 499), settled=1), id="as many tags as may be"),
        pytest.param(lambda: writes_under(TAG), id="versions of the other's tag"),
        pytest.param(lambda: fence_of_era(ERA_MAX - 1), id="the last era"),
        pytest.param(lambda: fence_of_era(this_era() + 3600), id="an era of the next hour"),
    ],
)
def test_one_sender_hides_nothing_that_another_recorded(tmp_path: Path, make: Callable[[], Fragment]) -> None:
    assert attacked(tmp_path, make)[0] == 3


@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(
            lambda: gap((0, 1, (1 << 32) + 1)), grpc.StatusCode.INVALID_ARGUMENT, id="a gap beyond the end of a tag"
        ),
        pytest.param(
            lambda: claims(*range(1, TAGS_MAX + 2), settled=1), grpc.StatusCode.INVALID_ARGUMENT, id="too many tags"
        ),
        pytest.param(
            lambda: fence_of_era(ERA_MAX + 1), grpc.StatusCode.INVALID_ARGUMENT, id="an era that nobody could follow"
        ),
    ],
)
def test_what_is_beyond_any_bound_is_refused_and_hides_nothing(
    tmp_path: Path, make: Callable[[], Fragment], code: grpc.StatusCode
) -> None:
    refused: list[grpc.StatusCode] = []
    assert attacked(tmp_path, make, refused)[0] == 3
    assert refused == [code]


def test_a_fragment_that_is_in_the_log_and_is_not_taken_keeps_nobody_waiting(data: Path) -> None:
    """As one that an older program acknowledged: what the bounds refuse now is a gap, of which no verdict comes."""
    with running(data, MACHINE) as daemon:
        with TestCollector(daemon.address, ATTACKER) as attacker:
            attacker.send(fence_of_era(ERA_MAX + 1))
            attacker.wait_durable(1)
        until(lambda: daemon.service.board.gaps.counts() == {"not understood": 1}, 60)
        until(lambda: is_verified(daemon))
    with running(data, MACHINE) as daemon:
        until(lambda: is_verified(daemon), 60)


def test_what_a_taint_hides_is_told_with_the_round_by_collector_and_table(tmp_path: Path) -> None:
    found, answer, metrics = attacked(tmp_path, lambda: taint("accounts"))
    assert found == 0
    claims = [claim for each in answer["rounds"] for claim in each["unchecked"]]
    assert {(claim["reason"], claim["collector"], claim["table"]) for claim in claims} == {
        ("tainted", "mallory @2", "accounts")
    }
    assert sum(claim["reads"] for claim in claims) == 6
    assert 'mussurana_tainted_reads_total{collector="mallory @2",table="accounts"} 6.0' in metrics


def names(*keys: int) -> Fragment:
    made = Fragment(sequence=1, sealed_ns=time.time_ns(), collector_name="mallory")
    for key in keys:
        made.key_name.add(key=key, name=f"other/{key}")
    return made


def test_what_second_names_of_rows_hide_is_told_with_the_round_by_collector_and_table(tmp_path: Path) -> None:
    found, answer, metrics = attacked(tmp_path, lambda: names(100, 200, 300))
    assert found == 0
    claims = [claim for each in answer["rounds"] for claim in each["unchecked"]]
    assert {(claim["reason"], claim["collector"], claim["table"]) for claim in claims} == {
        ("colliding", "mallory @2", "accounts")
    }
    assert sum(claim["reads"] for claim in claims) == 3
    assert 'mussurana_claimed_reads_total{level="serializable"} 1.0' in metrics  # since the restart


def test_names_of_rows_that_nobody_has_hide_nothing(tmp_path: Path) -> None:
    assert attacked(tmp_path, lambda: names(*range(1000, 3000)))[0] == 3


def test_a_taint_of_one_table_hides_nothing_of_others(tmp_path: Path) -> None:
    assert attacked(tmp_path, lambda: taint("invoices"))[0] == 3
