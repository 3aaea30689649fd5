"""The transactions of one connection, as they really are: what begins one, what ends one, and how.

Adapters report what they are about to send and what came back; this module holds what has to be remembered in
between. It believes the server and nobody else: a COMMIT that is answered by ROLLBACK was one, and a COMMIT that is
not answered at all leaves its transaction in doubt.
"""

from __future__ import annotations

from time import time_ns

from mussurana.collector.extraction import Observation, written
from mussurana.collector.recorder import (
    ABORTED,
    COMMITTED,
    IN_DOUBT,
    NOT_KNOWN,
    Recorder,
    Session,
    Txn,
)
from mussurana.collector.sql.control import (
    ASK,
    BEGIN,
    COMMIT,
    FINISH_PREPARED,
    PREPARE,
    RELEASE,
    ROLLBACK,
    ROLLBACK_TO,
    SAVEPOINT,
    SET_DEFAULT,
    SET_TRANSACTION,
    Control,
)
from mussurana.collector.sql.extract import extract_lost, extract_missed, unanswered
from mussurana.collector.sql.plan import Plan
from mussurana.wire import XID_TAG, tag_of

SAVEPOINTS_MAX = 10_000
"""In one transaction. An application that never releases them must not fill our memory; beyond, it is not recorded."""


class Transactions:
    """Not for two threads at a time, as the connection that it belongs to."""

    __slots__ = (
        "default_isolation",
        "next_default",
        "only_reads",
        "prepared",
        "recorder",
        "savepoints",
        "session",
        "sure",
        "txn",
    )

    def __init__(self, recorder: Recorder, session: Session) -> None:
        self.recorder = recorder
        self.session = session
        self.default_isolation = NOT_KNOWN  # of transactions that ask for none; not known: the server is asked
        self.next_default: int | None = None  # once the transaction is committed
        self.txn: Txn | None = None
        self.savepoints: list[tuple[str, int]] = []
        self.only_reads = True  # nothing so far that a ROLLBACK would undo
        self.sure = True  # it is known what was rolled back to which savepoint
        self.prepared = ""  # the name under which the transaction was prepared

    def begin(self, isolation: int = NOT_KNOWN) -> Txn:
        """A transaction is about to be asked for."""
        txn = self.txn = self.session.begin()
        txn.isolation = isolation or self.default_isolation
        if self.savepoints:
            self.savepoints = []
        self.only_reads = self.sure = True
        self.prepared = ""
        return txn

    def committing(self) -> None:
        """COMMIT is about to be sent."""
        if self.txn is not None:
            self.session.committing(self.txn)

    def end(self, status: int) -> None:
        txn = self.txn
        if txn is None:
            return
        self.txn = None
        if self.next_default is not None:
            if status != ABORTED:
                self.default_isolation = self.next_default if status == COMMITTED else NOT_KNOWN
            self.next_default = None
        if not self.sure and status != ABORTED:
            # Some of its writes may have been rolled back, nobody knows which: nothing of it can be relied on.
            self._lose_writes(txn)
        if status == COMMITTED:
            txn.committed_ns = time_ns()
        self.session.end(txn, status)

    def abandon(self) -> None:
        """One of our own hooks failed, so what happens to the transaction from here on is not known.

        Its session takes it to be in doubt. Parts of it may be rolled back, so its writes cannot be relied on either.
        """
        txn, self.txn = self.txn, None
        self.default_isolation, self.next_default = NOT_KNOWN, None
        if txn is not None:
            self._lose_writes(txn)

    def committed(self, tag: bytes) -> None:
        """The server answered a COMMIT, and this is what it says it did."""
        self.end(COMMITTED if tag == b"COMMIT" else ABORTED)

    def commit_failed(self, refused: bool) -> None:
        """A COMMIT ended in an error. `refused`: the server said no, and the connection is good."""
        self.end(ABORTED if refused else IN_DOUBT)

    def lost(self) -> None:
        """The connection is gone, and COMMIT had not been sent."""
        self.end(IN_DOUBT if self.prepared else ABORTED)

    def before(self, control: Control, in_transaction: bool) -> None:
        """A statement that begins or ends something is about to be sent."""
        what = control.what
        if what == BEGIN:
            if not in_transaction:  # else it does nothing, and the server only warns
                self.begin(control.isolation)
        elif what == COMMIT:
            self.committing()

    def after(self, control: Control, tag: bytes, in_transaction: bool) -> None:
        """Such a statement was answered by this tag; `in_transaction` says where that left the connection."""
        what = control.what
        if what in (COMMIT, ROLLBACK):
            isolation = self.txn.isolation if self.txn is not None else NOT_KNOWN
            if what == COMMIT:
                self.committed(tag)
            else:
                self.end(ABORTED)
            if control.chain and in_transaction:
                self.begin(isolation)
        elif what == SAVEPOINT:
            self.savepoint(control.name)
        elif what == RELEASE:
            self.release(control.name)
        elif what == ROLLBACK_TO:
            self.roll_back_to(control.name)
        elif what == SET_TRANSACTION:
            if self.txn is not None and control.isolation:
                self.txn.isolation = max(control.isolation, NOT_KNOWN)
        elif what == SET_DEFAULT:
            self.set_default(NOT_KNOWN if control.isolation == ASK else control.isolation, in_transaction)
        elif what == PREPARE:
            self.prepare(control.name, tag)
        elif what == FINISH_PREPARED:
            self.finish_prepared(control.name, control.committed)

    def set_default(self, isolation: int, in_transaction: bool) -> None:
        """The session was given another default, which is taken back if the transaction is."""
        if in_transaction and self.txn is not None:
            self.next_default = isolation
        else:
            self.default_isolation = NOT_KNOWN if in_transaction else isolation

    def savepoint(self, name: str) -> None:
        if self.txn is not None:
            if len(self.savepoints) >= SAVEPOINTS_MAX:
                self.sure = False
                return
            self.savepoints.append((name, self.txn.mark()))

    def release(self, name: str) -> None:
        index = self._find(name)
        if index is not None:
            del self.savepoints[index:]

    def roll_back_to(self, name: str) -> None:
        index = self._find(name)
        if self.next_default is not None:
            self.next_default = NOT_KNOWN  # it may have been set since
        if self.txn is None:
            return
        if index is None:
            self.sure = False
            return
        self.txn.roll_back_to(self.savepoints[index][1])
        del self.savepoints[index + 1 :]

    def prepare(self, name: str, tag: bytes) -> None:
        """PREPARE TRANSACTION was answered. Most often its COMMIT PREPARED comes next; if not, it is in doubt."""
        if tag == b"PREPARE TRANSACTION":
            self.prepared = name
            if self.txn is not None:
                self.txn.commit_ns = time_ns()
        else:
            self.end(ABORTED)

    def finish_prepared(self, name: str, committed: bool) -> None:
        if self.txn is not None and self.prepared == name:
            self.end(COMMITTED if committed else ABORTED)

    def lose(self, plan: Plan | None, write_id: int) -> None:
        """A statement may have run, and nothing is known of its answer."""
        lost = unanswered(plan, write_id)
        if lost is not None and self.txn is not None:
            self.txn.observations.append(lost)

    def _find(self, name: str) -> int | None:
        for index in range(len(self.savepoints) - 1, -1, -1):
            if self.savepoints[index][0] == name:
                return index
        return None

    def _lose_writes(self, txn: Txn) -> None:
        lost: list[Observation | None] = []
        if txn.caught_up is not None:
            versions = written(txn.caught_up)
            lost += [(extract_lost, version) for version in versions if tag_of(version) != XID_TAG]
            if any(tag_of(version) == XID_TAG for version in versions):
                lost.append((extract_missed, None))  # their tables are not known any more
        for each in txn.observations:
            if each[0] in (extract_lost, extract_missed):
                lost.append(each)
            elif len(each) > 4:
                lost.append(unanswered(each[1], each[4]))
        txn.observations = [each for each in lost if each is not None]
        txn.rolled_back = []
        txn.caught_up = None
