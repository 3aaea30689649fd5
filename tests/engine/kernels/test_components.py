"""What is left for the solver, against all edges that undecided pairs might bring."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from math import factorial, prod
from random import Random

import numpy as np
import pytest

from mussurana.verifier.engine import cdcl, prune
from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.components import is_plain, leave_over, possible_edges, strong_components
from mussurana.verifier.engine.graph import Graph
from mussurana.verifier.engine.problem import Ordered
from tests.engine.kernels.busy_history import busy_graphs
from tests.engine.twins import (
    PrunedByHand,
    covers,
    is_cyclic,
    pairs_that_matter,
    prune_by_hand,
    reachability,
)


def pruned_graphs(count: int) -> list[tuple[int, Graph, prune.Pruned, PrunedByHand]]:
    made = [(seed, graph, prune.prune(graph), prune_by_hand(graph)) for seed, graph in busy_graphs(count)]
    return [row for row in made if not row[2].cyclic]


@covers(possible_edges, is_plain)
def test_possible_edges_are_those_of_undecided_pairs_up_to_what_is_implied() -> None:
    left = 0
    for seed, graph, pruned, by_hand in pruned_graphs(600):
        opened, split = pruned.open, graph.level.split
        clocks = pruned.clock, pruned.chain_of, pruned.index_in_chain, pruned.before
        matter = pairs_that_matter(graph, by_hand)
        expected = [edge for c, d in matter for edge in (*c.edges_if_before(d), *d.edges_if_before(c))]
        open_heads = {chain.head for pair in matter for chain in pair}
        plain_heads = {chain.head for rest in by_hand.chains for chain in rest if chain.plain}
        stored = []
        for room in (len(expected), len(expected) // 2, 0):
            source, target = (np.full(room, -1, np.int32) for _ in range(2))
            is_open = np.zeros(opened.size, np.uint8)
            count, twice = possible_edges(opened, pruned.heads, split, *clocks, source, target, is_open)
            assert count <= len(expected)
            assert twice == 2 * len(matter), f"busy_graph({seed})"
            assert set(opened.head_version[is_open != 0].tolist()) == open_heads
            stored.append(list(zip(source[:count].tolist(), target[:count].tolist(), strict=True)))
        whole, *parts = stored
        assert all(part == whole[: len(part)] for part in parts)
        assert np.array_equal(
            reachability(graph.node_count, [*by_hand.edges, *whole]),
            reachability(graph.node_count, [*by_hand.edges, *expected]),
        ), f"busy_graph({seed})"
        for c, head in enumerate(opened.head_version.tolist()):
            assert is_plain(opened, c) == (head in plain_heads)
        left += bool(matter)
    assert left > 100


@covers(strong_components)
def test_components_are_the_nodes_that_reach_each_other() -> None:
    for seed in range(1000):
        rng = Random(seed)
        node_count = rng.randint(1, 12)
        edges = [(rng.randrange(node_count), rng.randrange(node_count)) for _ in range(rng.randint(0, 20))]
        pairs = np.array(edges, np.int32).reshape(-1, 2)
        rows = adjacency(pairs[:, 0].copy(), pairs[:, 1].copy(), node_count)[:2]
        component, count = strong_components(node_count, *rows)
        reach = reachability(node_count, edges)
        assert np.array_equal(component[:, None] == component[None, :], reach & reach.T)
        assert sorted(set(component.tolist())) == list(range(count))


def has_order(graph: Graph, by_hand: PrunedByHand) -> bool:
    """Whether the chains of each key can be put in some order, by trying all."""
    for orders in product(*(permutations(rest) for rest in by_hand.chains)):
        edges = [edge for order in orders for c, d in pairwise(order) for edge in c.edges_if_before(d)]
        together = [*by_hand.edges, *edges]
        if not is_cyclic(reachability(graph.node_count, together), together):
            return True
    return False


@pytest.mark.parametrize("clock_bytes_max", [prune.CLOCK_BYTES_MAX, 0])
def test_what_is_left_can_be_solved_iff_the_whole_can(clock_bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "CLOCK_BYTES_MAX", clock_bytes_max)  # 0: no clocks, so all pairs go to the solver
    tried = 0
    for seed, graph in busy_graphs(600):
        by_hand = prune_by_hand(graph)
        if prod(factorial(len(rest)) for rest in by_hand.chains) > 100:
            continue
        pruned = prune.prune(graph)
        leftover = None if pruned.cyclic else leave_over(pruned, pruned.order)
        solved = leftover is not None and (
            not leftover.undecided_pairs or isinstance(cdcl.solve(leftover.problem, lambda: False), Ordered)
        )
        assert solved == has_order(graph, by_hand), f"busy_graph({seed})"
        tried += leftover is not None and leftover.undecided_pairs > 0
    assert tried > 50
