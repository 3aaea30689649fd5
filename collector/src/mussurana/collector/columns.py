"""Columns of operations and of transactions: what a transaction, or a fragment, saw and wrote, as numbers.

There are two of each: `PlainColumns` and `PlainBatch` here, and those in `_columns.c`, which are used where it could be
built. If it also fits the installed psycopg (`bind_driver`) it reads libpq's results without an object per value.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from mussurana.wire import FENCE_KEY

READ, WRITE, UPDATE, DELETE, READ_ABSENT, INSERT = range(6)
"""As OpKind in history.proto; repeated here because this module must not load protobuf into the hot path."""

WRITES = (WRITE, UPDATE, DELETE, INSERT)
REPLACING = (UPDATE, DELETE)

VERSION_MAX = (1 << 63) - 1
"""A version has to fit into a signed column of a database."""

Row: TypeAlias = tuple[int, int, int, int, int]
"""An operation: kind, key, version, version replaced (0 but for UPDATE and DELETE), statement."""


class PlainColumns:
    """Columns over operations, in the order in which they happened."""

    __slots__ = ("_keys", "_kinds", "_previous", "_statements", "_versions")

    def __init__(self) -> None:
        self._kinds = bytearray()
        self._keys = array("Q")
        self._versions = array("Q")
        self._previous = array("Q")
        self._statements = array("I")

    def __len__(self) -> int:
        return len(self._kinds)

    def tell(self, kind: int, key: int, version: int, previous: int, statement: int) -> None:
        """Add an operation. If it raises, nothing is added."""
        if version > VERSION_MAX or previous > VERSION_MAX or not 0 <= kind <= INSERT:
            raise OverflowError("the number is too large for its column")
        count = len(self._kinds)
        try:
            self._keys.append(key)
            self._versions.append(version)
            self._previous.append(previous)
            self._statements.append(statement)
            self._kinds.append(kind)
        except Exception:
            self.cut(count)
            raise

    def extend(self, others: PlainColumns) -> None:
        self._kinds += others._kinds
        self._keys += others._keys
        self._versions += others._versions
        self._previous += others._previous
        self._statements += others._statements

    def cut(self, count: int) -> None:
        """Only the first ones stay."""
        for column in (self._kinds, self._keys, self._versions, self._previous, self._statements):
            del column[count:]

    def rows(self) -> list[Row]:
        """The operations, a tuple each."""
        return list(zip(self._kinds, self._keys, self._versions, self._previous, self._statements, strict=True))

    def add_read(self, observations: list[Any], first: int) -> int:
        """Add what observations from the first one on say that need no Python to be read, up to the next that does."""
        return first

    def content(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """The columns as a fragment has them; of the versions replaced only those of operations that replace one."""
        pairs = zip(self._kinds, self._previous, strict=True)
        replaced = array("Q", [previous for kind, previous in pairs if kind in REPLACING])
        return (
            bytes(self._kinds),
            _little_endian(self._keys),
            _little_endian(self._versions),
            _little_endian(replaced),
            _little_endian(self._statements),
        )


class PlainBatch:
    """Transactions that have ended, with their operations. Not for two threads at a time."""

    __slots__ = ("_epoch", "_isolation", "_op_count", "_session", "_status", "_times", "operations")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.operations = PlainColumns()
        self._session = array("I")
        self._status = bytearray()
        self._isolation = bytearray()
        self._times = tuple(array("q") for _ in range(4))
        self._op_count = array("I")
        self._epoch = array("Q")

    def __len__(self) -> int:
        return len(self._session)

    def add(
        self,
        session: int,
        status: int,
        isolation: int,
        begin_ns: int,
        begun_ns: int,
        commit_ns: int,
        committed_ns: int,
        epoch: int,
        operations: PlainColumns,
    ) -> None:
        """Add a transaction; the epoch counts if it is a fence, which is a transaction of its own."""
        if list(operations._keys) == [FENCE_KEY]:
            self._epoch.append(epoch)
        self.operations.extend(operations)
        self._op_count.append(len(operations))
        self._session.append(session)
        self._status.append(status)
        self._isolation.append(isolation)
        for column, time in zip(self._times, (begin_ns, begun_ns, commit_ns, committed_ns), strict=True):
            column.append(time)

    def absorb(self, other: PlainBatch) -> None:
        """Take all that another one has, which is empty then."""
        self.operations.extend(other.operations)
        self._session += other._session
        self._status += other._status
        self._isolation += other._isolation
        self._op_count += other._op_count
        self._epoch += other._epoch
        for column, more in zip(self._times, other._times, strict=True):
            column += more
        other._clear()

    def content(self) -> tuple[bytes, ...]:
        """The columns as a fragment has them: session, status, four times, number of operations, isolation, epoch."""
        return (
            _little_endian(self._session),
            bytes(self._status),
            *map(_little_endian, self._times),
            _little_endian(self._op_count),
            bytes(self._isolation),
            _little_endian(self._epoch),
        )


def rows_in(content: Sequence[bytes]) -> list[Row]:
    """The operations that were made `content` of. ValueError if it is that of none."""
    keys, versions, replaced, statements = map(_numbers, "QQQI", content[1:])
    if len(replaced) != sum(kind in REPLACING for kind in content[0]):
        raise ValueError("the operations replace more versions than there are, or fewer")
    previous = iter(replaced)
    return [
        (kind, key, version, next(previous) if kind in REPLACING else 0, statement)
        for kind, key, version, statement in zip(content[0], keys, versions, statements, strict=True)
    ]


def _numbers(typecode: str, content: bytes) -> array[int]:
    column = array(typecode)
    column.frombytes(content)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


try:
    from mussurana.collector._columns import Batch as Batch
    from mussurana.collector._columns import Columns as Columns
    from mussurana.collector._columns import bind
    from mussurana.collector._columns import narrow as narrow
except ImportError:  # there was no compiler
    if not TYPE_CHECKING:
        Batch, Columns, bind, narrow = PlainBatch, PlainColumns, None, None

SHARED = bind is not None
"""Whether threads can add to a Batch while another one takes from it."""


@lru_cache(maxsize=1)
def bind_driver() -> bool:
    """Whether there are `Reader`s for what the installed psycopg gets from the server."""
    try:
        from psycopg import pq

        return bind is not None and bind(sys.modules[pq.PGresult.__module__].__file__ or "", pq.PGresult)
    except Exception:  # psycopg without an extension module, or none at all
        return False
