"""Order what has only one possible order, again and again until nothing changes (Cobra 4.3.3, without its matrix).

Chain d must come before chain c of the same key when the other order would close a cycle with what is known:

    begin(head of d) reaches commit(tail of c),  or  commit(head of d) reaches begin(r) for a reader r of c's last version.

Enumerating all pairs of chains of a hot key would be quadratic. But clocks count along graph chains: for a chain c and a
graph chain s, the heads on s that satisfy this are a prefix of those on s. One look-up and a binary search find the
last of them, and it is enough to order that one: the earlier ones come before it, so their edges are implied. What is
left between the prefix and the heads known to come later is undecided, and goes to the solver.

The initial version's chain comes before all others of its key; that is where pruning starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from mussurana.verifier.engine.arrays import adjacency, group_by
from mussurana.verifier.engine.graph import RW, WW, Edges, Graph
from mussurana.verifier.engine.reach import count_reaching, cover_by_chains, topological_order
from mussurana.verifier.history import Ints, SmallInts, offsets


@dataclass(frozen=True)
class Heads:
    """The heads of open chains, sorted by key, graph chain and place on it. A *row* holds those of one key on one graph chain."""

    key_row_start: Ints  # rows of key k: key_row_start[k] : key_row_start[k + 1]
    row_chain: SmallInts  # per row: its graph chain
    row_start: Ints  # entries of row i: row_start[i] : row_start[i + 1]
    place: SmallInts  # per entry: index on the graph chain
    chain: SmallInts  # per entry: the open chain whose head this is


@dataclass
class Open:
    """The version chains whose order is open: all that do not start with the initial version, grouped by key."""

    key_start: Ints  # open chains of key k: key_start[k] : key_start[k + 1]
    head_version: SmallInts
    tail_version: SmallInts
    begin_head: SmallInts
    commit_head: SmallInts
    commit_tail: SmallInts
    post_start: Ints  # begins of the readers of the last version, the last one on each graph chain
    post: SmallInts
    first_tail: SmallInts  # per key: commit node of the last version of the initial chain, -1 if nobody replaced the initial one
    first_tail_version: SmallInts
    first_post_start: Ints
    first_post: SmallInts
    by_begin: Heads
    by_commit: Heads

    @property
    def count(self) -> int:
        return len(self.head_version)

    @property
    def pairs(self) -> int:
        """How many pairs of chains have to be ordered."""
        per_key = np.diff(self.key_start)
        return int((per_key * (per_key - 1) // 2).sum())


@dataclass
class Pruned:
    """The graph after pruning: all known edges, and the clocks over them. `cyclic` means rejected."""

    graph: Graph
    edges: Edges  # the graph's own edges, then those that pruning derived
    derived_start: list[int]  # where each pass starts in `edges`; the edges of a pass follow from those before it
    cyclic: bool
    open: Open
    chain_of: SmallInts
    index_in_chain: SmallInts
    clock: np.ndarray
    order: SmallInts


@njit(cache=True)
def last_readers(version, reader_start, reader, begin, chain_of, index_in_chain, chain_count):
    """For each version the begins of its readers, only the last one on each graph chain. Returns (row starts, nodes)."""
    start = np.zeros(len(version) + 1, np.int64)
    total = 0
    for i in range(len(version)):
        total += reader_start[version[i] + 1] - reader_start[version[i]]
    nodes = np.empty(total, np.int32)
    where = np.full(chain_count, -1, np.int64)
    count = 0
    for i in range(len(version)):
        first = count
        for at in range(reader_start[version[i]], reader_start[version[i] + 1]):
            node = begin[reader[at]]
            chain = chain_of[node]
            if where[chain] >= first and chain_of[nodes[where[chain]]] == chain:
                if index_in_chain[node] > index_in_chain[nodes[where[chain]]]:
                    nodes[where[chain]] = node
            else:
                where[chain] = count
                nodes[count] = node
                count += 1
        start[i + 1] = count
    return start, nodes[:count].copy()


@njit(cache=True)
def reaches(clock, chain_of, index_in_chain, u, v):
    """Whether u reaches v or is v."""
    return clock[v, chain_of[u]] > index_in_chain[u]


@njit(cache=True)
def count_below(place, first, end, limit):
    """How many of the increasing entries place[first:end] are below limit."""
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        if place[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low - first


@njit(cache=True)
def _add(source, target, kind, version, next_version, at, u, v, k, a, b):
    source[at], target[at], kind[at], version[at], next_version[at] = u, v, k, a, b
    return at + 1


@njit(cache=True)
def order_initial_chains(
    key_start, head_version, begin_head, commit_head, first_tail, first_tail_version, first_post_start, first_post,
    begin_key_row, begin_row_start, begin_entry, commit_key_row, commit_row_start, commit_entry,
    source, target, kind, version, next_version, added, from_key,
):  # fmt: skip
    """Put the chain of the initial version before all other chains of its key. Returns (edges so far, next key); call again if it is not past the last."""
    for key in range(from_key, len(key_start) - 1):
        rows = begin_key_row[key + 1] - begin_key_row[key] + commit_key_row[key + 1] - commit_key_row[key]
        if added + rows * (1 + first_post_start[key + 1] - first_post_start[key]) > len(source):
            return added, key
        if first_tail[key] >= 0:
            for row in range(begin_key_row[key], begin_key_row[key + 1]):
                d = begin_entry[begin_row_start[row]]
                added = _add(source, target, kind, version, next_version, added,
                             first_tail[key], begin_head[d], WW, first_tail_version[key], head_version[d])  # fmt: skip
        for row in range(commit_key_row[key], commit_key_row[key + 1]):
            d = commit_entry[commit_row_start[row]]
            for at in range(first_post_start[key], first_post_start[key + 1]):
                added = _add(source, target, kind, version, next_version, added,
                             first_post[at], commit_head[d], RW, first_tail_version[key], head_version[d])  # fmt: skip
    return added, len(key_start) - 1


@njit(cache=True)
def order_forced_chains(
    clock, chain_of, index_in_chain, changed, split, chain_key, head_version, tail_version, begin_head, commit_head, commit_tail, post_start, post,
    key_start, begin_key_row, begin_row_chain, begin_row_start, begin_place, begin_entry,
    commit_key_row, commit_row_chain, commit_row_start, commit_place, commit_entry,
    source, target, kind, version, next_version, added, from_chain, room,
):  # fmt: skip
    """Add the edges for pairs of chains that have only one possible order, given the clocks.

    Only chains whose clocks changed are looked at. Returns (edges so far, next chain); call again with more room if it is not past the last.
    Pre: `room` is at least the most edges that one chain can add.
    """
    for c in range(from_chain, len(head_version)):
        key = chain_key[c]
        if key_start[key + 1] - key_start[key] < 2:
            continue
        stale = changed[commit_tail[c]] != 0
        for at in range(post_start[c], post_start[c + 1]):
            stale = stale or changed[post[at]] != 0
        if not stale:
            continue
        if added + room > len(source):
            return added, c
        for side in range(2 if split else 1):
            rows = begin_key_row if side == 0 else commit_key_row
            row_chain = begin_row_chain if side == 0 else commit_row_chain
            row_start = begin_row_start if side == 0 else commit_row_start
            place = begin_place if side == 0 else commit_place
            entry = begin_entry if side == 0 else commit_entry
            for row in range(rows[key], rows[key + 1]):
                s = row_chain[row]
                limit = 0
                if side == 0:
                    limit = clock[commit_tail[c], s]
                if side == 1 or not split:
                    for at in range(post_start[c], post_start[c + 1]):
                        limit = max(limit, clock[post[at], s])
                if limit == 0:
                    continue
                last = row_start[row] + count_below(place, row_start[row], row_start[row + 1], limit) - 1
                if last >= row_start[row] and entry[last] == c:
                    last -= 1
                if last < row_start[row]:
                    continue
                d = entry[last]
                if not reaches(clock, chain_of, index_in_chain, commit_tail[d], begin_head[c]):
                    added = _add(source, target, kind, version, next_version, added,
                                 commit_tail[d], begin_head[c], WW, tail_version[d], head_version[c])  # fmt: skip
                for at in range(post_start[d], post_start[d + 1]):
                    if not reaches(clock, chain_of, index_in_chain, post[at], commit_head[c]):
                        added = _add(source, target, kind, version, next_version, added,
                                     post[at], commit_head[c], RW, tail_version[d], head_version[c])  # fmt: skip
    return added, len(head_version)


def _sort_heads(
    node: SmallInts, chain_key: SmallInts, key_count: int, chain_of: SmallInts, index_in_chain: SmallInts
) -> Heads:
    place = index_in_chain[node]
    chain = chain_of[node]
    by_place = group_by(place, int(place.max(initial=-1)) + 1)[1]
    by_chain = by_place[group_by(chain[by_place], int(chain.max(initial=-1)) + 1)[1]]
    entry = by_chain[group_by(chain_key[by_chain], key_count)[1]]
    new_row = np.ones(len(entry), bool)
    new_row[1:] = (np.diff(chain_key[entry]) != 0) | (np.diff(chain[entry]) != 0)
    row_start = np.append(np.flatnonzero(new_row), len(entry))
    first = entry[row_start[:-1]]
    return Heads(
        key_row_start=offsets(np.bincount(chain_key[first], minlength=key_count)),
        row_chain=chain[first],
        row_start=row_start,
        place=place[entry],
        chain=entry.astype(np.int32),
    )


def find_open(graph: Graph, chain_of: SmallInts, index_in_chain: SmallInts, chain_count: int) -> Open:
    chains, key_count = graph.chains, int(np.count_nonzero(graph.version_txn < 0))
    head, tail = chains.chain_head[key_count:], chains.chain_tail[key_count:]
    first_tail = chains.chain_tail[:key_count]
    chain_key = graph.version_key[head]
    post_start, post = last_readers(
        tail, chains.reader_start, chains.reader, graph.begin, chain_of, index_in_chain, chain_count
    )
    first_post_start, first_post = last_readers(
        first_tail, chains.reader_start, chains.reader, graph.begin, chain_of, index_in_chain, chain_count
    )
    begin_head, commit_head = graph.begin[graph.version_txn[head]], graph.commit[graph.version_txn[head]]
    by_begin = _sort_heads(begin_head, chain_key, key_count, chain_of, index_in_chain)
    return Open(
        key_start=offsets(np.bincount(chain_key, minlength=key_count)),
        head_version=head,
        tail_version=tail,
        begin_head=begin_head,
        commit_head=commit_head,
        commit_tail=graph.commit[graph.version_txn[tail]],
        post_start=post_start,
        post=post,
        first_tail=np.where(graph.version_txn[first_tail] >= 0, graph.commit[graph.version_txn[first_tail]], -1).astype(
            np.int32
        ),
        first_tail_version=first_tail,
        first_post_start=first_post_start,
        first_post=first_post,
        by_begin=by_begin,
        by_commit=_sort_heads(commit_head, chain_key, key_count, chain_of, index_in_chain)
        if graph.level.split
        else by_begin,
    )


class _DerivedEdges:
    """Edges found by pruning, in growing columns and as linked lists from both ends."""

    def __init__(self, node_count: int, room: int) -> None:
        self.count = 0
        self.first_out = np.full(node_count, -1, np.int32)
        self.first_in = np.full(node_count, -1, np.int32)
        self.source, self.target, self.version, self.next_version, self.next_out, self.next_in = (
            np.empty(room, np.int32) for _ in range(6)
        )
        self.kind = np.empty(room, np.uint8)

    def make_room(self, room: int) -> None:
        if self.count + room > len(self.source):
            for name in ("source", "target", "version", "next_version", "next_out", "next_in", "kind"):
                old = getattr(self, name)
                new = np.empty(max(2 * len(old), self.count + room), old.dtype)
                new[: self.count] = old[: self.count]
                setattr(self, name, new)

    def link(self, count: int, fresh: np.ndarray) -> None:
        """Take the edges up to `count` into the lists, and mark their targets."""
        link_edges(
            self.source,
            self.target,
            self.first_out,
            self.first_in,
            self.next_out,
            self.next_in,
            self.count,
            count,
            fresh,
        )
        self.count = count

    def edges(self) -> Edges:
        n = self.count
        return Edges(self.source[:n], self.target[:n], self.kind[:n], self.version[:n], self.next_version[:n])


@njit(cache=True)
def link_edges(source, target, first_out, first_in, next_out, next_in, start, end, fresh):
    """Put edges start .. end into the lists of their ends and mark their targets as fresh."""
    for e in range(start, end):
        next_out[e] = first_out[source[e]]
        first_out[source[e]] = e
        next_in[e] = first_in[target[e]]
        first_in[target[e]] = e
        fresh[target[e]] = 1


def prune(graph: Graph) -> Pruned:
    """Derive known edges until nothing changes, or until they form a cycle."""
    n = graph.node_count
    own = graph.edges
    out_start, out_to, _ = adjacency(own.source, own.target, n)
    in_start, in_from, _ = adjacency(own.target, own.source, n)
    order = np.empty(n, np.int32)
    derived = _DerivedEdges(n, 1024)
    derived_start = [len(own.source)]
    chain_of, index_in_chain = np.zeros(n, np.int32), np.zeros(n, np.int32)

    def sort() -> bool:
        done = topological_order(n, out_start, out_to, derived.first_out, derived.next_out, derived.target, order)
        return bool(done == n)

    acyclic = sort()
    # With a cycle there is no order to cover by chains; one chain per node keeps what follows well-formed.
    chain_count = cover_by_chains(order, in_start, in_from, graph.next_node, chain_of, index_in_chain) if acyclic else 1
    opened = find_open(graph, chain_of, index_in_chain, chain_count)
    clock = np.zeros((n if acyclic else 0, chain_count), np.int32)
    fresh, changed = np.ones(n, np.uint8), np.zeros(n, np.uint8)

    if acyclic:
        key_count, key = len(opened.key_start) - 1, 0
        while True:
            count, key = order_initial_chains(
                opened.key_start, opened.head_version, opened.begin_head, opened.commit_head,
                opened.first_tail, opened.first_tail_version, opened.first_post_start, opened.first_post,
                opened.by_begin.key_row_start, opened.by_begin.row_start, opened.by_begin.chain,
                opened.by_commit.key_row_start, opened.by_commit.row_start, opened.by_commit.chain,
                derived.source, derived.target, derived.kind, derived.version, derived.next_version, derived.count, key,
            )  # fmt: skip
            derived.link(count, fresh)
            if key >= key_count:
                break
            derived.make_room(2 * len(derived.source) + _most_initial_edges(opened))
        acyclic = sort()

    chain_key = graph.version_key[opened.head_version]
    room = _most_forced_edges(opened, chain_key, graph.level.split)
    while acyclic:
        derived_start.append(len(own.source) + derived.count)
        count_reaching(
            order, in_start, in_from, derived.first_in, derived.next_in, derived.source,
            chain_of, index_in_chain, fresh, clock, changed,
        )  # fmt: skip
        fresh[:] = 0
        before = derived.count
        chain = 0
        while chain < opened.count:
            derived.make_room(room)
            count, chain = order_forced_chains(
                clock, chain_of, index_in_chain, changed, graph.level.split, chain_key,
                opened.head_version, opened.tail_version, opened.begin_head, opened.commit_head, opened.commit_tail, opened.post_start, opened.post,
                opened.key_start,
                opened.by_begin.key_row_start, opened.by_begin.row_chain, opened.by_begin.row_start, opened.by_begin.place, opened.by_begin.chain,
                opened.by_commit.key_row_start, opened.by_commit.row_chain, opened.by_commit.row_start, opened.by_commit.place, opened.by_commit.chain,
                derived.source, derived.target, derived.kind, derived.version, derived.next_version, derived.count, chain, room,
            )  # fmt: skip
            derived.link(count, fresh)
        if derived.count == before:
            break
        acyclic = sort()

    return Pruned(
        graph=graph,
        edges=Edges.join([own, derived.edges()]),
        derived_start=derived_start,
        cyclic=not acyclic,
        open=opened,
        chain_of=chain_of,
        index_in_chain=index_in_chain,
        clock=clock,
        order=order,
    )


def _most_initial_edges(opened: Open) -> int:
    rows = np.diff(opened.by_begin.key_row_start) + np.diff(opened.by_commit.key_row_start)
    return int((rows * (1 + np.diff(opened.first_post_start))).max(initial=0))


def _most_forced_edges(opened: Open, chain_key: SmallInts, split: bool) -> int:
    """The most edges that one chain can add: for each row of its key, one chain's worth."""
    rows = np.diff(opened.by_begin.key_row_start) + (np.diff(opened.by_commit.key_row_start) if split else 0)
    return int(rows.max(initial=0)) * (1 + int(np.diff(opened.post_start).max(initial=0)))
