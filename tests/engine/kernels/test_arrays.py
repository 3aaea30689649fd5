"""Sorting into rows, against sorting."""

from __future__ import annotations

from random import Random

import numpy as np

from mussurana.verifier.engine.arrays import adjacency, group_by
from tests.engine.twins import covers


@covers(group_by)
def test_positions_are_grouped_by_label_in_their_order() -> None:
    for seed in range(1000):
        rng = Random(seed)
        label_count = rng.randint(1, 8)
        label = [rng.randrange(label_count) for _ in range(rng.randint(0, 20))]
        start, order = group_by(np.array(label, np.int32), label_count)
        assert start[0] == 0
        assert start[-1] == len(label)
        for group in range(label_count):
            expected = [i for i, other in enumerate(label) if other == group]
            assert order[start[group] : start[group + 1]].tolist() == expected


@covers(adjacency)
def test_rows_hold_the_successors_and_their_edges_in_order() -> None:
    for seed in range(1000):
        rng = Random(seed)
        node_count = rng.randint(1, 8)
        edges = [(rng.randrange(node_count), rng.randrange(node_count)) for _ in range(rng.randint(0, 20))]
        source, target = (np.array(column, np.int32) for column in zip(*edges, strict=True)) if edges else _nothing()
        start, to, edge = adjacency(source, target, node_count)
        assert start[-1] == len(edges)
        for node in range(node_count):
            expected = [e for e, (u, _) in enumerate(edges) if u == node]
            assert edge[start[node] : start[node + 1]].tolist() == expected
            assert to[start[node] : start[node + 1]].tolist() == [edges[e][1] for e in expected]


def _nothing() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0, np.int32), np.zeros(0, np.int32)
