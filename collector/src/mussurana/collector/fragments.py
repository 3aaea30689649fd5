"""Ended transactions as columns: a Fragment of history.proto, built with nothing but `array`.

numpy would be quicker per column and slower to import than everything else here together. A loop over the operations
costs about half a microsecond for each, in the background.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from mussurana.collector.extraction import DELETE, UPDATE, WRITE, Operation
from mussurana.collector.losses import Loss
from mussurana.collector.recorder import FENCE_NAME, Txn
from mussurana.wire import FENCE_KEY, counter_of, history_pb2, tag_of

if TYPE_CHECKING:
    from mussurana.collector import coverage
    from mussurana.collector.metrics import Metrics

NAMES_MAX = 200_000
"""Names of keys that are known to have been sent. Some 30 MB; when full it starts anew, and names go out again."""

STATEMENTS_MAX = 10_000
"""Statement texts, likewise. Shapes of statements are few, unless an application writes values into its SQL."""


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
        if len(self.keys) >= NAMES_MAX:
            self._metrics.cache_evictions += 1
            self.keys = {FENCE_NAME: FENCE_KEY}
        key = self.keys[name] = key_of(name)
        self.new_keys.append((key, name))
        return key

    def add_statement(self, text: str) -> int:
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
        self.events.clear()

    @property
    def txn_count(self) -> int:
        return len(self._session)

    @property
    def op_count(self) -> int:
        return len(self._kind)

    def add(self, txn: Txn, session: int, status: int, operations: Sequence[Operation]) -> None:
        names = self._names
        for kind, name, version, previous, text in operations:
            key = names.keys.get(name)
            self._key.append(names.add_key(name) if key is None else key)
            self._kind.append(kind)
            self._version.append(version)
            if kind in (UPDATE, DELETE):
                self._previous.append(previous)
            number = names.statements.get(text)
            self._statement.append(names.add_statement(text) if number is None else number)
        self._op_count.append(len(operations))
        self._session.append(session)
        self._status.append(status)
        self._isolation.append(txn.isolation)
        times = (txn.begin_ns, txn.begun_ns, txn.commit_ns, txn.committed_ns)
        for column, time in zip(self._times, times, strict=True):
            column.append(time)

    def sessions(self) -> set[int]:
        return set(self._session)

    def written(self) -> list[int]:
        """All write ids in the fragment."""
        return [version for kind, version in zip(self._kind, self._version, strict=True) if WRITE <= kind <= DELETE]

    def seal(
        self,
        sequence: int,
        sealed_ns: int,
        settled: Mapping[int, int],
        gaps: Iterable[history_pb2.Gap] = (),
        covered: Iterable[tuple[coverage.Key, int]] = (),
        fences: history_pb2.Fences | None = None,
    ) -> bytes:
        """The fragment as it is spooled and sent. It stays in the builder until `clear`."""
        names = self._names
        begin, begun, commit, committed = self._times
        has_statements = any(self._statement)
        has_isolation = any(self._isolation)
        fragment = history_pb2.Fragment(
            sequence=sequence,
            sealed_ns=sealed_ns,
            # OPEN takes effect before the transactions, the others after them.
            session_event=[*filter(_is_open, self.events), *filterfalse(_is_open, self.events)],
            txn_count=self.txn_count,
            txn_session=_bytes(self._session),
            txn_status=bytes(self._status),
            txn_begin_ns=_bytes(begin),
            txn_begun_ns=_bytes(begun),
            txn_commit_ns=_bytes(commit),
            txn_committed_ns=_bytes(committed),
            txn_op_count=_bytes(self._op_count),
            txn_isolation=bytes(self._isolation) if has_isolation else b"",
            op_kind=bytes(self._kind),
            op_key=_bytes(self._key),
            op_version=_bytes(self._version),
            op_previous=_bytes(self._previous),
            op_statement=_bytes(self._statement) if has_statements else b"",
            write_ids=[history_pb2.WriteIds(tag=tag, settled=counter) for tag, counter in settled.items()],
            key_name=[history_pb2.KeyName(key=key, name=name) for key, name in names.new_keys],
            statement=[history_pb2.Statement(number=number, text=text) for number, text in names.new_statements],
            gap=gaps,
            coverage=[
                history_pb2.Coverage(table=table, shape=shape, observed=seen, statement_count=count)  # type: ignore[arg-type]
                for (table, shape, seen), count in covered
            ],
            fences=fences,
        )
        return history_pb2.Upload(fragment=fragment).SerializeToString()

    def sealed(self) -> None:
        """It is in the spool: its names need not be sent again."""
        self._names.new_keys.clear()
        self._names.new_statements.clear()
        self.clear()

    def drop(self) -> None:
        """It is lost, and the names in it with it."""
        self._names.forget()
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


def _bytes(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
