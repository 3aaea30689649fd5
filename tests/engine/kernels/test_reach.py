"""Orders, chains, clocks and paths, against a matrix of who reaches whom."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.prune import reaches
from mussurana.verifier.engine.reach import (
    block_shift,
    clock_type,
    count_reaching,
    cover_by_chains,
    extend_rows,
    merge_blocks,
    merge_clock,
    replace_clock,
    shortest_path,
    sort_again,
    topological_order,
)
from tests.engine.twins import Edge, clock_reach, covers, is_cyclic, reachability

Graphs = Callable[[], Iterator[tuple[Random, int, list[Edge], list[Edge]]]]


def random_edges(rng: Random, node_count: int, count: int, acyclic: bool) -> list[Edge]:
    order = rng.sample(range(node_count), node_count)
    edges = [(rng.randrange(node_count), rng.randrange(node_count)) for _ in range(count)]
    if acyclic:
        edges = [(order[min(u, v)], order[max(u, v)]) for u, v in edges if u != v]
    return edges


def columns(edges: list[Edge]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def rows_of(node_count: int, edges: list[Edge]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of predecessors."""
    source, target = columns(edges)
    start, nodes, _ = adjacency(target, source, node_count)
    return start, nodes


def first_come_first_served(node_count: int, edges: list[Edge]) -> list[int]:
    """Kahn's algorithm, the edges of a node in the order of its row."""
    waiting = [sum(v == node for _, v in edges) for node in range(node_count)]
    queue = deque(node for node in range(node_count) if waiting[node] == 0)
    order = []
    while queue:
        u = queue.popleft()
        order.append(u)
        for source, v in edges:
            if source == u:
                waiting[v] -= 1
                if waiting[v] == 0:
                    queue.append(v)
    return order


@covers(topological_order)
def test_an_order_follows_all_edges_or_ends_before_a_cycle() -> None:
    cyclic = 0
    for seed in range(1000):
        rng = Random(seed)
        node_count = rng.randint(1, 10)
        edges = random_edges(rng, node_count, rng.randint(0, 15), acyclic=rng.random() < 0.6)
        order = np.empty(node_count, np.int32)
        done = topological_order(node_count, *adjacency(*columns(edges), node_count)[:2], order)
        assert order[:done].tolist() == first_come_first_served(node_count, edges)
        reach = reachability(node_count, edges)
        assert (done == node_count) == (not is_cyclic(reach, edges))
        place = {int(node): at for at, node in enumerate(order[:done])}
        assert all(place[u] < place[v] for u, v in edges if v in place)
        cyclic += done < node_count
    assert 200 < cyclic < 800


def predecessors_first(old: list[int], rows: list[list[int]]) -> list[int]:
    order: list[int] = []

    def place(v: int) -> None:
        if v not in order:
            for u in rows[v]:
                place(u)
            order.append(v)

    for v in old:
        place(v)
    return order


@covers(sort_again)
def test_an_order_is_changed_only_as_far_as_edges_go_backwards() -> None:
    kept = cyclic = 0
    for seed in range(1000):
        rng = Random(seed)
        node_count = rng.randint(1, 10)
        edges = random_edges(rng, node_count, rng.randint(0, 15), acyclic=rng.random() < 0.7)
        start, nodes = rows_of(node_count, edges)
        old = rng.sample(range(node_count), node_count)
        order = np.array(old, np.int32)
        possible = sort_again(start, nodes, order)
        assert possible != is_cyclic(reachability(node_count, edges), edges)
        if possible:
            rows = [nodes[start[v] : start[v + 1]].tolist() for v in range(node_count)]
            assert order.tolist() == predecessors_first(old, rows)
            place = {int(node): at for at, node in enumerate(order)}
            assert all(place[u] < place[v] for u, v in edges)
            kept += bool(edges) and order.tolist() == old
            again = order.copy()
            assert sort_again(start, nodes, again)
            assert again.tolist() == order.tolist()
        cyclic += not possible
    assert kept > 50
    assert 100 < cyclic < 600


@covers(extend_rows)
def test_rows_lose_what_is_not_needed_and_get_what_is_new() -> None:
    for seed in range(500):
        rng = Random(seed)
        node_count = rng.randint(1, 8)
        edges, new = (random_edges(rng, node_count, rng.randint(0, 15), acyclic=False) for _ in range(2))
        start, nodes = rows_of(node_count, edges)
        needed = np.array([rng.random() < 0.7 for _ in nodes], np.uint8)
        new_start, new_nodes = extend_rows(start, nodes, needed, *columns(new))
        for v in range(node_count):
            expected = [int(nodes[i]) for i in range(start[v], start[v + 1]) if needed[i]]
            expected += [u for u, target in new if target == v]
            assert new_nodes[new_start[v] : new_start[v + 1]].tolist() == expected
        assert new_start[-1] == len(new_nodes)


def covered(rng: Random, node_count: int, edges: list[Edge]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(order, preferred next nodes, chain of each node, index in it) for an acyclic graph."""
    order = np.empty(node_count, np.int32)
    assert topological_order(node_count, *adjacency(*columns(edges), node_count)[:2], order) == node_count
    next_node = np.full(node_count, -1, np.int32)
    for u, v in rng.sample(edges, rng.randint(0, len(edges))):
        if next_node[u] < 0 and v not in next_node:
            next_node[u] = v
    chain_of, index = np.zeros(node_count, np.int32), np.zeros(node_count, np.int32)
    chains = cover_by_chains(order, *rows_of(node_count, edges), next_node, chain_of, index)
    assert chains == len(set(chain_of.tolist()))
    return order, next_node, chain_of, index


@covers(cover_by_chains)
def test_chains_cover_all_nodes_along_edges_and_none_ends_where_it_could_go_on() -> None:
    for seed in range(1000):
        rng = Random(seed)
        node_count = rng.randint(1, 12)
        edges = random_edges(rng, node_count, rng.randint(0, 20), acyclic=True)
        _, next_node, chain_of, index = covered(rng, node_count, edges)
        members: dict[int, dict[int, int]] = {}
        for node in range(node_count):
            assert members.setdefault(int(chain_of[node]), {}).setdefault(int(index[node]), node) == node
        continued = {}
        for chain in members.values():
            assert sorted(chain) == list(range(len(chain)))
            for at in range(1, len(chain)):
                continued[chain[at - 1]] = chain[at]
        assert all(link in edges for link in continued.items())
        assert all(continued[u] == v for u, v in enumerate(next_node.tolist()) if v >= 0)
        starts = {chain[0] for chain in members.values()}
        assert all(u in continued for u, v in edges if v in starts)


def growing_graphs(seeds: range = range(500)) -> Iterator[tuple[Random, int, list[Edge], list[Edge]]]:
    for seed in seeds:
        rng = Random(seed)
        node_count = rng.randint(1, 14)
        edges = random_edges(rng, node_count, rng.randint(0, 30), acyclic=True)
        rng.shuffle(edges)
        rows = rng.randint(0, len(edges))
        yield rng, node_count, edges[:rows], edges[rows:]


def many_chains(seeds: range = range(12)) -> Iterator[tuple[Random, int, list[Edge], list[Edge]]]:
    """The same with so many chains that several share a bit in what tells which of them changed."""
    for seed in seeds:
        rng = Random(seed)
        node_count = rng.randint(100, 300)
        edges = random_edges(rng, node_count, rng.randint(100, 400), acyclic=True)
        rows = rng.randint(0, len(edges))
        yield rng, node_count, edges[:rows], edges[rows:]


@covers(count_reaching, reaches)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("graphs", [growing_graphs, many_chains])
def test_clocks_tell_who_reaches_whom_while_edges_are_added(graphs: Graphs, dtype: type[Any]) -> None:
    grown = spared = 0
    for rng, node_count, rows, later in graphs():
        _, _, chain_of, index = covered(rng, node_count, rows)
        chains = int(chain_of.max()) + 1
        shift = block_shift(chains)
        order = np.arange(node_count, dtype=np.int32)
        place = np.empty(node_count, np.int32)
        clock = np.zeros((node_count, chains), dtype)
        changed, fresh = np.zeros(node_count, np.int64), np.ones(node_count, np.uint8)
        start, nodes = rows_of(node_count, rows)
        known = 0
        while True:
            assert sort_again(start, nodes, order)
            place[order] = np.arange(node_count)
            needed = np.ones(len(nodes), np.uint8)
            before = clock.copy()
            count_reaching(order, place, start, nodes, needed, fresh, chain_of, index, clock, changed, shift)
            fresh[:] = 0
            reach = reachability(node_count, rows + later[:known])
            assert np.array_equal(clock_reach(clock, chain_of, index), reach)
            expected = np.zeros(node_count, np.int64)
            for v, c in zip(*np.nonzero(clock != before), strict=True):
                expected[v] |= 1 << int(c >> shift)
            assert changed.tolist() == expected.tolist()
            grown += bool(known)
            spared += needed.tolist().count(0)
            needed_edges = [(int(u), v) for v in range(node_count) for u in nodes[start[v] : start[v + 1]]]
            needed_edges = [edge for edge, is_needed in zip(needed_edges, needed, strict=True) if is_needed]
            assert np.array_equal(reachability(node_count, needed_edges), reach)
            if known == len(later):
                break
            new = later[known : rng.randint(known + 1, len(later))]
            known += len(new)
            start, nodes = extend_rows(start, nodes, needed, *columns(new))
            fresh[[v for _, v in new]] = 1
    assert grown > 10
    assert spared > 100


@covers(merge_clock)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_merging_a_clock_takes_the_larger_count_of_each_chain(dtype: type[Any]) -> None:
    skipped = 0
    for rng, node_count, rows, later in growing_graphs(range(300)):
        edges = rows + later
        _, _, chain_of, index = covered(rng, node_count, edges)
        reach = reachability(node_count, edges)
        clock = np.zeros((node_count, int(chain_of.max()) + 1), dtype)
        for u, v in zip(*np.nonzero(reach), strict=True):
            clock[v, chain_of[u]] = max(clock[v, chain_of[u]], index[u] + 1)
        row = np.zeros(clock.shape[1], dtype)
        merged = rng.sample(range(node_count), rng.randint(1, node_count))
        for u in merged:
            is_there = int(row[chain_of[u]]) > index[u]
            skipped += is_there
            assert merge_clock(clock, chain_of, index, u, row) != is_there
        assert row.tolist() == clock[merged].max(axis=0).tolist()
    assert skipped > 100


@covers(merge_blocks, replace_clock)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_only_the_blocks_named_are_merged_and_those_that_grew_are_told(dtype: type[Any]) -> None:
    for seed in range(500):
        rng = Random(seed)
        width = rng.choice((1, 2, 64))
        chains = rng.randint(1, 5 * width)
        row, other = (np.array([rng.choice((0, 1, 2, 255)) for _ in range(chains)], dtype) for _ in range(2))
        named = [block for block in range((chains - 1) // width + 1) if rng.random() < 0.5]
        expected, grown = row.copy(), 0
        for block in named:
            part = slice(block * width, (block + 1) * width)
            expected[part] = np.maximum(row[part], other[part])
            grown |= bool((expected[part] != row[part]).any()) << block
        changes = bool((expected != row).any())
        merged, replaced = row.copy(), row.copy()
        assert merge_blocks(other, sum(1 << block for block in named), width, merged) == grown
        assert merged.tolist() == expected.tolist()
        assert replace_clock(expected, replaced) == changes
        assert replaced.tolist() == expected.tolist()


@pytest.mark.parametrize("chains", [1, 2, 62, 63, 64, 1000, 3968, 3969, 100_000])
def test_the_blocks_of_all_chains_fit_into_a_number(chains: int) -> None:
    shift = block_shift(chains)
    assert (chains - 1) >> shift < 62
    assert shift == 0 or (shift >= 6 and chains >= 63)


@pytest.mark.parametrize("length", [1, 255, 256, 2**16 - 1, 2**16, 2**31])
def test_clocks_are_just_wide_enough_for_the_longest_chain(length: int) -> None:
    widths: list[type[np.unsignedinteger[Any]]] = [np.uint8, np.uint16, np.uint32]
    assert clock_type(length) is next(width for width in widths if np.iinfo(width).max >= length)


@pytest.mark.parametrize("length", [255, 256, 257])
def test_clocks_do_not_overflow_on_a_long_line(length: int) -> None:
    line = [(u, u + 1) for u in range(length - 1)]
    order = np.arange(length, dtype=np.int32)
    chain_of, index = np.zeros(length, np.int32), np.arange(length, dtype=np.int32)
    clock, changed = np.zeros((length, 1), clock_type(length)), np.zeros(length, np.int64)
    needed, fresh = np.ones(length - 1, np.uint8), np.ones(length, np.uint8)
    count_reaching(order, order, *rows_of(length, line), needed, fresh, chain_of, index, clock, changed, 0)
    assert clock[:, 0].tolist() == list(range(1, length + 1))


@covers(shortest_path)
def test_a_shortest_path_is_found_among_the_edges_allowed() -> None:
    lengths = []
    for seed in range(1500):
        rng = Random(seed)
        node_count = rng.randint(1, 10)
        edges = random_edges(rng, node_count, rng.randint(1, 20), acyclic=False)
        limit = rng.randint(0, len(edges))
        source, target = rng.randrange(node_count), rng.randrange(node_count)
        rows = adjacency(*columns(edges), node_count)
        parent_edge, parent = (np.empty(node_count, np.int32) for _ in range(2))
        found = shortest_path(*rows, source, target, limit, parent_edge, parent)

        # Where one can be after one edge, two edges, and so on.
        there, distance = {source}, 0
        while distance <= node_count and (distance == 0 or target not in there):
            there, distance = {v for u, v in edges[:limit] if u in there}, distance + 1
        assert found == (distance <= node_count)
        if found:
            path = [target]
            while len(path) == 1 or path[-1] != source:
                e = int(parent_edge[path[-1]])
                assert e < limit
                assert edges[e] == (parent[path[-1]], path[-1])
                path.append(edges[e][0])
            assert len(path) - 1 == distance
            lengths.append((distance, source == target))
    assert max(distance for distance, _ in lengths) > 3
    assert sum(around for _, around in lengths) > 50
