"""Whatever fails, the application does not notice, and what was lost is declared."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mussurana.collector import background as pumping
from mussurana.collector import recorder as recording
from mussurana.collector.background import Background
from mussurana.collector.coverage import Coverage
from mussurana.collector.fragments import FragmentBuilder
from mussurana.collector.losses import Losses
from mussurana.collector.metrics import Metrics
from mussurana.collector.recorder import COMMITTED, Recorder
from mussurana.collector.spool import Spool
from mussurana.wire import segments
from tests.collector.recording.ingest import eventually
from tests.collector.recording.observed import column, commit, fragments, is_lost, lost_of, quick, see, txn_count


def broken(*arguments: Any, **others: Any) -> NoReturn:
    raise RuntimeError("broken on purpose")


def use_everything(recorder: Recorder) -> list[int]:
    """All that an adapter does, once. Nothing of it may raise."""
    session = recorder.open_session("conn")
    session.fence_due(time.time_ns())
    versions = commit(recorder, session, "a/1", "a/2")
    session.fenced(wrote=True)
    session.fence_failed()
    session.idle()
    txn = session.begin()
    mark = txn.mark()
    see(txn, "read", "a/1", versions[0])
    txn.roll_back_to(mark)
    session.end(txn, COMMITTED)
    recorder.coverage.count(("a", "SELECT", 0))
    session.close()
    recorder.flush(0.2)
    return versions


INSIDE = [
    (Recorder, "take"),
    (Recorder, "tell"),
    (Recorder, "start"),
    (Recorder, "session_gone"),
    (recording, "make_folder"),
    (recording, "between"),
    (Background, "__init__"),
    (Background, "start"),
    (Background, "turn"),
    (Background, "_add"),
    (Background, "_session_of"),
    (Background, "_housekeep"),
    (Background, "_seal"),
    (Background, "_drop"),
    (Background, "_hello"),
    (pumping, "operations_of"),
    (FragmentBuilder, "add"),
    (FragmentBuilder, "seal"),
    (Coverage, "unsent"),
    (Losses, "add"),
    (Losses, "take"),
    (Metrics, "publish"),
    (Spool, "append"),
    (Spool, "measure"),
    (segments.Appender, "append"),
    (segments.Appender, "_next_segment"),
]


@pytest.mark.parametrize(("owner", "name"), INSIDE, ids=lambda part: getattr(part, "__name__", part))
def test_a_failure_inside_is_not_noticed(
    owner: Any, name: str, make_recorder: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder(close_seconds=0.2)
    monkeypatch.setattr(owner, name, broken)
    use_everything(recorder)
    recorder.close()


@pytest.mark.parametrize(("owner", "name"), INSIDE, ids=lambda part: getattr(part, "__name__", part))
def test_a_version_is_recorded_or_declared_lost_whatever_failed_for_a_while(
    owner: Any, name: str, make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder()
    session = recorder.open_session("before", fenced=False)
    commit(recorder, session, "a/0")
    assert recorder.flush(5)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, broken)
        versions = commit(recorder, session, "a/1", "a/2")
        time.sleep(0.05)
    versions += commit(recorder, session, "a/3")
    recorder.close()
    found = fragments(spool)
    written = {version for f in found for version in column(f.op_version, 8)}
    settled = found[-1].write_ids[0].settled
    for version in versions:
        assert version in written or is_lost(version, found) or version & 0xFFFF_FFFF >= settled


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_background_thread_that_dies_is_replaced(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> NoReturn:
        raise SystemExit

    recorder = make_recorder()
    session = recorder.open_session("conn", fenced=False)
    assert recorder.background is not None
    with monkeypatch.context() as patched:
        patched.setattr(Background, "turn", die)
        commit(recorder, session, "a/1")
        assert eventually(lambda: recorder.background is not None and not recorder.background.is_alive)
        commit(recorder, session, "a/2")
    recorder.open_session("another")
    assert recorder.background.is_alive
    commit(recorder, session, "a/3")
    assert recorder.flush(5)
    assert txn_count(spool) == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_dead_thread_leaves_is_written_at_the_end(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder()
    session = recorder.open_session("conn", fenced=False)
    with monkeypatch.context() as patched:
        patched.setattr(Background, "turn", lambda _: exec("raise SystemExit"))
        commit(recorder, session, "a/1")
        assert eventually(lambda: recorder.background is not None and not recorder.background.is_alive)
    recorder.close()
    assert txn_count(spool) == 1


def test_memory_is_bounded_if_nobody_takes_transactions_away(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder(queue_txns_max=100)
    session = recorder.open_session("conn", fenced=False)
    with monkeypatch.context() as patched:
        patched.setattr(Background, "turn", broken)
        versions = [commit(recorder, session, "a/1")[0] for _ in range(20_000)]
        assert len(recorder.queue) <= 100
        gc.collect()
        assert sum(type(each) is recording.Txn for each in gc.get_objects()) < 200  # others may have weak references
    recorder.close()
    found = fragments(spool)
    written = {version for f in found for version in column(f.op_version, 8)}
    assert len(written) <= 200  # as many in the queue as in the hands of the background
    assert set(versions) <= written | lost_of(versions, found)
    assert recorder.metrics.txns_lost == 20_000 - len(written)
    assert {gap.reason for f in found for gap in f.gap} == {"queue full"}
    assert sum(gap.txn_count for f in found for gap in f.gap) == 20_000 - len(written)


def test_rows_that_wait_are_bounded_too(
    make_recorder: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder(queue_rows_max=1000)
    session = recorder.open_session("conn", fenced=False)
    with monkeypatch.context() as patched:
        patched.setattr(Background, "turn", broken)
        for _ in range(10):
            txn = session.begin()
            txn.rows += 400
            session.end(txn, COMMITTED)
        assert recorder.metrics.txns_lost == 8
    assert recorder.flush(5)
    assert recorder.queued_rows == 0
    txn = session.begin()
    txn.rows += 1001
    session.end(txn, COMMITTED)  # too many by themselves
    assert recorder.metrics.txns_lost == 9


def test_a_full_spool_drops_the_newest_and_declares_it(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    recorder = make_recorder(spool_bytes_max=1 << 20, batch_txns_max=50)
    session = recorder.open_session("conn", fenced=False)
    versions = []
    for number in range(3_000):
        versions += commit(recorder, session, f"a/{number:0500}")
    recorder.close()
    found = fragments(spool)
    written = {version for f in found for version in column(f.op_version, 8)}
    assert versions[0] in written
    assert 500 < len(written) < 2_500
    assert set(versions) <= written | lost_of(versions, found)
    assert not lost_of(versions[:500], found)
    assert sum(path.stat().st_size for path in spool.glob("*/*.seg")) < (1 << 20) + (128 << 10)
    assert recorder.metrics.txns_lost + len(written) == 3_000
    assert {gap.reason for f in found for gap in f.gap} == {"spool full"}
    assert [f.sequence for f in found] == list(range(1, len(found) + 1))


def test_a_spool_with_room_again_goes_on(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    recorder = make_recorder(batch_txns_max=10)
    session = recorder.open_session("conn", fenced=False)
    commit(recorder, session, "a/1")
    assert recorder.flush(5)
    assert recorder.background is not None
    recorder.background.spool.bytes_max = 0
    lost = commit(recorder, session, "a/2")[0]
    other = recorder.open_session("opened meanwhile", fenced=False)
    commit(recorder, other, "a/3")
    assert eventually(lambda: recorder.metrics.txns_lost == 2)
    recorder.background.spool.bytes_max = 1 << 30
    kept = commit(recorder, other, "a/2")[0]
    recorder.close()
    found = fragments(spool)
    assert is_lost(lost, found)
    named = {name.name for f in found for name in f.key_name}
    assert "a/2" in named  # the fragment that had the name was dropped
    opened = {event.session for f in found for event in f.session_event if event.what == 0}
    assert all(number in opened for f in found for number in column(f.txn_session, 4))
    assert kept in {version for f in found for version in column(f.op_version, 8)}


def test_a_spool_that_cannot_be_made_costs_the_recording_only(
    make_recorder: Callable[..., Recorder], spool: Path, tmp_path: Path
) -> None:
    spool.write_text("a file where the folder should be")
    recorder = make_recorder()
    use_everything(recorder)
    assert recorder.metrics.spool_failures == 1
    assert recorder.metrics.txns_lost == 2
    assert not recorder.queue
    recorder.close()


def test_a_spool_that_is_deleted_under_way_costs_the_recording_only(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr(pumping, "SEGMENT_BYTES_MAX", 1000)
    recorder = make_recorder(batch_txns_max=5, verifier="127.0.0.1:9", close_seconds=0.2)
    session = recorder.open_session("conn", fenced=False)
    commit(recorder, session, "a/1")
    recorder.flush(0.1)
    shutil.rmtree(spool)
    for _ in range(100):
        commit(recorder, session, "a/1")
    assert eventually(lambda: recorder.metrics.spool_failures > 0)
    recorder.close()


def test_housekeeping_that_fails_does_not_keep_anything_from_the_spool(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "HOUSEKEEPING_SECONDS", 0.0)
    monkeypatch.setattr(Background, "_housekeep", broken)
    recorder = make_recorder()
    commit(recorder, recorder.open_session("conn", fenced=False), "a/1")
    recorder.close()
    assert txn_count(spool) == 1
    assert recorder.metrics.background_failures > 0


def test_a_relative_spool_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(quick(Path("spool")))
    session = recorder.open_session("conn", fenced=False)
    monkeypatch.chdir(tmp_path / "elsewhere")
    commit(recorder, session, "a/1")
    recorder.close()
    assert txn_count(tmp_path / "spool") == 1


def test_closing_twice_and_using_it_afterwards_is_harmless(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn", fenced=False)
    commit(recorder, session, "a/1")
    recorder.close()
    recorder.close()
    use_everything(recorder)
    commit(recorder, session, "a/2")
    session.close()
    session.close()
    assert txn_count(spool) == 1
    assert not recorder.queue
    assert not recorder.open_txns


def test_no_file_stays_open_after_closing(make_recorder: Callable[..., Recorder]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        recorder = make_recorder()
        commit(recorder, recorder.open_session("conn", fenced=False), "a/1")
        recorder.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mussurana")]
