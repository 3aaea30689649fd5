"""Ended transactions as columns: a Fragment of history.proto, built with nothing but `array`.

numpy would be quicker per column and slower to import than everything else here together. Transactions are turned into
columns one at a time, by loops that the interpreter runs in C, so that the work can be done in small slices.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING, cast

from xxhash import xxh3_64_intdigest

from mussurana.collector.extraction import DELETE, UPDATE, WRITES, Operation
from mussurana.collector.losses import Loss
from mussurana.collector.recorder import FENCE_NAME, Txn
from mussurana.wire import FENCE_KEY, counter_of, history_pb2, tag_of

if TYPE_CHECKING:
    from mussurana.collector import coverage
    from mussurana.collector.journal import Journaled
    from mussurana.collector.metrics import Metrics

NAMES_MAX = 200_000
"""Names of keys that are known to have been sent. Some 30 MB; when full it starts anew, and names go out again."""

STATEMENTS_MAX = 10_000
"""Statement texts, likewise. Shapes of statements are few, unless an application writes values into its SQL."""


VERSION_MAX = (1 << 63) - 1
"""A version has to fit into a signed column of a database."""

REPLACING = (UPDATE, DELETE)


def key_of(name: str) -> int:
    """A key's number. Never 0, which is the fence row."""
    return xxh3_64_intdigest(name.encode()) or 1


def printable(text: str) -> str:
    """The same text, fit for a field of protobuf: any Unicode but halves of a character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Names:
    """Which keys and statements have names that the verifier knows already."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.statement_count = 0
        self.forget()

    def forget(self) -> None:
        """Send all names again: it is full, or what carried them was dropped."""
        self.keys: dict[str, int] = {FENCE_NAME: FENCE_KEY}
        self.statements: dict[str, int] = {"": 0}
        self.new_keys: list[tuple[int, str]] = []
        self.new_statements: list[tuple[int, str]] = []

    def add_key(self, name: str) -> int:
        if (known := self.keys.get(name)) is not None:  # it is new, but twice in this transaction
            return known
        if len(self.keys) >= NAMES_MAX:
            self._metrics.cache_evictions += 1
            self.keys = {FENCE_NAME: FENCE_KEY}
        key = self.keys[name] = key_of(name)
        self.new_keys.append((key, name))
        return key

    def add_statement(self, text: str) -> int:
        if (known := self.statements.get(text)) is not None:
            return known
        if len(self.statements) >= STATEMENTS_MAX:
            self._metrics.cache_evictions += 1
            self.statements = {"": 0}
        self.statement_count += 1
        self.statements[text] = self.statement_count
        self.new_statements.append((self.statement_count, printable(text)))
        return self.statement_count


class FragmentBuilder:
    """Collects transactions for the next fragment."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.events: list[history_pb2.SessionEvent] = []
        self.clear()

    def clear(self) -> None:
        self._session = array("I")
        self._status = bytearray()
        self._times = tuple(array("q") for _ in range(4))
        self._op_count = array("I")
        self._isolation = bytearray()
        self._kind = bytearray()
        self._key = array("Q")
        self._version = array("Q")
        self._previous = array("Q")
        self._statement = array("I")
        self._epoch = array("Q")
        self.events.clear()

    @property
    def txn_count(self) -> int:
        return len(self._session)

    @property
    def op_count(self) -> int:
        return len(self._kind)

    def add(self, txn: Txn | Journaled, session: int, status: int, operations: Sequence[Operation]) -> None:
        """Add a transaction. ValueError: an operation has no such key or version; then none of it was added."""
        if operations:
            self._add_operations(operations)
            if operations[0][1] == FENCE_NAME:  # a transaction of its own, with one operation
                self._epoch.append(txn.epoch)
        self._op_count.append(len(operations))
        self._session.append(session)
        self._status.append(status)
        self._isolation.append(txn.isolation)
        begin, begun, commit, committed = self._times
        begin.append(txn.begin_ns)
        begun.append(txn.begun_ns)
        commit.append(txn.commit_ns)
        committed.append(txn.committed_ns)

    def _add_operations(self, operations: Sequence[Operation]) -> None:
        kinds, names, versions, previous, texts = zip(*operations, strict=True)
        known = self._names
        try:
            if max(versions) > VERSION_MAX:
                raise OverflowError
            version = array("Q", versions)
            replaced = array("Q", [p for kind, p in zip(kinds, previous, strict=True) if kind in REPLACING])
            key = array("Q", _numbers(names, known.keys, known.add_key))
        except (TypeError, OverflowError, AttributeError, UnicodeEncodeError):
            raise ValueError("not a key or a version") from None
        self._kind.extend(kinds)
        self._version.extend(version)
        self._previous.extend(replaced)
        self._key.extend(key)
        self._statement.extend(_numbers(texts, known.statements, known.add_statement))

    def sessions(self) -> set[int]:
        return set(self._session)

    def written(self) -> list[int]:
        """All write ids in the fragment."""
        return [version for kind, version in zip(self._kind, self._version, strict=True) if kind in WRITES]

    def seal(
        self,
        sequence: int,
        sealed_ns: int,
        settled: Mapping[int, int],
        gaps: Iterable[history_pb2.Gap] = (),
        covered: Iterable[tuple[coverage.Key, int]] = (),
        fences: history_pb2.Fences | None = None,
        upper: int = 0,
        name: str = "",
        xid_horizon: int = 0,
    ) -> bytes:
        """The fragment as it is spooled and sent. It stays in the builder until `clear`.

        `upper` is a write id that was drawn after all that earlier fragments hold; 0 if that is not known.
        """
        names = self._names
        begin, begun, commit, committed = self._times
        upload = history_pb2.Upload()
        fragment = upload.fragment  # filled in place: to pass a Fragment to Upload would copy it
        fragment.sequence = sequence
        fragment.sealed_ns = sealed_ns
        fragment.collector_name = name
        fragment.xid_horizon = xid_horizon
        # OPEN takes effect before the transactions, the others after them.
        fragment.session_event.extend([*filter(_is_open, self.events), *filterfalse(_is_open, self.events)])
        fragment.txn_count = self.txn_count
        fragment.txn_session = _bytes(self._session)
        fragment.txn_status = bytes(self._status)
        fragment.txn_begin_ns = _bytes(begin)
        fragment.txn_begun_ns = _bytes(begun)
        fragment.txn_commit_ns = _bytes(commit)
        fragment.txn_committed_ns = _bytes(committed)
        fragment.txn_op_count = _bytes(self._op_count)
        fragment.op_kind = bytes(self._kind)
        fragment.op_key = _bytes(self._key)
        fragment.op_version = _bytes(self._version)
        fragment.op_previous = _bytes(self._previous)
        if any(self._isolation):
            fragment.txn_isolation = bytes(self._isolation)
        if any(self._epoch) and len(self._epoch) == self._key.count(FENCE_KEY):
            fragment.fence_epoch = _bytes(self._epoch)
        if any(self._statement):
            fragment.op_statement = _bytes(self._statement)
        for tag, counter in settled.items():
            drawn = counter_of(upper) if tag == tag_of(upper) else 0
            fragment.write_ids.add(tag=tag, settled=counter, drawn=drawn)
        for key, name in names.new_keys:
            fragment.key_name.add(key=key, name=name)
        for number, text in names.new_statements:
            fragment.statement.add(number=number, text=text)
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
        self._names.new_keys.clear()
        self._names.new_statements.clear()
        self.clear()

    def drop(self) -> None:
        """It is lost, and the names in it with it."""
        self._names.forget()
        self.clear()


def _numbers(names: Sequence[str], known: Mapping[str, int], add: Callable[[str], int]) -> list[int]:
    """The numbers of names, which are new only now and then."""
    numbers = list(map(known.get, names))
    if None in numbers:
        return [add(name) if number is None else number for name, number in zip(names, numbers, strict=True)]
    return cast("list[int]", numbers)


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


def _bytes(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
