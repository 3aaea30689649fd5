"""Transactions that pass by the queue: the columns that they are added to, and the order that must not change."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mussurana.collector import columns
from mussurana.collector.columns import INSERT, UPDATE, WRITES, PlainBatch, PlainColumns
from mussurana.collector.extraction import catch_up
from mussurana.collector.names import FENCE_NAME
from mussurana.collector.recorder import ABORTED, COMMITTED, IN_DOUBT, Recorder, Session
from mussurana.collector.spool import Spool, SpoolFull
from mussurana.wire import FENCE_KEY, counter_of, history_pb2, tag_of
from tests.collector.recording.observed import column, fragments, is_lost, see

needs_extension = pytest.mark.skipif(not columns.SHARED, reason="the extension was not built")

Event = history_pb2.SessionEvent
TIMES = (0, 1, -1, 1_700_000_000_000_000_000, (1 << 63) - 1, -(1 << 63))


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def same(one: Any, other: Any) -> bool:
    return (
        len(one) == len(other)
        and one.content() == other.content()
        and one.operations.rows() == other.operations.rows()
        and one.operations.content() == other.operations.content()
    )


@needs_extension
def test_a_batch_is_what_it_would_be_in_python() -> None:
    dice = random.Random(1)
    for _ in range(300):
        pairs: list[tuple[Any, Any]] = [(columns.Batch(), PlainBatch()) for _ in range(2)]
        for _ in range(dice.randrange(60)):
            ours, theirs = dice.choice(pairs)
            if dice.random() < 0.1:
                for one, other in ((ours, pairs[0][0]), (theirs, pairs[0][1])):
                    if one is not other:
                        other.absorb(one)
                        assert len(one) == len(one.operations) == 0
            else:
                rows = [
                    (dice.randrange(INSERT), dice.choice((FENCE_KEY, 1, 1 << 63)), dice.getrandbits(63), 0, 9)
                    for _ in range(dice.choice((0, 1, 1, 3)))
                ]
                numbers = dice.getrandbits(32), dice.randrange(3), dice.randrange(5), *dice.choices(TIMES, k=4)
                both: list[tuple[Any, Any]] = [(ours, columns.Columns()), (theirs, PlainColumns())]
                for batch, made in both:
                    for row in rows:
                        made.tell(*row)
                    batch.add(*numbers, len(rows), made)
            assert all(same(one, other) for one, other in pairs)


@needs_extension
@pytest.mark.parametrize(
    "wrong", [(1 << 32, 0, 0, 0), (-1, 0, 0, 0), (0, 256, 0, 0), (0, 0, 256, 0), (0, 0, 0, 1 << 63), ("1", 0, 0, 0)]
)
def test_a_number_that_does_not_fit_adds_nothing(wrong: tuple[Any, ...]) -> None:
    batch: Any = columns.Batch()
    operations = columns.Columns()
    operations.tell(INSERT, FENCE_KEY, 1, 0, 0)
    with pytest.raises((OverflowError, TypeError)):
        batch.add(*wrong, 0, 0, 0, 0, operations)
    assert same(batch, PlainBatch())
    for nothing in (PlainColumns(), None):
        with pytest.raises(TypeError, match="columns"):
            batch.add(0, 0, 0, 0, 0, 0, 0, 0, nothing)
    with pytest.raises(TypeError, match="another batch"):
        batch.absorb(batch)


@needs_extension
def test_threads_add_while_another_one_absorbs(hasty: None) -> None:
    shared, taken = columns.Batch(), columns.Batch()
    each = 20_000

    def add(session: int) -> None:
        for number in range(each):
            operations = columns.Columns()
            operations.tell(UPDATE, 1 + session, number, 0, 0)
            shared.add(session, 0, 0, number, 0, 0, 0, 0, operations)

    threads = [threading.Thread(target=add, args=(session,)) for session in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken.absorb(shared)
    taken.absorb(shared)
    sessions, begins = column(taken.content()[0], 4), column(taken.content()[2], 8)
    for session in range(4):
        mine = [begin for owner, begin in zip(sessions, begins, strict=True) if owner == session]
        assert mine == list(range(each))
    assert [key - 1 for _, key, _, _, _ in taken.operations.rows()] == sessions
    assert [version for _, _, version, _, _ in taken.operations.rows()] == begins


class Application(threading.Thread):
    """Sessions that do everything in a random order: transactions of both ways, fences, pauses, closing."""

    def __init__(self, recorder: Recorder, seed: int, seconds: float) -> None:
        super().__init__()
        self._recorder = recorder
        self._dice = random.Random(seed)
        self._end = time.monotonic() + seconds
        self.written: list[list[int]] = []  # by session, in order

    def run(self) -> None:
        dice, recorder = self._dice, self._recorder
        while time.monotonic() < self._end:
            session = recorder.open_session("conn")
            written: list[int] = []
            self.written.append(written)
            for _ in range(dice.choice((1, 5, 50, 500))):
                if session.fence_due(time.time_ns()) and dice.random() < 0.95:
                    self._fence(session)
                self._transaction(session, written)
                event = dice.random()
                if event < 0.01:
                    session.idle()
                elif event < 0.03:
                    time.sleep(dice.choice((0.0, 0.001, 0.02)))
            session.close()

    def _fence(self, session: Session) -> None:
        fence = session.begin()
        fence.epoch = 7
        if session.write_fence_needed:
            see(fence, "update", FENCE_NAME, self._recorder.write_id(), 0)
        else:
            see(fence, "read", FENCE_NAME, 1)
        self._end_txn(session, fence, COMMITTED)
        session.fenced(wrote=session.write_fence_needed)

    def _transaction(self, session: Session, written: list[int]) -> None:
        txn = session.begin()
        for _ in range(self._dice.choice((0, 1, 1, 2))):
            written.append(self._recorder.write_id())
            see(txn, "write", f"t/{self._dice.randrange(50)}", written[-1])
        if self._dice.random() < 0.05:
            for key in range(100):
                see(txn, "read", f"t/{key}", 0)
        if self._dice.random() < 0.02:
            txn.roll_back_to(0)
        self._end_txn(session, txn, self._dice.choice((COMMITTED, COMMITTED, ABORTED, IN_DOUBT)))

    def _end_txn(self, session: Session, txn: Any, status: int) -> None:
        session.committing(txn)
        if self._dice.random() < 0.95:
            catch_up(txn, self._recorder.names)
        session.end(txn, status)


def writes_of(fragment: history_pb2.Fragment) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """The transactions of a fragment: their sessions, and kinds and versions of what they wrote, fences as (-1, 0)."""
    at = 0
    kinds, keys, versions = fragment.op_kind, column(fragment.op_key, 8), column(fragment.op_version, 8)
    for session, count in zip(column(fragment.txn_session, 4), column(fragment.txn_op_count, 4), strict=True):
        part = range(at, at + count)
        at += count
        yield session, [(-1, kinds[i]) if keys[i] == FENCE_KEY else (kinds[i], versions[i]) for i in part]


def check(found: list[history_pb2.Fragment], applications: list[Application]) -> None:
    """What was recorded is all there, in order, and no promise is broken."""
    place_of: dict[int, tuple[int, int]] = {}  # of each version: fragment and place in it
    known: set[int] = set()
    idle: set[int] = set()
    settled: dict[int, int] = {}
    for number, fragment in enumerate(found):
        for event in fragment.session_event:
            if event.what == Event.OPEN:
                assert event.session not in known
                known.add(event.session)
        for place, (session, operations) in enumerate(writes_of(fragment)):
            assert session in known
            if session in idle:  # it begins with a fence that writes, or reads after one that did and is its last
                assert operations[0][0] == -1, operations
                idle.discard(session)
            for kind, version in operations:
                if kind in WRITES:
                    assert version not in place_of
                    place_of[version] = number, place
                    assert counter_of(version) >= settled.get(tag_of(version), 0)
        for event in fragment.session_event:
            if event.what == Event.IDLE:
                assert event.session in known
                idle.add(event.session)
            elif event.what == Event.CLOSE:
                known.remove(event.session)
                idle.discard(event.session)
        settled |= {ids.tag: ids.settled for ids in fragment.write_ids}
    for written in (written for application in applications for written in application.written):
        places = [place_of[version] for version in written if version in place_of]
        assert places == sorted(places)
        assert all(version in place_of or is_lost(version, found) for version in written)


@needs_extension
@pytest.mark.parametrize("room", [1 << 30, 1 << 20], ids=["enough room", "too little room"])
@pytest.mark.parametrize("seed", range(2))
def test_the_order_within_a_session_stays_whichever_way_its_transactions_take(
    make_recorder: Callable[..., Recorder],
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
    hasty: None,
    seed: int,
    room: int,
) -> None:
    ways = {True: 0, False: 0}
    take = Recorder._take_as_numbers

    def counted(self: Recorder, txn: Any) -> bool:
        passed = take(self, txn)
        ways[passed] += 1
        return passed

    monkeypatch.setattr(Recorder, "_take_as_numbers", counted)
    monkeypatch.setattr("mussurana.collector.background.HOUSEKEEPING_SECONDS", 0.005)
    recorder = make_recorder(
        batch_interval_seconds=0.002,
        batch_txns_max=50,
        idle_after_seconds=0.01,
        fence_interval_seconds=0.05,
        spool_bytes_max=room,
    )
    applications = [Application(recorder, 10 * seed + number, 0.8) for number in range(3)]
    for application in applications:
        application.start()
    for application in applications:
        application.join()
    recorder.close()
    assert recorder.metrics.background_failures == recorder.metrics.hook_failures == 0
    found = fragments(spool)
    check(found, applications)
    assert min(ways.values()) > 100, ways
    assert any(event.what == Event.IDLE for fragment in found for event in fragment.session_event)
    assert (recorder.metrics.fragments_dropped > 0) == (room < 1 << 30)
    assert not recorder.known_sessions


@needs_extension
@pytest.mark.parametrize("was_idle", [False, True])
def test_nothing_passes_before_the_verifier_knows_its_session(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch, was_idle: bool
) -> None:
    """The fragment that announces a session, or wakes it, does not fit, and meanwhile the session goes on."""
    recorder = make_recorder()
    application = Application(recorder, 0, 0.0)
    session = recorder.open_session("conn")
    application._fence(session)
    if was_idle:
        session.idle()
        assert recorder.flush(5)
        application._fence(session)
    append = Spool.append
    versions: list[int] = []

    def go_on(self: Spool, *arguments: Any) -> None:
        if versions:
            append(self, *arguments)
            return
        versions.append(recorder.write_id())
        txn = session.begin()
        see(txn, "write", "t/1", versions[0])
        catch_up(txn, recorder.names)
        session.end(txn, COMMITTED)
        raise SpoolFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(Spool, "append", go_on)
        assert recorder.flush(5)
    recorder.close()
    assert recorder.metrics.fragments_dropped == 1
    application.written.append(versions)
    check(fragments(spool), [application])


def test_what_comes_after_the_end_is_counted_as_lost(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    recorder = make_recorder()
    application = Application(recorder, 0, 0.0)
    session = recorder.open_session("conn")
    application._fence(session)
    assert recorder.flush(5)
    recorder.close()
    txn = session.begin()
    see(txn, "write", "t/1", recorder.write_id())
    catch_up(txn, recorder.names)
    session.end(txn, COMMITTED)
    assert recorder.metrics.txns_lost == 1
    assert len(recorder.ended) == 0
