"""Ended transactions as columns: a Fragment of history.proto, built without numpy.

numpy takes longer to import than everything else here together. Transactions come as columns (columns.py) and are
added one at a time, so that the work can be done in small slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import filterfalse
from typing import TYPE_CHECKING

from mussurana.collector.columns import Batch, Columns
from mussurana.collector.extraction import add_ended, written
from mussurana.collector.losses import Loss
from mussurana.collector.names import Names, printable
from mussurana.collector.recorder import Txn
from mussurana.wire import FENCE_KEY, counter_of, history_pb2, tag_of

if TYPE_CHECKING:
    from mussurana.collector.coverage import Key
    from mussurana.collector.journal_reader import Journaled


class FragmentBuilder:
    """Collects transactions for the next fragment."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.events: list[history_pb2.SessionEvent] = []
        self.clear()

    def clear(self) -> None:
        self._batch = Batch()
        self._sent = (0, 0)  # how much of the new names is in what was sealed
        self._begun = 0  # and how many of the tables that began anew
        self.events.clear()

    @property
    def txn_count(self) -> int:
        return len(self._batch)

    @property
    def op_count(self) -> int:
        return len(self._batch.operations)

    def add(self, txn: Txn | Journaled, session: int, status: int, operations: Columns) -> None:
        """Add a transaction."""
        add_ended(self._batch, txn, session, status, operations)

    def absorb(self, batch: Batch) -> None:
        """Take all that is in a batch. If it raises, all is still there."""
        self._batch.absorb(batch)

    def sessions(self) -> set[int]:
        return set(memoryview(self._batch.content()[0]).cast("I"))

    def written(self) -> list[int]:
        """All write ids in the fragment."""
        return written(self._batch.operations)

    def seal(
        self,
        sequence: int,
        sealed_ns: int,
        settled: Mapping[int, int],
        gaps: Iterable[history_pb2.Gap] = (),
        covered: Iterable[tuple[Key, int]] = (),
        fences: history_pb2.Fences | None = None,
        upper: int = 0,
        name: str = "",
        xid_horizon: int = 0,
        database: history_pb2.Database | None = None,
    ) -> bytes:
        """The fragment as it is spooled and sent. It stays in the builder until `clear`.

        `upper` is a write id that was drawn after all that earlier fragments hold; 0 if that is not known.
        """
        names = self._names
        session, status, begin, begun, commit, committed, op_count, isolation, epoch = self._batch.content()
        upload = history_pb2.Upload()
        fragment = upload.fragment  # filled in place: to pass a Fragment to Upload would copy it
        fragment.sequence = sequence
        fragment.sealed_ns = sealed_ns
        fragment.collector_name = name
        fragment.xid_horizon = xid_horizon
        if database is not None:
            fragment.database.CopyFrom(database)
        # OPEN takes effect before the transactions, the others after them.
        fragment.session_event.extend([*filter(_is_open, self.events), *filterfalse(_is_open, self.events)])
        fragment.txn_count = self.txn_count
        fragment.txn_session = session
        fragment.txn_status = status
        fragment.txn_begin_ns = begin
        fragment.txn_begun_ns = begun
        fragment.txn_commit_ns = commit
        fragment.txn_committed_ns = committed
        fragment.txn_op_count = op_count
        fragment.op_kind, fragment.op_key, fragment.op_version, fragment.op_previous, statements = (
            self._batch.operations.content()
        )
        if any(isolation):
            fragment.txn_isolation = isolation
        fence_count = memoryview(fragment.op_key).cast("Q").tolist().count(FENCE_KEY) if any(epoch) else 0
        if 8 * fence_count == len(epoch):  # else some are not told, and nobody could say which
            fragment.fence_epoch = epoch
        if any(statements):
            fragment.op_statement = statements
        for tag, counter in settled.items():
            drawn = counter_of(upper) if tag == tag_of(upper) else 0
            fragment.write_ids.add(tag=tag, settled=counter, drawn=drawn)
        new_keys, new_statements = names.new_keys(), names.new_statements.copy()
        self._sent = len(new_keys), len(new_statements)
        fragment.MergeFromString(new_keys)
        for number, text in new_statements:
            fragment.statement.add(number=number, text=text)
        beginnings = names.new_beginnings.copy()
        self._begun = len(beginnings)
        for table in beginnings:
            fragment.beginning.add(table=table)
        fragment.gap.extend(gaps)
        for (table, shape, seen), count in covered:
            fragment.coverage.add(
                table=printable(table),
                shape=printable(shape),
                observed=seen,
                statement_count=count,
            )
        if fences is not None:
            fragment.fences.CopyFrom(fences)
        return upload.SerializeToString()

    def sealed(self) -> None:
        """It is in the spool: its names need not be sent again."""
        self._names.sent(*self._sent)
        del self._names.new_beginnings[: self._begun]
        self.clear()

    def drop(self) -> None:
        """It is lost, and the names in it with it."""
        self._names.not_sent(*self._sent)
        self.clear()


def _is_open(event: history_pb2.SessionEvent) -> bool:
    return event.what == history_pb2.SessionEvent.OPEN


def gap_of(loss: Loss, session_numbers: Iterable[int]) -> history_pb2.Gap:
    return history_pb2.Gap(
        reason=loss.reason,
        txn_count=loss.txn_count,
        session=session_numbers if loss.sessions_known else (),
        write_ids=[
            history_pb2.WriteIdRange(tag=tag_of(first), first=counter_of(first), end=counter_of(first) + end - first)
            for first, end in loss.ranges
        ],
    )
