"""Somebody deletes the spool of a running application: that is noticed, declared, and recording begins anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mussurana.collector.recorder import Recorder
from mussurana.collector.spool import FOLDER, folders
from mussurana.verifier.engine.check import check
from mussurana.verifier.formats.spool import read
from mussurana.verifier.verdict import Rejected
from mussurana.verifier.verdict import Settings as CheckSettings
from tests.collector.recording.ingest import Ingest, eventually
from tests.collector.recording.observed import column, commit, events, fragments, lost_of, see, uploads

MakeRecorder = Callable[..., Recorder]


def delete_all(folder: Path) -> None:
    shutil.rmtree(folder.parent)


def delete_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def delete_segments(folder: Path) -> None:
    for segment in folder.glob("*.seg"):
        segment.unlink()


def move_away(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


@pytest.mark.parametrize("journal", ["background", "commit"])
@pytest.mark.parametrize("delete", [delete_all, delete_folder, delete_segments, move_away])
def test_recording_begins_anew(
    make_recorder: MakeRecorder, spool: Path, delete: Callable[[Path], None], journal: str
) -> None:
    recorder = make_recorder(journal=journal)
    session = recorder.open_session("conn", fenced=False)
    before = [version for _ in range(10) for version in commit(recorder, session, "a/1")]
    assert recorder.flush(5)
    (folder,) = folders(spool)
    assert recorder.background is not None
    sequence = recorder.background.spool.last_sequence
    delete(folder)
    assert eventually(lambda: recorder.metrics.txns_lost > 0)
    after = [version for _ in range(10) for version in commit(recorder, session, "a/1", "a/2")]
    recorder.close()
    shutil.rmtree(spool / "moved", ignore_errors=True)
    assert recorder.metrics.background_failures == recorder.metrics.hook_failures == 0
    assert recorder.metrics.txns_lost == 10
    (anew,) = folders(spool)
    assert FOLDER.fullmatch(anew.name)
    assert (journal == "commit") == (anew / "journal-0").exists()
    found = fragments(spool)
    assert [fragment.sequence for fragment in found] == list(range(sequence + 1, sequence + 1 + len(found)))
    assert [(gap.reason, gap.txn_count) for fragment in found for gap in fragment.gap] == [("spool deleted", 10)]
    assert next(upload.hello.first_sequence for _, upload in uploads(spool)) == sequence + 1
    written = {version for fragment in found for version in column(fragment.op_version, 8)}
    assert written == set(after)
    assert not lost_of(after, found)
    assert [(what, number) for what, number, _ in events(found)] == [("CLOSE", 1), ("OPEN", 2), ("CLOSE", 2)]
    names = {name.name for fragment in found for name in fragment.key_name}
    assert {"a/1", "a/2"} <= names  # those, too, that had been told before
    assert before
    assert not isinstance(check(read(spool), CheckSettings("serializable")).verdict, Rejected)


def test_what_is_read_of_what_was_deleted_accuses_nobody(make_recorder: MakeRecorder, spool: Path) -> None:
    recorder = make_recorder()
    session = recorder.open_session("conn", fenced=False)
    (version,) = commit(recorder, session, "a/1")
    assert recorder.flush(5)
    shutil.rmtree(spool)
    reader = recorder.open_session("reader", fenced=False)
    txn = reader.begin()
    see(txn, "read", "a/1", version)
    reader.end(txn, 0)
    recorder.close()
    assert not isinstance(check(read(spool), CheckSettings("serializable")).verdict, Rejected)


def test_the_shipper_goes_on_with_what_comes_after(make_recorder: MakeRecorder, spool: Path) -> None:
    with Ingest() as verifier:
        recorder = make_recorder(verifier=verifier.address)
        session = recorder.open_session("conn", fenced=False)
        commit(recorder, session, "a/1")
        assert recorder.flush(20)
        (kept,) = verifier.kept.values()
        for turn in range(2):
            shutil.rmtree(folders(spool)[0] if turn else spool)
            assert eventually(lambda: recorder.background.spool.is_there())  # type: ignore[union-attr]
            (version,) = commit(recorder, session, "a/1")
            assert recorder.flush(30)
            assert version in {version for fragment in kept for version in column(fragment.op_version, 8)}
        recorder.close()
        assert recorder.metrics.txns_lost == 0  # the verifier has all of it
        assert len(verifier.kept) == 1
        assert [fragment.sequence for fragment in kept] == list(range(1, len(kept) + 1))


def test_where_nothing_can_be_made_any_more_the_application_goes_on(make_recorder: MakeRecorder, spool: Path) -> None:
    recorder = make_recorder()
    session = recorder.open_session("conn", fenced=False)
    commit(recorder, session, "a/1")
    assert recorder.flush(5)
    shutil.rmtree(spool)
    spool.write_text("in its place")
    (version,) = commit(recorder, session, "a/1")
    assert eventually(lambda: recorder.metrics.fragments_dropped > 0)
    spool.unlink()
    assert eventually(lambda: bool(folders(spool)))
    (later,) = commit(recorder, session, "a/1")
    recorder.close()
    found = fragments(spool)
    assert lost_of([version], found) == {version}
    assert later in {version for fragment in found for version in column(fragment.op_version, 8)}
