"""The garbage collector ends a session in the middle of anything that we do, in whichever thread: nothing stands still.

Here it does so before every single step of the interpreter that there is in our code, the first time that a
thread comes there.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from mussurana.collector.background import Background
from mussurana.collector.recorder import Recorder, SessionInfo, Txn
from mussurana.collector.sql.plan import Plan
from mussurana.collector.sql.plans import Plans
from mussurana.collector.sql.tokens import FORMAT, POSTGRES
from tests.collector.recording.observed import column, commit, fragments, lost_of, quick, see
from tests.collector.sql.schema import catalog

OURS = ("/mussurana/collector/", "/threading.py")
SECONDS_MAX = 60.0
TIMES_MAX = 1  # that a place is interrupted, or there would be no end to what is to be done

Work = Callable[[], object]


class Interruptions:
    """Sessions that nobody closed, each with a transaction, end wherever a thread is that `run` runs."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.versions: list[int] = []
        self._times: Counter[tuple[CodeType, int]] = Counter()
        self._is_within = False

    def run(self, work: Work) -> bool:
        """Whether it came to its end."""
        thread = threading.Thread(target=self._traced, args=(work,), daemon=True)
        thread.start()
        thread.join(SECONDS_MAX)
        return not thread.is_alive()

    def _traced(self, work: Work) -> None:
        sys.settrace(self._enter)
        work()
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not any(name in frame.f_code.co_filename for name in OURS):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and not self._is_within:
            place = frame.f_code, frame.f_lasti
            self._times[place] += 1
            if self._times[place] <= TIMES_MAX:
                self._is_within = True
                self._collect()
                self._is_within = False
        return self._step

    def _collect(self) -> None:
        """What a finalizer does."""
        info = SessionInfo("left behind", False)
        txn = Txn(info, self.recorder.write_id())
        self.versions.append(self.recorder.write_id())
        see(txn, "write", "a/1", self.versions[-1])
        self.recorder.open_txns[info] = txn
        self.recorder.session_gone(info)


@pytest.mark.parametrize("queue_txns_max", [1, 20_000], ids=["all are lost", "there is room"])
def test_what_a_finalizer_interrupts_goes_on(spool: Path, monkeypatch: pytest.MonkeyPatch, queue_txns_max: int) -> None:
    monkeypatch.setattr(Background, "start", lambda self: None)  # its turns are ours
    recorder = Recorder(quick(spool, queue_txns_max=queue_txns_max))
    interruptions = Interruptions(recorder)
    versions: list[int] = []
    told: list[int] = []

    def work() -> None:
        session = recorder.open_session("conn", fenced=False)
        assert recorder.background is not None
        for _ in range(4):
            versions.extend(commit(recorder, session, "a/1", "a/2"))
            recorder.asleep = True  # so that whoever hands something over wakes the background
            recorder.background.turn()
        recorder.coverage.count(("a", "UPDATE", 0))
        recorder.flush(0.001)
        session.close()
        told.extend(interruptions.versions)  # what ends after the last fragment is sealed is told to nobody
        recorder.close()

    assert interruptions.run(work), "stands still"
    assert recorder.metrics.hook_failures == 0
    assert len(interruptions.versions) > 500
    found = fragments(spool)
    assert "internal error" not in {gap.reason for fragment in found for gap in fragment.gap}
    written = {version for fragment in found for version in column(fragment.op_version, 8)}
    lost = lost_of([*told, *versions], found)
    assert set(versions) | set(told) <= written | lost


def test_plans_that_are_interrupted_by_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer may run statements, too: pools roll back what they get back."""
    plans = Plans(catalog(), POSTGRES)
    table = plans.catalog.tables["public", "accounts"]
    interrupted = 0
    is_within = False

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal interrupted, is_within
        if not is_within:
            is_within = True
            interrupted += 1
            plans.find(f"SELECT {interrupted}", FORMAT)
            plans.disable(Plan("SELECT 2", "SELECT 2"))
            if interrupted % 50 == 0:
                plans.taint([table])
            is_within = False
        return step

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return step if "plans.py" in frame.f_code.co_filename else None

    def work() -> None:
        sys.settrace(enter)
        monkeypatch.setattr("mussurana.collector.sql.plans.PLANS_MAX", 20)
        for number in range(50):
            plans.find(f"UPDATE {table.name} SET id = {number}", FORMAT)
        plans.renew(catalog(15))
        sys.settrace(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive(), "stands still"
    assert interrupted > 100
    assert all(not plan.tables & plans.tainted for cache in plans.caches.values() for plan in cache.values())


def test_two_threads_that_fork_at_the_same_time_leave_nothing_locked(recorder: Recorder) -> None:
    recorder.open_session("conn")
    background = recorder.background
    assert background is not None
    recorder.before_fork()
    other = threading.Thread(target=recorder.before_fork)  # it waits for a moment, and forks all the same
    other.start()
    other.join()
    recorder.after_fork_in_parent()
    assert background._publishing.acquire(timeout=5)
    background._publishing.release()


def test_a_recorder_that_is_closed_during_a_fork_closes(recorder: Recorder) -> None:
    recorder.open_session("conn")
    recorder.before_fork()
    closing = threading.Thread(target=recorder.close, daemon=True)
    closing.start()
    while not recorder.is_closed:
        closing.join(0.01)
    recorder.after_fork_in_parent()
    closing.join(SECONDS_MAX)
    assert not closing.is_alive()


def test_flushing_waits_no_longer_than_it_may(recorder: Recorder) -> None:
    recorder.open_session("conn")
    assert recorder.background is not None
    flushed: list[bool] = []
    with recorder.background._turn_lock:  # a disk that does not answer, say
        flushing = threading.Thread(target=lambda: flushed.append(recorder.flush(0.1)), daemon=True)
        flushing.start()
        flushing.join(5)
        assert flushed == [False]
