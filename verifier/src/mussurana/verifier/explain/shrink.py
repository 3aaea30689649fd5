"""From a refused history to a handful of transactions that are refused on their own.

Leaving transactions out only weakens a history, so a smaller part that is still refused is still a proof. First take the
transactions that the contradiction rests on, then drop as many as possible, in large pieces and then one by one. What remains
is minimal: without any one of them an order exists.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mussurana.verifier.engine.decide import Decision, decide
from mussurana.verifier.engine.problem import Solver
from mussurana.verifier.engine.resolve import Resolved, restrict
from mussurana.verifier.explain.cycles import Paths
from mussurana.verifier.history import Ints
from mussurana.verifier.verdict import Settings

SHRINK_CALLS_MAX = (
    2_000  # each decides a small history in about a millisecond; what is left then is a proof all the same
)


def suspects(decision: Decision) -> list[Ints]:
    """Sets of transactions (numbers in the history) that probably are refused on their own, smallest first."""
    graph, pruned = decision.graph, decision.pruned
    if graph.chains.clash is not None:
        writers = [int(graph.version_txn[v]) for v in graph.chains.clash if graph.version_txn[v] >= 0]
        return [graph.txns[[*writers, *graph.chains.clash_shown_by]]]
    assert pruned is not None
    paths = Paths(pruned)
    if pruned.cyclic:
        cycle = paths.shortest_cycle()
        assert cycle is not None
        return [graph.txns[sorted(paths.support(cycle))]]
    assert decision.leftover is not None
    found = []
    for nodes in (decision.blamed, decision.leftover.nodes):
        inside = np.zeros(graph.node_count, bool)
        inside[nodes] = True
        derived = np.arange(pruned.derived_start[0], len(pruned.edges.source))
        derived = derived[inside[pruned.edges.source[derived]] & inside[pruned.edges.target[derived]]]
        txns = set(graph.node_txn[nodes].tolist()) - {-1}
        found.append(graph.txns[sorted(txns | paths.support(derived.tolist()))])
    return found


def shrink(resolved: Resolved, settings: Settings, decision: Decision, solver: Solver) -> tuple[Resolved, Ints]:
    """A minimal refused part of the history, and its transactions' numbers. Pre: the decision refused it."""

    def refused(part: Resolved) -> bool:
        return decide(part, settings, solver).refused

    numbers = np.arange(resolved.history.txn_count)
    for txns in suspects(decision):
        part = restrict(resolved, txns)
        if refused(part):
            resolved, numbers = part, np.unique(txns)
            break
    return drop_needless(resolved, numbers, refused)


def drop_needless(resolved: Resolved, numbers: Ints, refused: Callable[[Resolved], bool]) -> tuple[Resolved, Ints]:
    calls = 0
    size = max(1, len(numbers) // 2)
    while True:
        at = 0
        while at < len(numbers) and calls < SHRINK_CALLS_MAX:
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
