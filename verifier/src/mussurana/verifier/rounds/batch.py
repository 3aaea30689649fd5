"""Transactions on their way through the rounds: columns, as in `history.py`, but with the wire's own names for keys.

Keys are 64-bit hashes and versions are write ids, so that batches of different rounds fit together; a round numbers
them densely when it makes a `History` of what it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import NO_ROW, NO_VALUE, Bytes, Ints, Kind, SmallInts, Status, offsets, ranges

PAST_VERSION = -1
"""The version that a key had before the transactions of a closed component wrote it; see `forget.py`. No write id is
negative."""


@dataclass(frozen=True)
class Batch:
    # one entry per transaction
    session: SmallInts  # the verifier's number of its session
    position: Ints  # how many transactions its session had before
    status: Bytes
    begin_ns: Ints
    begun_ns: Ints
    commit_ns: Ints
    committed_ns: Ints
    received_ns: Ints
    epoch: Ints  # of a fence: that of the row when it was over; 0 if not known
    isolation: Bytes  # what it ran at, as `history.Isolation` has it
    op_start: Ints
    # one entry per operation
    kind: Bytes  # Kind.READ or Kind.WRITE
    key: Ints
    version: Ints  # NO_ROW for a read that found no row
    previous: Ints  # for writes: the version replaced, NO_ROW or NO_VALUE
    statement: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.session)

    @staticmethod
    def empty() -> Batch:
        none = np.zeros(0, np.int64)
        return Batch(
            session=none.astype(np.int32),
            position=none,
            status=none.astype(np.uint8),
            begin_ns=none,
            begun_ns=none,
            commit_ns=none,
            committed_ns=none,
            received_ns=none,
            epoch=none,
            isolation=none.astype(np.uint8),
            op_start=np.zeros(1, np.int64),
            kind=none.astype(np.uint8),
            key=none,
            version=none,
            previous=none,
            statement=none.astype(np.uint32),
        )

    @staticmethod
    def join(parts: Sequence[Batch]) -> Batch:
        parts = [part for part in parts if len(part)] or [Batch.empty()]
        if len(parts) == 1:
            return parts[0]
        columns = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Batch)
            if field.name != "op_start"
        }
        return Batch(op_start=offsets(np.concatenate([np.diff(part.op_start) for part in parts])), **columns)

    def select(self, txns: npt.NDArray[np.bool_] | Ints) -> Batch:
        """These transactions, in the order given."""
        chosen = np.flatnonzero(txns) if txns.dtype == bool else txns
        ops = ranges(self.op_start[chosen], self.op_start[chosen + 1])
        return Batch(
            **{name: getattr(self, name)[chosen] for name in TXN_COLUMNS},
            op_start=offsets(self.op_start[chosen + 1] - self.op_start[chosen]),
            **{name: getattr(self, name)[ops] for name in OP_COLUMNS},
        )

    def select_ops(self, keep: npt.NDArray[np.bool_]) -> Batch:
        """The same transactions with only these operations."""
        counts = np.add.reduceat(np.append(keep, False).astype(np.int64), self.op_start[:-1]) if len(self) else ()
        counts = np.where(np.diff(self.op_start) > 0, counts, 0)
        return replace(self, op_start=offsets(counts), **{name: getattr(self, name)[keep] for name in OP_COLUMNS})

    @property
    def op_txn(self) -> Ints:
        """Per operation: its transaction."""
        return np.repeat(np.arange(len(self)), np.diff(self.op_start))

    @property
    def found_no_row(self) -> npt.NDArray[np.bool_]:
        """Per operation: whether it is a read that found no row."""
        return np.asarray((self.kind == Kind.READ) & (self.version == NO_ROW))

    @property
    def seen(self) -> Ints:
        """Per operation: the version it saw, by reading it or by replacing it; NO_VALUE or NO_ROW for none."""
        return np.where(self.kind == Kind.READ, self.version, self.previous)

    @property
    def digest(self) -> int:
        """Of what leaving out transactions and reads changes: another number for another batch, but by bad luck."""
        return hash((len(self), self.op_start.tobytes(), self.seen.tobytes()))

    @property
    def written(self) -> Ints:
        """All versions that stand here as written."""
        written: Ints = self.version[self.kind == Kind.WRITE]
        return written

    def without_reads(self, ops: npt.NDArray[np.bool_]) -> Batch:
        """The same transactions, as if what these operations saw had not been recorded.

        That an INSERT found no row stays: it is no evidence against anybody. It allows the write to overlap writers of
        rows before it, so to forget it would make the history stronger.
        """
        if not ops.any():
            return self
        replaces = (self.kind == Kind.WRITE) & (self.previous != NO_ROW)
        blind = replace(self, previous=np.where(ops & replaces, NO_VALUE, self.previous))
        return blind.select_ops(~(ops & (self.kind == Kind.READ)))

    def columns(self) -> Iterator[tuple[str, np.ndarray]]:
        for field in fields(self):
            yield field.name, getattr(self, field.name)


TXN_COLUMNS = (
    "session",
    "position",
    "status",
    "begin_ns",
    "begun_ns",
    "commit_ns",
    "committed_ns",
    "received_ns",
    "epoch",
    "isolation",
)
OP_COLUMNS = ("kind", "key", "version", "previous", "statement")
COMMITTED, ABORTED, IN_DOUBT = int(Status.COMMITTED), int(Status.ABORTED), int(Status.IN_DOUBT)
