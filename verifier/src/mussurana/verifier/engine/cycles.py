"""Cycles in the known graph, and what the edges on them rest on.

Edges that pruning derived are not facts by themselves: each follows from a path among the edges of earlier passes.
`reason_path` finds that path again, so that nothing has to be remembered while pruning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.components import strong_components
from mussurana.verifier.engine.prune import Pruned
from mussurana.verifier.engine.reach import shortest_path
from mussurana.verifier.history import Ints

if TYPE_CHECKING:
    from mussurana.verifier.engine.decide import Decision

CYCLE_STARTS_MAX = 64  # nodes from which a shortest cycle is looked for; each costs one search of the graph


@dataclass
class Paths:
    """Path finding in a pruned graph."""

    pruned: Pruned
    _out: tuple[np.ndarray, np.ndarray, np.ndarray] = field(init=False)
    _parent: np.ndarray = field(init=False)
    _parent_edge: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        n = self.pruned.graph.node_count
        self._out = adjacency(self.pruned.edges.source, self.pruned.edges.target, n)
        self._parent = np.empty(n, np.int32)
        self._parent_edge = np.empty(n, np.int32)

    def path(self, source: int, target: int, edges_before: int | None = None) -> list[int] | None:
        """The edges of a shortest path of at least one edge, or None."""
        limit = len(self.pruned.edges.source) if edges_before is None else edges_before
        if not shortest_path(*self._out, source, target, limit, self._parent_edge, self._parent):
            return None
        edges: list[int] = []
        node = target
        while not edges or node != source:
            edges.append(int(self._parent_edge[node]))
            node = int(self._parent[node])
        return edges[::-1]

    def shortest_cycle(self, edges_before: int | None = None) -> list[int] | None:
        """A shortest cycle among those through a sample of the nodes on cycles, or None if there is none."""
        return min(self.cycles(edges_before), key=len, default=None)

    def cycles(self, edges_before: int | None = None) -> Iterator[list[int]]:
        """The edges of a shortest cycle through each of a sample of the nodes on cycles."""
        on_cycle = self.nodes_on_cycles()
        for node in on_cycle[:: max(1, len(on_cycle) // CYCLE_STARTS_MAX)]:
            found = self.path(int(node), int(node), edges_before)
            if found is not None:
                yield found

    def nodes_on_cycles(self) -> np.ndarray:
        component, count = strong_components(self.pruned.graph.node_count, self._out[0], self._out[1])
        return np.flatnonzero(np.bincount(component, minlength=count)[component] > 1)

    def is_derived(self, edge: int) -> bool:
        return edge >= self.pruned.derived_start[0]

    def reason_path(self, edge: int) -> list[int]:
        """Why a derived edge holds: the path that the other order of its two chains would have closed to a cycle.

        Empty for the order between a key's initial version and the rest, which needs no reason.
        """
        pruned, opened = self.pruned, self.pruned.open
        starts = [*pruned.derived_start, len(pruned.edges.source)]
        in_pass = int(np.searchsorted(starts, edge, side="right")) - 1
        if in_pass == 0:
            return []
        before = starts[in_pass]
        d, c = self.chains_of(edge)
        goals = [(int(opened.begin_head[d]), int(opened.commit_tail[c]))]
        goals += [
            (int(opened.commit_head[d]), int(r)) for r in opened.post[opened.post_start[c] : opened.post_start[c + 1]]
        ]
        # The first goal is the order of the two writers themselves, which is easiest to understand.
        return next(path for u, v in goals if (path := self.path(u, v, before)) is not None)

    def chains_of(self, edge: int) -> tuple[int, int]:
        """The two open chains (earlier, later) that a derived edge puts in order; -1 for the initial chain."""
        opened, edges = self.pruned.open, self.pruned.edges
        tail = np.flatnonzero(opened.tail_version == edges.version[edge])
        head = np.flatnonzero(opened.head_version == edges.next_version[edge])
        return (int(tail[0]) if len(tail) else -1), int(head[0])

    def support(self, edges: list[int]) -> set[int]:
        """The graph's transactions that these edges and, in turn, their reasons rest on."""
        graph = self.pruned.graph
        txns: set[int] = set()
        waiting, done = list(edges), set(edges)
        while waiting:
            edge = waiting.pop()
            for node in (self.pruned.edges.source[edge], self.pruned.edges.target[edge]):
                if graph.node_txn[node] >= 0:
                    txns.add(int(graph.node_txn[node]))
            txns |= self._links(int(self.pruned.edges.version[edge]), last=True)
            if not self.is_derived(edge):
                continue
            for chain in self.chains_of(edge):
                txns |= self._links(int(self.pruned.open.head_version[chain]) if chain >= 0 else self._initial(edge))
            for other in self.reason_path(edge):
                if other not in done:
                    done.add(other)
                    waiting.append(other)
        return txns

    def _initial(self, edge: int) -> int:
        """The initial version of the key that an edge is about."""
        return int(self.pruned.graph.version_key[self.pruned.edges.next_version[edge]])

    def _links(self, version: int, last: bool = False) -> set[int]:
        """The writers of a version and of all that are linked to come after it, and who shows the links.

        With `last` only of the version itself.
        """
        graph = self.pruned.graph
        txns: set[int] = set()
        while version >= 0:
            txns |= {int(graph.version_txn[version]), int(graph.chains.shown_by[version])} - {-1}
            version = -1 if last else int(graph.chains.following[version])
        return txns


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


def all_suspects(decision: Decision) -> Ints:
    """Transactions (numbers in the history) of many contradictions at once, where there are many."""
    if decision.pruned is None or not decision.pruned.cyclic:
        return suspects(decision)[0]
    paths = Paths(decision.pruned)
    return decision.graph.txns[sorted(paths.support([edge for cycle in paths.cycles() for edge in cycle]))]
