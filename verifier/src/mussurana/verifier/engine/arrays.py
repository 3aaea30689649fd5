"""Sorting small integers into rows: the one helper that every stage needs."""

from __future__ import annotations

import numpy as np

from mussurana.verifier.kernels import kernel


@kernel
def group_by(label, label_count):
    """Group positions by a small non-negative label, keeping their order (a counting sort).

    Post: the positions with label g are order[start[g] : start[g + 1]], increasing.
    """
    start = np.zeros(label_count + 1, np.int64)
    for i in range(len(label)):
        start[label[i] + 1] += 1
    for g in range(label_count):
        start[g + 1] += start[g]
    cursor = start[:-1].copy()
    order = np.empty(len(label), np.int64)
    for i in range(len(label)):
        order[cursor[label[i]]] = i
        cursor[label[i]] += 1
    return start, order


@kernel
def adjacency(source, target, node_count):
    """Rows of successors: those of u are to[start[u] : start[u + 1]], edge numbers beside them in `edge`.

    Call it with source and target exchanged to get predecessors.
    """
    start = np.zeros(node_count + 1, np.int64)
    for e in range(len(source)):
        start[source[e] + 1] += 1
    for g in range(node_count):
        start[g + 1] += start[g]
    cursor = start[:-1].copy()
    to = np.empty(len(source), np.int32)
    edge = np.empty(len(source), np.int32)
    for e in range(len(source)):
        at = cursor[source[e]]
        to[at] = target[e]
        edge[at] = e
        cursor[source[e]] = at + 1
    return start, to, edge
