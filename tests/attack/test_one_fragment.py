"""One client, one fragment: it is refused with the field that is wrong, or costs itself only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mussurana.verifier.rounds.level import LevelRounds
from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire.history_pb2 import Fragment, SessionEvent
from tests.attack.collectors import Sender, ended, real, skew
from tests.daemon.watching import is_verified, page, until

Poison = Callable[[Fragment], object]

POISONS: dict[str, Poison] = {
    "gap: write_ids: tag": lambda made: made.gap.add(txn_count=1).write_ids.add(tag=2**32 - 1, first=0, end=10),
    "gap: write_ids: first": lambda made: made.gap.add().write_ids.add(tag=1, first=2**64 - 1, end=2**64 - 1),
    "write_ids: settled": lambda made: made.write_ids.add(tag=5, settled=2**64 - 1),
    "write_ids: tag": lambda made: made.write_ids.add(tag=2**32 - 1, settled=1),
    "gap: txn_count": lambda made: made.gap.add(reason="x", txn_count=2**64 - 1),
    "fences: seconds": lambda made: setattr(made.fences, "seconds", float("nan")),
    "fence_epoch": lambda made: setattr(made, "fence_epoch", (2**63 - 1).to_bytes(8, "little")),
    "session_event: what": lambda made: made.session_event.append(SessionEvent(what=77)),  # type: ignore[arg-type]
}


def test_poison_is_refused_with_its_field_and_verification_goes_on_also_after_a_restart(data: Path) -> None:
    with real(data) as daemon:
        for field, poison in POISONS.items():
            with Sender(daemon, "e") as evil:
                made = evil.make("0 f:=e1<0#7")
                poison(made)
                evil.send(made)
                code, details = ended(lambda evil=evil: evil.wait_durable(1))  # type: ignore[misc]
                assert code == grpc.StatusCode.INVALID_ARGUMENT
                assert field in details
        with Sender(daemon, "a") as good:
            good.tell(*skew("a", 1))
        until(lambda: is_verified(daemon), 60)
        until(lambda: len(daemon.service.violations.summaries()) == 1)
        assert page(daemon.http_port, "/metrics")[0] == page(daemon.http_port, "/api/overview")[0] == 200
    with real(data) as daemon:
        until(lambda: is_verified(daemon), 60)
        assert daemon.service.board.progress.trouble == ""


def test_fences_that_come_after_they_were_settled_do_not_keep_a_round_going_for_ever(data: Path) -> None:
    with real(data) as daemon:
        with Sender(daemon, "e") as evil, Sender(daemon, "a") as good:
            for txns in (["2 z:=e1"], ["0 f:=e10<0#1", "1 f:=e11<0#2"]):
                made = evil.make(*txns, settled=100)
                made.write_ids[0].drawn = 100
                evil.send(made)
                evil.wait_durable(evil.sequence)
            good.tell(*skew("a", 1))
        until(lambda: is_verified(daemon), 60)
        assert len(daemon.service.violations.summaries()) == 1
        assert {each.reason for each in daemon.service.board.rounds() if "error" in each.reason} == set()
    with real(data) as daemon:
        until(lambda: is_verified(daemon), 60)


def negatives(plain: object, where: str = "") -> list[str]:
    """Where numbers below 0 stand in what JSON says."""
    if isinstance(plain, dict):
        return [found for name, each in plain.items() for found in negatives(each, f"{where}.{name}")]
    if isinstance(plain, list):
        return [found for each in plain for found in negatives(each, where)]
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    return [f"{where}: {plain}"] if is_number and plain < 0 else []  # type: ignore[operator]


def test_whatever_clocks_collectors_have_no_number_that_is_told_is_negative(data: Path) -> None:
    day_ns = 86_400 * 10**9
    with real(data) as daemon:
        for letter, off_ns in (("a", -day_ns), ("b", day_ns), ("c", 20_000 * day_ns), ("d", 10**9 - time.time_ns())):
            with Sender(daemon, letter) as odd:
                for counter in (1, 2):
                    made = odd.make(f"0 {letter}:={letter}{counter}", f"1 {letter}=={letter}{counter}")
                    made.sealed_ns = time.time_ns() + off_ns
                    ends = made.sealed_ns.to_bytes(8, "little", signed=True)
                    made.txn_committed_ns = made.txn_commit_ns = ends * 2
                    odd.send(made)
                    odd.wait_durable(counter)
        with Sender(daemon, "e") as violating:
            violating.tell(*skew("e", 1))
        until(lambda: is_verified(daemon), 60)
        until(lambda: daemon.service.violations.summaries())
        assert len(daemon.service.board.rounds()) > 0
        for path in ("/api/overview", "/api/hour", "/api/rounds", "/api/violations"):
            status, content = page(daemon.http_port, path)
            assert status == 200
            assert negatives(json.loads(content)) == []
        samples = [line for line in page(daemon.http_port, "/metrics")[1].splitlines() if not line.startswith("#")]
        assert [line for line in samples if float(line.rsplit(" ", 1)[1]) < 0] == []


def test_a_fragment_that_the_machine_cannot_take_is_a_durable_gap(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no check foresaw: here a mistake in the machine that a key of that name comes upon."""
    take_in = Verifier._take_in

    def broken(self: Verifier, collector: bytes, fragment: Fragment, *rest: Any) -> None:
        take_in(self, collector, fragment, *rest)
        if any(named.name == "poison" for named in fragment.key_name):
            raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(Verifier, "_take_in", broken)
    with real(data) as daemon:
        with Sender(daemon, "e") as evil, Sender(daemon, "a") as good:
            evil.tell("0 x:=e1", settled=2)
            made = evil.make("0 x:=e2<e1", settled=3)
            made.key_name.add(key=1, name="poison")
            evil.send(made)
            good.tell("0 x==e2", *skew("a", 1))
            assert "ZeroDivisionError: a mistake" in evil.status()[1]
        until(lambda: is_verified(daemon), 60)
        assert len(daemon.service.violations.summaries()) == 1
        assert daemon.service.board.gaps.counts() == {"not understood": 1}
        with Sender(daemon, "e", id=evil.id, first_sequence=3) as again:
            assert again.durable == 2
            again.tell("0 x:=e3", settled=4)
    for path in (data / "checkpoints").iterdir():
        path.unlink()
    with real(data) as daemon:
        until(lambda: is_verified(daemon), 60)
        assert daemon.service.board.progress.differences == 0
        assert daemon.service.board.gaps.counts() == {"not understood": 1}


def test_a_round_that_fails_is_unknown_and_told_and_the_next_violation_is_found(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    with real(data) as daemon, Sender(daemon, "a") as good:
        until(lambda: daemon.service.board.progress.state == "verifying", 60)
        with monkeypatch.context() as patched:
            patched.setattr(LevelRounds, "_forget", broken)
            for counter in (10, 11, 12):
                good.tell(f"0 x:=a{counter}")
                time.sleep(0.4)
            failures = daemon.service.metrics.round_failures.labels("serializable")._value
            until(lambda: failures.get() >= 3)
        assert any("ZeroDivisionError" in trouble for trouble in daemon.service.query.status_now().trouble)
        assert {each.verdict for each in daemon.service.board.rounds()} == {"unknown"}
        good.tell(*skew("a", 1))
        until(lambda: len(daemon.service.violations.summaries()) == 1)
        assert page(daemon.http_port, "/-/ready")[0] == 200
