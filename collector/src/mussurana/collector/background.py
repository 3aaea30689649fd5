"""The background: takes what has ended from the recorder's queue to the spool, in a thread of its own.

Four times a second, if there is anything: results become operations (extraction.py), operations columns (fragments.py),
and a fragment goes to the spool (spool.py), from where another process takes it to the verifier (shipper.py). While
nothing happens the thread sleeps until the recorder wakes it. Most transactions are columns already when they end, and
pass by the queue (`Recorder.take`).

It shares the interpreter with the application. A thread that computes keeps the interpreter for five milliseconds if
nobody stops it, and an application that waits for that sees its latency. So the work is done in slices of half a
millisecond with a pause in between: whoever waits gets the interpreter at once.

Sessions are announced when their first transaction arrives, since only then it is known whether that is a write fence.
A session that was announced as idle and goes on without one gets a new number instead: the promise that comes with
IDLE and OPEN is kept by construction, whatever an adapter does.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter, sleep, time_ns

from mussurana.collector.columns import SHARED, WRITES, Columns
from mussurana.collector.extraction import operations_of
from mussurana.collector.flag import Flag
from mussurana.collector.fragments import FragmentBuilder, gap_of
from mussurana.collector.helper import Helper
from mussurana.collector.journal import Journal, Place
from mussurana.collector.losses import PLACE_NOT_KNOWN, between, single
from mussurana.collector.names import printable
from mussurana.collector.recorder import ABORTED, COMMITTED, Recorder, SessionInfo, Txn
from mussurana.collector.spool import (
    GAP_BYTES_RESERVED,
    SEGMENT_BYTES_MAX,
    Shipped,
    Spool,
    SpoolFull,
    database_message,
    folders,
    make_folder,
    read_refusal,
)
from mussurana.collector.spool_folder import default_spool, is_own, temporary_spool
from mussurana.collector.write_ids import COUNTER_END
from mussurana.wire import FENCE_KEY, PROTOCOL, history_pb2

SLICE_SECONDS = 0.0005
PAUSE_SECONDS = 0.0005

UNSHIPPED_MAX = 100_000
"""Fragments whose transactions can be counted, should the spool be deleted: seven hours of four a second."""

OPS_MAX = 100_000
"""Of a fragment, unless a single transaction has more: some 5 MB."""

HOUSEKEEPING_SECONDS = 1.0
"""How often quiet sessions are looked for, metrics published, and the shipper's life is checked."""

HEARTBEAT_SECONDS = 0.5
"""While a session is at work, a verifier hears of the process at least this often: an alarm waits for that."""

MEASURE_SECONDS = 5.0
"""How often the spool is measured, to which other processes add and from which the shipper deletes."""

FORK_SECONDS_MAX = 0.2
"""How long a fork may wait for metrics to be published, which takes some microseconds."""

SPOOLING_SECONDS_MAX = 1.0
"""How long the end of the process may wait for a thread that writes to the disk; usually some milliseconds."""

STARTING_SECONDS_MAX = 0.1
"""And how long for a shipper to be started, if there was none."""

FULL_SECONDS = 1.0
"""How often a full spool is asked for room for a gap alone: the room that is kept for gaps is small."""

FAILURE_SECONDS = 0.5
"""The pause after a failure, so that one that comes back does not take a whole core."""

NOT_UNDERSTOOD = "result not understood"
DELETED = "spool deleted"

SessionEvent = history_pb2.SessionEvent

logger = logging.getLogger("mussurana")


class SessionState:
    """What the verifier has been told of a session."""

    __slots__ = (
        "active_at",
        "idle_in_fragment",
        "is_idle",
        "number",
        "opened_in_fragment",
        "place",
        "txns",
        "woken_in_fragment",
    )

    def __init__(self, number: int, txns: int) -> None:
        self.number = number
        self.place = 0  # of its last transaction that came through the queue
        self.is_idle = False
        self.opened_in_fragment = True  # the one that is being built; False once it is in the spool
        self.idle_in_fragment = False
        self.woken_in_fragment = False  # it was idle before
        self.txns = txns  # how many had ended when this was last looked at
        self.active_at = monotonic()


class Background:
    def __init__(self, recorder: Recorder, collector: bytes, folder: Path, lock: int) -> None:
        self._recorder = recorder
        self._settings = recorder.settings
        self._metrics = recorder.metrics
        self._collector = collector
        self._builder = FragmentBuilder(recorder.names)
        self._pending: deque[Txn | tuple[str, SessionInfo]] = deque()
        self._states: dict[SessionInfo, SessionState] = {}
        self._last_number = 0
        self._held_back = False  # the last fragment's write ids were not settled as far as they were drawn
        self._housekeeping_at = self._measured_at = 0.0
        self._full_until = self._sealed_at = 0.0
        self._in_fragment: list[Place] = []  # where the journal has the transactions of this fragment
        self.journal: Journal | None = None
        self._hurry = Flag()
        self._stopping = False
        self._forking: set[int] = set()  # threads that hold `_publishing` until they have forked
        self._turn_lock = threading.Lock()
        self._publishing = threading.Lock()
        self.spool = Spool(folder, lock, self._hello, self._settings.spool_bytes_max, SEGMENT_BYTES_MAX)
        self._helper = Helper(folder.parent) if self._settings.verifier else None
        self._helper_before: Helper | None = None  # for what is left where the spool was by default before
        if self._helper is not None and self._settings.spool == default_spool() != temporary_spool():
            self._helper_before = Helper(Path(temporary_spool()))
        self._unshipped: deque[tuple[int, int]] = deque(maxlen=UNSHIPPED_MAX)  # sequence and transactions of fragments
        self._durable_sequence = 0
        self._refusal = ""  # what the verifier says against all of it
        self._journals_before: list[Journal] = []  # which other threads may still be writing to
        self._thread: threading.Thread | None = None
        self._name = recorder.settings.name or f"{socket.gethostname()}/{os.getpid()}"
        self._database = database_message(recorder.database)

    def start(self) -> None:
        """Start the thread, or start it again if it died."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="mussurana-recorder", daemon=True)
            self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    # The thread

    def _run(self) -> None:
        recorder = self._recorder
        while not self._stopping:
            try:
                with self._turn_lock:
                    self.turn()
            except Exception:
                self._metrics.background_failures += 1
                self._hurry.wait(FAILURE_SECONDS)
            if not recorder.queue and not recorder.ended and not self._hurry.is_set():
                recorder.asleep = True
                if not recorder.queue and not recorder.ended:
                    recorder.wake.wait(HEARTBEAT_SECONDS if self._is_at_work() else HOUSEKEEPING_SECONDS)
                recorder.asleep = False
                recorder.wake.clear()
            self._hurry.wait(self._settings.batch_interval_seconds)

    def turn(self) -> None:
        """Take all that has ended to the spool."""
        recorder, builder = self._recorder, self._builder
        self._metrics.queue_txns = len(recorder.queue) + len(recorder.ended)
        self._drain()
        slice_end = perf_counter() + SLICE_SECONDS
        turn_end = monotonic() + self._settings.batch_interval_seconds
        # Also what comes meanwhile, or there would always be something in the queue that nothing may pass.
        while self._pending or (monotonic() < turn_end and self._drain()):
            self._take_one()
            if builder.txn_count >= self._settings.batch_txns_max or builder.op_count >= OPS_MAX:
                self._seal()
            if perf_counter() >= slice_end and not self._hurry.is_set():
                sleep(PAUSE_SECONDS)
                slice_end = perf_counter() + SLICE_SECONDS
        now = monotonic()
        if now - self._housekeeping_at >= HOUSEKEEPING_SECONDS:
            self._housekeeping_at = now
            try:
                self._housekeep(now)
            except Exception:  # no reason not to spool
                self._metrics.background_failures += 1
        if (self._has_news() or self._is_heartbeat_due()) and (builder.txn_count or now >= self._full_until):
            self._seal()

    def _has_news(self) -> bool:
        recorder = self._recorder
        return bool(
            self._builder.txn_count
            or recorder.ended
            or self._builder.events
            or recorder.losses
            or recorder.coverage.unsent()
            or recorder.write_ids.successor
            or (self._held_back and not recorder.open_txns)
        )

    def _is_at_work(self) -> bool:
        """Whether a verifier that is listening holds a session for one at work."""
        return self._helper is not None and not all(state.is_idle for state in list(self._states.values()))

    def _is_heartbeat_due(self) -> bool:
        return self._is_at_work() and monotonic() - self._sealed_at >= HEARTBEAT_SECONDS

    def _drain(self) -> int:
        """Take what is in the queue, after what has passed by it before. Returns how much it was."""
        queue = self._recorder.queue
        count = min(len(queue), self._settings.queue_txns_max - len(self._pending))
        for _ in range(count):
            self._pending.append(queue.popleft())
        self._builder.absorb(self._recorder.ended)
        return count

    def _take_one(self) -> None:
        """Put the first pending item into the fragment. It stays pending until it is there: see `_seal`."""
        item = self._pending[0]
        try:
            if isinstance(item, Txn):
                self._add(item)
            else:
                self._tell(*item)
        except Exception:
            self._metrics.background_failures += 1
            if isinstance(item, Txn):
                upper = self._recorder.write_id()
                self._recorder.losses.add("internal error", between(item.floor, upper), [item.session])
                self._metrics.txns_lost += 1
        finally:
            if isinstance(item, Txn):
                self._recorder.queued_rows -= item.rows
                state = self._states.get(item.session)
                if state is not None:
                    state.place = item.place
                    self._let_pass(item.session, state)
            self._pending.popleft()

    # Transactions and sessions

    def _add(self, txn: Txn) -> None:
        """Add one that came through the queue."""
        recorder = self._recorder
        extracted = txn.extracted
        if extracted is None or txn.extracted_from != txn.observations:  # in a pipeline results come after COMMIT
            extracted = operations_of(txn, recorder.names)
        if txn.journaled is not None:
            self._in_fragment.append(txn.journaled)
        txn.observations = []  # the results go now, and not when the last reference to the transaction does
        txn.extracted = txn.extracted_from = None
        if extracted.failures:
            self._metrics.extraction_failures += extracted.failures
            recorder.losses.add(NOT_UNDERSTOOD, between(txn.floor, recorder.write_id()), [txn.session], 0)
        if extracted.lost and txn.status != ABORTED:  # else they are in no place at all
            recorder.losses.add(PLACE_NOT_KNOWN, single(extracted.lost), [txn.session], 0)
        if txn.status != ABORTED:
            for key in extracted.missed:
                recorder.coverage.count(key)
        if not extracted.operations and not extracted.rolled_back:
            return
        number = self._session_of(txn, extracted.operations)
        if extracted.rolled_back:
            self._builder.add(txn, number, ABORTED, extracted.rolled_back)
        self._builder.add(txn, number, txn.status, extracted.operations)

    def _session_of(self, txn: Txn, operations: Columns) -> int:
        """The number of a transaction's session, announced as what it is."""
        state = self._states.get(txn.session)
        if state is None or state.is_idle:
            on_fence = [kind for kind, key, _, _, _ in operations.rows() if key == FENCE_KEY]
            if txn.status == ABORTED and len(on_fence) == len(operations):
                return self._passing_session(txn.session.name)
            wrote_fence = txn.status == COMMITTED and any(kind in WRITES for kind in on_fence)
            is_fence = txn.status == COMMITTED and bool(on_fence)  # one that only reads is its last, and follows too
            if state is not None and state.idle_in_fragment:
                self._seal()  # IDLE takes effect after the transactions of its fragment
                state = self._states.get(txn.session)  # if there was no room it was not announced, or is not idle
            if state is None:
                state = self._open(txn.session, wrote_fence)
            elif state.is_idle and not is_fence:
                self._event(SessionEvent.CLOSE, state.number)
                state = self._open(txn.session, False)
            elif state.is_idle:
                state.is_idle = False
                state.woken_in_fragment = True
        return state.number

    def _let_pass(self, info: SessionInfo, state: SessionState) -> None:
        """A session's transactions need not come through the queue, as soon as there are no more of them in it.

        Those that do not are absorbed by a fragment only after those that did. The verifier has to know the number, and
        that the session is awake: if the fragment that says so does not fit into the spool, it never will.
        """
        is_told = not state.opened_in_fragment and not state.woken_in_fragment
        if SHARED and is_told and not state.is_idle:
            self._recorder.known_sessions[info] = state.number, state.place

    def _passing_session(self, name: str) -> int:
        """For a fence that failed before its session could be announced: nothing comes after it."""
        self._last_number += 1
        self._event(SessionEvent.OPEN, self._last_number, name)
        self._event(SessionEvent.CLOSE, self._last_number)
        return self._last_number

    def _open(self, info: SessionInfo, fenced: bool) -> SessionState:
        self._last_number += 1
        state = self._states[info] = SessionState(self._last_number, info.txns)
        self._event(SessionEvent.OPEN, state.number, info.name, fenced)
        return state

    def _event(self, what: SessionEvent.What, number: int, name: str = "", fenced: bool = False) -> None:
        self._builder.events.append(SessionEvent(what=what, session=number, name=printable(name), fenced=fenced))

    def _tell(self, what: str, info: SessionInfo) -> None:
        self._recorder.known_sessions.pop(info, None)
        state = self._states.get(info)
        if state is None:
            return  # nothing was ever sent for it
        if what == "close":
            self._event(SessionEvent.CLOSE, state.number)
            del self._states[info]
        elif not state.is_idle:
            self._event(SessionEvent.IDLE, state.number)
            state.is_idle = state.idle_in_fragment = True

    # Fragments

    def _seal(self, last: bool = False) -> None:
        """Close the fragment and append it to the spool, with all that is to be declared."""
        recorder, builder, metrics, ids = self._recorder, self._builder, self._metrics, self._recorder.write_ids
        try:
            if not self.spool.is_there():
                self._begin_anew()
        except Exception as error:
            self._drop(error)
            return
        # The order matters. A transaction that could draw an id below `upper` was open when `upper` was drawn. Either
        # it still is, or it came into the queue or among the ended, or was declared lost, before it was not any more.
        upper = recorder.write_id()
        floors = [txn.floor for txn in list(recorder.open_txns.values())]
        floors += [item.floor for item in (*self._pending, *list(recorder.queue)) if isinstance(item, Txn)]
        journaled = len(recorder.ended_journaled)
        builder.absorb(recorder.ended)
        self._in_fragment += [recorder.ended_journaled.popleft() for _ in range(journaled)]
        losses = recorder.losses.take()
        if recorder.lost_floor is not None:
            floors.append(recorder.lost_floor)
        try:
            ids.announce_successor(upper)
            settled = ids.settled(upper, floors)
            if last and not floors:
                settled = dict.fromkeys(settled, COUNTER_END)
            covered = recorder.coverage.unsent()
            payload = builder.seal(
                self.spool.last_sequence + 1,
                time_ns(),
                settled,
                [gap_of(loss, [self._states[s].number for s in loss.sessions if s in self._states]) for loss in losses],
                covered,
                self._fences(),
                upper,
                self._name,
                recorder.xid_horizon,
                self._database,
            )
            reserve = 2 * GAP_BYTES_RESERVED if last else 0 if builder.txn_count else GAP_BYTES_RESERVED
            self.spool.append(payload, [state.number for state in self._states.values()], reserve)
        except Exception as error:
            recorder.losses.put_back(losses)
            self._drop(error)
            return
        self._sealed_at = monotonic()
        recorder.coverage.sent(covered)
        metrics.txns_recorded += builder.txn_count
        metrics.fragments_spooled += 1
        metrics.bytes_spooled += len(payload)
        metrics.gaps += len(losses)
        metrics.spool_bytes = self.spool.size
        self._unshipped.append((self.spool.last_sequence, builder.txn_count))
        builder.sealed()
        self._journal_done()
        for info, state in self._states.items():
            is_news = state.opened_in_fragment or state.woken_in_fragment
            state.opened_in_fragment = state.idle_in_fragment = state.woken_in_fragment = False
            if is_news:
                self._let_pass(info, state)
        self._held_back = any(settled[tag] < COUNTER_END and tag != ids.tag for tag in settled) or bool(floors)
        ids.forget(settled)
        if ids.succeed():
            recorder.write_id = ids.draw

    def _begin_anew(self) -> None:
        """Somebody deleted the spool. What the verifier does not have is lost, and all sessions begin anew."""
        recorder = self._recorder
        if self.spool.has_folder():
            self.spool.begin_segment()
        else:
            tag = recorder.write_ids.tag
            self.spool.begin_anew(*make_folder(self._settings, self._collector, tag, recorder.database))
            if self.journal is not None:
                self._journals_before.append(self.journal)
                recorder.journal = self.journal = self.journal.continued_in(self.spool.folder)
        logger.warning("the spool of mussurana was deleted; what had not been shipped is lost, and recording goes on")
        recorder.known_sessions.clear()  # from here on all comes through the queue
        self._builder.absorb(recorder.ended)
        self._drop(FileNotFoundError(DELETED))  # its sessions were opened in what was deleted
        lost = sum(count for sequence, count in self._unshipped if sequence > self._durable_sequence)
        recorder.losses.add(DELETED, (), (), lost)  # of which write ids, the missing sequence numbers say
        self._unshipped.clear()
        for info, state in self._states.items():
            self._event(SessionEvent.CLOSE, state.number)
            info.reopen()
        self._states.clear()
        recorder.names.not_sent(0, 0)
        recorder.coverage.send_again()
        self._metrics.txns_lost += lost

    def _journal_done(self) -> None:
        if self.journal is not None:
            self.journal.done(self._in_fragment)
        self._in_fragment.clear()

    def _fences(self) -> history_pb2.Fences | None:
        metrics = self._metrics
        if not metrics.fences_issued and not metrics.fences_failed:
            return None
        return history_pb2.Fences(
            issued=metrics.fences_issued, failed=metrics.fences_failed, seconds=metrics.fence_seconds
        )

    def _drop(self, error: Exception) -> None:
        """The fragment did not fit. Declare it as a gap when there is room, and keep what was promised of sessions."""
        recorder, builder, metrics = self._recorder, self._builder, self._metrics
        self._full_until = monotonic() + FULL_SECONDS
        metrics.spool_failures += isinstance(error, OSError)
        metrics.background_failures += not isinstance(error, (OSError, SpoolFull))
        if not builder.txn_count and not builder.events:
            return  # only news, which wait for the next one
        metrics.fragments_dropped += 1
        metrics.txns_lost += builder.txn_count
        reason = "spool full" if isinstance(error, SpoolFull) else "spool cannot be written"
        numbers = builder.sessions()
        theirs = [s for s, state in self._states.items() if state.number in numbers and not state.opened_in_fragment]
        recorder.losses.add(reason, single(builder.written()), theirs, builder.txn_count)
        opened = {event.session for event in builder.events if event.what == SessionEvent.OPEN}
        closed = [e for e in builder.events if e.what == SessionEvent.CLOSE and e.session not in opened]
        for info, state in list(self._states.items()):
            if state.opened_in_fragment:
                del self._states[info]
                info.reopen()
            elif state.woken_in_fragment:  # for the verifier it still is idle
                state.woken_in_fragment = state.idle_in_fragment = False
                state.is_idle = True
                info.reopen()
            elif state.idle_in_fragment:
                state.is_idle = state.idle_in_fragment = False
        builder.drop()
        self._journal_done()
        builder.events.extend(closed)

    # Now and then

    def _housekeep(self, now: float) -> None:
        self._metrics.statements_unobserved = self._recorder.coverage.unobserved_count()
        with self._publishing:
            self._metrics.publish()
        if now - self._measured_at >= MEASURE_SECONDS:
            self._measured_at = now
            self.spool.measure()
        if not self.spool.is_there():
            self._seal()
        self._see_to_shipping()
        for info, state in self._states.items():
            if state.txns != info.txns:
                state.txns, state.active_at = info.txns, now
            elif not state.is_idle and now - state.active_at >= self._settings.idle_after_seconds:
                self._make_idle(info, state)

    def _make_idle(self, info: SessionInfo, state: SessionState) -> None:
        """A session has been quiet for a while: say so, unless there is something on its way."""
        self._recorder.known_sessions.pop(info, None)  # whatever ends from here on comes through the queue
        if info in self._recorder.open_txns or state.place != info.queued:
            self._let_pass(info, state)
            return
        info.reopen()
        self._event(SessionEvent.IDLE, state.number)
        state.is_idle = state.idle_in_fragment = True

    def _see_to_shipping(self) -> None:
        if self._helper is None:
            return
        self._helper.ensure()
        self._metrics.shipper_failures = self._helper.failures
        shipped = Shipped.read(self.spool.folder)
        self._metrics.bytes_sent = shipped.bytes_sent
        self._metrics.connections_failed = shipped.connections_failed
        self._metrics.is_connected = shipped.is_connected
        self._durable_sequence = max(self._durable_sequence, shipped.durable_sequence)
        refusal = read_refusal(self.spool.folder)
        if refusal and refusal != self._refusal:
            logger.warning("the verifier takes nothing of what mussurana records here: %s", refusal)
        self._refusal = refusal
        while self._unshipped and self._unshipped[0][0] <= self._durable_sequence:
            self._unshipped.popleft()
        if self._helper_before is not None and is_own(self._helper_before.root) and folders(self._helper_before.root):
            self._helper_before.ensure()

    def _hello(self, first_sequence: int) -> bytes:
        from mussurana.collector import __version__

        return history_pb2.Upload(
            hello=history_pb2.Hello(
                protocol=PROTOCOL,
                collector=self._collector,
                name=self._name,
                database=self._settings.database or self._database.name,
                recorded=self._database,
                version=__version__,
                first_sequence=first_sequence,
            )
        ).SerializeToString()

    # From the application's threads

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all that has ended is in the spool and, if there is a verifier, durable there."""
        deadline = monotonic() + timeout_seconds
        pause_seconds = 0.002
        while not self._is_flushed():
            if monotonic() >= deadline:
                return False
            self._hurry.set()
            self._recorder.wake.set()
            sleep(pause_seconds)
            self._hurry.clear()
            pause_seconds = min(2 * pause_seconds, 0.02)
        return True

    def _is_flushed(self) -> bool:
        if self._recorder.queue:
            return False
        if not self._turn_lock.acquire(blocking=False):
            return False
        try:  # a turn leaves nothing behind
            is_spooled = not self._recorder.queue and not self._has_news()
        finally:
            self._turn_lock.release()
        return is_spooled and (self._helper is None or self._is_durable())

    def _is_durable(self) -> bool:
        self._durable_sequence = max(self._durable_sequence, Shipped.read(self.spool.folder).durable_sequence)
        return self._durable_sequence >= self.spool.last_sequence

    def close(self, timeout_seconds: float) -> None:
        """Spool all that has ended, and end the thread. The shipper goes on; wait so long until it has shipped all."""
        deadline = monotonic() + timeout_seconds
        self._stopping = True
        self._hurry.set()
        self._recorder.wake.set()
        if self._thread is not None:
            self._thread.join(max(timeout_seconds, SPOOLING_SECONDS_MAX))
        if self._turn_lock.acquire(timeout=max(0.1, deadline - monotonic())):
            try:
                self._finish()
            finally:
                self._turn_lock.release()
        if self._helper is not None:
            with suppress(OSError):
                self._helper.ensure()  # or what was spooled just now would wait for the next process
            while monotonic() < deadline and not self._is_durable():
                sleep(0.005)
            self._helper.wait_until_started(STARTING_SECONDS_MAX)
        for journal in (*self._journals_before, *([self.journal] if self.journal is not None else [])):
            journal.close()
        self.spool.close()
        self._metrics.withdraw()

    def _finish(self) -> None:
        """The last fragment: all sessions are closed and all write ids settled."""
        try:
            self._hurry.set()
            self.turn()
            for state in self._states.values():
                self._event(SessionEvent.CLOSE, state.number)
            self._states.clear()
            self._recorder.known_sessions.clear()
            self._seal(last=True)
        except Exception:
            self._metrics.background_failures += 1

    def before_fork(self) -> None:
        """Do not publish metrics meanwhile: the child would inherit locks of the host's metrics that nobody opens."""
        if self._publishing.acquire(timeout=FORK_SECONDS_MAX):
            self._forking.add(threading.get_ident())

    def after_fork_in_parent(self) -> None:
        thread = threading.get_ident()
        if thread in self._forking:
            self._forking.discard(thread)
            self._publishing.release()

    def after_fork_in_child(self) -> None:
        """All of this belongs to the parent."""
        if self.journal is not None:
            self.journal.close()
        if self._helper is not None:
            self._helper.let_go()
        self.spool.close()
