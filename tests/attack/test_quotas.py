"""Who wants too much is refused before anything is acknowledged, and slows only itself."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import grpc
import pytest

from mussurana.collector.sender import Sender as SpoolSender
from mussurana.collector.spool import Destination
from mussurana.collector.spool_reader import SpoolReader
from mussurana.verifier.daemon import quotas
from mussurana.verifier.rounds import machine as machine_module
from mussurana.verifier.rounds.bounds import MOST
from mussurana.wire import PROTOCOL, segments
from mussurana.wire.history_pb2 import Coverage, Fragment, Hello, SessionEvent, Upload
from tests.attack.collectors import Sender, ended, real
from tests.daemon.conftest import Running
from tests.daemon.watching import is_verified, until
from tests.rounds.feeding import Wire

OPEN, CLOSE = SessionEvent.OPEN, SessionEvent.CLOSE


def refused(daemon: Running, quota: str) -> float:
    return float(daemon.service.metrics.quota_refusals.labels(quota)._value.get())


def too_many(made: Fragment, quota: str, first: int, end: int) -> None:
    for number in range(first, end):
        if quota == "sessions":
            made.session_event.add(what=OPEN, session=number, name="conn")
        elif quota == "tags":
            made.write_ids.add(tag=1000 + number, settled=1)
        else:
            made.coverage.add(table=f"t{number}", shape="COPY", observed=Coverage.PARTIAL, statement_count=1)


@pytest.mark.parametrize(
    ("quota", "most", "step"),
    [
        ("sessions", quotas.SESSIONS_MAX, MOST["Fragment.session_event"]),
        ("tags", quotas.TAGS_MAX, MOST["Fragment.write_ids"] - 1),
        ("statement kinds", quotas.STATEMENT_KINDS_MAX, MOST["Fragment.coverage"]),
    ],
)
def test_a_collector_over_its_quota_is_refused_and_all_others_go_on(
    data: Path, quota: str, most: int, step: int
) -> None:
    with real(data) as daemon, Sender(daemon, "a") as good, Sender(daemon, "e") as evil:
        until(lambda: daemon.service.board.progress.state == "verifying", 60)
        good.tell("0 x:=a1")
        made = evil.make()
        too_many(made, quota, 0, min(most, step))
        evil.send(made)
        evil.wait_durable(1)
        good.tell("0 x:=a2")
        made = evil.make()
        too_many(made, quota, most, most + step)
        evil.send(made)
        code, details = ended(lambda: evil.wait_durable(2))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"{quota} of one collector; at most {most:,} are kept" in details
        assert refused(daemon, quota) == 1
        started = time.monotonic()
        good.tell("0 x:=a3")
        until(lambda: sum(each.txn_count for each in daemon.service.board.rounds()) == 3)
        assert time.monotonic() - started < 5
        assert good.durable == 3


def test_closing_sessions_makes_room_again(data: Path) -> None:
    ledger = quotas.Ledger()
    for number in range(0, 10 * quotas.SESSIONS_MAX, 1000):
        made = Fragment()
        made.session_event.extend(SessionEvent(what=OPEN, session=number + each) for each in range(1000))
        ledger.charge(made)
        made = Fragment(txn_session=struct.pack("<2I", number, number + 5))
        made.session_event.extend(SessionEvent(what=CLOSE, session=number + each) for each in range(1000))
        ledger.charge(made)
    assert not ledger.sessions


def test_what_was_refused_has_not_been_counted() -> None:
    ledger = quotas.Ledger()
    made = Fragment()
    too_many(made, "tags", 0, 10)
    too_many(made, "sessions", 0, quotas.SESSIONS_MAX + 1)
    with pytest.raises(quotas.OverQuota, match=r"50,001 sessions of one collector; at most 50,000 are kept"):
        ledger.charge(made)
    assert not ledger.tags
    assert not ledger.sessions


def test_as_many_sessions_as_may_be_stall_nobody() -> None:
    """In processor time, of the thread that verifies for everybody."""
    wire = Wire("serializable")
    wire.feed("a", "0 x:=a1")
    wire.fence("a", 0)
    wire.round()
    made = wire.make("e")
    too_many(made, "sessions", 0, quotas.SESSIONS_MAX)
    started = time.thread_time()
    wire.send("e", made)
    wire.feed("a", "0 x:=a2<a1")
    wire.round()
    wire.machine.snapshot()
    assert time.thread_time() - started < 2.0


def test_long_names_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "NAME_LENGTH_MEAN_MAX", 0.1)
    monkeypatch.setattr(machine_module, "STATEMENT_LENGTH_MEAN_MAX", 50)
    wire = Wire("serializable")
    for fragment in range(30):
        made = wire.make("e")
        for number in range(10):
            made.key_name.add(key=1 + 10 * fragment + number, name="t/" + "x" * 100_000)
            made.statement.add(number=1 + 10 * fragment + number, text="y" * 1_000_000)
        wire.send("e", made)
    machine = wire.machine
    assert machine.names_length == sum(map(len, machine.key_names.values())) <= 100_000
    assert 300 in machine.key_names
    statements = machine.collectors[b"e" * 16].statements
    assert sum(map(len, statements.values())) <= 1_000_000
    assert statements[300].endswith("/* 800,000 more characters */")


def test_forgetting_the_oldest_names_takes_the_time_of_the_new_ones() -> None:
    names = dict.fromkeys(range(400000), "name")
    started = time.thread_time()
    for number in range(400_000, 500_000):
        names[number] = "name"
        if len(names) > 400_000:
            machine_module.forget_first(names, 400_000, 1 << 30)
    assert time.thread_time() - started < 2.0
    assert 499_999 in names


def spooled(folder: Path, id: bytes, *fragments: Fragment) -> None:
    hello = Hello(protocol=PROTOCOL, collector=id, name="web-1", first_sequence=1)
    appender = segments.Appender(folder, 1 << 20)
    appender.append([Upload(hello=hello).SerializeToString()])
    appender.append([Upload(fragment=each).SerializeToString() for each in fragments])
    appender.close()


@pytest.mark.parametrize("spoil", ["sessions", "settled"])
def test_our_own_sender_declares_a_gap_in_place_of_what_is_refused(data: Path, tmp_path: Path, spoil: str) -> None:
    wire = Wire("serializable")
    id = os.urandom(16)
    first = wire.make("a", "0 x:=a1", settled=2)
    second = wire.make("a", "0 x:=a2<a1", settled=3)
    third = wire.make("a", "0 x:=a3<a2", "1 x==a2", settled=4)
    if spoil == "sessions":
        too_many(second, "sessions", 10, 10 + MOST["Fragment.session_event"] + 1)
    else:
        second.write_ids.add(tag=77, settled=2**40)  # so the first gap in its place is refused as well
    folder = tmp_path / f"{id.hex()}-{ord('a'):08x}"
    folder.mkdir()
    spooled(folder, id, first, second, third)
    reader = SpoolReader(folder)
    with real(data) as daemon:
        destination = Destination(daemon.address, "", False, "", "", "")
        sender = SpoolSender(destination, reader, lambda sender: None)
        sender.start()
        try:
            until(lambda: reader.durable_sequence == 3, 20)
        finally:
            sender.stop(5)
        until(lambda: is_verified(daemon), 60)
        assert daemon.service.violations.summaries() == []
        assert sum(each.txn_count for each in daemon.service.board.rounds()) == 3
        gaps = daemon.service.board.gaps.latest()
        assert any(gap.reason.startswith("refused by the verifier: fragment 2: ") for gap in gaps)
