"""Why a graph has no order: a cycle, or where two writes may have gone either way, a cycle in either case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mussurana.verifier.engine.components import leave_over
from mussurana.verifier.engine.cycles import Paths
from mussurana.verifier.engine.graph import RW, WW, Edges, Graph
from mussurana.verifier.engine.prune import Pruned, prune, reaches


@dataclass(frozen=True)
class Order:
    """Two chains of a key in this order: because their writers come in this order anyway, or by assumption."""

    first: int  # the versions at the heads of the two chains
    second: int
    paths: Paths
    since: tuple[int, ...] = ()  # the edges that lead from the first's writer to the second's; none for an assumption


@dataclass(frozen=True)
class Refutation:
    orders: tuple[Order, ...]
    paths: Paths
    cycle: list[int]  # edges of the pruned graph in `paths`


def refutations(
    graph: Graph, out_of_time: Callable[[], bool] = lambda: False, orders: tuple[Order, ...] = ()
) -> Iterator[Refutation]:
    """Cases that together cover all possibilities, as far as there is time. Pre: the graph has no order.

    A cycle has only edges that the history shows or that follow from the orders given. Where pruning knew more, the
    order of two writes is either obvious, because one writer comes before the other, or it becomes two cases.
    """
    if out_of_time():
        return
    pruned = prune(graph)
    paths = Paths(pruned)
    shown = [*pruned.derived_start, len(pruned.edges.source)][1]  # below are the edges that need no reason
    if pruned.cyclic:
        cycle = paths.shortest_cycle(shown)
        if cycle is not None:
            yield Refutation(orders, paths, cycle)
            return
        second, first = paths.chains_of(_first_reason(paths, shown))  # so that the case that fails at once comes first
    else:
        first, second = _undecided_pair(pruned)
    pairs = ((first, second), (second, first))
    for c, d in pairs:
        path = paths.path(int(pruned.open.begin_head[c]), int(pruned.open.commit_tail[d]), shown)
        if path is not None:
            obvious = Order(*_heads(pruned, c, d), paths, tuple(path))
            yield from refutations(replace(graph, edges=_with_order(pruned, c, d)), out_of_time, (*orders, obvious))
            return
    for c, d in pairs:
        supposed = Order(*_heads(pruned, c, d), paths)
        yield from refutations(replace(graph, edges=_with_order(pruned, c, d)), out_of_time, (*orders, supposed))


def _heads(pruned: Pruned, c: int, d: int) -> tuple[int, int]:
    return int(pruned.open.head_version[c]), int(pruned.open.head_version[d])


def _first_reason(paths: Paths, shown: int) -> int:
    """A derived edge that follows from shown edges only, and on which a cycle rests."""
    cycle = paths.shortest_cycle()
    assert cycle is not None
    edge = next(e for e in cycle if e >= shown)
    while True:
        deeper = [e for e in paths.reason_path(edge) if e >= shown]
        if not deeper:
            return edge
        edge = deeper[0]


def _undecided_pair(pruned: Pruned) -> tuple[int, int]:
    leftover, opened = leave_over(pruned, pruned.order), pruned.open

    def known(c: int, d: int) -> bool:
        u, v = opened.commit_tail[c], opened.begin_head[d]
        return bool(reaches(pruned.clock, pruned.chain_of, pruned.index_in_chain, u, v))

    pairs = [(int(leftover.chains[a]), int(leftover.chains[b])) for a, b in leftover.problem.pairs()]
    return next((c, d) for c, d in pairs if not known(c, d) and not known(d, c))


def _with_order(pruned: Pruned, c: int, d: int) -> Edges:
    """The graph's own edges and those that hold if chain c comes before chain d."""
    opened = pruned.open
    tail, head = opened.tail_version[c], opened.head_version[d]
    readers = opened.post[opened.post_start[c] : opened.post_start[c + 1]]
    versions = np.full(len(readers), tail), np.full(len(readers), head)
    return Edges.join([
        pruned.graph.edges,
        Edges.of([opened.commit_tail[c]], [opened.begin_head[d]], WW, [tail], [head]),
        Edges.of(readers, np.full(len(readers), opened.commit_head[d]), RW, *versions),
    ])  # fmt: skip
