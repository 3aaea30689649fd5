"""What a round may forget, so that no later round ends differently (design 4; dissertation 4.4.3 and B.2.4).

The *past* is a set of transactions that nothing else, known or still to come, can have to precede:

1. Every transaction to come follows the last one of its session, or the last write fence if its session is new. What
   comes before all of these is *stable*: it comes before all that is yet to come. (The paper counts epochs instead;
   vector clocks tell the same, earlier and for each transaction.)
2. A stable transaction that some other one might have to precede is not past, nor is what follows it. "Might" takes
   in every edge that an undecided pair of writes could still bring.

If there is any valid order, then there is one in which the whole past comes first: no edge leads into it, whatever
the rest is. So it comes first from now on (`History.past`), and most of it can go. The last version of each key stays,
in the version table. Where the past does not say which version is the last, a later read will, and that may decide the
order of others: the strongly connected component of all that hangs together with it (the paper's P-SCC) is *kept*, with
a key of its own in place of each key that has a later version elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.components import is_plain, put_edge, strong_components
from mussurana.verifier.engine.graph import Graph
from mussurana.verifier.engine.prune import Open, Pruned, all_before, count_below, reaches
from mussurana.verifier.history import Ints, SmallInts
from mussurana.verifier.kernels import kernel

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Past:
    """What is past, by the graph's numbers of transactions, keys and versions."""

    past: Flags  # per transaction
    kept: Flags  # per transaction: past, but part of a component whose outcome is open
    component: Ints  # per transaction: its component among the past
    last_version: Ints  # per key: the last version of the past, -1 if there is none or it is not known
    owner: Ints  # per key: the component that has the last versions, -1 if nobody of the past wrote the key


@kernel
def possible_edges_to_come(opened, heads, split, readable, clock, chain_of, index_in_chain, before, source, target):
    """The edges that undecided pairs of chains might bring, now or when more is known, up to what known edges imply.

    Pre:  pruning has reached its fixpoint; readable[c] tells whether a transaction to come can read chain c's last
          version.
    Post: returns their number; those beyond the room in source and target are counted but not stored.

    Without split, two single writes that nobody read need no order, as long as nobody reads them. A read to come can
    only demand that the other one comes before the one it read.
    """
    count = 0
    for c in range(len(opened.head_version)):
        key, tail = opened.key[c], opened.commit_tail[c]
        plain = not split and is_plain(opened, c)
        for i in range(heads.key_row[key + 1] - heads.key_row[key]):
            if all_before(heads, before, i, c):
                continue
            row = heads.key_row[key] + i
            first, end = heads.row_start[row], heads.row_start[row + 1]
            at = first + count_below(heads.place, first, end, clock[tail, heads.row_chain[row]])
            while at < end:
                d = heads.chain[at]
                if d != c and (not plain or readable[d] or not is_plain(opened, d)):
                    break
                at += 1
            if at == end or reaches(clock, chain_of, index_in_chain, tail, opened.begin_head[heads.chain[at]]):
                continue
            d = heads.chain[at]
            count = put_edge(source, target, count, tail, opened.begin_head[d])
            for j in range(opened.post_start[c], opened.post_start[c + 1]):
                count = put_edge(source, target, count, opened.post[j], opened.commit_head[d])
    return count


@kernel
def mark_reached(start, out_start, out_to, reached):
    """Mark all that can be reached from `start`, these included."""
    stack = np.empty(len(out_start), np.int64)
    depth = 0
    for u in start:
        if not reached[u]:
            reached[u] = True
            stack[depth] = u
            depth += 1
    while depth > 0:
        depth -= 1
        u = stack[depth]
        for i in range(out_start[u], out_start[u + 1]):
            v = out_to[i]
            if not reached[v]:
                reached[v] = True
                stack[depth] = v
                depth += 1


@kernel
def last_of_chains(chain_head, following, version_txn, past, last, is_whole):
    """For each version chain the last version that the past wrote, and whether the chain ends there.

    Post: last[c] is -1 where the past wrote nothing of chain c; initial versions are past.
    """
    for c in range(len(chain_head)):
        v = chain_head[c]
        last[c] = -1
        is_whole[c] = False
        while v >= 0 and (version_txn[v] < 0 or past[version_txn[v]]):
            last[c] = v
            v = following[v]
        is_whole[c] = v < 0


@kernel
def find_candidates(opened, heads, clock, chain_of, index_in_chain, in_past, candidate):
    """Mark the open chains of the past that no other chain of the past is known to follow.

    Pre: the past is closed: the heads of it on a graph chain come before the other heads there. `candidate` is false.
    """
    for c in range(len(opened.head_version)):
        if not in_past[c]:
            continue
        key = opened.key[c]
        candidate[c] = True
        for row in range(heads.key_row[key], heads.key_row[key + 1]):
            at = heads.row_start[row + 1] - 1
            while at >= heads.row_start[row] and not in_past[heads.chain[at]]:
                at -= 1
            if at < heads.row_start[row] or heads.chain[at] == c:
                continue
            if reaches(clock, chain_of, index_in_chain, opened.commit_tail[c], opened.begin_head[heads.chain[at]]):
                candidate[c] = False
                break


def stable(pruned: Pruned, last: Ints) -> Flags:
    """The transactions that come before all of `last`, or are among them, by the graph's numbers."""
    graph = pruned.graph
    rows = pruned.clock[graph.commit[last]]
    common = rows.min(axis=0)
    return np.asarray(pruned.index_in_chain[graph.commit] < common[pruned.chain_of[graph.commit]])


def reach(pruned: Pruned, txn: int) -> Flags:
    """The transactions whose commit is known to come before this one's, which included."""
    graph = pruned.graph
    row = pruned.clock[graph.commit[txn]]
    return np.asarray(row[pruned.chain_of[graph.commit]] > pruned.index_in_chain[graph.commit])


def find_past(pruned: Pruned, is_stable: Flags, is_live: Flags) -> Past:
    """Split the transactions of an accepted round. `is_live` tells keys that later transactions can touch."""
    graph, opened = pruned.graph, pruned.open
    clocks = pruned.clock, pruned.chain_of, pruned.index_in_chain
    readable = np.zeros(opened.size, bool)
    find_candidates(opened, pruned.heads, *clocks, is_stable[graph.version_txn[opened.head_version]], readable)
    readable |= ~is_stable[graph.version_txn[opened.tail_version]]

    def candidates(in_past: Flags) -> Flags:
        found = np.zeros(opened.size, bool)
        find_candidates(opened, pruned.heads, *clocks, in_past, found)
        return found

    return split_past(graph, opened, *_all_edges(pruned, readable), candidates, is_stable, is_live)


def split_past(
    graph: Graph,
    opened: Open,
    source: SmallInts,
    target: SmallInts,
    candidates: Callable[[Flags], Flags],
    is_stable: Flags,
    is_live: Flags,
) -> Past:
    """The past, given all edges that are known or possible between nodes of the graph.

    `candidates` says which of the given open chains, those that the past wrote, may have the last version of their key.
    """
    # Begin and commit of a transaction stay together, so here a transaction is one node whatever the level.
    txn_count, node = len(graph.txns), graph.node_txn.astype(np.int64)
    node[node < 0] = txn_count + np.arange(np.count_nonzero(node < 0))
    from_txn, to_txn = node[source], node[target]
    size = txn_count + int(np.count_nonzero(graph.node_txn < 0))
    out_start, out_to, _ = adjacency(from_txn, to_txn, size)
    reached = np.zeros(size, bool)
    mark_reached(np.flatnonzero(~is_stable), out_start, out_to, reached)
    past = ~reached[:txn_count]

    key_count = len(opened.key_start) - 1
    heads = np.concatenate([graph.chains.chain_head[:key_count], opened.head_version])
    last = np.empty(len(heads), np.int64)
    is_whole = np.empty(len(heads), bool)
    last_of_chains(heads, graph.chains.following, graph.version_txn, past, last, is_whole)
    first_last, last, is_whole = last[:key_count], last[key_count:], is_whole[key_count:]
    candidate = candidates(last >= 0)
    # A chain that goes on after the past comes after all others of the past; its part is the last.
    goes_on = np.zeros(key_count, bool)
    goes_on[opened.key[(last >= 0) & ~is_whole]] = True
    candidate &= ~goes_on[opened.key] | ~is_whole
    count = np.bincount(opened.key[candidate], minlength=key_count)

    inside = ~reached[from_txn] & ~reached[to_txn]
    component, component_count = strong_components(size, *adjacency(from_txn[inside], to_txn[inside], size)[:2])
    component = component[:txn_count].astype(np.int64)
    is_open = np.zeros(component_count, bool)
    undecided = candidate & (count > 1)[opened.key] & is_live[opened.key]
    is_open[component[graph.version_txn[last[undecided]]]] = True

    last_version = first_last.copy()  # no chain of the past but the initial one: its end, or the initial version
    last_version[opened.key[candidate]] = last[candidate]
    owner = np.full(key_count, -1, np.int64)
    written = graph.version_txn[last_version] >= 0
    owner[written] = component[graph.version_txn[last_version[written]]]
    last_version[(count > 1) | ~written] = -1
    return Past(past, past & is_open[component], component, last_version, owner)


def _all_edges(pruned: Pruned, readable: Flags) -> tuple[SmallInts, SmallInts]:
    """Known edges and possible ones."""
    clocks = pruned.clock, pruned.chain_of, pruned.index_in_chain, pruned.before
    room = 2 * len(pruned.source) + 1024
    while True:
        source, target = np.empty(room, np.int32), np.empty(room, np.int32)
        count = possible_edges_to_come(
            pruned.open, pruned.heads, pruned.graph.level.split, readable, *clocks, source, target
        )
        if count <= room:
            break
        room = count
    return np.concatenate([pruned.source, source[:count]]), np.concatenate([pruned.target, target[:count]])
