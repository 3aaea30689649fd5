"""Where each transaction of a counterexample stands: sessions are lanes, columns go from left to right.

A transaction stands to the right of everything that was certainly over before it: earlier transactions of its session
and, where times are known, those that had ended when it began. Transactions that overlapped may share a column. Without
times, writers stand left of their readers and of who replaced them, as far as that makes sense in a cycle.

Lanes have no natural order; they are put so that edges cross few other lanes. All cases of a counterexample share one
placement, so that a reader can compare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import combinations, pairwise, permutations

from mussurana.verifier.verdict import Counterexample, ShownTransaction

_LANES_PERMUTED_MAX = 6  # 720 orders are tried in milliseconds; more lanes are improved by exchanging pairs
_LANES_IMPROVED_MAX = 40  # takes some tens of milliseconds; a picture of more is beyond anybody's eyes


@dataclass(frozen=True)
class Placement:
    """The grid: a column and a lane for each transaction, and the sessions from top to bottom."""

    columns: tuple[int, ...]
    lanes: tuple[int, ...]
    sessions: tuple[str, ...]
    by_time: bool

    @property
    def column_count(self) -> int:
        return max(self.columns, default=-1) + 1

    def is_free(self, column: int, lanes: range) -> bool:
        """Whether no transaction stands in this column on any of these lanes."""
        return not any(c == column and lane in lanes for c, lane in zip(self.columns, self.lanes, strict=True))


def place(counterexample: Counterexample) -> Placement:
    transactions = counterexample.transactions
    by_time = all(txn.begin_ns is not None and txn.committed_ns is not None for txn in transactions)
    sessions = _lane_order(counterexample)
    return Placement(
        columns=_columns(counterexample, by_time),
        lanes=tuple(sessions.index(txn.session) for txn in transactions),
        sessions=tuple(sessions),
        by_time=by_time,
    )


def _columns(counterexample: Counterexample, by_time: bool) -> tuple[int, ...]:
    """The longest path to each transaction over the orders that can be drawn from left to right."""
    transactions = counterexample.transactions
    before: list[set[int]] = [set() for _ in transactions]

    def reaches(start: int, end: int) -> bool:
        found, todo = {end}, [end]
        while todo and start not in found:
            new = before[todo.pop()] - found
            found |= new
            todo += new
        return start in found

    def draw(left: int, right: int) -> None:
        if not reaches(right, left):
            before[right].add(left)

    for left, right in _session_pairs(transactions):
        draw(left, right)
    if by_time:
        for left, first in enumerate(transactions):
            for right, second in enumerate(transactions):
                if _ended_before(first, second):
                    draw(left, right)
    else:
        steps = [step for case in counterexample.cases for step in case.steps]
        for kind in ("epoch", "realtime", "wr", "ww"):
            for step in steps:
                if step.kind == kind:
                    draw(step.source, step.target)

    columns: dict[int, int] = {}
    for txn in TopologicalSorter(dict(enumerate(before))).static_order():
        columns[txn] = max((columns[previous] + 1 for previous in before[txn]), default=0)
    return tuple(columns[txn] for txn in range(len(transactions)))


def _session_pairs(transactions: Sequence[ShownTransaction]) -> list[tuple[int, int]]:
    """Neighbours within their session, earlier one first."""
    in_order = sorted(range(len(transactions)), key=lambda n: (transactions[n].session, transactions[n].position, n))
    return [
        (left, right) for left, right in pairwise(in_order) if transactions[left].session == transactions[right].session
    ]


def _ended_before(first: ShownTransaction, second: ShownTransaction) -> bool:
    if first.committed_ns is None or second.begin_ns is None:
        return False
    return first.committed_ns < second.begin_ns


def _lane_order(counterexample: Counterexample) -> list[str]:
    """The sessions from top to bottom; among equally good orders, the one closest to the order of mention."""
    transactions = counterexample.transactions
    sessions = list(dict.fromkeys(txn.session for txn in transactions))
    number = {session: n for n, session in enumerate(sessions)}
    edges = [
        (number[transactions[step.source].session], number[transactions[step.target].session])
        for case in counterexample.cases
        for step in case.steps
    ]

    def lanes_crossed(order: Iterable[int]) -> int:
        lane = {session: n for n, session in enumerate(order)}
        return sum(max(0, abs(lane[source] - lane[target]) - 1) for source, target in edges)

    order = list(range(len(sessions)))
    if len(order) <= _LANES_PERMUTED_MAX:
        order = list(min(permutations(order), key=lanes_crossed))
    else:
        improved = len(order) <= _LANES_IMPROVED_MAX
        while improved:
            improved = False
            for i, j in combinations(range(len(order)), 2):
                exchanged = order.copy()
                exchanged[i], exchanged[j] = order[j], order[i]
                if lanes_crossed(exchanged) < lanes_crossed(order):
                    order, improved = exchanged, True
    return [sessions[n] for n in order]
