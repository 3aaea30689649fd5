"""Rows that were written under another name than they are read by.

A key is called by its table. If the table got another name, was copied with its versions, or got another primary key,
then its rows have versions that were written under other keys, of a table of another name. Nobody is accused of that:
such a read is left out. Within one table rows keep their names, so there a version of another row is a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints, Kind, Status
from mussurana.verifier.rounds.batch import Batch
from mussurana.wire import BEFORE_RECORDING, FENCE_KEY

TABLES_MAX = 100_000
"""Tables that are known to have such rows, some 100 bytes each. A database has thousands, and each migration adds a
name; of more than these only reads are left out whose writers are still known."""


def table_of(name: str | None) -> str | None:
    """The table in the name of a key; empty if it has none, None if not even the name is known."""
    if name is None:
        return None
    table, slash, _ = name.partition("/")
    return table if slash else ""


class MovedRows:
    """Tables that have rows from elsewhere."""

    def __init__(self, tables: Iterable[str] = ()) -> None:
        self.tables = set(tables)

    def add(self, table: str) -> None:
        if len(self.tables) < TABLES_MAX:
            self.tables.add(table)

    def among(
        self, batch: Batch, ops: Ints, forgotten: tuple[Ints, Ints], name: Callable[[int], str | None]
    ) -> npt.NDArray[np.bool_]:
        """Which of these operations, who saw versions that nobody wrote to their keys, saw rows from elsewhere.

        `forgotten` are versions that were written, and to which keys, beside those in the batch. A table that turns out
        to have such rows has more of them, whose writers may be forgotten.
        """
        writes = (batch.kind == Kind.WRITE) & np.isin(batch.version, batch.seen[ops])
        writes &= (batch.status != Status.ABORTED)[batch.op_txn]
        versions, owners = forgotten
        written = zip(np.append(batch.version[writes], versions), np.append(batch.key[writes], owners), strict=True)
        writers: dict[int, set[str | None]] = {}
        for version, owner in written:
            writers.setdefault(int(version), set()).add(table_of(name(int(owner))))
        moved = np.zeros(len(ops), bool)
        for at, (version, key) in enumerate(zip(batch.seen[ops].tolist(), batch.key[ops].tolist(), strict=True)):
            table = table_of(name(key))
            others = writers.get(version, set()) - ({table} - {None})  # where no name is known they may be two
            moved[at] = key != FENCE_KEY and (bool(others) or table in self.tables)
            if moved[at] and table and others:
                self.add(table)
        return moved


def unwritten(batch: Batch) -> Ints:
    """The operations that saw a version that nobody in the batch wrote to their key."""
    writes = batch.kind == Kind.WRITE
    asked = np.flatnonzero(batch.seen > BEFORE_RECORDING)
    written = _pairs(batch.version[writes], batch.key[writes])
    return asked[~np.isin(_pairs(batch.seen[asked], batch.key[asked]), written)]


def _pairs(version: Ints, key: Ints) -> npt.NDArray[np.uint64]:
    """A number for each version of a key; keys are hashes, so that no two have the same."""
    return (version.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ key.view(np.uint64)
