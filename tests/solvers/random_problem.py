"""Random search problems from a seed, and what can be said about them without a solver.

A problem is made as the engine would: transactions with a begin and a commit, which are one node where the level does
not tell them apart; version chains of a few keys with readers of their last versions; and known edges that follow a
hidden order. On top of that come explicit choices, whose edges lead anywhere. The sizes are such that about half of
the problems can be solved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, permutations, product
from random import Random

import numpy as np

from mussurana.verifier.engine.problem import Problem
from mussurana.verifier.history import SmallInts, offsets

Edge = tuple[int, int]


@dataclass(frozen=True)
class Size:
    """How many of everything; numbers with a fraction are averages."""

    txns: int
    split: bool  # whether begin and commit are two nodes
    known: float  # known edges per transaction, besides those that chains and readers bring
    keys: int
    chains_max: int  # per key
    long_chains: float  # the part of the chains that has two transactions
    readers: float  # per chain
    truthful: float = 0.0  # the part of keys, and of readers, that the hidden order agrees with
    choices: int = 0
    alternatives_min: int = 1  # per choice
    alternatives_max: int = 4
    guarded: float = 0.0  # guarded edges per alternative
    two_guards: float = 0.4  # the part of the guarded edges that has two guards


def small_problem(rng: Random) -> Problem:
    """A problem of 4 to 14 nodes that all answers can be tried for: write orders, choices, or both."""
    kind = rng.choice(("orders", "choices", "both"))
    split = rng.random() < 0.5
    orders = kind != "choices"
    return random_problem(
        rng,
        Size(
            txns=rng.randint(4, 7) if split else rng.randint(4, 12),
            split=split,
            known=rng.uniform(0.2, 1.0),
            keys=rng.randint(1, 3) if orders else 0,
            chains_max=rng.randint(2, 4),
            long_chains=rng.choice((0.0, 0.3)),
            readers=rng.uniform(1.0, 3.0),
            truthful=rng.choice((0.0, 0.8)),
            choices=rng.randint(1, 4) if kind != "orders" else 0,
            guarded=rng.uniform(1.0, 5.0) if kind == "choices" else rng.uniform(0.3, 1.5),
        ),
    )


def tangled_problem(rng: Random) -> Problem:
    """A problem that takes tens or hundreds of dead ends: few nodes, many choices, a write order or two."""
    txns = rng.randint(12, 16)
    alternatives_max = rng.choice((2, 3))
    return random_problem(
        rng,
        Size(
            txns=txns,
            split=False,
            known=0.1,
            keys=rng.randint(0, 2),
            chains_max=4,
            long_chains=0.0,
            readers=1.0,
            truthful=1.0,
            choices=round(txns * rng.uniform(2.5, 4.5)),
            alternatives_min=2,
            alternatives_max=alternatives_max,
            guarded=1.0 if alternatives_max == 2 else 1.8,
            two_guards=0.2,
        ),
    )


def contended_problem(rng: Random) -> Problem:
    """A problem of a hundred chains that the hidden order solves, though only after tens or hundreds of dead ends."""
    return random_problem(
        rng,
        Size(
            txns=100,
            split=rng.random() < 0.5,
            known=0.0,
            keys=10,
            chains_max=16,
            long_chains=0.1,
            readers=1.0,
            truthful=1.0,
        ),
    )


def random_problem(rng: Random, size: Size) -> Problem:
    """A problem of that size. The numbers of its nodes say nothing about their order."""
    txns = range(size.txns)  # in the hidden order
    key_chains = [list(_chains(rng, size)) for _ in range(size.keys)]
    writers = {txn for chains in key_chains for chain in chains for txn in chain}
    two_nodes = [size.split and (txn in writers or rng.random() < 0.3) for txn in txns]
    node_count = size.txns + sum(two_nodes)
    number = rng.sample(range(node_count), node_count)
    first = offsets(1 + np.array(two_nodes, np.int64)).tolist()
    begin = [number[first[txn]] for txn in txns]
    commit = [number[first[txn + 1] - 1] for txn in txns]

    known = {(begin[txn], commit[txn]) for txn in txns if two_nodes[txn]}
    for _ in range(round(size.known * size.txns)):
        a, b = sorted(rng.sample(txns, 2))
        known.add(rng.choice([(commit[a], begin[b]), (commit[a], begin[b]), (begin[a], commit[b])]))
    chain_rows: list[tuple[int, int, int]] = []
    post: list[list[int]] = []
    for chains in key_chains:
        key_writers = {txn for chain in chains for txn in chain}
        for chain in chains:
            head, tail = chain[0], chain[-1]
            known |= {(commit[a], begin[b]) for a, b in pairwise(chain)}
            next_writer = min((txn for txn in key_writers if txn > tail), default=size.txns)
            readers = set()
            for _ in range(int(size.readers) + (rng.random() < size.readers % 1)):
                end = next_writer if rng.random() < size.truthful else size.txns
                readers |= {txn for txn in (rng.randint(tail, end - 1),) if txn not in key_writers}
            known |= {(commit[tail], begin[reader]) for reader in readers}
            chain_rows.append((begin[head], commit[head], commit[tail]))
            post.append([begin[reader] for reader in sorted(readers)])

    sizes = [rng.randint(size.alternatives_min, size.alternatives_max) for _ in range(size.choices)]
    alternatives = sum(sizes)
    guarded: list[tuple[int, int, int, int]] = []
    for _ in range(round(size.guarded * alternatives)):
        u, v = rng.sample(range(node_count), 2)
        a = rng.randrange(alternatives)
        b = rng.randrange(alternatives) if rng.random() < size.two_guards else a
        guarded.append((u, v, a, b if b != a else -1))

    # Groups and chains come in any order, as do the chains of a group.
    group_of = [key for key, chains in enumerate(key_chains) for _ in chains]
    shuffled = rng.sample(range(len(chain_rows)), len(chain_rows))
    group_chain = sorted(range(len(chain_rows)), key=lambda c: group_of[shuffled[c]])
    columns = np.array([chain_rows[c] for c in shuffled], np.int32).reshape(-1, 3)
    rows = np.array(guarded, np.int32).reshape(-1, 4)
    edges = np.array(sorted(known), np.int32).reshape(-1, 2)
    return Problem(
        node_count=node_count,
        source=edges[:, 0].copy(),
        target=edges[:, 1].copy(),
        preference=np.array(_some_order(rng, node_count, known), np.int32),
        group_start=offsets(np.array([len(chains) for chains in key_chains], np.int64)),
        group_chain=np.array(group_chain, np.int32),
        begin_head=columns[:, 0].copy(),
        commit_head=columns[:, 1].copy(),
        commit_tail=columns[:, 2].copy(),
        post_start=offsets(np.array([len(post[c]) for c in shuffled], np.int64)),
        post=np.array([node for c in shuffled for node in post[c]], np.int32),
        choice_start=offsets(np.array(sizes, np.int64)),
        guarded_source=rows[:, 0].copy(),
        guarded_target=rows[:, 1].copy(),
        guards=rows[:, 2:].copy(),
    )


def _chains(rng: Random, size: Size) -> Iterator[list[int]]:
    """The chains of a key. A transaction writes a key once."""
    lengths = [2 if rng.random() < size.long_chains else 1 for _ in range(rng.randint(2, size.chains_max))]
    while sum(lengths) > size.txns:
        lengths.pop()
    writers = rng.sample(range(size.txns), sum(lengths))
    if rng.random() < size.truthful:
        writers.sort()
    for length in lengths:
        yield sorted(writers.pop() for _ in range(length))


def _some_order(rng: Random, node_count: int, edges: set[Edge]) -> list[int]:
    waits_for = [0] * node_count
    successors: list[list[int]] = [[] for _ in range(node_count)]
    for u, v in sorted(edges):
        waits_for[v] += 1
        successors[u].append(v)
    ready = [node for node in range(node_count) if not waits_for[node]]
    order = []
    while ready:
        node = ready.pop(rng.randrange(len(ready)))
        order.append(node)
        for v in successors[node]:
            waits_for[v] -= 1
            if not waits_for[v]:
                ready.append(v)
    return order


def pigeonhole(pigeons: int, holes: int) -> Problem:
    """Each pigeon chooses a hole, and two in one hole close a cycle there.

    With more pigeons than holes it is hard to refute by learning clauses (Haken 1985).
    """
    guarded = [
        (2 * hole + 1, 2 * hole, a * holes + hole, b * holes + hole)
        for hole in range(holes)
        for a, b in combinations(range(pigeons), 2)
    ]
    rows = np.array(guarded, np.int32)
    nodes = np.arange(2 * holes, dtype=np.int32)
    return Problem(
        node_count=2 * holes,
        source=nodes[::2].copy(),
        target=nodes[1::2].copy(),
        preference=nodes,
        choice_start=holes * np.arange(pigeons + 1),
        guarded_source=rows[:, 0].copy(),
        guarded_target=rows[:, 1].copy(),
        guards=rows[:, 2:].copy(),
    )


def known_edges(problem: Problem) -> list[Edge]:
    return list(zip(problem.source.tolist(), problem.target.tolist(), strict=True))


def guarded_edges(problem: Problem) -> list[tuple[Edge, tuple[int, ...]]]:
    ends = zip(problem.guarded_source.tolist(), problem.guarded_target.tolist(), strict=True)
    return [(edge, tuple(g for g in row if g >= 0)) for edge, row in zip(ends, problem.guards.tolist(), strict=True)]


def alternatives(problem: Problem) -> list[range]:
    """Per choice: its alternatives."""
    start = problem.choice_start.tolist()
    return [range(a, b) for a, b in pairwise(start)]


def combinations_to_try(problem: Problem) -> int:
    count = 1
    for chains in np.diff(problem.group_start).tolist():
        for factor in range(2, chains + 1):
            count *= factor
    for choice in alternatives(problem):
        count *= len(choice)
    return count


def solvable(problem: Problem) -> bool:
    """Try every order of every group's chains with every alternative of every choice."""
    start = problem.group_start.tolist()
    groups = [problem.group_chain[a:b].tolist() for a, b in pairwise(start)]
    known = known_edges(problem)
    guarded = guarded_edges(problem)
    for orders in product(*(permutations(group) for group in groups)):
        ordered = known + [
            edge
            for order in orders
            for i, chain in enumerate(order)
            for later in order[i + 1 :]
            for edge in problem.edges_if_before(chain, later)
        ]
        for chosen in product(*alternatives(problem)):
            follows = [edge for edge, guards in guarded if all(g in chosen for g in guards)]
            if _acyclic(problem.node_count, ordered + follows):
                return True
    return False


def _acyclic(node_count: int, edges: Iterable[Edge]) -> bool:
    waits_for = [0] * node_count  # a bit for each node that comes before
    for u, v in edges:
        waits_for[v] |= 1 << u
    left = (1 << node_count) - 1
    while left:
        ready = sum(1 << node for node in range(node_count) if left >> node & 1 and not waits_for[node] & left)
        if not ready:
            return False
        left &= ~ready
    return True


def is_solved_by(problem: Problem, order: SmallInts) -> bool:
    """Whether an order of the nodes is a solution."""
    if sorted(order.tolist()) != list(range(problem.node_count)):
        return False
    place = np.empty(problem.node_count, np.int64)
    place[order] = np.arange(problem.node_count)

    def follow(edges: Iterable[Edge]) -> bool:
        return all(place[u] < place[v] for u, v in edges)

    if not follow(known_edges(problem)):
        return False
    for c, d in problem.pairs():
        if not follow(problem.edges_if_before(c, d)) and not follow(problem.edges_if_before(d, c)):
            return False
    forbidden = [set(guards) for edge, guards in guarded_edges(problem) if not follow([edge])]
    harmless = set(range(int(problem.choice_start[-1]))).difference(*forbidden)
    return _can_choose([choice for choice in alternatives(problem) if harmless.isdisjoint(choice)], forbidden, set())


def _can_choose(choices: list[range], forbidden: list[set[int]], chosen: set[int]) -> bool:
    """Whether an alternative of each choice can be added to those chosen such that no forbidden set is chosen whole."""
    if any(together <= chosen for together in forbidden):
        return False
    return not choices or any(_can_choose(choices[1:], forbidden, chosen | {a}) for a in choices[0])


def as_choices(problem: Problem) -> Problem:
    """The same problem without write orders: each pair of chains is a choice of two alternatives."""
    start = problem.choice_start.tolist()
    guarded = np.column_stack([problem.guarded_source, problem.guarded_target, problem.guards]).tolist()
    for c, d in problem.pairs():
        alternative = start[-1]
        start.append(alternative + 2)
        guarded += [(u, v, alternative, -1) for u, v in problem.edges_if_before(c, d)]
        guarded += [(u, v, alternative + 1, -1) for u, v in problem.edges_if_before(d, c)]
    rows = np.array(guarded, np.int32).reshape(-1, 4)
    return Problem(
        node_count=problem.node_count,
        source=problem.source,
        target=problem.target,
        preference=problem.preference,
        choice_start=np.array(start, np.int64),
        guarded_source=rows[:, 0].copy(),
        guarded_target=rows[:, 1].copy(),
        guards=rows[:, 2:].copy(),
    )


def only_edges_among(problem: Problem, nodes: SmallInts) -> Problem:
    """The problem as choices, with no edge but those that begin and end in `nodes`."""
    problem = as_choices(problem)
    inside = np.zeros(problem.node_count, bool)
    inside[nodes] = True
    known = inside[problem.source] & inside[problem.target]
    guarded = inside[problem.guarded_source] & inside[problem.guarded_target]
    return replace(
        problem,
        source=problem.source[known],
        target=problem.target[known],
        guarded_source=problem.guarded_source[guarded],
        guarded_target=problem.guarded_target[guarded],
        guards=problem.guards[guarded],
    )
