"""The recorder: what an adapter talks to, and all that runs in the application's own threads.

One recorder per process, settings and database (`recorder_for`). An adapter opens a session per connection and reports
what happens on it:

    recorder = recorder_for(settings, database)       # which_database.py; before a session is opened
    session = recorder.open_session("conn 17")

    if session.fence_due(now_ns):                     # between transactions only
        fence = session.begin()
        ...                                           # a *write* fence if session.write_fence_needed
        fence.epoch = 944                             # that of the row when it was over, if it tells
        fence.observations.append((extract_fence, ...))    # its key is FENCE_NAME
        session.end(fence, COMMITTED)
        session.fenced(wrote=True, seconds=0.0004)    # or session.fence_failed()

    txn = session.begin()                             # before BEGIN is sent; session.txn until it ends
    version = recorder.write_id()                     # only between begin and end
    txn.saw((extract, plan, result))                  # that is all the hot path does
    mark = txn.mark(); txn.roll_back_to(mark)         # SAVEPOINT, ROLLBACK TO
    session.committing(txn)                           # before COMMIT is sent
    session.end(txn, COMMITTED)                       # or ABORTED, IN_DOUBT

    session.idle()                                    # optional; quiet sessions are noticed after a while
    if session.closing_fence_due():                   # if the connection is good: a read of the fence row, as above,
        ...                                           # so that all it did comes before the next write fence of anybody
    session.close()

In the background `extract(observation, sink)` is called for each observation and tells the sink (extraction.py):
`sink.read(key_name, version)`, `.write(key_name, version)`, `.insert(key_name, version)`,
`.update(key_name, version, previous)`, `.delete(key_name, version, previous)`, `.absent(key_name)`,
`.statement(text)`, `.lose(version)`.

Nothing here blocks or raises: a failure is counted, and what it cost is declared as a gap. Nothing here looks at the
disk or the network, but for one thing: the first session of a process makes its folder in the spool, whose name
declares the tag of its write ids before the first of them can reach the database.

A session that nobody closed is ended by the garbage collector, which runs in any thread in the middle of anything, also
in the middle of this module. So whatever a session does when it ends takes no lock that is ever held here.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from mussurana.collector import metrics
from mussurana.collector.columns import Batch, Columns
from mussurana.collector.coverage import Coverage, CoverageRow
from mussurana.collector.extraction import Extracted, Observation, add_ended
from mussurana.collector.flag import Flag
from mussurana.collector.journal import Journal, Place
from mussurana.collector.losses import Losses, between
from mussurana.collector.metrics import Metrics
from mussurana.collector.names import Names
from mussurana.collector.settings import Settings
from mussurana.collector.spool import make_folder
from mussurana.collector.which_database import NOT_KNOWN_YET, RecordedDatabase
from mussurana.collector.write_ids import WriteIds
from mussurana.wire import tag_of, write_id

if TYPE_CHECKING:
    from mussurana.collector.background import Background

COMMITTED, ABORTED, IN_DOUBT = range(3)
"""How a transaction ended; in doubt if the answer to COMMIT never came."""

NOT_KNOWN, READ_UNCOMMITTED, READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE = range(5)
"""The isolation that the application asked for."""

NO_SPOOL = "no spool"

logger = logging.getLogger("mussurana")

NS_PER_SECOND = 1_000_000_000

CLOSED_WHILE_STARTING_SECONDS_MAX = 0.2
"""How long the end of a process waits for another thread that is making the folder in the spool."""

RETRY_SECONDS = 60.0
"""How soon to try again what could not be done: to make a folder in the spool, or to fence before a session is closed
within the time for that."""


DATABASES_MAX = 64
"""Of a process, with the same settings: each has a thread and a folder of its own. Of further ones nothing is
recorded. An application has a few, and one that makes a database per tenant may have thousands."""


class SessionInfo:
    """What outlives the Session object, since transactions and the background refer to it."""

    __slots__ = (
        "fence_due_ns",
        "name",
        "number",
        "queued",
        "txns",
        "txns_at_fence",
        "wants_fences",
        "write_fence_needed",
    )

    numbers = count(1)

    def __init__(self, name: str, wants_fences: bool) -> None:
        self.name = name
        self.number = next(self.numbers)  # for the journal; the verifier is told another, see background.py
        self.wants_fences = wants_fences
        self.fence_due_ns = 0
        self.txns = self.txns_at_fence = 0  # how many have ended, and had when the last one was a fence
        self.queued = 0  # how much of it has gone into the queue
        self.write_fence_needed = True

    def reopen(self) -> None:
        """The next fence has to be a write fence, and comes before anything else."""
        self.write_fence_needed = True
        self.fence_due_ns = 0


class Txn:
    """One transaction. The adapter sets times and isolation, and appends observations."""

    __slots__ = (
        "begin_ns",
        "begun_ns",
        "caught_up",
        "commit_ns",
        "committed_ns",
        "epoch",
        "extracted",
        "extracted_from",
        "floor",
        "isolation",
        "journaled",
        "observations",
        "place",
        "rolled_back",
        "rows",
        "session",
        "status",
        "unsettled",
    )

    def __init__(self, session: SessionInfo, floor: int) -> None:
        self.session = session
        self.floor = floor  # its write ids are all above
        self.begin_ns = time_ns()
        self.begun_ns = 0
        self.commit_ns = 0
        self.committed_ns = 0
        self.status = IN_DOUBT
        self.isolation = NOT_KNOWN
        self.epoch = 0  # of a fence
        self.observations: list[Observation] = []
        self.rolled_back: list[tuple[int, int]] = []  # observations first .. end that a savepoint took back
        self.caught_up: Columns | None = None  # what those said that were asked before it ended
        self.unsettled: set[int] = set()  # of these, keys that two rows may have (unsettled.py)
        self.extracted: Extracted | None = None  # if somebody has needed it already,
        self.extracted_from: list[Observation] | None = None  # out of these
        self.journaled: Place | None = None
        self.place = 0  # in the queue, among all of its session
        self.rows = 0  # rows in the results that the observations keep alive; the adapter may add to it

    def saw(self, observation: Observation) -> None:
        """A statement was answered. Now its snapshot is taken, for which BEGIN alone is no reason."""
        if not self.begun_ns:
            self.begun_ns = time_ns()
        self.observations.append(observation)

    def mark(self) -> int:
        return len(self.observations)

    def roll_back_to(self, mark: int) -> None:
        if mark < len(self.observations):
            self.rolled_back.append((mark, len(self.observations)))


class Session:
    """The transactions of one connection, one after the other. Not for two threads at a time, as its connection."""

    __slots__ = ("__weakref__", "_finalizer", "_recorder", "info", "txn")

    def __init__(self, recorder: Recorder, name: str, fenced: bool) -> None:
        self._recorder = recorder
        self.info = SessionInfo(name, fenced)
        self.txn: Txn | None = None
        # A connection that nobody closes is closed by the garbage collector, and so is its session.
        self._finalizer = weakref.finalize(self, recorder.session_gone, self.info)
        self._finalizer.atexit = False

    def begin(self) -> Txn:
        """Start a transaction. One that is still open is taken to have ended, nobody knows how."""
        if self.txn is not None:
            self.end(self.txn, IN_DOUBT)
        recorder = self._recorder
        if not recorder.is_started:  # a forked child goes on with a session of its parent
            recorder.start_quietly()
        txn = Txn(self.info, recorder.write_id())
        recorder.open_txns[self.info] = txn
        self.txn = txn
        return txn

    def committing(self, txn: Txn) -> None:
        """COMMIT is about to be sent."""
        txn.commit_ns = time_ns()
        journal = self._recorder.journal
        if journal is not None:
            journal.write_ahead(txn)

    def end(self, txn: Txn, status: int) -> None:
        """Hand over a transaction that has ended. Ending twice is harmless."""
        recorder = self._recorder
        if self.txn is txn:
            self.txn = None
        if recorder.open_txns.get(self.info) is not txn:
            return  # ended already, or begun before a fork: then it belongs to the parent
        txn.status = status
        if status == COMMITTED and not txn.committed_ns:
            txn.committed_ns = time_ns()
        self.info.txns += 1
        if recorder.journal is not None:
            recorder.journal.end(txn)
        try:
            recorder.take(txn)
        except Exception:
            recorder.hold_back(txn.floor)
        # Not before the background can find it, or it might think that there is no such transaction: see `_seal`.
        del recorder.open_txns[self.info]

    def fence_due(self, now_ns: int) -> bool:
        """Whether a fence shall come before the next transaction. `now_ns` is time.time_ns()."""
        info = self.info
        due_ns = info.fence_due_ns
        return info.wants_fences and (
            # Also if the clock was set back: then the fence is further away than it can be.
            not due_ns - self._recorder.fence_interval_ns <= now_ns < due_ns
            or info.txns - info.txns_at_fence >= self._recorder.fence_txns_max
        )

    def closing_fence_due(self) -> bool:
        """Whether it has done something since its last fence, which nothing would follow if it were closed now."""
        info, recorder = self.info, self._recorder
        return (
            info.wants_fences
            and info.txns > info.txns_at_fence
            and recorder.background is not None
            and not recorder.is_closed
            and monotonic() >= recorder.closing_fences_from
        )

    def closing_fence_hangs(self) -> None:
        """It took too long: whoever closes many connections must not wait for each of them."""
        self._recorder.closing_fences_from = monotonic() + RETRY_SECONDS

    @property
    def write_fence_needed(self) -> bool:
        """Whether the next fence has to write: it is the session's first, or the first after it was idle."""
        return self.info.write_fence_needed

    def fenced(self, wrote: bool, seconds: float = 0.0) -> None:
        """A fence was committed."""
        self._put_off_fence()
        if wrote:
            self.info.write_fence_needed = False
        metrics = self._recorder.metrics
        metrics.fences_issued += 1
        metrics.fence_seconds += seconds

    def fence_failed(self, seconds: float = 0.0) -> None:
        """A fence failed after all retries. The next try comes when the next fence would."""
        self._put_off_fence()
        metrics = self._recorder.metrics
        metrics.fences_failed += 1
        metrics.fence_seconds += seconds

    def idle(self) -> None:
        """Nothing will come for a while: do not wait for this session."""
        try:
            self.info.reopen()
            self._recorder.tell("idle", self.info)
        except Exception:
            self._recorder.metrics.hook_failures += 1

    def close(self) -> None:
        if self._finalizer.detach() is not None:
            self.txn = None
            try:
                self._recorder.session_gone(self.info)
            except Exception:
                self._recorder.metrics.hook_failures += 1

    def _put_off_fence(self) -> None:
        self.info.fence_due_ns = time_ns() + self._recorder.fence_interval_ns
        self.info.txns_at_fence = self.info.txns


class Recorder:
    """Takes ended transactions from all sessions of this process on one database.

    Thread-safe; starts anew in a forked child.
    """

    write_id: Callable[[], int]
    """Draw a write id. Do not keep this function: after a fork it is another one."""

    def __init__(self, settings: Settings, database: RecordedDatabase = NOT_KNOWN_YET) -> None:
        self.settings = settings
        self.database = database
        self.fence_interval_ns = int(settings.fence_interval_seconds * NS_PER_SECOND)
        self.fence_txns_max = settings.fence_txns_max
        self._queue_txns_max = settings.queue_txns_max
        self._queue_rows_max = settings.queue_rows_max
        self._batch_txns_max = settings.batch_txns_max
        self.is_closed = False
        self._is_over = False  # closed, and nothing more can be declared
        # Now, while the application starts, and not at its first connection: protobuf takes some milliseconds.
        from mussurana.collector.background import Background

        self._make_background = Background
        self._begin_anew()
        _recorders.add(self)

    def _begin_anew(self) -> None:
        """The state of one process, which a forked child must not share."""
        self.metrics = Metrics()
        self.names = Names(self.metrics)
        self.coverage = Coverage()
        self.losses = Losses()
        self.write_ids = WriteIds()
        self.write_id = self.write_ids.draw
        self.open_txns: dict[SessionInfo, Txn] = {}
        self.queue: deque[Txn | tuple[str, SessionInfo]] = deque()
        self.ended = Batch()  # transactions that need not be queued
        self.ended_journaled: deque[Place] = deque()  # where the journal has them
        # The numbers that the verifier knows sessions by, and how much of their queue had been dealt with then. Only
        # if that is all of it may a transaction pass by the queue: the order within a session matters.
        self.known_sessions: dict[SessionInfo, tuple[int, int]] = {}
        self.queued_rows = 0
        self.lost_floor: int | None = None
        self._lost_without_spool = False
        self._has_warned = False
        self.xid_horizon = 0  # with versions=xmin: database transactions before this one had ended when recording began
        self.closing_fences_from = 0.0  # by `monotonic`
        self.asleep = False
        self.wake = Flag()
        self.background: Background | None = None
        self.journal: Journal | None = None
        self.is_started = False  # or has failed to
        self._tried_at = 0.0
        self._start_lock = threading.RLock()  # the collector of garbage may open sessions, too

    def open_session(self, name: str, fenced: bool = True) -> Session:
        """A session for a new connection. With `fenced` the adapter will fence it as `fence_due` asks."""
        if self.background is None:
            if not self.is_started or monotonic() - self._tried_at > RETRY_SECONDS:
                self.start_quietly()
        elif not self.background.is_alive:
            self._revive()
        return Session(self, name, fenced)

    def take_on(self, database: RecordedDatabase) -> bool:
        """Record this database, and no other, from now on; returns whether that is so."""
        with self._start_lock:
            if self.database == NOT_KNOWN_YET and not self.is_started:
                self.database = database
        return self.database.identity == database.identity

    def start_quietly(self) -> None:
        try:
            self.start()
        except Exception as error:
            self.metrics.spool_failures += 1
            if not self._has_warned:
                self._has_warned = True
                logger.warning("mussurana records nothing: %s", error)

    def start(self) -> None:
        """Declare this process in the spool and start the background. Without a spool nothing is recorded."""
        with self._start_lock:
            if self.background is not None or self.is_closed:
                return
            self.is_started = True
            self._tried_at = monotonic()
            collector = os.urandom(16)
            folder, lock = make_folder(self.settings, collector, self.write_ids.tag, self.database)
            self.background = self._make_background(self, collector, folder, lock)
            if self.settings.journal == "commit":
                self.journal = self.background.journal = Journal(folder, self.names, self.metrics)
            if self._lost_without_spool:  # what was written so far may have been
                first = write_id(tag_of(self.write_id()), 0)
                self.losses.add(NO_SPOOL, between(first, self.write_id()), (), 0)
            self.background.start()
            _close_at_the_end_of_a_child(self)

    def take(self, txn: Txn) -> None:
        """Hand a transaction that has ended to the background, or declare it lost if the queue is full. Never waits."""
        if self._take_as_numbers(txn):
            return
        queue = self.queue
        if len(queue) >= self._queue_txns_max or self.queued_rows + txn.rows > self._queue_rows_max:
            self._lose(txn, "queue full")
            return
        if self.background is None or self.is_closed:
            self._lose(txn, NO_SPOOL)
            return
        self.queued_rows += txn.rows
        info = txn.session
        info.queued += 1
        txn.place = info.queued
        queue.append(txn)
        if self.asleep:
            self.wake.set()

    def _take_as_numbers(self, txn: Txn) -> bool:
        """Take a transaction at once, if its numbers are all that is left of it.

        Then its objects are freed while they are in the processor's caches, and not a quarter of a second later by the
        background. That is worth more than all that the background would do.
        """
        operations = txn.caught_up
        if operations is None or txn.observations or txn.rolled_back:
            return False
        if operations:
            known = self.known_sessions.get(txn.session)
            if known is None or known[1] != txn.session.queued or len(self.ended) >= self._batch_txns_max:
                return False
            add_ended(self.ended, txn, known[0], txn.status, operations)
            if txn.journaled is not None:
                self.ended_journaled.append(txn.journaled)  # not before: it counts as spooled when those are that ended
            if self.asleep:
                self.wake.set()
        return True

    def tell(self, what: str, info: SessionInfo) -> None:
        if self.background is not None and not self.is_closed:
            info.queued += 1
            self.queue.append((what, info))

    def session_gone(self, info: SessionInfo) -> None:
        """A session was closed, or its connection was collected. What it had open ended, nobody knows how."""
        txn = self.open_txns.get(info)
        if txn is not None:
            try:
                self.take(txn)
            except Exception:
                self.hold_back(txn.floor)
            del self.open_txns[info]
        self.tell("close", info)

    def hold_back(self, floor: int) -> None:
        """A transaction was lost before it could be declared so: from now on nothing above its floor is settled."""
        self.metrics.hook_failures += 1
        self.metrics.txns_lost += 1
        self.lost_floor = floor if self.lost_floor is None else min(self.lost_floor, floor)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all that has ended is in the spool and, if there is a verifier, durable there."""
        return self.background is None or self.background.flush(timeout_seconds)

    def close(self) -> None:
        """Flush within the time of settings.close_seconds and end all threads. What comes after is not recorded."""
        has_lock = self._start_lock.acquire(timeout=CLOSED_WHILE_STARTING_SECONDS_MAX)
        try:
            if self.is_closed:
                return
            self.is_closed = True
        finally:
            if has_lock:
                self._start_lock.release()
        self.journal = None
        try:
            if self.background is not None:
                self.background.close(self.settings.close_seconds)
        except Exception:
            self.metrics.hook_failures += 1
        self._is_over = True

    def _lose(self, txn: Txn, reason: str) -> None:
        self.metrics.txns_lost += 1
        self._declare_lost(txn, reason)
        txn.observations = []
        txn.extracted = txn.extracted_from = None
        if txn.journaled is not None:  # the journal may forget it, or remember it after a kill
            txn.journaled[0].waiting.discard(txn.journaled[1])
        if self.background is not None and not self.background.is_alive:
            self._revive()

    def _declare_lost(self, txn: Txn, reason: str) -> None:
        if self._is_over:
            return
        if self.background is None:
            self._lost_without_spool = True
            if self.background is None:  # else `start` may have looked at that before
                return
        self.losses.add(reason, between(txn.floor, self.write_id()), [txn.session])

    def _revive(self) -> None:
        """The background thread has died, which it should not. Start another, unless somebody is about to."""
        if self.is_closed or not self._start_lock.acquire(blocking=False):
            return
        try:
            if self.background is not None and not self.is_closed and not self.background.is_alive:
                self.metrics.background_failures += 1
                self.background.start()
        except Exception:  # no more threads to be had
            self.metrics.hook_failures += 1
        finally:
            self._start_lock.release()

    def before_fork(self) -> None:
        if self.background is not None and not self.is_closed:
            self.background.before_fork()

    def after_fork_in_parent(self) -> None:
        if self.background is not None:
            self.background.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        if self.background is not None and not self.is_closed:
            self.background.after_fork_in_child()
        self._begin_anew()


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
_shared: dict[Settings, list[Recorder]] = {}
"""The first one was there before anybody knew which database it would record: that of the first connection."""
_too_many: dict[Settings, Recorder] = {}
_shared_lock = threading.RLock()


def recorder_for(settings: Settings, database: RecordedDatabase = NOT_KNOWN_YET) -> Recorder:
    """The recorder that everybody in this process with these settings shares who records this database.

    As long as that is not known it is the first one, which takes on the first database that it is asked for.
    """
    with _shared_lock:
        recorder = _shared_by(settings, database)
        if recorder is None:
            made = Recorder(settings, database)
            recorder = _shared_by(settings, database)
            if recorder is None:  # else the collector of garbage needed one meanwhile
                recorder = _share(made)
        return recorder


def _shared_by(settings: Settings, database: RecordedDatabase) -> Recorder | None:
    recorders = [each for each in _shared.get(settings, ()) if not each.is_closed]
    known = (each for each in recorders if each.database.identity == database.identity)
    if database == NOT_KNOWN_YET:
        return recorders[0] if recorders else None
    return next(known, None) or next((each for each in recorders if each.take_on(database)), None)


def _share(made: Recorder) -> Recorder:
    """Let everybody have a new recorder, unless there are too many: all further databases get one that is closed."""
    settings, database = made.settings, made.database
    others = [other for other in _shared.get(settings, ()) if not other.is_closed]
    if len(others) < DATABASES_MAX:
        _shared[settings] = [*others, made]
        return made
    if settings not in _too_many:
        logger.warning("mussurana does not record %s: it records %d others already", database.name, len(others))
        made.is_closed = True
        _too_many[settings] = made
    return _too_many[settings]


def coverage() -> list[CoverageRow]:
    """What the recorders of this process saw fully, in part or not at all: by table and shape of statement."""
    return [row for recorders in list(_shared.values()) for each in recorders for row in each.coverage.rows()]


def close_all() -> None:
    """Close the shared recorders, as at the end of the process."""
    with _shared_lock:
        recorders = [recorder for shared in _shared.values() for recorder in shared]
        _shared.clear()
        _too_many.clear()
    for recorder in recorders:
        recorder.close()


def _close_at_the_end_of_a_child(recorder: Recorder) -> None:
    """Processes that multiprocessing forks end without running what atexit knows; it has a list of its own."""
    multiprocessing_util = sys.modules.get("multiprocessing.util")
    if multiprocessing_util is not None:
        multiprocessing_util.Finalize(recorder, recorder.close, exitpriority=0)


def _after_fork_in_child() -> None:
    global _shared_lock
    _shared_lock = threading.RLock()  # somebody else may have held it
    metrics.renew_lock()
    _around_fork(Recorder.after_fork_in_child)


def _around_fork(hook: Callable[[Recorder], None]) -> None:
    for recorder in list(_recorders):
        try:
            hook(recorder)
        except Exception:
            recorder.metrics.hook_failures += 1


os.register_at_fork(
    before=lambda: _around_fork(Recorder.before_fork),
    after_in_parent=lambda: _around_fork(Recorder.after_fork_in_parent),
    after_in_child=_after_fork_in_child,
)
atexit.register(close_all)
