"""What ends up in fragments: columns, names, sessions, savepoints, and how far write ids are settled."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from mussurana.collector import names as naming
from mussurana.collector.names import FENCE_NAME, KeyNames, PlainKeyNames, key_of
from mussurana.collector.recorder import ABORTED, COMMITTED, IN_DOUBT, SERIALIZABLE, Recorder, Session
from mussurana.wire import FENCE_KEY, counter_of, history_pb2, tag_of
from tests.collector.recording.ingest import eventually
from tests.collector.recording.observed import column, commit, events, fail, fragments, is_lost, see, settled, tell


def fence(recorder: Recorder, session: Session, status: int = COMMITTED) -> int:
    txn = session.begin()
    version = recorder.write_id()
    see(txn, "update", FENCE_NAME, version, 0)
    session.end(txn, status)
    session.fenced(wrote=True)
    return version


def test_every_operation_is_in_the_columns(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn 1", fenced=False)
    txn = session.begin()
    txn.isolation = SERIALIZABLE
    txn.begun_ns = txn.begin_ns + 5
    new, gone = recorder.write_id(), recorder.write_id()
    txn.observations.append((lambda _, sink: (sink.statement("SELECT 1"), sink.read("a/1", 7)),))
    see(txn, "update", "a/1", new, 7)
    see(txn, "delete", "a/2", gone, 9)
    see(txn, "absent", "a/3")
    session.committing(txn)
    session.end(txn, COMMITTED)
    recorder.close()
    fragment = fragments(spool)[0]
    assert fragment.sequence == 1
    assert fragment.txn_count == 1
    assert fragment.txn_status == bytes([0])
    assert fragment.txn_isolation == bytes([SERIALIZABLE])
    assert column(fragment.txn_op_count, 4) == [4]
    assert list(fragment.op_kind) == [
        history_pb2.READ,
        history_pb2.UPDATE,
        history_pb2.DELETE,
        history_pb2.READ_ABSENT,
    ]
    assert column(fragment.op_key, 8) == [key_of("a/1"), key_of("a/1"), key_of("a/2"), key_of("a/3")]
    assert column(fragment.op_version, 8) == [7, new, gone, 0]
    assert column(fragment.op_previous, 8) == [7, 9]
    assert column(fragment.op_statement, 4) == [1, 0, 0, 0]
    assert [(s.number, s.text) for s in fragment.statement] == [(1, "SELECT 1")]
    assert {(k.key, k.name) for k in fragment.key_name} == {(key_of(name), name) for name in ("a/1", "a/2", "a/3")}
    begin, begun, asked, done = (
        column(content, 8)[0]
        for content in (
            fragment.txn_begin_ns,
            fragment.txn_begun_ns,
            fragment.txn_commit_ns,
            fragment.txn_committed_ns,
        )
    )
    assert begin + 5 == begun <= asked <= done


def test_names_travel_once(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn 1", fenced=False)
    for _ in range(3):
        commit(recorder, session, "a/1")
        assert recorder.flush(5)
    recorder.close()
    assert [len(f.key_name) for f in fragments(spool)][:3] == [1, 0, 0]


@pytest.mark.parametrize("key_names", [KeyNames, PlainKeyNames])
def test_the_cache_of_names_is_bounded(recorder: Recorder, spool: Path, key_names: Any) -> None:
    names = recorder.names
    names._keys = key_names(xxh3_64_intdigest, names._full, 10, history_pb2.Fragment.KEY_NAME_FIELD_NUMBER)
    session = recorder.open_session("conn 1", fenced=False)
    commit(recorder, session, *(f"a/{i}" for i in range(100)))
    commit(recorder, session, "a/0")
    recorder.close()
    named = [name.name for fragment in fragments(spool) for name in fragment.key_name]
    assert named.count("a/0") == 2
    assert recorder.metrics.cache_evictions > 5


def test_no_key_is_mistaken_for_the_fence_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KeyNames(lambda name: 0, pytest.fail, 10, 18).number("a/" + "1" * 200) != FENCE_KEY
    monkeypatch.setattr(naming, "xxh3_64_intdigest", lambda name: 0)
    assert key_of("a/1") != FENCE_KEY


def test_names_are_the_same_in_both_languages() -> None:
    rng = random.Random(3)
    field = history_pb2.Fragment.KEY_NAME_FIELD_NUMBER
    forgets: list[str] = []

    def make(kind: Any, name: str) -> Any:
        def full() -> None:
            forgets.append(name)
            made.forget()

        made: Any = kind(xxh3_64_intdigest, full, 700, field)
        return made

    both = make(KeyNames, "C"), make(PlainKeyNames, "Python")
    texts = ["".join(rng.choices("ab/1234'ä€\U0001f40d", k=1 + length % 300)) for length in range(1200)]
    for step in range(5000):
        name = rng.choice(texts)
        numbers = [names.number(name) for names in both]
        assert numbers == [key_of(name)] * 2, name
        assert both[0].fields(0) == both[1].fields(0)
        first = rng.randrange(9000)
        assert both[0].fields(first) == both[1].fields(first)
        if step % 100 == 0:
            length = rng.choice([0, len(both[0].fields(0)), 10**9])
            for names in both:
                names.cut(length)
    assert len(both[0]) == len(both[1])
    assert forgets.count("C") == forgets.count("Python") > 2
    for names in both:
        with pytest.raises(UnicodeEncodeError):
            names.number("a/\udcff")
        names.forget()
        assert len(names) == 0


@pytest.mark.parametrize(
    ("name", "version"), [("a/\udcff", 1), (b"a/1", 1), (None, 1), ("a/1", -1), ("a/1", 1 << 63), ("a/1", "1")]
)
def test_operations_without_key_or_version_cost_themselves_and_the_trust_in_what_was_written(
    name: object, version: object, recorder: Recorder, spool: Path
) -> None:
    session = recorder.open_session("conn", fenced=False)
    txn = session.begin()
    lost = recorder.write_id()
    see(txn, "write", "a/1", lost)
    see(txn, "read", name, version)
    session.end(txn, COMMITTED)
    kept = commit(recorder, session, "a/2")[0]
    recorder.close()
    found = fragments(spool)
    assert [column(f.op_version, 8) for f in found if f.txn_count] == [[lost, kept]]
    assert is_lost(lost, found)
    assert recorder.metrics.extraction_failures == 1


def test_sessions_and_statements_may_have_any_name(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn \udcff", fenced=False)
    txn = session.begin()
    txn.observations.append((lambda _, sink: (sink.statement("\udcff"), sink.read("a/1", 7)),))
    session.end(txn, COMMITTED)
    recorder.close()
    assert column(fragments(spool)[0].op_key, 8) == [key_of("a/1")]


def test_a_session_is_announced_with_its_first_transaction(recorder: Recorder, spool: Path) -> None:
    recorder.open_session("never used")
    fenced, plain = recorder.open_session("fenced"), recorder.open_session("plain", fenced=False)
    fence(recorder, fenced)
    commit(recorder, plain, "a/1")
    fenced.close()
    recorder.close()
    assert events(fragments(spool)) == [("OPEN", 1, True), ("OPEN", 2, False), ("CLOSE", 1, False), ("CLOSE", 2, False)]


def test_the_fence_row_has_key_zero(recorder: Recorder, spool: Path) -> None:
    fence(recorder, recorder.open_session("conn"))
    recorder.close()
    assert column(fragments(spool)[0].op_key, 8) == [FENCE_KEY]
    assert fragments(spool)[0].fences.issued == 1


def test_a_session_whose_first_fence_failed_is_not_announced_as_fenced(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn")
    fence(recorder, session, ABORTED)
    commit(recorder, session, "a/1")
    recorder.close()
    first = fragments(spool)[0]
    assert events([first])[:3] == [("OPEN", 1, False), ("OPEN", 2, False), ("CLOSE", 1, False)]
    assert column(first.txn_session, 4) == [1, 2]


def test_a_fence_that_succeeds_at_the_second_try_opens_a_fenced_session(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn")
    fence(recorder, session, ABORTED)
    fence(recorder, session)
    recorder.close()
    assert events(fragments(spool))[:2] == [("OPEN", 1, False), ("OPEN", 2, True)]


def test_a_session_that_was_idle_goes_on_with_a_write_fence(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn")
    fence(recorder, session)
    session.idle()
    assert session.write_fence_needed
    assert session.fence_due(0)
    fence(recorder, session)
    commit(recorder, session, "a/1")
    recorder.close()
    found = fragments(spool)
    assert events(found) == [("OPEN", 1, True), ("IDLE", 1, False), ("CLOSE", 1, False)]
    # IDLE comes after the transactions of its fragment, so the next ones are in another.
    assert [f.txn_count for f in found if f.txn_count] == [1, 2]


def test_a_session_that_was_idle_goes_on_with_a_fence_that_reads_before_it_closes(
    recorder: Recorder, spool: Path
) -> None:
    session = recorder.open_session("conn")
    fence(recorder, session)
    commit(recorder, session, "a/1")
    session.idle()
    txn = session.begin()
    txn.epoch = 3
    see(txn, "read", FENCE_NAME, 7)
    session.end(txn, COMMITTED)
    session.close()
    recorder.close()
    found = fragments(spool)
    assert [what for what, _, _ in events(found)] == ["OPEN", "IDLE", "CLOSE"]
    assert {number for f in found for number in column(f.txn_session, 4)} == {1}
    assert [epoch for f in found for epoch in column(f.fence_epoch, 8)][-1] == 3


def test_a_session_that_was_idle_and_goes_on_without_a_fence_gets_a_new_number(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn")
    fence(recorder, session)
    session.idle()
    commit(recorder, session, "a/1")
    recorder.close()
    found = fragments(spool)
    assert sorted(events(found)) == sorted(
        [("OPEN", 1, True), ("IDLE", 1, False), ("CLOSE", 1, False), ("OPEN", 2, False), ("CLOSE", 2, False)]
    )
    assert [column(f.txn_session, 4) for f in found if f.txn_count] == [[1], [2]]


def test_quiet_sessions_become_idle_by_themselves(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mussurana.collector.background.HOUSEKEEPING_SECONDS", 0.02)
    recorder = make_recorder(idle_after_seconds=0.05)
    quiet, busy = recorder.open_session("quiet"), recorder.open_session("busy")
    fence(recorder, quiet)
    fence(recorder, busy)
    busy.begin()
    assert not quiet.fence_due(quiet.info.fence_due_ns - 1)
    assert eventually(lambda: quiet.write_fence_needed)
    assert quiet.fence_due(quiet.info.fence_due_ns)
    assert not busy.write_fence_needed
    recorder.close()
    assert ("IDLE", 1, False) in events(fragments(spool))
    assert ("IDLE", 2, False) not in events(fragments(spool))


def test_fences_are_due_by_time_and_by_count(make_recorder: Callable[..., Recorder]) -> None:
    recorder = make_recorder(fence_interval_seconds=1.0, fence_txns_max=3)
    session = recorder.open_session("conn")
    assert session.fence_due(0)
    fence(recorder, session)
    now = session.info.fence_due_ns - 10**9
    assert not session.fence_due(now)
    assert session.fence_due(now + 10**9)
    assert session.fence_due(now - 10**10)  # the clock was set back
    for _ in range(3):
        commit(recorder, session, "a/1")
    assert session.fence_due(now)
    session.fence_failed()
    assert not session.fence_due(session.info.fence_due_ns - 1)
    assert recorder.metrics.fences_failed == 1
    assert not recorder.open_session("plain", fenced=False).fence_due(now)


def test_writes_after_a_savepoint_that_was_rolled_back_are_aborted_versions(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn", fenced=False)
    txn = session.begin()
    first, undone, last = (recorder.write_id() for _ in range(3))
    see(txn, "write", "a/1", first)
    mark = txn.mark()
    see(txn, "read", "a/2", 7)
    see(txn, "update", "a/2", undone, 7)
    see(txn, "read", "a/2", undone)
    txn.roll_back_to(mark)
    see(txn, "write", "a/3", last)
    session.end(txn, COMMITTED)
    recorder.close()
    fragment = fragments(spool)[0]
    assert fragment.txn_status == bytes([ABORTED, COMMITTED])
    assert column(fragment.txn_session, 4) == [1, 1]
    assert column(fragment.txn_op_count, 4) == [1, 3]
    assert column(fragment.op_version, 8) == [undone, first, 7, last]


def test_open_transactions_hold_back_what_is_settled(recorder: Recorder, spool: Path) -> None:
    slow, quick = recorder.open_session("slow", fenced=False), recorder.open_session("quick", fenced=False)
    txn = slow.begin()
    late = recorder.write_id()
    see(txn, "write", "a/1", late)
    soon = commit(recorder, quick, "a/2")[0]
    assert recorder.flush(5)
    assert settled(fragments(spool)[-1])[tag_of(late)] <= counter_of(late)
    slow.end(txn, COMMITTED)
    assert recorder.flush(5)
    assert settled(fragments(spool)[-1])[tag_of(late)] > counter_of(soon)


def test_an_empty_transaction_that_held_back_lets_go(recorder: Recorder, spool: Path) -> None:
    empty, quick = recorder.open_session("empty", fenced=False), recorder.open_session("quick", fenced=False)
    txn = empty.begin()
    version = commit(recorder, quick, "a/1")[0]
    assert recorder.flush(5)
    empty.end(txn, COMMITTED)
    assert recorder.flush(5)
    assert eventually(lambda: settled(fragments(spool)[-1])[tag_of(version)] > counter_of(version))


def test_every_version_is_in_a_fragment_before_it_is_settled(
    make_recorder: Callable[..., Recorder], spool: Path
) -> None:
    import random
    import threading

    recorder = make_recorder(batch_interval_seconds=0.001)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        session = recorder.open_session(f"conn {seed}", fenced=False)
        for _ in range(300):
            commit(recorder, session, *(f"a/{rng.randrange(9)}" for _ in range(rng.randrange(4))))
        session.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    floor = 0
    for fragment in fragments(spool):
        for version in column(fragment.op_version, 8):
            assert counter_of(version) >= floor
        floor = settled(fragment)[recorder.write_ids.tag]
    assert floor == 1 << 32


def test_a_tag_is_retired_before_its_counters_run_out(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn", fenced=False)
    recorder.write_ids.retire = 100
    first_tag = recorder.write_ids.tag
    held = recorder.open_session("held", fenced=False)
    txn = held.begin()
    versions = []
    for _ in range(40):
        versions += commit(recorder, session, "a/1", "a/2", "a/3", "a/4")
        recorder.flush(5)
    assert len({tag_of(version) for version in versions}) > 1
    assert settled(fragments(spool)[-1])[first_tag] < 100
    assert settled(fragments(spool)[-1])[recorder.write_ids.tag] == 1  # the one that is open may hold ids of both
    held.end(txn, ABORTED)
    assert recorder.flush(5)
    assert settled(fragments(spool)[-1])[recorder.write_ids.tag] > 1
    # Each tag was announced before the first of its ids was drawn.
    announced: set[int] = set()
    for fragment in fragments(spool):
        assert {tag_of(version) for version in column(fragment.op_version, 8)} <= announced | {first_tag}
        announced |= set(settled(fragment))


def test_an_extractor_that_fails_costs_only_its_observation(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn", fenced=False)
    txn = session.begin()
    kept, hidden = recorder.write_id(), recorder.write_id()
    see(txn, "write", "a/1", kept)
    txn.observations.append((fail, hidden))
    txn.observations.append((tell, "no such method", hidden))
    txn.observations.append(())  # not even an extractor
    see(txn, "read", "a/3", 7)
    session.end(txn, COMMITTED)
    recorder.close()
    found = fragments(spool)
    assert column(found[0].op_version, 8) == [kept, 7]
    assert is_lost(hidden, found)
    assert recorder.metrics.extraction_failures == 3


def test_a_version_without_a_place_is_declared_lost(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn", fenced=False)
    txn = session.begin()
    lost, kept = recorder.write_id(), recorder.write_id()
    see(txn, "lose", lost)
    see(txn, "write", "a/1", kept)
    session.end(txn, COMMITTED)
    recorder.close()
    assert is_lost(lost, fragments(spool))
    assert not is_lost(kept, fragments(spool))


def test_a_transaction_that_nobody_ended_is_in_doubt(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("begun twice", fenced=False)
    see(session.begin(), "write", "a/1", recorder.write_id())
    see(session.begin(), "write", "a/2", recorder.write_id())
    session.close()
    collected = recorder.open_session("collected", fenced=False)
    see(collected.begin(), "write", "a/3", recorder.write_id())
    del collected
    recorder.close()
    found = fragments(spool)
    assert b"".join(f.txn_status for f in found) == bytes([IN_DOUBT] * 3)
    assert [what for what, _, _ in events(found)].count("CLOSE") == 2


def test_coverage_is_shipped_when_it_changes(recorder: Recorder, spool: Path) -> None:
    session = recorder.open_session("conn", fenced=False)
    recorder.coverage.count(("a", "SELECT with GROUP BY", 2))
    commit(recorder, session, "a/1")
    assert recorder.flush(5)
    commit(recorder, session, "a/1")
    assert recorder.flush(5)
    recorder.coverage.count(("a", "SELECT with GROUP BY", 2))
    recorder.close()
    shipped = [(row.table, row.observed, row.statement_count) for f in fragments(spool) for row in f.coverage]
    assert shipped == [("a", 2, 1), ("a", 2, 2)]
    assert [row.observed for row in recorder.coverage.rows()] == ["unobserved read"]
