"""Orders, chains, clocks and paths, against a matrix of who reaches whom."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.prune import link_edges, reaches
from mussurana.verifier.engine.reach import (
    clock_type,
    count_reaching,
    cover_by_chains,
    merge_clock,
    shortest_path,
    topological_order,
)
from tests.engine.twins import Edge, clock_reach, covers, is_cyclic, reachability


def random_edges(rng: Random, node_count: int, count: int, acyclic: bool) -> list[Edge]:
    order = rng.sample(range(node_count), node_count)
    edges = [(rng.randrange(node_count), rng.randrange(node_count)) for _ in range(count)]
    if acyclic:
        edges = [(order[min(u, v)], order[max(u, v)]) for u, v in edges if u != v]
    return edges


def columns(edges: list[Edge]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


class Lists:
    """Edges added later, in linked lists from both ends, as pruning keeps them."""

    def __init__(self, node_count: int, edges: list[Edge]) -> None:
        self.source, self.target = columns(edges)
        self.first_out, self.first_in = (np.full(node_count, -1, np.int32) for _ in range(2))
        self.next_out, self.next_in = (np.empty(len(edges), np.int32) for _ in range(2))
        self.fresh = np.ones(node_count, np.uint8)
        self.count = 0

    def link(self, end: int) -> None:
        lists = self.first_out, self.first_in, self.next_out, self.next_in
        link_edges(self.source, self.target, *lists, self.count, end, self.fresh)
        self.count = end

    @property
    def out(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.first_out, self.next_out, self.target

    @property
    def into(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.first_in, self.next_in, self.source


@covers(link_edges)
def test_lists_hold_the_edges_of_each_end_latest_first() -> None:
    for seed in range(300):
        rng = Random(seed)
        node_count = rng.randint(1, 8)
        edges = random_edges(rng, node_count, rng.randint(1, 20), acyclic=False)
        lists = Lists(node_count, edges)
        some = rng.randint(0, len(edges))
        lists.link(some)
        lists.fresh[:] = 0
        lists.link(len(edges))
        assert np.flatnonzero(lists.fresh).tolist() == sorted({v for _, v in edges[some:]})
        for node in range(node_count):
            for end, (first, following, _) in enumerate((lists.out, lists.into)):
                found = []
                e = first[node]
                while e >= 0:
                    found.append(int(e))
                    e = following[e]
                assert found[::-1] == [e for e, edge in enumerate(edges) if edge[end] == node]


def first_come_first_served(node_count: int, rows: list[Edge], later: list[Edge]) -> list[int]:
    """Kahn's algorithm, the edges of a node in the order of its row and then of its list."""
    waiting = [sum(v == node for _, v in rows + later) for node in range(node_count)]
    queue = deque(node for node in range(node_count) if waiting[node] == 0)
    order = []
    while queue:
        u = queue.popleft()
        order.append(u)
        for source, v in rows + later[::-1]:
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
        rows = edges[: rng.randint(0, len(edges))]
        later = edges[len(rows) :]
        lists = Lists(node_count, later)
        lists.link(len(later))
        order = np.empty(node_count, np.int32)
        done = topological_order(node_count, *adjacency(*columns(rows), node_count)[:2], *lists.out, order)
        assert order[:done].tolist() == first_come_first_served(node_count, rows, later)
        reach = reachability(node_count, edges)
        assert (done == node_count) == (not is_cyclic(reach, edges))
        place = {int(node): at for at, node in enumerate(order[:done])}
        assert all(place[u] < place[v] for u, v in edges if v in place)
        cyclic += done < node_count
    assert 200 < cyclic < 800


def covered(rng: Random, node_count: int, edges: list[Edge]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(order, preferred next nodes, chain of each node, index in it) for an acyclic graph."""
    order = np.empty(node_count, np.int32)
    none = np.full(node_count, -1, np.int32)
    assert topological_order(node_count, *adjacency(*columns(edges), node_count)[:2], none, none, none, order)
    next_node = none.copy()
    for u, v in rng.sample(edges, rng.randint(0, len(edges))):
        if next_node[u] < 0 and v not in next_node:
            next_node[u] = v
    chain_of, index = np.zeros(node_count, np.int32), np.zeros(node_count, np.int32)
    source, target = columns(edges)
    in_start, in_from, _ = adjacency(target, source, node_count)
    chains = cover_by_chains(order, in_start, in_from, next_node, chain_of, index)
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


def growing_graphs(seeds: range) -> Iterator[tuple[Random, int, list[Edge], list[Edge]]]:
    for seed in seeds:
        rng = Random(seed)
        node_count = rng.randint(1, 14)
        edges = random_edges(rng, node_count, rng.randint(0, 30), acyclic=True)
        rng.shuffle(edges)
        rows = rng.randint(0, len(edges))
        yield rng, node_count, edges[:rows], edges[rows:]


@covers(count_reaching, reaches)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_clocks_tell_who_reaches_whom_while_edges_are_added(dtype: type[Any]) -> None:
    grown = 0
    for rng, node_count, rows, later in growing_graphs(range(500)):
        _, _, chain_of, index = covered(rng, node_count, rows)
        source, target = columns(rows)
        out = adjacency(source, target, node_count)[:2]
        into = adjacency(target, source, node_count)[:2]
        lists = Lists(node_count, later)
        order = np.empty(node_count, np.int32)
        clock = np.zeros((node_count, int(chain_of.max()) + 1), dtype)
        changed = np.zeros(node_count, np.uint8)
        known = 0
        while True:
            lists.link(known)
            assert topological_order(node_count, *out, *lists.out, order) == node_count
            before = clock.copy()
            count_reaching(order, *into, *lists.into, chain_of, index, lists.fresh, clock, changed)
            lists.fresh[:] = 0
            reach = reachability(node_count, rows + later[:known])
            assert np.array_equal(clock_reach(clock, chain_of, index), reach)
            assert changed.astype(bool).tolist() == (clock != before).any(axis=1).tolist()
            grown += bool(known and changed.any())
            if known == len(later):
                break
            known = rng.randint(known + 1, len(later))
        u, v = rng.randrange(node_count), rng.randrange(node_count)
        assert reaches(clock, chain_of, index, u, v) == reach[u, v]
    assert grown > 300


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
            skipped += int(row[chain_of[u]]) > index[u]
            merge_clock(clock, chain_of, index, u, row)
        assert row.tolist() == clock[merged].max(axis=0).tolist()
    assert skipped > 100


@pytest.mark.parametrize("length", [1, 255, 256, 2**16 - 1, 2**16, 2**31])
def test_clocks_are_just_wide_enough_for_the_longest_chain(length: int) -> None:
    widths: list[type[np.unsignedinteger[Any]]] = [np.uint8, np.uint16, np.uint32]
    assert clock_type(length) is next(width for width in widths if np.iinfo(width).max >= length)


@pytest.mark.parametrize("length", [255, 256, 257])
def test_clocks_do_not_overflow_on_a_long_line(length: int) -> None:
    line = [(u, u + 1) for u in range(length - 1)]
    source, target = columns(line)
    order = np.arange(length, dtype=np.int32)
    chain_of, index = np.zeros(length, np.int32), np.arange(length, dtype=np.int32)
    lists = Lists(length, [])
    clock, changed = np.zeros((length, 1), clock_type(length)), np.zeros(length, np.uint8)
    into = adjacency(target, source, length)[:2]
    count_reaching(order, *into, *lists.into, chain_of, index, lists.fresh, clock, changed)
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
