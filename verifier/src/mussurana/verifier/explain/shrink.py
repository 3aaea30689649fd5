"""From a refused history to a handful of transactions that are refused on their own.

Leaving transactions out only weakens a history, so a smaller part that is still refused is still a proof. First take
the transactions that the contradiction rests on, then drop as many as possible, in large pieces and then one by one.
What remains is minimal: without any one of them an order exists.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mussurana.verifier.engine.cycles import suspects
from mussurana.verifier.engine.decide import Decision, decide
from mussurana.verifier.engine.problem import Solver
from mussurana.verifier.engine.resolve import Resolved, restrict, with_observers
from mussurana.verifier.explain.effort import Effort, boundless
from mussurana.verifier.history import History, Ints, Kind, ranges
from mussurana.verifier.verdict import Settings

SHRINK_CALLS_MAX = (
    2_000  # each decides a small history in about a millisecond; what is left then is a proof all the same
)


def with_rival_writers(resolved: Resolved, txns: Ints) -> Ints:
    """The same transactions and all others that wrote a value which they saw.

    Only where values repeat: the reader saw the one write that it can have seen, but to see that one has to know the
    others.
    """
    if not resolved.repeated_values:
        return txns
    history = resolved.history
    writes = (history.kind == Kind.WRITE) | (history.kind == Kind.APPEND)
    ops = ranges(history.op_start[txns], history.op_start[txns + 1])
    seen = {(int(history.key[op]), v) for op in ops for v in _values_seen(history, int(op))}
    rivals = [np.flatnonzero(writes & (history.key == k) & (history.value == v)) for k, v in seen]
    rival_txns = np.searchsorted(history.op_start, np.concatenate([*rivals, ops]), side="right") - 1
    return np.union1d(txns, rival_txns)


def _values_seen(history: History, op: int) -> list[int]:
    if history.kind[op] == Kind.READ_LIST:
        return history.list_seen(op)
    return [int(history.value[op] if history.kind[op] == Kind.READ else history.previous[op])]


def shrink(
    resolved: Resolved,
    settings: Settings,
    decision: Decision,
    solver: Solver,
    out_of_time: Callable[[], bool] = lambda: False,
    effort: Effort | None = None,
) -> tuple[Resolved, Ints]:
    """A minimal refused part of the history, and its transactions' numbers. Pre: the decision refused it.

    If there is no more time, or the effort is spent, a part that is refused, but may not be minimal.
    """
    effort = effort or boundless()

    def is_over() -> bool:
        return out_of_time() or effort.is_spent

    def refused(part: Resolved) -> bool:
        if out_of_time() or not effort.look(part.history.txn_count):
            return False
        return decide(part, settings, solver, lambda: out_of_time() or effort.search()).refused

    numbers = np.arange(resolved.history.txn_count)
    part = resolved
    for some in suspects(decision):
        txns = with_observers(resolved, some)
        smaller = restrict(resolved, txns)
        if refused(smaller):
            part, numbers = smaller, txns
            break
    part, numbers = drop_needless(part, numbers, refused, is_over)
    whole = with_rival_writers(resolved, numbers)
    return (part, numbers) if len(whole) == len(numbers) else (restrict(resolved, whole), whole)


def drop_needless(
    resolved: Resolved, numbers: Ints, refused: Callable[[Resolved], bool], out_of_time: Callable[[], bool]
) -> tuple[Resolved, Ints]:
    calls = 0
    size = max(1, len(numbers) // 2)
    while True:
        at = 0
        while at < len(numbers) and calls < SHRINK_CALLS_MAX and not out_of_time():
            keep = np.delete(np.arange(len(numbers)), np.s_[at : at + size])
            part = restrict(resolved, keep)
            calls += 1
            if len(keep) and refused(part):
                resolved, numbers = part, numbers[keep]
            else:
                at += size
        if size == 1:
            return resolved, numbers
        size = max(1, size // 2)
