"""Pruning, against trying every pair of chains in a matrix of who reaches whom."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from random import Random

import numpy as np
import pytest

from mussurana.verifier.engine import prune
from mussurana.verifier.engine.graph import Graph
from tests.engine.kernels.busy_history import busy_graphs, wide_graphs
from tests.engine.twins import (
    chains_by_key,
    clock_reach,
    covers,
    edge_list,
    prune_by_hand,
    pruning_complaint,
    reachability,
)


@covers(prune.order_initial_chains, prune.order_forced_chains, prune.put)
def test_pruning_decides_exactly_what_trying_all_pairs_decides() -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    for seed, graph in busy_graphs():
        by_hand = prune_by_hand(graph)
        problem = pruning_complaint(graph, by_hand)
        assert not problem, f"busy_graph({seed}): {problem}"
        outcome = "cyclic" if by_hand.cyclic else "undecided" if by_hand.undecided else "decided"
        seen[outcome, graph.level.split] += not by_hand.edges <= set(edge_list(graph.edges))
    assert len(seen) == 6
    assert min(seen.values()) > 30


def test_pruning_decides_the_same_when_a_key_has_more_rows_than_a_word_has_bits() -> None:
    rows_max = chains_max = 0
    for seed, graph in wide_graphs():
        problem = pruning_complaint(graph, prune_by_hand(graph))
        assert not problem, f"wide_graph({seed}): {problem}"
        pruned = prune.prune(graph)
        rows_max = max(rows_max, int(np.diff(pruned.heads.key_row).max()))
        chains_max = max(chains_max, pruned.clock.shape[1])
    assert rows_max > 64
    assert chains_max > 64


def test_initial_versions_come_first_before_anything_else_is_derived() -> None:
    for seed, graph in busy_graphs(500):
        pruned = prune.prune(graph)
        if len(pruned.derived_start) == 1:
            continue
        edges = edge_list(graph.edges)
        edges += [
            edge for first, rest in chains_by_key(graph).values() for c in rest for edge in first.edges_if_before(c)
        ]
        found = edge_list(pruned.edges)[: pruned.derived_start[1]]
        assert np.array_equal(reachability(graph.node_count, found), reachability(graph.node_count, edges)), (
            f"busy_graph({seed})"
        )


def test_pruning_does_not_depend_on_how_much_room_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = busy_graphs(300)
    with_room = [prune.prune(graph) for _, graph in graphs]
    calls = 0

    def with_little_more_room(found: prune.Found) -> prune.Found:
        nonlocal calls
        calls += 1
        return prune.Found(*(np.append(column, np.zeros(2, column.dtype)) for column in found))

    monkeypatch.setattr(prune, "with_more_room", with_little_more_room)
    for (seed, graph), expected in zip(graphs, with_room, strict=True):
        pruned = prune.prune(graph)
        assert pruned.cyclic == expected.cyclic, f"busy_graph({seed})"
        assert pruned.derived_start == expected.derived_start, f"busy_graph({seed})"
        assert edge_list(pruned.edges) == edge_list(expected.edges), f"busy_graph({seed})"
        assert pruned.before.tolist() == expected.before.tolist(), f"busy_graph({seed})"
        assert pruned.settled.tolist() == expected.settled.tolist(), f"busy_graph({seed})"
    assert calls > 3 * len(graphs)


def test_more_room_keeps_what_was_found() -> None:
    found = prune.with_more_room(prune.Found(*(np.empty(0, np.int32) for _ in range(5))))
    assert len(found.source) == prune.EDGES_ROOM_MIN
    for column in found:
        column[:] = np.arange(len(column))
    more = prune.with_more_room(found)
    for column in more:
        assert column[: len(found.source)].tolist() == list(range(len(found.source)))
        assert len(column) == 2 * len(found.source)


@covers(prune.has_bit)
@pytest.mark.parametrize("graphs", [busy_graphs(500), wide_graphs()], ids=["busy", "wide"])
def test_bits_say_what_is_known_of_all_heads_of_a_row(graphs: list[tuple[int, Graph]]) -> None:
    """Not always at once, since only rows where clocks changed are looked at; but what they say is true."""
    seen: Counter[str] = Counter()
    for seed, graph in graphs:
        pruned = prune.prune(graph)
        if pruned.cyclic:
            continue
        opened, heads = pruned.open, pruned.heads
        reach = clock_reach(pruned.clock, pruned.chain_of, pruned.index_in_chain)
        known = reach[np.ix_(opened.commit_tail, opened.begin_head)]
        for c, key in enumerate(opened.key.tolist()):
            for i, row in enumerate(range(heads.key_row[key], heads.key_row[key + 1])):
                others = [d for d in heads.chain[heads.row_start[row] : heads.row_start[row + 1]].tolist() if d != c]
                before = all(known[d, c] for d in others)
                decided = all(known[d, c] or known[c, d] for d in others)
                before_bit, settled_bit = (prune.has_bit(heads, bits, c, i) for bits in (pruned.before, pruned.settled))
                assert before or not before_bit, f"graph {seed}"
                assert decided or not settled_bit, f"graph {seed}"
                assert settled_bit or not before_bit, f"graph {seed}"
                if others:
                    seen += Counter(
                        before=before, before_bit=before_bit, decided=decided and not before, settled_bit=settled_bit
                    )
    assert seen["before_bit"] > 0.8 * seen["before"] > 1000
    assert seen["settled_bit"] - seen["before_bit"] > 0.1 * seen["decided"]


@covers(prune.number_rows)
def test_rows_are_numbered_by_key_as_their_graph_chains_appear() -> None:
    for seed in range(500):
        rng = Random(seed)
        chain_count = rng.randint(1, 6)
        keys = [[rng.randrange(chain_count) for _ in range(rng.randint(0, 8))] for _ in range(rng.randint(1, 5))]
        key_start = np.array([0, *np.cumsum([len(key) for key in keys])], np.int64)
        chain = np.array([s for key in keys for s in key], np.int32)
        row_of, key_row, row_chain = prune.number_rows(key_start, chain, chain_count)
        rows = [(k, s) for k, key in enumerate(keys) for s in dict.fromkeys(key)]
        assert row_chain.tolist() == [s for _, s in rows]
        assert key_row.tolist() == [sum(k < key for k, _ in rows) for key in range(len(keys) + 1)]
        assert row_of.tolist() == [rows.index((k, s)) for k, key in enumerate(keys) for s in key]


@covers(prune.last_readers)
def test_only_the_last_reader_on_each_graph_chain_counts() -> None:
    for seed in range(1000):
        rng = Random(seed)
        node_count, version_count, txn_count = rng.randint(1, 10), rng.randint(1, 6), rng.randint(1, 8)
        chain_count = rng.randint(1, 4)
        chain_of = [rng.randrange(chain_count) for _ in range(node_count)]
        index = [chain_of[:node].count(chain_of[node]) for node in range(node_count)]
        begin = [rng.randrange(node_count) for _ in range(txn_count)]
        readers = [[rng.randrange(txn_count) for _ in range(rng.randint(0, 5))] for _ in range(version_count)]
        version = [rng.randrange(version_count) for _ in range(rng.randint(0, 5))]
        start, nodes = prune.last_readers(
            np.array(version, np.int32),
            np.array([0, *np.cumsum([len(row) for row in readers])], np.int64),
            np.array([txn for row in readers for txn in row], np.int32),
            np.array(begin, np.int32),
            np.array(chain_of, np.int32),
            np.array(index, np.int32),
            chain_count,
        )
        for i, v in enumerate(version):
            last: dict[int, int] = {}
            for node in (begin[txn] for txn in readers[v]):
                last[chain_of[node]] = max(node, last.get(chain_of[node], node), key=index.__getitem__)
            assert nodes[start[i] : start[i + 1]].tolist() == list(last.values())
        assert start[-1] == len(nodes)


@covers(prune.count_below)
def test_entries_below_a_limit_are_counted() -> None:
    for seed in range(1000):
        rng = Random(seed)
        place = sorted(rng.sample(range(30), rng.randint(0, 12)))
        first = rng.randint(0, len(place))
        end = rng.randint(first, len(place))
        limit = rng.randint(0, 30)
        below = prune.count_below(np.array(place, np.int32), first, end, limit)
        assert below == bisect_left(place, limit, first, end) - first


def test_pruning_ends_with_the_time_and_says_so() -> None:
    """After the first pass, which most histories need no more than. What was found by then may be the answer."""
    unfinished = 0
    for seed, graph in busy_graphs(200):
        whole, short = prune.prune(graph), prune.prune(graph, out_of_time=lambda: True)
        assert len(short.derived_start) <= 2, seed
        assert short.unfinished == (len(whole.derived_start) > 2 and not short.cyclic), seed
        assert whole.cyclic or not short.cyclic, seed
        unfinished += short.unfinished
    assert unfinished > 20
