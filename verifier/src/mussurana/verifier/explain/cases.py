"""Why a graph has no order: a cycle, or where two writes may have gone either way, a cycle in either case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mussurana.verifier.engine.components import leave_over
from mussurana.verifier.engine.graph import RW, WW, Edges, Graph
from mussurana.verifier.engine.prune import Pruned, prune, reaches
from mussurana.verifier.explain.cycles import Paths


def refutations(
    graph: Graph, assumed: tuple[tuple[int, int], ...] = ()
) -> Iterator[tuple[tuple[tuple[int, int], ...], Paths, list[int]]]:
    """(assumed orders, graph, cycle) for cases that together cover all possibilities. Pre: the graph has no order.

    An assumed order is a pair of versions: the head of the chain that comes first, and that of the other. A cycle has only edges
    that the history shows or that are assumed; where pruning knew more, both orders become cases, one of which fails at once.
    """
    pruned = prune(graph)
    paths = Paths(pruned)
    if pruned.cyclic:
        shown = [*pruned.derived_start, len(pruned.edges.source)][1]  # below are the edges that need no reason
        cycle = paths.shortest_cycle(shown)
        if cycle is not None:
            yield assumed, paths, cycle
            return
        second, first = paths.chains_of(_first_reason(paths, shown))
    else:
        first, second = _undecided_pair(pruned)
    for c, d in ((first, second), (second, first)):
        order = (int(pruned.open.head_version[c]), int(pruned.open.head_version[d]))
        yield from refutations(replace(graph, edges=_with_order(pruned, c, d)), (*assumed, order))


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
