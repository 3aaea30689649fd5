"""The transactions of a counterexample as people see them: with labels, names and versions in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from mussurana.verifier.history import (
    NO_ROW,
    NO_VALUE,
    UNKNOWN_TIME,
    WALL_CLOCK_NS_MIN,
    History,
    Ints,
    Isolation,
    Kind,
    Status,
)
from mussurana.verifier.verdict import ShownOperation, ShownTransaction

OPERATIONS_SHOWN_MAX = 12  # of a longer transaction only those on keys that the story speaks of are shown

_STATUS = {Status.COMMITTED: "committed", Status.ABORTED: "aborted", Status.IN_DOUBT: "in doubt"}


def time_words(time_ns: int) -> str:
    """To the microsecond: clocks may be known to be that close, and then two times must not look the same."""
    seconds, microseconds = divmod(time_ns // 1000, 10**6)
    if time_ns < WALL_CLOCK_NS_MIN:
        return f"{time_ns / 1e9:.6f}".rstrip("0").rstrip(".") + " s"
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}.{microseconds:06d}"


def isolation_words(isolation: Isolation) -> str:
    """As SQL has it."""
    return isolation.name.replace("_", " ") if isolation else ""


@dataclass(frozen=True)
class Cast:
    """The transactions that a story is about: `part` has only them, `numbers` says which ones of `whole` they are."""

    whole: History
    part: History
    numbers: Ints

    def label(self, t: int) -> str:
        return f"T{t + 1}"

    def session(self, t: int) -> str:
        return self.part.session_names[int(self.part.session[t])]

    def isolation(self, t: int) -> Isolation:
        return Isolation(int(self.part.isolation[t])) if len(self.part.isolation) else Isolation.NOT_KNOWN

    def key(self, op: int) -> str:
        return self.part.key_names[int(self.part.key[op])]

    def seen(self, op: int) -> str:
        """What an operation saw or wrote, as a value or a list."""
        if self.part.kind[op] == Kind.READ_LIST:
            return "[" + ", ".join(self.part.value_name(v) for v in self.part.list_seen(op)) + "]"
        return self.part.version_name(int(self.part.key[op]), int(self.part.value[op]))

    def show(self, keys: set[str]) -> tuple[ShownTransaction, ...]:
        """All of them; `keys` are those that the story speaks of."""
        return tuple(self._transaction(t, keys) for t in range(len(self.numbers)))

    def _transaction(self, t: int, keys: set[str]) -> ShownTransaction:
        part, number = self.part, int(self.numbers[t])
        ops = list(part.operations(t))
        if len(ops) > OPERATIONS_SHOWN_MAX:
            ops = [op for op in ops if self.key(op) in keys]
        begin, committed = int(part.begin_ns[t]), int(part.committed_ns[t])
        return ShownTransaction(
            label=self.label(t),
            txn=number,
            session=self.session(t),
            position=int(np.count_nonzero(self.whole.session[:number] == part.session[t])),
            name=part.txn_names[t] if part.txn_names else "",
            status=_STATUS[Status(int(part.status[t]))],  # type: ignore[arg-type]
            begin_ns=None if begin == UNKNOWN_TIME else begin,
            committed_ns=None if committed == UNKNOWN_TIME else committed,
            operations=tuple(self._operation(op) for op in ops),
            isolation=isolation_words(self.isolation(t)),
        )

    def _operation(self, op: int) -> ShownOperation:
        kind, previous = int(self.part.kind[op]), int(self.part.previous[op])
        return ShownOperation(
            kind="write" if kind == Kind.WRITE else "append" if kind == Kind.APPEND else "read",
            key=self.key(op),
            version=self.seen(op),
            previous="" if previous in (NO_VALUE, NO_ROW) else self.part.version_name(int(self.part.key[op]), previous),
            statement=self.part.statements[op] if self.part.statements else "",
        )
