"""Anomalies added to a history on purpose: what a checker has to find.

A fault is a handful of transactions on keys and sessions of their own, run while the history was. They have nothing to
do with its other transactions, so the history is as valid as it was at every level that permits the anomaly, and
invalid at every level that forbids it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import INITIAL, UNKNOWN_TIME, History, HistoryBuilder, Kind, Status, offsets
from mussurana.verifier.simulate.workload import SERIAL_LEVELS, SNAPSHOT_LEVELS

TICK_NS = 1_000_000_000
"""Between two events of a fault: ten times the default clock drift, so that their order in real time is certain.

With a clock drift of a second or more, the levels with real time permit what only clocks could prove wrong.
"""


class _Transaction(NamedTuple):
    """`operations` are like "rx0 wy1": read x at version 0, write version 1 of y. Version 0 is there from the start."""

    session: str
    begin_tick: int
    commit_tick: int
    operations: str
    status: Status = Status.COMMITTED


_FAULTS: dict[str, tuple[_Transaction, ...]] = {
    "stale read": (_Transaction("a", 0, 1, "rx0 wx1"), _Transaction("b", 2, 3, "rx0")),
    "lost update": (_Transaction("a", 0, 2, "rx0 wx1"), _Transaction("b", 1, 3, "rx0 wx2")),
    "dirty read": (_Transaction("a", 0, 3, "wx1 wy1"), _Transaction("b", 1, 2, "rx1 ry0")),
    "aborted read": (_Transaction("a", 0, 3, "wx1", Status.ABORTED), _Transaction("b", 1, 2, "rx1")),
    "intermediate read": (_Transaction("a", 0, 3, "wx1 wx2"), _Transaction("b", 1, 2, "rx1")),
    "write skew": (_Transaction("a", 0, 2, "rx0 ry0 wx1"), _Transaction("b", 1, 3, "rx0 ry0 wy1")),
    "long fork": (
        _Transaction("a", 0, 2, "wx1"),
        _Transaction("b", 1, 3, "wy1"),
        _Transaction("c", 4, 6, "rx1 ry0"),
        _Transaction("d", 5, 7, "rx0 ry1"),
    ),
    "broken session order": (_Transaction("a", 0, 1, "rx0 wx1"), _Transaction("a", 2, 3, "rx0")),
    "real-time inversion": (_Transaction("a", 0, 1, "rx1"), _Transaction("b", 2, 3, "wx1")),
}

_ALL = SERIAL_LEVELS | SNAPSHOT_LEVELS

FORBIDDEN: dict[str, frozenset[str]] = {
    # Generalized SI lets a snapshot be old, and strong session SI only asks that it be no older than the session.
    "stale read": frozenset({"strict-serializable", "strong-si"}),
    "lost update": _ALL,
    "dirty read": _ALL,
    "aborted read": _ALL,
    "intermediate read": _ALL,
    "write skew": SERIAL_LEVELS,
    "long fork": _ALL,
    "broken session order": SERIAL_LEVELS | {"strong-session-si", "strong-si"},
    # The reader's commit precedes the writer's in real time, which every level that looks at a clock holds against it.
    "real-time inversion": _ALL - {"serializable", "adya-si"},
}
"""Every fault that can be injected, with the levels that forbid it."""


@dataclass(frozen=True)
class Injected:
    anomaly: str
    transactions: tuple[int, ...]  # numbers in the history, in the order of their begins


def inject(history: History, fault: str, seed: int = 0) -> tuple[History, Injected]:
    """The history with one fault in it, one of `FORBIDDEN`. The seed varies when it happens, and how it is numbered."""
    random = Random(seed)
    transactions = _FAULTS[fault]
    has_version_0 = random.random() < 0.5  # else version 0 is the initial one
    if has_version_0:
        names = sorted({operation[1] for one in transactions for operation in one.operations.split()})
        transactions = (_Transaction("z", -2, -1, " ".join(f"w{name}0" for name in names)), *transactions)
    sessions = sorted({one.session for one in transactions})
    random.shuffle(sessions)
    order = sorted(range(len(transactions)), key=lambda at: (sessions.index(transactions[at].session), at))
    added = _build([transactions[at] for at in order], history, has_version_0, _some_time_ns(history, random))
    numbers = [history.txn_count + order.index(at) for at in range(has_version_0, len(transactions))]
    return _join(history, added), Injected(fault, tuple(numbers))


def _some_time_ns(history: History, random: Random) -> int:
    """A time while the history ran, late enough for two ticks before it."""
    known = history.begin_ns[history.begin_ns != UNKNOWN_TIME]
    first, last = (int(known.min()), int(known.max())) if len(known) else (0, 0)
    return random.randint(first, last) + 2 * TICK_NS


def _build(transactions: list[_Transaction], around: History, has_version_0: bool, start_ns: int) -> History:
    lists = bool(np.any(around.kind >= Kind.APPEND))
    last_value = max(0, int(around.value.max(initial=0)))
    build = HistoryBuilder()
    for session, begin_tick, commit_tick, operations, status in transactions:
        begin_ns, commit_ns = start_ns + begin_tick * TICK_NS, start_ns + commit_tick * TICK_NS
        build.transaction(
            f"{session}_fault{around.txn_count}",
            status,
            begin_ns=begin_ns,
            begun_ns=begin_ns,
            commit_ns=commit_ns,
            committed_ns=commit_ns,
        )
        for operation in operations.split():
            kind, key, version = operation[0], f"{operation[1]}_fault{around.txn_count}", int(operation[2])
            # Unique within the key is enough. No fault reads past version 1, so versions 0 and 1 are all of a list.
            seen = [last_value + 1 + v for v in range(0 if has_version_0 else 1, version + 1)]
            match kind, lists:
                case "r", True:
                    build.read_list(key, seen)
                case "r", False:
                    build.read(key, seen[-1] if seen else INITIAL)
                case _, True:
                    build.append(key, last_value + 1 + version)
                case _:
                    build.write(key, last_value + 1 + version)
    return build.finish()


def _join(history: History, added: History) -> History:
    """Both histories as one, with no key and no session in common."""

    def both(column: str, shift: int = 0) -> npt.NDArray[Any]:
        first, second = getattr(history, column), getattr(added, column)
        return np.concatenate([first, (second + shift).astype(first.dtype)])

    return replace(
        history,
        session=both("session", len(history.session_names)),
        status=both("status"),
        begin_ns=both("begin_ns"),
        begun_ns=both("begun_ns"),
        commit_ns=both("commit_ns"),
        committed_ns=both("committed_ns"),
        op_start=offsets(np.concatenate([np.diff(history.op_start), np.diff(added.op_start)])),
        kind=both("kind"),
        key=both("key", len(history.key_names)),
        value=both("value"),
        previous=both("previous"),
        list_start=offsets(np.concatenate([np.diff(history.list_start), np.diff(added.list_start)])),
        list_value=both("list_value"),
        session_names=[*history.session_names, *added.session_names],
        key_names=[*history.key_names, *added.key_names],
        txn_names=[*history.txn_names, *[""] * added.txn_count] if history.txn_names else (),
    )
