"""The journal: a killed process loses nothing that was committed, and what is rescued appears once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mussurana.collector import journal as journaling
from mussurana.collector.abandoned import complete
from mussurana.collector.background import Background
from mussurana.collector.journal import path_of
from mussurana.collector.journal_reader import read_journal
from mussurana.collector.names import FENCE_NAME
from mussurana.collector.recorder import ABORTED, COMMITTED, IN_DOUBT, Recorder
from mussurana.collector.spool import folders
from mussurana.verifier.formats import load
from mussurana.wire import history_pb2
from tests.collector.recording.observed import column, commit, events, fragments, is_lost, lost_of, quick, see
from tests.collector.recording.test_processes import kill_after, program


def written(found: list[history_pb2.Fragment]) -> list[int]:
    return [version for f in found for version in column(f.op_version, 8)]


@pytest.mark.parametrize("run", range(5))
def test_a_killed_process_loses_nothing_that_was_committed(run: int, spool: Path) -> None:
    told = kill_after(program("write_until_killed", spool, "journal=commit"), 0.05 + 0.05 * run)
    complete(folders(spool)[0])
    found = fragments(spool)
    assert set(told) <= set(written(found))
    assert len(written(found)) == len(set(written(found)))
    assert not lost_of(told, found)
    assert found[-1].gap[0].reason == "process killed"
    assert load(spool).txn_count >= len(told)


def in_child(spool: Path, work: Callable[[Recorder], None]) -> list[history_pb2.Fragment]:
    """What is found of a process that never spools, and is killed after its work."""
    child = os.fork()
    if child == 0:
        setattr(Background, "turn", lambda _: None)  # noqa: B010, in this process only
        work(Recorder(quick(spool, journal="commit")))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    complete(folders(spool)[0])
    return fragments(spool)


def test_a_transaction_without_an_answer_to_its_commit_is_in_doubt(spool: Path) -> None:
    def work(recorder: Recorder) -> None:
        done, asked = recorder.open_session("done"), recorder.open_session("asked")
        commit(recorder, done, "a/1")
        commit(recorder, done, "a/2", status=ABORTED)
        txn = asked.begin()
        see(txn, "write", "a/3", recorder.write_id())
        asked.committing(txn)

    found = in_child(spool, work)
    assert found[0].txn_status == bytes([COMMITTED, ABORTED, IN_DOUBT])
    assert column(found[0].txn_committed_ns, 8)[0] > 0
    opened = [number for what, number, _ in events(found) if what == "OPEN"]
    assert opened == sorted(set(column(found[0].txn_session, 4)))
    assert [name.name for name in found[0].key_name] == ["a/1", "a/2", "a/3"]


def test_a_transaction_with_a_write_that_nobody_saw_is_not_journaled(spool: Path) -> None:
    """With a part of what was written under one id of the database's own, reads of the rest would be alarms."""

    def work(recorder: Recorder) -> None:
        session = recorder.open_session("conn")
        for name in ("a/1", "a/2"):
            txn = session.begin()
            see(txn, "write", name, recorder.write_id())
            if name == "a/2":
                see(txn, "miss", None)
            session.committing(txn)
            session.end(txn, COMMITTED)

    found = in_child(spool, work)
    assert [name.name for fragment in found for name in fragment.key_name] == ["a/1"]


def test_what_commits_by_itself_is_journaled_when_it_is_over(spool: Path) -> None:
    def work(recorder: Recorder) -> None:
        session = recorder.open_session("conn")
        txn = session.begin()
        see(txn, "write", "a/1", recorder.write_id())
        session.end(txn, COMMITTED)
        txn = session.begin()
        see(txn, "write", "a/2", recorder.write_id())
        session.end(txn, ABORTED)

    found = in_child(spool, work)
    assert found[0].txn_status == bytes([COMMITTED])
    assert len(written(found)) == 1
    tag = written(found)[0] >> 32
    assert not is_lost(written(found)[0], found)
    assert is_lost((tag << 32) + 4, found)  # the aborted one


def test_savepoints_are_journaled(spool: Path) -> None:
    def work(recorder: Recorder) -> None:
        session = recorder.open_session("conn")
        txn = session.begin()
        mark = txn.mark()
        see(txn, "write", "a/1", recorder.write_id())
        txn.roll_back_to(mark)
        see(txn, "write", "a/2", recorder.write_id())
        session.committing(txn)
        session.end(txn, COMMITTED)

    assert in_child(spool, work)[0].txn_status == bytes([ABORTED, COMMITTED])


def test_the_epoch_of_a_fence_is_journaled(spool: Path) -> None:
    def work(recorder: Recorder) -> None:
        session = recorder.open_session("conn")
        commit(recorder, session, "a/1")
        txn = session.begin()
        txn.epoch = 944
        see(txn, "read", FENCE_NAME, 7)
        session.end(txn, COMMITTED)

    assert column(in_child(spool, work)[0].fence_epoch, 8) == [944]


def test_what_is_in_the_spool_is_not_rescued(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    recorder = make_recorder(journal="commit")
    session = recorder.open_session("conn", fenced=False)
    for _ in range(10):
        commit(recorder, session, "a/1")
    assert recorder.flush(5)
    assert read_journal(folders(spool)[0]) == []
    assert path_of(folders(spool)[0], 0).stat().st_size > 0


def test_what_was_spooled_a_moment_before_the_kill_is_not_rescued(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journaling.Journal, "done", lambda *_: None)
    recorder = make_recorder(journal="commit")
    session = recorder.open_session("conn", fenced=False)
    version = commit(recorder, session, "a/1")[0]
    assert recorder.flush(5)
    assert len(read_journal(folders(spool)[0])) == 1
    complete(folders(spool)[0])
    assert written(fragments(spool)) == [version]


def test_the_journal_stays_small(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journaling, "FILE_BYTES_MAX", 5_000)
    recorder = make_recorder(journal="commit", batch_txns_max=10)
    session = recorder.open_session("conn", fenced=False)
    for number in range(2000):
        commit(recorder, session, "a/1")
        if number % 20 == 0:
            assert recorder.flush(5)
    sizes = [path_of(folders(spool)[0], turn).stat().st_size for turn in range(2)]
    assert max(sizes) < 20_000
    assert recorder.metrics.txns_not_journaled == 0
    assert recorder.metrics.journal_failures == 0


def test_a_journal_that_is_full_or_fails_costs_only_itself(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make_recorder(journal="commit")
    session = recorder.open_session("conn", fenced=False)
    with monkeypatch.context() as patched:
        patched.setattr(journaling, "FILE_BYTES_LIMIT", -1)
        commit(recorder, session, "a/1")
        assert recorder.metrics.txns_not_journaled == 2  # before COMMIT and after
    with monkeypatch.context() as patched:
        patched.setattr(journaling, "operations_of", None)
        commit(recorder, session, "a/2")
        assert recorder.metrics.journal_failures > 0
    recorder.close()
    assert len(written(fragments(spool))) == 2


def test_results_that_come_after_commit_was_sent_are_in_the_spool(
    make_recorder: Callable[..., Recorder], spool: Path
) -> None:
    recorder = make_recorder(journal="commit")
    session = recorder.open_session("conn", fenced=False)
    txn = session.begin()
    txn.observations.append((lambda *_: None,))
    session.committing(txn)
    txn.observations[0] = ((lambda _, sink: sink.read("a/1", 7)),)
    session.end(txn, COMMITTED)
    recorder.close()
    assert written(fragments(spool)) == [7]


def test_large_results_are_not_taken_apart_while_somebody_waits(
    make_recorder: Callable[..., Recorder], spool: Path
) -> None:
    recorder = make_recorder(journal="commit")
    session = recorder.open_session("conn", fenced=False)
    txn = session.begin()
    txn.rows = 100_000
    see(txn, "read", "a/1", 7)
    session.committing(txn)
    assert txn.extracted is None
    session.end(txn, COMMITTED)
    recorder.close()
    assert written(fragments(spool)) == [7]


def test_noise_in_a_journal_is_passed_over(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    recorder = make_recorder(journal="commit", batch_interval_seconds=30.0)
    session = recorder.open_session("conn", fenced=False)
    commit(recorder, session, "a/0")
    recorder.flush(5)
    for number in range(3):
        commit(recorder, session, f"a/{number}")
    path = path_of(folders(spool)[0], 0)
    content = path.read_bytes()
    second = content.index(b"JRN3", content.index(b"a/1") - 200)
    path.write_bytes(content[:second] + b"\0\1JRN3noise" + content[second:-3])
    assert len(read_journal(folders(spool)[0])) >= 2
