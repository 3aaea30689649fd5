"""The one representation that all levels share (design 3.2): events, known edges, and what is still open.

Nodes are events: a transaction's begin and commit, which are one node where the level does not tell them apart, the
ticks of `realtime.py`, and the line between what is past and the rest. Known edges say which event comes before
which, of what kind and why. What is open is the order of the version chains of each key. For chain c before chain d of
one key

    commit(tail of c) -> begin(head of d)               writers of a key do not overlap,
    commit(tail of c) -> commit(head of d)              unless the later one begins a row anew
    begin(r) -> commit(head of d)  for each reader r of c's last version

The history is accepted iff the chains of every key can be ordered such that all edges together are acyclic. With
begin = commit this is Cobra's polygraph; with both it is Viper's BC-polygraph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mussurana.verifier.engine.realtime import event_times, tick_edges
from mussurana.verifier.engine.resolve import NOBODY, Resolved
from mussurana.verifier.engine.versions import VersionChains, chain_versions
from mussurana.verifier.history import UNKNOWN_TIME, Ints, SmallInts, Status, offsets, ranges
from mussurana.verifier.levels import LEVELS, Level
from mussurana.verifier.verdict import Settings

WITHIN, SESSION, REAL_TIME, WR, WW, RW, EPOCH = range(7)
"""Kinds of edges. WITHIN: a transaction begins before it commits. EPOCH: what is past comes before all the rest."""


@dataclass(frozen=True)
class Edges:
    """Columns over edges. For WR, WW and RW edges `version` is the one written or read at the source,
    `next_version` the one read (WR) or written (WW, RW) at the target."""

    source: SmallInts
    target: SmallInts
    kind: np.ndarray
    version: SmallInts
    next_version: SmallInts

    @staticmethod
    def of(source, target, kind, version=None, next_version=None) -> Edges:  # type: ignore[no-untyped-def]
        count = len(source)
        none = np.full(count, -1, np.int32)
        return Edges(
            np.asarray(source, np.int32),
            np.asarray(target, np.int32),
            np.full(count, kind, np.uint8),
            none if version is None else np.asarray(version, np.int32),
            none if next_version is None else np.asarray(next_version, np.int32),
        )

    @staticmethod
    def join(parts: list[Edges]) -> Edges:
        return Edges(
            np.concatenate([p.source for p in parts]),
            np.concatenate([p.target for p in parts]),
            np.concatenate([p.kind for p in parts]),
            np.concatenate([p.version for p in parts]),
            np.concatenate([p.next_version for p in parts]),
        )


@dataclass(frozen=True)
class Graph:
    level: Level
    txns: Ints  # the transactions that take part, by their numbers in the history; below they are numbered 0, 1, ...
    node_count: int
    begin: SmallInts  # per transaction: its begin node
    commit: SmallInts  # per transaction: its commit node; the same one where the level does not split
    node_txn: SmallInts  # per node: its transaction, -1 for ticks
    next_node: SmallInts  # per node: the one that follows it within its session or tick line, or -1
    edges: Edges
    version_key: SmallInts
    version_txn: SmallInts  # NOBODY for initial versions
    version_new: np.ndarray  # bool, as in Resolved
    chains: VersionChains


def keeps_sessions(settings: Settings) -> bool:
    return settings.session_order and LEVELS[settings.level].session_order


def build_graph(resolved: Resolved, settings: Settings, with_sessions: bool, free: Ints | None = None) -> Graph:
    """The graph of a resolved history at a level, with or without the order of sessions.

    With it, `free` are transactions that have no place in their session's order all the same.
    """
    level = LEVELS[settings.level]
    history = resolved.history
    txns = np.flatnonzero(resolved.in_effect)
    txn_count = len(txns)
    local = np.full(history.txn_count, NOBODY, np.int32)
    local[txns] = np.arange(txn_count, dtype=np.int32)
    version_txn = np.where(resolved.version_txn >= 0, local[resolved.version_txn], NOBODY).astype(np.int32)
    read_txn = local[resolved.read_txn]
    chains = chain_versions(
        resolved.version_key, version_txn, resolved.version_new, resolved.key_count, read_txn, resolved.read_version,
        local[resolved.list_txn], resolved.list_start, resolved.list_version, history.key[resolved.list_op],
    )  # fmt: skip

    times = event_times(history, txns)
    timed = any(target == "commit" for _, target in level.real_time) and bool((times.commit_low != UNKNOWN_TIME).any())
    begin, commit, node_txn = _number_nodes(level, txn_count, version_txn, timed)
    parts = []
    if level.split:
        apart = begin != commit
        parts.append(Edges.of(begin[apart], commit[apart], WITHIN))

    next_node = np.full(len(node_txn), -1, np.int32)
    next_node[begin[begin != commit]] = commit[begin != commit]
    session, status = history.session[txns], history.status[txns]
    bound = np.full(txn_count, with_sessions)
    if free is not None:
        bound[local[free[resolved.in_effect[free]]]] = False
    if with_sessions:
        before, after = _session_pairs(session, status, bound)
        parts.append(Edges.of(commit[before], begin[after], SESSION))
        certain = status[after] != Status.IN_DOUBT
        next_node[commit[before[certain]]] = begin[after[certain]]

    tick_count = 0
    for targets in ("begin", "commit"):
        sources = [source for source, target in level.real_time if target == targets]
        if not sources:
            continue
        nodes = {"begin": begin, "commit": commit}
        source, target, ticks = tick_edges(
            np.concatenate([nodes[event] for event in sources]),
            np.concatenate([times.high(event) for event in sources]),
            nodes[targets],
            times.low(targets),
            settings.clock_drift_ns,
            len(node_txn) + tick_count,
        )
        parts.append(Edges.of(source, target, REAL_TIME))
        line = np.full(ticks, -1, np.int32)
        line[: max(ticks - 1, 0)] = len(node_txn) + tick_count + 1 + np.arange(max(ticks - 1, 0))
        next_node = np.concatenate([next_node, line])
        tick_count += ticks
    past = int(np.searchsorted(txns, history.past))
    if 0 < past < txn_count:
        border = len(node_txn) + tick_count  # one more node, between what is past and the rest
        after = np.arange(past, txn_count)
        if with_sessions:
            after = np.setdiff1d(after, _session_pairs(session[past:], status[past:], bound[past:])[1] + past)
        parts.append(Edges.of(commit[:past], np.full(past, border), EPOCH))
        parts.append(Edges.of(np.full(len(after), border), begin[after], EPOCH))
        next_node = np.append(next_node, np.int32(-1))
        tick_count += 1
    node_count = len(node_txn) + tick_count
    node_txn = np.concatenate([node_txn, np.full(tick_count, -1, np.int32)])

    written = version_txn[resolved.read_version] >= 0
    version = resolved.read_version[written]
    parts.append(Edges.of(commit[version_txn[version]], begin[read_txn[written]], WR, version, version))
    parts.extend(_chain_edges(chains, version_txn, begin, commit, len(resolved.list_txn) > 0))
    return Graph(
        level=level,
        txns=txns,
        node_count=node_count,
        begin=begin,
        commit=commit,
        node_txn=node_txn,
        next_node=next_node,
        edges=Edges.join(parts),
        version_key=resolved.version_key,
        version_txn=version_txn,
        version_new=resolved.version_new,
        chains=chains,
    )


def _number_nodes(
    level: Level, txn_count: int, version_txn: SmallInts, timed: bool
) -> tuple[SmallInts, SmallInts, SmallInts]:
    """Begin and commit nodes. A transaction that writes nothing needs only one node for both, unless the clocks
    order its commit on its own: no other edge leads into that commit."""
    if not level.split:
        nodes = np.arange(txn_count, dtype=np.int32)
        return nodes, nodes, nodes
    two = np.full(txn_count, bool(timed))
    two[version_txn[version_txn >= 0]] = True
    begin = (offsets(1 + two.astype(np.int64))[:-1]).astype(np.int32)
    return begin, begin + two.astype(np.int32), np.repeat(np.arange(txn_count, dtype=np.int32), 1 + two)


def _session_pairs(session: SmallInts, status: np.ndarray, bound: np.ndarray) -> tuple[Ints, Ints]:
    """(earlier, later) for neighbours in session order, of the transactions that are bound to it.

    An in-doubt transaction comes after its session's earlier ones, but may have taken effect after later ones began, so
    it precedes none of them.
    """
    certain = np.flatnonzero(bound & (status != Status.IN_DOUBT))
    by_session = certain[np.argsort(session[certain], kind="stable")]
    same = session[by_session[1:]] == session[by_session[:-1]]
    before, after = by_session[:-1][same], by_session[1:][same]
    doubtful = np.flatnonzero(bound & (status == Status.IN_DOUBT))
    if len(doubtful):
        extra = []
        for t in doubtful:
            earlier = certain[(session[certain] == session[t]) & (certain < t)]
            if len(earlier):
                extra.append((earlier[-1], t))
        if extra:
            pairs = np.array(extra)
            before, after = np.concatenate([before, pairs[:, 0]]), np.concatenate([after, pairs[:, 1]])
    return before, after


def _chain_edges(
    chains: VersionChains, version_txn: SmallInts, begin: SmallInts, commit: SmallInts, lists: bool
) -> list[Edges]:
    """What the links inside chains say: the next writer comes after this one and after all who read this one."""
    parts = []
    linked = np.flatnonzero(chains.following >= 0)
    if lists:  # otherwise the next writer read this version, which says the same
        both = linked[version_txn[linked] >= 0]
        after = chains.following[both]
        parts.append(Edges.of(commit[version_txn[both]], begin[version_txn[after]], WW, both, after))
    counts = chains.reader_start[linked + 1] - chains.reader_start[linked]
    version = np.repeat(linked, counts)
    reader = chains.reader[ranges(chains.reader_start[linked], chains.reader_start[linked + 1])]
    after = chains.following[version]
    others = reader != version_txn[after]
    parts.append(
        Edges.of(begin[reader[others]], commit[version_txn[after[others]]], RW, version[others], after[others])
    )
    return parts
