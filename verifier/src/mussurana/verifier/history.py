"""A history: what the clients of a database sent and what they got back.

Struct of arrays, because a check takes microseconds per transaction and Python objects would cost more
than the check itself (design 3.1). Transactions are numbered in the order they were added; those of one
session appear in session order. The operations of a transaction are a slice of the operation columns.

A *version* of a key is named by its `value`: the write id a collector attached, or the value itself where
the workload writes unique values. `INITIAL` is the version a key had before the history began.

A transaction's begin and commit happen inside the database, out of sight. What a client knows is
an interval for each: `begin_ns .. begun_ns` and `commit_ns .. committed_ns`. Sources that record two times per
transaction leave the inner two `UNKNOWN_TIME`, which stands for the widest interval possible.

This module says nothing about what a history means; see `engine/resolve.py` for that.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
SmallInts = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

INITIAL = int(np.iinfo(np.int64).min)
"""The version that a key has before anybody in the history writes it."""

NO_VALUE = INITIAL + 1
"""In `previous`: the version that a write replaced was not recorded."""

NO_ROW = INITIAL + 2
"""In `previous`: the database said that there was no row, so that the write began a new one."""

UNKNOWN_TIME = INITIAL
"""In the time columns: not recorded."""

WALL_CLOCK_NS_MIN = 631_152_000 * 10**9
"""Times before 1990 count from the start of a recording, not from 1970."""


class HistoryError(Exception):
    """Input that is not a history. The message names the file and the place, and says what was expected."""


class Status(IntEnum):
    """How a transaction ended, as far as its client knows."""

    COMMITTED = 0
    ABORTED = 1
    IN_DOUBT = 2  # the answer to COMMIT never came: it took effect, or it did not


class Isolation(IntEnum):
    """What a transaction ran at, as far as its collector knows: nobody promised it more than that."""

    NOT_KNOWN = 0
    READ_UNCOMMITTED = 1
    READ_COMMITTED = 2
    REPEATABLE_READ = 3
    SERIALIZABLE = 4


NO_ISOLATION = np.zeros(0, np.uint8)
"""Of a history that says nothing of it."""


class Kind(IntEnum):
    """What an operation does to its key."""

    READ = 0  # saw version `value`
    WRITE = 1  # installed version `value`
    APPEND = 2  # installed version `value` at the end of a list
    READ_LIST = 3  # saw a whole list, whose last element is `value`


class Named(Sequence[str]):
    """Names that are made when somebody looks, since hardly any of them are ever shown."""

    def __init__(self, ids: Ints | Sequence[int], name: Callable[[int], str]) -> None:
        self._ids, self._name = ids, name

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return Named(self._ids[at], self._name)
        return self._name(int(self._ids[at]))


@dataclass(frozen=True)
class LeftOut:
    """Something in the input that takes no part in the check, so that nothing is dropped silently."""

    what: str
    count: int


@dataclass(frozen=True)
class History:
    """Columns over transactions, operations and list elements. Built by `HistoryBuilder` or a format reader."""

    # one entry per transaction
    session: SmallInts
    status: Bytes
    begin_ns: Ints  # the client asked to begin; the database began no earlier
    begun_ns: Ints  # the first answer was here; the database began no later
    commit_ns: Ints  # the client asked to commit; the database committed no earlier
    committed_ns: Ints  # the commit was confirmed; the database committed no later
    op_start: Ints  # transaction t has operations op_start[t] .. op_start[t + 1]
    # one entry per operation
    kind: Bytes
    key: SmallInts
    value: Ints
    previous: Ints  # for writes and appends: the version replaced, where that is known, or NO_ROW; else NO_VALUE
    list_start: Ints  # a READ_LIST operation o saw list_value[list_start[o] : list_start[o + 1]]
    list_value: Ints
    # names, for people
    session_names: Sequence[str]
    key_names: Sequence[str]
    txn_names: Sequence[str] = ()  # empty, or one per transaction: what its source calls it
    value_names: dict[int, str] = field(default_factory=dict)  # only where they differ from the number
    initial_names: Sequence[str] = ()  # empty, or one per key: what its initial version is called; "" for just that
    statements: Sequence[str] = ()  # empty, or one per operation: the SQL that it came from, "" where not known
    left_out: tuple[LeftOut, ...] = ()
    source: str = ""
    isolation: Bytes = field(default_factory=lambda: NO_ISOLATION)  # empty, or one per transaction; no verdict asks
    past: int = 0  # so many transactions, the first ones, are known to come before all others

    @property
    def txn_count(self) -> int:
        return len(self.session)

    @property
    def op_count(self) -> int:
        return len(self.kind)

    def value_name(self, value: int) -> str:
        if value == INITIAL:
            return "initial"
        return self.value_names.get(value, str(value))

    def version_name(self, key: int, value: int) -> str:
        if value == INITIAL and self.initial_names:
            return self.initial_names[key] or "initial"
        return self.value_name(value)

    def operations(self, txn: int) -> range:
        return range(int(self.op_start[txn]), int(self.op_start[txn + 1]))

    def list_seen(self, op: int) -> list[int]:
        return [int(v) for v in self.list_value[self.list_start[op] : self.list_start[op + 1]]]

    def fingerprint(self) -> dict[str, int]:
        """Tells histories apart by all that a verdict depends on, so that a proof is not held against another one."""
        txns = (
            self.session,
            self.status,
            self.begin_ns,
            self.begun_ns,
            self.commit_ns,
            self.committed_ns,
            self.op_start,
        )
        operations = (self.kind, self.key, self.value, self.previous, self.list_start, self.list_value)
        crc32 = self.past
        for column in (*txns, *operations):
            crc32 = zlib.crc32(column.tobytes(), crc32)
        return {"transactions": self.txn_count, "operations": self.op_count, "crc32": crc32}

    def restrict(self, txns: Iterable[int]) -> History:
        """The same history with only these transactions and the keys they touch, both renumbered in their old order."""
        keep = np.unique(np.fromiter(txns, np.int64))
        ops = ranges(self.op_start[keep], self.op_start[keep + 1])
        elements = ranges(self.list_start[ops], self.list_start[ops + 1])
        keys, key = np.unique(self.key[ops], return_inverse=True)
        return History(
            session=self.session[keep],
            status=self.status[keep],
            begin_ns=self.begin_ns[keep],
            begun_ns=self.begun_ns[keep],
            commit_ns=self.commit_ns[keep],
            committed_ns=self.committed_ns[keep],
            op_start=offsets(self.op_start[keep + 1] - self.op_start[keep]),
            kind=self.kind[ops],
            key=key.astype(np.int32),
            value=self.value[ops],
            previous=self.previous[ops],
            list_start=offsets(self.list_start[ops + 1] - self.list_start[ops]),
            list_value=self.list_value[elements],
            session_names=self.session_names,
            key_names=[self.key_names[int(k)] for k in keys],
            txn_names=[self.txn_names[int(t)] for t in keep] if self.txn_names else (),
            value_names=self.value_names,
            initial_names=[self.initial_names[int(k)] for k in keys] if self.initial_names else (),
            statements=Named(ops, lambda op: self.statements[op]) if self.statements else (),
            left_out=self.left_out,
            source=self.source,
            isolation=self.isolation[keep] if len(self.isolation) else NO_ISOLATION,
            past=int(np.searchsorted(keep, self.past)),
        )


def ranges(start: Ints, end: Ints) -> Ints:
    """All numbers in start[0] .. end[0], then those in start[1] .. end[1], and so on."""
    counts = end - start
    return np.arange(counts.sum()) + np.repeat(start - offsets(counts)[:-1], counts)


def offsets(counts: npt.ArrayLike) -> Ints:
    """Where each run starts and the last one ends, given how long the runs are."""
    lengths = np.asarray(counts, np.int64)
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


class HistoryBuilder:
    """Collects transactions one by one; convenient, and fast enough for formats that are parsed in Python.

    >>> build = HistoryBuilder()
    >>> t = build.transaction("alice")
    >>> build.write("x", 1)
    >>> build.transaction("bob")
    1
    >>> build.read("x", 1)
    >>> build.finish().txn_count
    2
    """

    def __init__(self, source: str = "") -> None:
        self.source = source
        self.value_names: dict[int, str] = {}
        self.left_out: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._txn: list[tuple[int, int, int, int, int, int]] = []
        self._txn_names: list[str] = []
        self._op_counts: list[int] = []
        self._kind: list[int] = []
        self._key: list[int] = []
        self._value: list[int] = []
        self._previous: list[int] = []
        self._list_counts: list[int] = []
        self._list_value: list[int] = []

    def transaction(
        self,
        session: str,
        status: Status = Status.COMMITTED,
        *,
        begin_ns: int = UNKNOWN_TIME,
        begun_ns: int = UNKNOWN_TIME,
        commit_ns: int = UNKNOWN_TIME,
        committed_ns: int = UNKNOWN_TIME,
        name: str = "",
    ) -> int:
        """Start the next transaction of a session; operations added from now on belong to it."""
        number = self._sessions.setdefault(session, len(self._sessions))
        self._txn.append((number, int(status), begin_ns, begun_ns, commit_ns, committed_ns))
        self._txn_names.append(name)
        self._op_counts.append(0)
        return len(self._txn) - 1

    def read(self, key: str, value: int) -> None:
        self._operation(Kind.READ, key, value)

    def write(self, key: str, value: int, previous: int = NO_VALUE) -> None:
        self._operation(Kind.WRITE, key, value, previous)

    def append(self, key: str, value: int, previous: int = NO_VALUE) -> None:
        self._operation(Kind.APPEND, key, value, previous)

    def read_list(self, key: str, values: Sequence[int]) -> None:
        self._operation(Kind.READ_LIST, key, values[-1] if values else INITIAL)
        self._list_counts[-1] = len(values)
        self._list_value.extend(values)

    def leave_out(self, what: str, count: int = 1) -> None:
        """Remember that something of the input does not take part."""
        self.left_out[what] = self.left_out.get(what, 0) + count

    def _operation(self, kind: Kind, key: str, value: int, previous: int = NO_VALUE) -> None:
        self._op_counts[-1] += 1
        self._kind.append(kind)
        self._key.append(self._keys.setdefault(key, len(self._keys)))
        self._value.append(value)
        self._previous.append(previous)
        self._list_counts.append(0)

    def finish(self) -> History:
        columns = np.array(self._txn, np.int64).reshape(len(self._txn), 6)
        return History(
            session=columns[:, 0].astype(np.int32),
            status=columns[:, 1].astype(np.uint8),
            begin_ns=columns[:, 2].copy(),
            begun_ns=columns[:, 3].copy(),
            commit_ns=columns[:, 4].copy(),
            committed_ns=columns[:, 5].copy(),
            op_start=offsets(self._op_counts),
            kind=np.array(self._kind, np.uint8),
            key=np.array(self._key, np.int32),
            value=np.array(self._value, np.int64),
            previous=np.array(self._previous, np.int64),
            list_start=offsets(self._list_counts),
            list_value=np.array(self._list_value, np.int64),
            session_names=list(self._sessions),
            key_names=list(self._keys),
            txn_names=self._txn_names if any(self._txn_names) else (),
            value_names=self.value_names,
            left_out=tuple(LeftOut(what, count) for what, count in self.left_out.items()),
            source=self.source,
        )
