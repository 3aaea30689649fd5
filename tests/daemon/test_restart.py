"""A restart goes on as if nothing had been, whatever is damaged: never a crash loop, never another verdict."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from mussurana.verifier.daemon import verify
from mussurana.verifier.daemon.journal import Journal, Round, Step
from mussurana.verifier.daemon.log import FRAGMENT, Entry, IngestLog
from mussurana.verifier.daemon.service import StartError
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.wire.history_pb2 import Fragment
from mussurana.wire.segments import Appender, segment_path
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.daemon.crash import crash
from tests.daemon.fake_machine import FakeMachine
from tests.daemon.watching import is_verified, send, until

SMALL = {"log_segment_bytes": "4096"}


def shown(daemon: Running) -> list[Round]:
    return daemon.service.board.rounds()


def journaled(data: Path) -> list[Step]:
    return [step for step in Journal(data / "journal").read_from() if isinstance(step, Step)]


def without_checkpoints(data: Path) -> None:
    shutil.rmtree(data / "checkpoints")


def test_rounds_and_violations_are_there_again_and_verification_goes_on(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 20, marks=[5])
        before = shown(daemon)
    with running(data) as daemon:
        until(lambda: is_verified(daemon))
        assert shown(daemon) == before
        assert [each.summary for each in daemon.service.violations.summaries()] == ["number 5"]
        send(daemon, 21, 25)
        numbers = [each.number for each in shown(daemon)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert daemon.service.board.progress.rerun_steps == 0


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_collectors_are_known_by_their_names_again(data: Path, has_checkpoint: bool) -> None:
    with running(data) as daemon:
        send(daemon, 1, 3)
    if not has_checkpoint:
        without_checkpoints(data)
    with running(data) as daemon:
        until(lambda: is_verified(daemon))
        (collector,) = daemon.service.query.status_now().collector
        assert (collector.name, collector.connected) == ("test", False)


def test_without_a_checkpoint_everything_is_verified_again_with_the_same_outcome_and_told_once(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 40, marks=[5, 17])
    steps = journaled(data)
    without_checkpoints(data)
    with running(data) as daemon:
        until(lambda: is_verified(daemon))
        progress = daemon.service.board.progress
        assert (progress.rerun_steps, progress.differences) == (len(steps), 0)
        assert len(daemon.service.violations.summaries()) == 2
        assert daemon.service.metrics.rejections.labels("serializable", "write skew")._value.get() == 0
    assert journaled(data) == steps


def test_a_damaged_checkpoint_falls_back_to_the_one_before(data: Path) -> None:
    for first in (1, 11, 21):
        with running(data) as daemon:
            send(daemon, first, first + 9)
    newest = max((data / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    with running(data) as daemon:
        until(lambda: is_verified(daemon))
        progress = daemon.service.board.progress
        assert progress.rerun_steps > 0
        assert progress.differences == 0
        send(daemon, 31, 35)


def test_violations_that_only_the_journal_has_are_stored(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 5, marks=[3])
    without_checkpoints(data)
    shutil.rmtree(data / "violations")
    with running(data) as daemon:
        until(lambda: len(daemon.service.violations.summaries()) == 1)


def test_damage_in_the_log_is_a_gap_and_what_was_said_stands(data: Path) -> None:
    with running(data, settings=SMALL) as daemon:
        send(daemon, 1, 40, marks=[20])
    path = segment_path(data / "log", 2)
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)
    without_checkpoints(data)
    for _ in range(2):  # and it is the same each time
        with running(data, settings=SMALL) as daemon:
            until(lambda: is_verified(daemon))
            metrics, progress = daemon.service.metrics, daemon.service.board.progress
            assert metrics.log_damages._value.get() == 1
            assert metrics.gaps.labels("damaged")._value.get() == 1
            assert progress.differences > 0
            assert [each.summary for each in daemon.service.violations.summaries()] == ["number 20"]
        without_checkpoints(data)
    with running(data, settings=SMALL) as daemon:
        send(daemon, 41, 45)


def test_a_log_without_its_beginning_and_without_a_checkpoint_is_a_gap_up_to_there(data: Path) -> None:
    with running(data, settings=SMALL) as daemon:
        send(daemon, 1, 40)
    without_checkpoints(data)
    for number in (1, 2):
        segment_path(data / "log", number).unlink()
    with running(data, settings=SMALL) as daemon:
        until(lambda: is_verified(daemon))
        assert daemon.service.metrics.gaps.labels("damaged")._value.get() == 1
        send(daemon, 41, 45)


def test_a_log_that_lost_its_tail_is_taken_as_it_is(data: Path) -> None:
    with running(data, settings=SMALL) as daemon:
        send(daemon, 1, 40)
    without_checkpoints(data)
    last = max((data / "log").glob("*.seg"))
    last.write_bytes(last.read_bytes()[:-10])
    with running(data, settings=SMALL) as daemon:
        until(lambda: is_verified(daemon))
        with TestCollector(daemon.address, first_sequence=41) as collector:
            assert collector.durable == 39
            collector.send(fragment(41))
            collector.wait_durable(41)
        until(lambda: daemon.service.metrics.gaps.labels("not kept")._value.get() == 1)


def test_old_log_goes_once_two_checkpoints_do_not_need_it(data: Path) -> None:
    with running(data, settings={**SMALL, "checkpoint_interval_seconds": "0.05"}) as daemon:
        send(daemon, 1, 40)
        last = 40

        def is_short() -> bool:
            nonlocal last
            last += 1
            send(daemon, last, last)
            return len(list((data / "log").glob("*.seg"))) < 4

        assert last * 20 * 45 > 8 * int(SMALL["log_segment_bytes"])
        until(is_short)
    with running(data, settings=SMALL) as daemon:
        send(daemon, last + 1, last + 5)
        assert daemon.service.board.progress.differences == 0


def test_a_journal_of_another_version_is_passed_over(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 5)
    appender = Appender(data / "journal", 1 << 20)
    appender.append([b'{"step": 99}', b"not even JSON"])
    appender.close()
    with running(data) as daemon:
        send(daemon, 6, 10)
        assert daemon.service.board.progress.differences == 0


def test_other_levels_are_refused_with_a_data_directory_in_use(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 3)
    with pytest.raises(StartError, match="was used for serializable"), running(data, verify_levels="strong-si"):
        pass


def test_an_error_in_the_machine_is_told_and_verification_begins_anew_behind_it(data: Path) -> None:
    class Broken(FakeMachine):
        def step(self, now_ns: int, force: bool = False) -> list[RoundOutcome]:
            if "broken" in self.s["marks"]:
                raise RuntimeError("this should not happen")
            return super().step(now_ns, force)

    with running(data, Broken) as daemon, TestCollector(daemon.address) as collector:
        collector.send(fragment(1, mark="broken"))
        collector.wait_durable(1)
        until(lambda: daemon.service.metrics.verification_failures._value.get() == 1)
        collector.send(fragment(2))
        collector.wait_durable(2)
        until(lambda: is_verified(daemon))
        trouble = daemon.service.query.status_now().trouble
        assert any("RuntimeError: this should not happen" in each for each in trouble)
        assert any("began anew" in each for each in trouble)
        assert sum(each.txn_count for each in shown(daemon)) == 10
        assert daemon.service.board.gaps.counts()["damaged"] == 1
    with running(data, Broken) as daemon:
        until(lambda: is_verified(daemon))


def test_an_error_while_a_fragment_is_fed_costs_that_fragment_only(data: Path) -> None:
    class Broken(FakeMachine):
        def feed(self, collector: bytes, fragment: Fragment, received_ns: int) -> None:
            if fragment.key_name:
                raise RuntimeError("this should not happen")
            super().feed(collector, fragment, received_ns)

    with running(data, Broken) as daemon, TestCollector(daemon.address) as collector:
        for n in range(1, 4):
            collector.send(fragment(n, mark="broken" if n == 2 else ""))
            collector.wait_durable(n)
            time.sleep(0.2)
        until(lambda: is_verified(daemon))
        assert daemon.service.metrics.verification_failures._value.get() == 1
        assert daemon.service.board.progress.state == "verifying"
        assert sum(each.txn_count for each in shown(daemon)) == 20


def test_the_end_does_not_wait_for_a_round_without_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "END_SECONDS", 0.1)
    released = threading.Event()

    class Endless(FakeMachine):
        def step(self, now_ns: int, force: bool = False) -> list[RoundOutcome]:
            released.wait(30)
            return super().step(now_ns, force)

    with running(data, Endless, settings={"drain_seconds": "0.1"}) as daemon:
        with TestCollector(daemon.address) as collector:
            collector.send(fragment(1))
            collector.wait_durable(1)
        started = time.monotonic()
    assert time.monotonic() - started < 5.0
    assert not daemon.service.has_ended
    released.set()


def test_a_machine_that_is_behind_goes_by_the_time_of_the_log(data: Path) -> None:
    hour_ns, now_ns = 3600 * 10**9, time.time_ns()
    log = IngestLog(data / "log")
    for n in range(1, 13):  # more than is read at a time
        content = fragment(n, 20_000).SerializeToString()
        log.commit([Entry(FRAGMENT, b"c" * 16, n, now_ns - hour_ns + n, content)])
    log.close()
    with running(data) as daemon:
        until(lambda: is_verified(daemon))
    times_ns = [step.now_ns for step in journaled(data)]
    assert times_ns == sorted(times_ns)
    assert times_ns[0] < now_ns - hour_ns + 100
    assert times_ns[-1] > now_ns
    without_checkpoints(data)
    with running(data) as daemon:
        until(lambda: is_verified(daemon))
        assert daemon.service.board.progress.differences == 0


def test_quiet_steps_are_taken_again_too(data: Path) -> None:
    class Waiting(FakeMachine):
        """Tries rounds that nothing is admitted to, and remembers how often, as waiting and silence do."""

        def step(self, now_ns: int, force: bool = False) -> list[RoundOutcome]:
            if self.s["pending"] and now_ns - self.s["last_ns"] > 10_000_000 and self.s.get("tried", 0) % 3 < 2:
                self.s["tried"] = self.s.get("tried", 0) + 1
                self.last_round_ns = self.s["last_ns"] = now_ns
                self._digest(b"tried", b"", 0, now_ns)
                return []
            found = super().step(now_ns, force)
            if found:
                self.s["tried"] = 0
                self.last_round_ns = now_ns
            return found

    with running(data, Waiting) as daemon:
        send(daemon, 1, 5)
        send(daemon, 6, 10)
    assert any(step.quiet for step in journaled(data))
    without_checkpoints(data)
    with running(data, Waiting) as daemon:
        until(lambda: is_verified(daemon))
        progress = daemon.service.board.progress
        assert progress.rerun_steps > 0
        assert progress.differences == 0


@pytest.mark.parametrize(("machine", "kills"), [("fake", 12), ("real", 2)])
def test_kill_9_at_any_moment_loses_nothing_and_changes_no_verdict(data: Path, machine: str, kills: int) -> None:
    report = crash(data, kills, seed=kills, is_real=machine == "real", seconds_max=0.6 if machine == "fake" else 4.0)
    assert report.problems == []
    assert report.kills == kills
    assert report.rounds > 0
    assert report.ready_seconds_max < 5.0
