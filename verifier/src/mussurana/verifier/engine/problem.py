"""What is left when pruning is done: a search problem, and the interface of the solvers for it.

Nodes, known edges, and two kinds of open question:

*Write orders*: the version chains of a key, in each group, have to be put in some order. That is a choice with two
alternatives for each pair, but pairs are so many that solvers may prefer to look only at those that an order
violates.

*Choices*: exactly one of k alternatives holds. An edge may depend on one or two of them. These are for reads whose
writer is uncertain because values repeat (VeriStrong's hyper-polygraphs): the read's writer is one choice, the order
of writes another, and an anti-dependency follows from both.

A solution is an order of the nodes that all known edges and, for each choice, the edges of one alternative follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np

from mussurana.verifier.history import Ints, SmallInts


def _none() -> SmallInts:
    return np.zeros(0, np.int32)


def _rows() -> Ints:
    return np.zeros(1, np.int64)


@dataclass(frozen=True)
class Problem:
    node_count: int
    source: SmallInts  # known edges; they are acyclic
    target: SmallInts
    preference: SmallInts  # an order of the nodes that the known edges follow, and that is probably close to the truth
    # write orders; chains as in graph.py
    group_start: Ints = field(
        default_factory=_rows
    )  # chains of group g: group_chain[group_start[g] : group_start[g + 1]]
    group_chain: SmallInts = field(default_factory=_none)
    begin_head: SmallInts = field(default_factory=_none)
    commit_head: SmallInts = field(default_factory=_none)
    commit_tail: SmallInts = field(default_factory=_none)
    post_start: Ints = field(default_factory=_rows)
    post: SmallInts = field(default_factory=_none)
    # choices
    choice_start: Ints = field(
        default_factory=_rows
    )  # alternatives of choice i: choice_start[i] .. choice_start[i + 1]
    guarded_source: SmallInts = field(default_factory=_none)
    guarded_target: SmallInts = field(default_factory=_none)
    guards: SmallInts = field(
        default_factory=lambda: np.zeros((0, 2), np.int32)
    )  # one or two alternatives each, -1 for none

    def edges_if_before(self, c: int, d: int) -> list[tuple[int, int]]:
        """The edges that hold if chain c comes before chain d."""
        readers = self.post[self.post_start[c] : self.post_start[c + 1]]
        return [
            (int(self.commit_tail[c]), int(self.begin_head[d])),
            *((int(r), int(self.commit_head[d])) for r in readers),
        ]

    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of chains that have to be ordered, for solvers that want them one by one."""
        return [
            pair
            for start, end in zip(self.group_start[:-1], self.group_start[1:], strict=True)
            for pair in combinations(self.group_chain[start:end].tolist(), 2)
        ]


@dataclass(frozen=True)
class Ordered:
    """An order of all nodes that solves the problem."""

    order: SmallInts
    conflicts: int = 0


@dataclass(frozen=True)
class NoOrder:
    """There is none. `nodes` took part in the contradictions: enough to show it, often more than needed."""

    nodes: SmallInts
    conflicts: int = 0


@dataclass(frozen=True)
class GaveUp:
    """The budget ended first."""

    conflicts: int = 0


Solution = Ordered | NoOrder | GaveUp


class Solver(Protocol):
    def __call__(self, problem: Problem, out_of_time: Callable[[], bool]) -> Solution: ...
