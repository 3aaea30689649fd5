"""What is past, against a search through all pairs."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt

from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.graph import Graph
from mussurana.verifier.engine.prune import Pruned
from mussurana.verifier.rounds.forget import (
    find_candidates,
    find_past,
    last_of_chains,
    mark_reached,
    possible_edges_to_come,
    reach,
    stable,
)
from tests.engine.kernels.test_components import pruned_graphs
from tests.engine.twins import Chain, Edge, PrunedByHand, covers, reachability

Flags = npt.NDArray[np.bool_]


def closed_nodes(rng: Random, by_hand: PrunedByHand) -> Flags:
    """A random set of nodes with all that comes before them."""
    size = len(by_hand.reach)
    chosen = rng.sample(range(size), rng.randint(0, size))[: rng.randint(0, 6)]
    return np.asarray(by_hand.reach[:, chosen].any(axis=1))


def chains_in_order(pruned: Pruned, by_hand: PrunedByHand) -> list[Chain]:
    by_head = {chain.head: chain for rest in by_hand.chains for chain in rest}
    return [by_head[int(head)] for head in pruned.open.head_version]


def possible_by_hand(
    graph: Graph, by_hand: PrunedByHand, chains: list[Chain], readable: npt.NDArray[np.bool_]
) -> list[Edge]:
    """For each open pair both orders, but that of two unread writes matters only if the later one can be read."""
    can_be_read = {chain.head: bool(readable[c]) for c, chain in enumerate(chains)}
    return [
        edge
        for pair in by_hand.undecided
        for c, d in (pair, pair[::-1])
        if graph.level.split or not c.plain or not d.plain or can_be_read[d.head]
        for edge in c.edges_if_before(d)
    ]


def candidates_by_hand(
    chains: list[Chain], keys: list[int], in_past: Flags, known: npt.NDArray[np.bool_]
) -> list[bool]:
    """Chains of the past that no other chain of the past is known to follow."""
    return [
        bool(in_past[c])
        and not any(
            in_past[d] and keys[d] == keys[c] and d != c and known[chain.commit_tail, other.begin_head]
            for d, other in enumerate(chains)
        )
        for c, chain in enumerate(chains)
    ]


@covers(possible_edges_to_come)
def test_possible_edges_to_come_are_those_that_a_read_may_still_demand() -> None:
    left = 0
    for seed, graph, pruned, by_hand in pruned_graphs(500):
        rng = Random(seed)
        chains = chains_in_order(pruned, by_hand)
        readable = np.array([rng.random() < 0.5 for _ in chains], bool)
        expected = possible_by_hand(graph, by_hand, chains, readable)
        clocks = pruned.clock, pruned.chain_of, pruned.index_in_chain, pruned.before
        stored = []
        for room in (len(expected), len(expected) // 2):
            source, target = (np.full(room, -1, np.int32) for _ in range(2))
            count = possible_edges_to_come(
                pruned.open, pruned.heads, graph.level.split, readable, *clocks, source, target
            )
            assert count <= len(expected), f"busy_graph({seed})"
            stored.append(list(zip(source[:count].tolist(), target[:count].tolist(), strict=True)))
        assert stored[1] == stored[0][: len(stored[1])]
        assert np.array_equal(
            reachability(graph.node_count, [*by_hand.edges, *stored[0]]),
            reachability(graph.node_count, [*by_hand.edges, *expected]),
        ), f"busy_graph({seed})"
        left += bool(expected)
    assert left > 80


@covers(mark_reached)
def test_reached_is_what_some_path_leads_to() -> None:
    for seed in range(500):
        rng = Random(seed)
        size = rng.randint(1, 12)
        edges = [(rng.randrange(size), rng.randrange(size)) for _ in range(rng.randint(0, 20))]
        start = [rng.randrange(size) for _ in range(rng.randint(0, 3))]
        pairs = np.array(edges, np.int64).reshape(-1, 2)
        out_start, out_to, _ = adjacency(pairs[:, 0].copy(), pairs[:, 1].copy(), size)
        reached = np.zeros(size, bool)
        mark_reached(np.array(start, np.int64), out_start, out_to, reached)
        assert np.array_equal(reached, reachability(size, edges)[start].any(axis=0))


@covers(last_of_chains)
def test_last_of_a_chain_is_where_the_past_ends() -> None:
    for seed, graph, _, _ in pruned_graphs(300):
        rng = Random(seed)
        past = np.array([rng.random() < 0.6 for _ in graph.txns], bool)
        heads, following, writer = graph.chains.chain_head, graph.chains.following, graph.version_txn
        last, is_whole = np.full(len(heads), -7, np.int64), np.zeros(len(heads), bool)
        last_of_chains(heads, following, writer, past, last, is_whole)
        for c, head in enumerate(heads.tolist()):
            versions = [head]
            while following[versions[-1]] >= 0:
                versions.append(int(following[versions[-1]]))
            is_past = [writer[v] < 0 or bool(past[writer[v]]) for v in versions]
            length = is_past.index(False) if False in is_past else len(versions)
            assert last[c] == (versions[length - 1] if length else -1)
            assert is_whole[c] == (length == len(versions))


@covers(find_candidates)
def test_candidates_are_the_chains_that_no_other_is_known_to_follow() -> None:
    several = 0
    for seed, _, pruned, by_hand in pruned_graphs(500):
        nodes = closed_nodes(Random(seed), by_hand)
        chains, keys = chains_in_order(pruned, by_hand), pruned.open.key.tolist()
        in_past = np.array([nodes[chain.begin_head] for chain in chains], bool)
        candidate = np.zeros(len(chains), bool)
        clocks = pruned.clock, pruned.chain_of, pruned.index_in_chain
        find_candidates(pruned.open, pruned.heads, *clocks, in_past, candidate)
        assert candidate.tolist() == candidates_by_hand(chains, keys, in_past, by_hand.reach), f"busy_graph({seed})"
        several += int(candidate.sum()) > len({keys[c] for c in np.flatnonzero(candidate)})
    assert several > 50


def test_stable_is_what_comes_before_all_ends() -> None:
    for seed, graph, pruned, by_hand in pruned_graphs(300):
        rng = Random(seed)
        last = np.array([rng.randrange(len(graph.txns)) for _ in range(rng.randint(1, 4))], np.int64)
        before = by_hand.reach[np.ix_(graph.commit, graph.commit)]
        assert np.array_equal(stable(pruned, last), before[:, last].all(axis=1))
        assert np.array_equal(reach(pruned, int(last[0])), before[:, last[0]])


def test_the_past_is_what_nothing_else_may_have_to_precede() -> None:
    """By transactions: begin and commit stay together. And what is kept hangs together with an open last version."""
    some = 0
    for seed, graph, pruned, by_hand in pruned_graphs(600):
        rng = Random(seed)
        txn_count = len(graph.txns)
        before = by_hand.reach[np.ix_(graph.commit, graph.commit)]
        late = np.argsort(before.sum(axis=0), kind="stable")[-1 - txn_count // 4 :]
        last = [int(rng.choice(late)) for _ in range(rng.randint(1, 2))]
        is_stable: Flags = np.asarray(before[:, last].all(axis=1))
        chains, keys = chains_in_order(pruned, by_hand), pruned.open.key.tolist()
        writer = {int(graph.commit[txn]): txn for txn in range(txn_count)}
        stable_heads = np.array([is_stable[graph.version_txn[chain.head]] for chain in chains], bool)
        readable = np.array(candidates_by_hand(chains, keys, stable_heads, by_hand.reach), np.bool_)
        readable |= np.array([not is_stable[writer[chain.commit_tail]] for chain in chains], np.bool_)
        edges = [*by_hand.edges, *possible_by_hand(graph, by_hand, chains, readable)]
        node = {n: int(txn) if txn >= 0 else txn_count + n for n, txn in enumerate(graph.node_txn)}
        paths = reachability(txn_count + graph.node_count, [(node[u], node[v]) for u, v in edges])
        expected = ~np.asarray(paths[np.flatnonzero(~is_stable)].any(axis=0))[:txn_count]
        found = find_past(pruned, is_stable, np.ones(len(graph.chains.chain_head), bool))
        assert np.array_equal(found.past, expected), f"busy_graph({seed})"
        assert not (found.kept & ~found.past).any()
        together = paths[:txn_count, :txn_count] & paths[:txn_count, :txn_count].T
        assert np.array_equal((together[found.kept] & found.past).any(axis=0), found.kept), f"busy_graph({seed})"
        some += bool(found.kept.any())
    assert some > 10
