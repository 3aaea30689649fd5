"""What may be forgotten where sessions keep no order (generalized-si): `forget.py` with clocks in place of sessions.

A snapshot may be older than anything its session did before, so no transaction is ever sure to be followed by all that
is to come. Snapshots older than a limit are therefore not followed at all: who reads from one counts as unknown.
Everything else to come commits, by the clocks, after what is older than that; and what the clocks prove to have
committed earlier is written earlier. Vector clocks would be of no use here: without sessions they have as many columns
as there are transactions at a time.
"""

from __future__ import annotations

import numpy as np

from mussurana.verifier.engine.graph import Graph
from mussurana.verifier.engine.prune import find_open
from mussurana.verifier.engine.realtime import Times
from mussurana.verifier.history import UNKNOWN_TIME, Ints, ranges
from mussurana.verifier.rounds.forget import Flags, Past, split_past

PAIRS_MAX = 4_000_000
"""Pairs of chains on one key, all of which are looked at; about a second. With more, nothing is forgotten this round.
Rows in SQL have one chain each, since every update tells what it replaced."""


def find_past_by_time(graph: Graph, times: Times, drift_ns: int, is_stable: Flags, is_live: Flags) -> Past | None:
    """As `find_past`. `times` are those of the graph's transactions."""
    nodes = np.arange(graph.node_count, dtype=np.int32)
    opened = find_open(graph, nodes, nodes, np.zeros_like(nodes), graph.node_count)
    if 2 * opened.pairs > PAIRS_MAX:
        return None
    first, second = _pairs(opened.key_start)
    head, tail = graph.version_txn[opened.head_version], graph.version_txn[opened.tail_version]

    def surely_before(c: Ints, d: Ints) -> Flags:
        """By the clocks, c's last writer committed before d's first one."""
        high, low = times.commit_high[tail[c]], times.commit_low[head[d]]
        return np.asarray((low != UNKNOWN_TIME) & (high < np.iinfo(np.int64).max - drift_ns) & (high + drift_ns < low))

    may_follow = ~surely_before(second, first)
    before, after = first[may_follow], second[may_follow]
    readers = opened.post_start[before + 1] - opened.post_start[before]
    initial = np.diff(opened.first_post_start)[opened.key]
    has_first = opened.first_tail[opened.key] >= 0
    source = [
        graph.edges.source,
        opened.commit_tail[before],
        opened.post[ranges(opened.post_start[before], opened.post_start[before + 1])],
        opened.first_tail[opened.key[has_first]],
        opened.first_post[ranges(opened.first_post_start[opened.key], opened.first_post_start[opened.key + 1])],
    ]
    target = [
        graph.edges.target,
        opened.begin_head[after],
        np.repeat(opened.commit_head[after], readers),
        opened.begin_head[has_first],
        np.repeat(opened.commit_head, initial),
    ]

    def candidates(in_past: Flags) -> Flags:
        found = in_past.copy()
        both = in_past[first] & in_past[second]
        found[first[both][surely_before(first[both], second[both])]] = False
        return found

    return split_past(graph, opened, np.concatenate(source), np.concatenate(target), candidates, is_stable, is_live)


def _pairs(key_start: Ints) -> tuple[Ints, Ints]:
    """All ordered pairs of two different chains of a key."""
    counts = np.diff(key_start)
    per_chain = np.repeat(counts, counts)
    first = np.repeat(np.arange(len(per_chain)), per_chain)
    start = np.repeat(key_start[:-1], counts)
    second = ranges(start, start + per_chain)
    different = first != second
    return first[different], second[different]
