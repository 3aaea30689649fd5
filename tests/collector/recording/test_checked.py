"""From a recorder through the spool to a verdict: what is wrong is found, what is unknown accuses nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mussurana.collector.coverage import PARTIAL, UNOBSERVED_WRITE
from mussurana.collector.kv import KeyValueRecorder
from mussurana.collector.names import KeyNames, PlainKeyNames
from mussurana.collector.recorder import ABORTED, COMMITTED, IN_DOUBT, Recorder, Session, close_all
from mussurana.verifier import Accepted, Rejected, Settings, check
from mussurana.verifier.formats import detect, load
from mussurana.verifier.formats.spool import (
    ABSENT_READS,
    AMBIGUOUS_KEYS,
    LATE_READS,
    LOST_READS,
    STRANGE_READS,
    TAINTED_READS,
)
from mussurana.verifier.history import HistoryError
from mussurana.wire import history_pb2, segments
from tests.collector.recording.observed import fail, fragments, quick, see

Did = tuple[object, ...]


def do(session: Session, *did: Did, status: int = COMMITTED) -> None:
    """A transaction that did these things."""
    txn = session.begin()
    for what in did:
        see(txn, str(what[0]), *what[1:])
    session.committing(txn)
    session.end(txn, status)


def verdict(spool: Path, level: str = "serializable") -> type:
    return type(check(load(spool), Settings(level)).verdict)


def left_out(spool: Path) -> dict[str, int]:
    return {each.what: each.count for each in load(spool).left_out}


@pytest.fixture
def alice(recorder: Recorder) -> Session:
    return recorder.open_session("alice", fenced=False)


@pytest.fixture
def bob(recorder: Recorder) -> Session:
    return recorder.open_session("bob", fenced=False)


def test_updates_one_after_the_other_are_accepted(
    recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    last = 0
    for number in range(50):
        new = recorder.write_id()
        do((alice, bob)[number % 2], ("read", "a/1", last), ("update", "a/1", new, last))
        last = new
    recorder.close()
    assert detect(spool) == "spool"
    assert verdict(spool) is Accepted
    history = load(spool)
    assert history.txn_count == 50
    assert {name.split(" / ")[1] for name in history.session_names} == {"alice", "bob"}
    assert history.key_names == ["a/1"]
    assert history.left_out == ()
    assert verdict(spool, "strict-serializable") is Accepted


def test_a_lost_update_is_rejected(recorder: Recorder, alice: Session, bob: Session, spool: Path) -> None:
    first = recorder.write_id()
    do(alice, ("write", "a/1", first))
    do(alice, ("update", "a/1", recorder.write_id(), first))
    do(bob, ("update", "a/1", recorder.write_id(), first))
    recorder.close()
    assert verdict(spool) is Rejected


def test_write_skew_is_snapshot_isolated_but_not_serializable(
    recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    do(alice, ("read", "duty/a", 0), ("read", "duty/b", 0), ("update", "duty/a", recorder.write_id(), 0))
    do(bob, ("read", "duty/a", 0), ("read", "duty/b", 0), ("update", "duty/b", recorder.write_id(), 0))
    recorder.close()
    assert verdict(spool) is Rejected
    assert verdict(spool, "strong-session-si") is Accepted


def test_a_read_of_an_aborted_version_is_rejected(
    recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    version = recorder.write_id()
    do(alice, ("write", "a/1", version), status=ABORTED)
    do(bob, ("read", "a/1", version))
    recorder.close()
    assert verdict(spool) is Rejected


def test_a_read_of_what_was_in_doubt_decides_it(recorder: Recorder, alice: Session, bob: Session, spool: Path) -> None:
    version = recorder.write_id()
    do(alice, ("write", "a/1", version), status=IN_DOUBT)
    do(bob, ("read", "a/1", version))
    recorder.close()
    assert verdict(spool) is Accepted


def test_a_version_that_nobody_wrote_is_rejected(recorder: Recorder, alice: Session, spool: Path) -> None:
    do(alice, ("read", "a/1", recorder.write_id()))
    recorder.close()
    assert verdict(spool) is Rejected


def test_a_version_of_another_key_is_rejected(recorder: Recorder, alice: Session, bob: Session, spool: Path) -> None:
    version = recorder.write_id()
    do(alice, ("write", "a/1", version))
    do(bob, ("read", "a/2", version))
    recorder.close()
    assert verdict(spool) is Rejected


def test_a_version_whose_transaction_is_still_open_is_left_out(
    recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    see(alice.begin(), "write", "a/1", version := recorder.write_id())
    do(bob, ("read", "a/1", version), ("update", "a/1", recorder.write_id(), version))
    assert recorder.flush(5)
    assert verdict(spool) is Accepted
    assert left_out(spool) == {LATE_READS: 1, LATE_READS.replace("reads of", "replaced"): 1}


def test_a_version_by_a_collector_that_is_not_here_is_left_out(recorder: Recorder, alice: Session, spool: Path) -> None:
    do(alice, ("read", "a/1", (recorder.write_ids.tag ^ 1) << 32 | 5))
    recorder.close()
    assert verdict(spool) is Accepted
    assert left_out(spool) == {STRANGE_READS: 1}


def test_what_was_lost_in_a_gap_is_left_out(recorder: Recorder, alice: Session, bob: Session, spool: Path) -> None:
    txn = alice.begin()
    version = recorder.write_id()
    txn.observations.append((fail, version))
    alice.end(txn, COMMITTED)
    do(bob, ("read", "a/1", version), ("absent", "a/2"))
    recorder.close()
    assert verdict(spool) is Accepted
    assert left_out(spool) == {LOST_READS: 1, ABSENT_READS: 1}


def test_a_collector_whose_beginning_is_gone_accuses_nobody(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mussurana.collector.background.SEGMENT_BYTES_MAX", 600)
    recorder = make_recorder(batch_txns_max=1)
    session = recorder.open_session("alice", fenced=False)
    do(session, ("write", "a/1", first := recorder.write_id()))
    for _ in range(10):
        do(session, ("read", "a/1", first))
    recorder.close()
    assert left_out(spool) == {}
    next(spool.glob("*/00000001.seg")).unlink()
    assert verdict(spool) is Accepted
    assert left_out(spool)["collectors of which fragments are missing"] == 1
    assert left_out(spool)[LOST_READS] > 0


def test_an_absent_row_was_never_there_if_nobody_ever_saw_or_deleted_it(
    recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    do(alice, ("write", "a/1", version := recorder.write_id()))
    do(alice, ("read", "a/1", version), ("absent", "a/1"))
    recorder.close()
    assert verdict(spool) is Rejected


@pytest.mark.parametrize("seen", [("delete", "a/1", 1, 0), ("read", "a/1", 0), ("update", "a/1", 1, 0)])
def test_an_absent_row_that_may_have_been_deleted_is_left_out(
    seen: Did, recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    write_id = recorder.write_id()
    do(alice, *[tuple(write_id if part == 1 else part for part in seen)])
    do(bob, ("absent", "a/1"))
    recorder.close()
    assert verdict(spool) is Accepted
    assert left_out(spool) == {ABSENT_READS: 1}


def test_deleted_rows_that_come_back_are_rejected(
    recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    do(alice, ("write", "a/1", version := recorder.write_id()))
    do(alice, ("delete", "a/1", recorder.write_id(), version))
    do(alice, ("read", "a/1", version))
    recorder.close()
    assert verdict(spool) is Rejected


def test_reads_of_a_tainted_table_are_left_out_for_everybody(
    make_recorder: Callable[..., Recorder], spool: Path
) -> None:
    one, other = make_recorder(), make_recorder()
    alice, bob = one.open_session("alice", fenced=False), other.open_session("bob", fenced=False)
    do(alice, ("write", "a/1", one.write_id()), ("write", "aa/1", kept := one.write_id()))
    other.coverage.count(("a", "COPY", UNOBSERVED_WRITE))
    other.coverage.count(("b", "SELECT with DISTINCT", PARTIAL))
    do(alice, ("read", "a/1", 0), ("absent", "a/2"))  # somebody replaced and deleted rows out of sight
    do(bob, ("update", "a/1", other.write_id(), 0), ("read", "aa/1", kept))
    one.close()
    other.close()
    assert verdict(spool) is Accepted
    assert left_out(spool) == {
        TAINTED_READS: 2,
        "statements not observed: COPY": 1,
        "statements observed in part: SELECT with DISTINCT": 1,
    }


@pytest.mark.parametrize("key_names", [KeyNames, PlainKeyNames])
def test_keys_with_the_same_hash_are_left_out(
    recorder: Recorder, alice: Session, spool: Path, key_names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mussurana.collector.names.key_of", lambda _: 7)
    recorder.names._keys = key_names(lambda _: 7, pytest.fail, 100, history_pb2.Fragment.KEY_NAME_FIELD_NUMBER)
    one, two = (f"a/{'0' * 200}{number}" for number in (1, 2))  # which C does not hash itself
    do(alice, ("update", one, recorder.write_id(), 0), ("update", two, recorder.write_id(), 0))
    recorder.close()
    assert verdict(spool) is Accepted
    assert left_out(spool) == {AMBIGUOUS_KEYS: 2}


def test_rolled_back_savepoints_accuse_nobody(recorder: Recorder, alice: Session, bob: Session, spool: Path) -> None:
    txn = alice.begin()
    first, undone, last = (recorder.write_id() for _ in range(3))
    see(txn, "write", "a/1", first)
    mark = txn.mark()
    see(txn, "update", "a/1", undone, first)
    see(txn, "read", "a/1", undone)
    txn.roll_back_to(mark)
    see(txn, "read", "a/1", first)
    see(txn, "update", "a/1", last, first)
    alice.end(txn, COMMITTED)
    do(bob, ("read", "a/1", last))
    recorder.close()
    assert verdict(spool) is Accepted


def test_what_a_rolled_back_savepoint_wrote_must_not_be_seen(
    recorder: Recorder, alice: Session, bob: Session, spool: Path
) -> None:
    txn = alice.begin()
    mark = txn.mark()
    see(txn, "write", "a/1", undone := recorder.write_id())
    txn.roll_back_to(mark)
    see(txn, "write", "a/2", recorder.write_id())
    alice.end(txn, COMMITTED)
    do(bob, ("read", "a/1", undone))
    recorder.close()
    assert verdict(spool) is Rejected


def test_two_processes_make_one_history(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    one, other = make_recorder(name="web-1"), make_recorder(name="web-1")
    alice, bob = one.open_session("conn", fenced=False), other.open_session("conn", fenced=False)
    do(alice, ("write", "a/1", version := one.write_id()))
    do(bob, ("read", "a/1", version), ("update", "a/1", newer := other.write_id(), version))
    do(alice, ("read", "a/1", newer))
    one.close()
    other.close()
    assert verdict(spool) is Accepted
    history = load(spool)
    assert history.txn_count == 3
    assert len(set(history.session_names)) == 2
    assert all(name.startswith("web-1 / conn #") for name in history.session_names)
    assert load(next(path for path in spool.iterdir() if path.is_dir())).txn_count in (1, 2)


def append(spool: Path, *uploads: history_pb2.Upload) -> None:
    appender = segments.Appender(spool / f"{0:032x}-{1:08x}", 1 << 20)
    appender.append([upload.SerializeToString() for upload in uploads])
    appender.close()


HELLO = history_pb2.Upload(hello=history_pb2.Hello(protocol=1, collector=bytes(16)))


@pytest.mark.parametrize(
    ("fragment", "message"),
    [
        ({"txn_count": 1}, "txn_session has 0 bytes; 1 entries of 4 were expected"),
        ({"txn_session": b"123"}, "txn_session has 3 bytes; 0 entries of 4 were expected"),
        ({"op_kind": b"\0"}, "op_kind has 1 bytes; 0 entries of 1 were expected"),
        ({"op_previous": bytes(8)}, "op_previous has 8 bytes; 0 entries of 8 were expected"),
    ],
)
def test_fragments_that_make_no_sense_are_refused_with_their_place(
    fragment: dict[str, object], message: str, spool: Path
) -> None:
    append(spool, HELLO, history_pb2.Upload(fragment=history_pb2.Fragment(sequence=1, **fragment)))  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match=rf"00000001\.seg: byte \d+: fragment 1: {message}"):
        load(spool)


def test_what_is_not_a_spool_is_refused(spool: Path, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"expected a folder with \*\.seg files"):
        load(tmp_path, "spool")
    append(spool, history_pb2.Upload(fragment=history_pb2.Fragment(sequence=1)))
    with pytest.raises(HistoryError, match="expected a Hello"):
        load(spool)


def test_a_newer_protocol_is_refused(spool: Path) -> None:
    append(spool, history_pb2.Upload(hello=history_pb2.Hello(protocol=2)))
    with pytest.raises(HistoryError, match="expected protocol 1, found 2"):
        load(spool)


def test_a_key_value_store_is_recorded(spool: Path) -> None:
    store: dict[str, tuple[int, int]] = {}
    fence: list[int] = [0]

    def swap_fence(version: int) -> int | None:
        fence.append(version)
        return fence[-2] or None

    recorded = KeyValueRecorder(quick(spool, fence_txns_max=2), swap_fence)
    session = recorded.session("worker")
    for number in range(6):
        with session.transaction() as txn:
            value, version = store.get("x", (0, None))
            txn.read("x", version)
            new = txn.write("x", previous=version)
            store["x"] = (value + number, new)
    with suppress(ZeroDivisionError), session.transaction() as txn:
        txn.write("x")
        raise ZeroDivisionError
    with session.transaction() as txn:
        txn.delete("x", previous=store["x"][1])
        txn.in_doubt()
    session.close()
    close_all()
    assert verdict(spool) is Accepted
    history = load(spool)
    assert sorted(history.key_names) == ["fence", "x"]
    assert len(fence) > 3
    assert list(history.status).count(ABORTED) == 1
    assert list(history.status).count(IN_DOUBT) == 1


def test_a_session_of_a_key_value_store_reads_the_fence_before_it_closes(spool: Path) -> None:
    """With a count of swaps, or without one, or with a store that fails just then."""
    fence: list[int] = []

    def swap_fence(version: int) -> tuple[int | None, int]:
        fence.append(version)
        return fence[-2] if len(fence) > 1 else None, len(fence)

    def failing() -> int:
        raise RuntimeError("not now")

    for read_fence in (lambda: (fence[-1], len(fence)), lambda: fence[-1], failing):
        session = KeyValueRecorder(quick(spool), swap_fence, read_fence).session("worker")
        with session.transaction() as txn:
            txn.write("x")
        session.close()
    close_all()
    told = [
        (history_pb2.OpKind.Name(kind), version)
        for fragment in fragments(spool)
        for kind, key, version in zip(
            fragment.op_kind,
            memoryview(fragment.op_key).cast("Q"),
            memoryview(fragment.op_version).cast("Q"),
            strict=True,
        )
        if not key
    ]
    assert told == [
        ("UPDATE", fence[0]),
        ("READ", fence[0]),
        ("UPDATE", fence[1]),
        ("READ", fence[1]),
        ("UPDATE", fence[2]),
    ]
    epochs = [epoch for fragment in fragments(spool) for epoch in memoryview(fragment.fence_epoch).cast("Q")]
    assert epochs == [1, 1, 2, 0, 3]
    assert verdict(spool) is Accepted


def test_a_key_value_store_that_loses_an_update_is_rejected(spool: Path) -> None:
    recorded = KeyValueRecorder(quick(spool))
    one, other = recorded.session("one"), recorded.session("other")
    with one.transaction() as txn:
        version = txn.write("x")
    for session in (one, other):
        with session.transaction() as txn:
            txn.read("x", version)
            txn.write("x", previous=version)
    close_all()
    assert verdict(spool) is Rejected
