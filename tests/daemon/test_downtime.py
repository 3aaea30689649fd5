"""Time in which nobody could be heard is nobody's silence: what sessions did meanwhile is verified like all else.

With the real machine and its usual limits, and a clock that hours are added to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench.online.workload import Shape, Workload
from mussurana.verifier.commands.serve import machine_factory
from mussurana.verifier.daemon import service
from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.configured import load
from mussurana.verifier.daemon.journal import Journal, Step
from mussurana.verifier.daemon.log import FRAGMENT, RESUMED, Entry, IngestLog, Tail
from mussurana.wire.history_pb2 import Fragment
from mussurana.wire.segments import Position, Record
from tests.daemon.collector import TestCollector
from tests.daemon.conftest import Running, running
from tests.daemon.test_faults import Disk
from tests.daemon.watching import is_verified, until

HOUR_NS = 3600 * 10**9
MACHINE = machine_factory(load(None, {}, {}))


class Application:
    """Two processes whose sessions fence now and then, recorded whether or not the daemon is there."""

    def __init__(self) -> None:
        self.workload = Workload(Shape(sessions=4, collectors=2, keys=20, operations=4, read_fraction=0.5))
        self.txns = self.sequence = 0

    @contextmanager
    def connected(self, daemon: Running) -> Iterator[list[TestCollector]]:
        with ExitStack() as stack:
            yield [
                stack.enter_context(TestCollector(daemon.address, each.id, first_sequence=self.sequence + 1))
                for each in self.workload.collectors
            ]

    def work(self, txns: int) -> list[Fragment]:
        """What each of the two has recorded of it."""
        now_ns = time.time_ns()
        self.sequence, self.txns = self.sequence + 1, self.txns + txns
        return [made.fragment for made in self.workload.block(txns, now_ns - 10**6, now_ns)]

    def go_on(self, daemon: Running) -> None:
        """First one session is heard again, and a round is over before the others are."""
        with self.connected(daemon) as collectors:
            for txns in (1, 200, 200):
                for collector, made in zip(collectors, self.work(txns), strict=True):
                    collector.send(made)
                    collector.wait_durable(self.sequence)
                until(lambda: is_verified(daemon), 60)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sum of these is how many hours the clock is ahead."""
    ahead: list[int] = []
    monkeypatch.setattr(service, "Clock", lambda: Clock(lambda: time.time_ns() + HOUR_NS * sum(ahead)))
    return ahead


def assert_all_is_verified(data: Path, daemon: Running, txns: int) -> None:
    gauges = daemon.service.board.progress.gauges
    assert gauges is not None
    assert (gauges.unknown_txns, gauges.sessions_open, gauges.lost_fragments) == (0, 4, 0)
    steps = [step for step in Journal(data / "journal").read_from() if isinstance(step, Step)]
    rounds = [each for step in steps for each in step.rounds]
    assert {each.verdict for each in rounds} == {"accepted"}
    assert sum(each.txn_count for each in rounds) == txns


def test_what_sessions_did_while_the_daemon_was_down_is_verified(data: Path, hours: list[int]) -> None:
    application = Application()
    with running(data, MACHINE) as daemon:
        application.go_on(daemon)
    for _ in range(2):
        hours.append(1)
        with running(data, MACHINE) as daemon:
            application.go_on(daemon)
            assert_all_is_verified(data, daemon, application.txns)
    for path in (data / "checkpoints").iterdir():
        path.unlink()
    with running(data, MACHINE) as daemon:
        until(lambda: is_verified(daemon), 60)
        assert daemon.service.board.progress.differences == 0


def test_what_sessions_did_while_the_disk_was_full_is_verified(data: Path, hours: list[int]) -> None:
    application, disks = Application(), list[Disk]()
    with running(data, MACHINE, prepare=lambda service: disks.append(Disk(service))) as daemon:
        disks[0].is_full = False
        application.go_on(daemon)
        with application.connected(daemon) as (early, late):
            made = application.work(100)
            early.send(made[0])  # who has read from the other process, and waits for it now
            early.wait_durable(application.sequence)
            disks[0].is_full = True
            late.send(made[1])
            until(lambda: daemon.service.committer.trouble)
            hours.append(1)
            time.sleep(1.0)  # for rounds that are due
            disks[0].is_full = False
            late.wait_durable(application.sequence)
        application.go_on(daemon)
        assert_all_is_verified(data, daemon, application.txns)


def test_what_sessions_did_before_and_after_the_clock_was_set_forward_is_verified(data: Path, hours: list[int]) -> None:
    """Nobody sends anything while the time goes by, and rounds go on."""
    application = Application()
    with running(data, MACHINE) as daemon:
        application.go_on(daemon)
        with application.connected(daemon) as (early, late):
            for _ in range(2):
                made = application.work(100)
                early.send(made[0])  # who has read from the other process, and waits for it now
                early.wait_durable(application.sequence)
                hours.append(1)
                time.sleep(0.6)  # for rounds that are due
                late.send(made[1])
                late.wait_durable(application.sequence)
                until(lambda: is_verified(daemon), 60)
        application.go_on(daemon)
        assert_all_is_verified(data, daemon, application.txns)
        assert daemon.service.metrics.clock_leaps._value.get() == 2
    for path in (data / "checkpoints").iterdir():
        path.unlink()
    with running(data, MACHINE) as daemon:
        until(lambda: is_verified(daemon), 60)
        assert daemon.service.board.progress.differences == 0


def test_an_interruption_that_comes_while_another_one_ends_is_not_forgotten(tmp_path: Path) -> None:
    log = IngestLog(tmp_path / "log")
    log.commit([Entry(FRAGMENT, b"c" * 16, 1, 1, b"")])
    log.interrupt()
    commit = log.commit

    def interrupted(entries: Sequence[Entry]) -> None:
        commit(entries)
        log.commit = commit  # type: ignore[method-assign]
        log.interrupt()

    log.commit = interrupted  # type: ignore[method-assign]
    log.resume(2)
    assert log.is_interrupted
    log.resume(3)
    assert not log.is_interrupted
    assert kinds(tmp_path) == [FRAGMENT, RESUMED, RESUMED]


def test_a_new_log_has_not_been_interrupted(data: Path) -> None:
    with running(data) as daemon:
        assert not daemon.service.log.is_interrupted
    assert kinds(data) == []


def kinds(data: Path) -> list[int]:
    found = list(Tail(data / "log").read_all(Position(1 << 30, 0)))
    return [Entry.from_bytes(each.payload).kind for each in found if isinstance(each, Record)]


def test_each_life_says_once_in_the_log_that_it_began(data: Path) -> None:
    application = Application()
    for _ in range(3):
        with running(data) as daemon:
            application.go_on(daemon)
    life = [FRAGMENT] * 6
    assert kinds(data) == [*life, RESUMED, *life, RESUMED, *life]
