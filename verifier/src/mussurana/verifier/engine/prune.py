"""Order what has only one possible order, again and again until nothing changes (Cobra 4.3.3, without its matrix).

Chain d must come before chain c of the same key when the other order would close a cycle with what is known:

    begin(head of d) reaches commit(tail of c), or
    commit(head of d) reaches begin(r) for a reader r of c's last version.

Enumerating all pairs of chains of a hot key would be quadratic. But clocks count along graph chains: for a chain c
and a graph chain s, the heads on s that satisfy this are a prefix of those on s. One look-up and a binary search find
the last of them, and it is enough to order that one: the earlier ones come before it, so their edges are implied.
What is left between the prefix and the heads known to come later is undecided, and goes to the solver.

The initial version's chain comes before all others of its key; that is where pruning starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mussurana.verifier.engine.arrays import adjacency, group_by
from mussurana.verifier.engine.graph import RW, WW, Edges, Graph
from mussurana.verifier.engine.reach import clock_type, count_reaching, cover_by_chains, topological_order
from mussurana.verifier.history import Ints, SmallInts, offsets
from mussurana.verifier.kernels import kernel

CLOCK_BYTES_MAX = 1 << 30  # more would not pay: a graph that needs it has hardly any order to prune with


class Heads(NamedTuple):
    """Begins of the heads of open chains, by key, graph chain and place on it. A *row* is a key on one graph chain."""

    key_row: Ints  # rows of key k: key_row[k] : key_row[k + 1]
    row_chain: SmallInts  # per row: its graph chain
    row_start: Ints  # entries of row i: row_start[i] : row_start[i + 1]
    place: SmallInts  # per entry: index on the graph chain
    chain: SmallInts  # per entry: the open chain whose head this is


class Open(NamedTuple):
    """The version chains whose order is open: all that do not start with the initial version, grouped by key."""

    key_start: Ints  # open chains of key k: key_start[k] : key_start[k + 1]
    key: SmallInts
    head_version: SmallInts
    tail_version: SmallInts
    begin_head: SmallInts
    commit_head: SmallInts
    commit_tail: SmallInts
    post_start: Ints  # begins of the readers of the last version, the last one on each graph chain
    post: SmallInts
    # per key: the chain of the initial version
    first_tail: SmallInts  # commit node of its last version, -1 if nobody replaced the initial one
    first_tail_version: SmallInts
    first_post_start: Ints
    first_post: SmallInts

    @property
    def size(self) -> int:
        return len(self.head_version)

    @property
    def pairs(self) -> int:
        """How many pairs of chains have to be ordered."""
        per_key = np.diff(self.key_start)
        return int((per_key * (per_key - 1) // 2).sum())


class Found(NamedTuple):
    """Columns for edges that pruning finds."""

    source: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    version: np.ndarray
    next_version: np.ndarray


@dataclass
class Pruned:
    """The graph after pruning: all known edges, and the clocks over them."""

    graph: Graph
    edges: Edges  # the graph's own edges, then those that pruning derived
    derived_start: list[int]  # where each pass starts in `edges`; the edges of a pass follow from those before it
    cyclic: bool  # there is no order
    too_wide: bool  # there was no room for clocks: nothing is pruned but the order of initial versions
    open: Open
    heads: Heads
    settled: (
        np.ndarray
    )  # for each open chain and each row of its key: the row's heads are all known to be before or after it
    settled_start: Ints
    chain_of: SmallInts
    index_in_chain: SmallInts
    clock: np.ndarray
    order: SmallInts


@kernel
def last_readers(version, reader_start, reader, begin, chain_of, index_in_chain, chain_count):
    """For each version its readers' begins, only the last one on each graph chain. Returns (row starts, nodes)."""
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


@kernel
def reaches(clock, chain_of, index_in_chain, u, v):
    """Whether u reaches v or is v."""
    return clock[v, chain_of[u]] > index_in_chain[u]


@kernel
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


@kernel
def put(found, at, source, target, kind, version, next_version):
    """Store an edge and return where the next one goes."""
    found.source[at], found.target[at], found.kind[at] = source, target, kind
    found.version[at], found.next_version[at] = version, next_version
    return at + 1


@kernel
def order_initial_chains(opened, heads, found, count, key):
    """Put the chain of the initial version before all other chains of its key.

    Starts at `key` with `count` edges found. Returns (edges found, next key); there was no room for more if that is not
    the end.
    """
    while key < len(opened.key_start) - 1:
        first, last = opened.first_post_start[key], opened.first_post_start[key + 1]
        rows = heads.key_row[key + 1] - heads.key_row[key]
        if count + rows * (1 + last - first) > len(found.source):
            break
        version = opened.first_tail_version[key]
        for row in range(heads.key_row[key], heads.key_row[key + 1]):
            d = heads.chain[heads.row_start[row]]
            next_version = opened.head_version[d]
            if opened.first_tail[key] >= 0:
                count = put(found, count, opened.first_tail[key], opened.begin_head[d], WW, version, next_version)
            for at in range(first, last):
                count = put(found, count, opened.first_post[at], opened.commit_head[d], RW, version, next_version)
        key += 1
    return count, key


@kernel
def order_forced_chains(
    opened, heads, clock, chain_of, index_in_chain, changed, settled, settled_start, found, count, c
):
    """Add the edges for pairs of chains that have only one possible order, given the clocks.

    Only chains whose clocks changed are looked at, and of each only the rows that are not settled: all heads of a
    settled row are known to be before or after it. Starts at chain `c` with `count` edges found. Returns (edges found,
    next chain); there was no room for more if that is not the end.
    """
    while c < len(opened.head_version):
        key = opened.key[c]
        rows = heads.key_row[key + 1] - heads.key_row[key]
        stale = changed[opened.commit_tail[c]] != 0
        for at in range(opened.post_start[c], opened.post_start[c + 1]):
            stale = stale or changed[opened.post[at]] != 0
        if not stale or opened.key_start[key + 1] - opened.key_start[key] < 2:
            c += 1
            continue
        # A head's commit comes right after its begin, so that begins below n - 1 have their commits below n.
        behind = index_in_chain[opened.commit_head[c]] - index_in_chain[opened.begin_head[c]]
        start_count = count
        full = False
        for i in range(rows):
            if settled[settled_start[c] + i]:
                continue
            row = heads.key_row[key] + i
            first, end = heads.row_start[row], heads.row_start[row + 1]
            limit = np.int64(clock[opened.commit_tail[c], heads.row_chain[row]])
            for at in range(opened.post_start[c], opened.post_start[c + 1]):
                limit = max(limit, np.int64(clock[opened.post[at], heads.row_chain[row]]) - behind)
            below = first + count_below(heads.place, first, end, limit)
            after, last = below, below - 1
            if after < end and heads.chain[after] == c:
                after += 1
            if last >= first and heads.chain[last] == c:
                last -= 1
            if after == end or reaches(
                clock, chain_of, index_in_chain, opened.commit_tail[c], opened.begin_head[heads.chain[after]]
            ):
                settled[settled_start[c] + i] = 1
            if last < first:
                continue
            d = heads.chain[last]
            if count + 1 + opened.post_start[d + 1] - opened.post_start[d] > len(found.source):
                full = True
                break
            version, next_version = opened.tail_version[d], opened.head_version[c]
            if not reaches(clock, chain_of, index_in_chain, opened.commit_tail[d], opened.begin_head[c]):
                count = put(found, count, opened.commit_tail[d], opened.begin_head[c], WW, version, next_version)
            for at in range(opened.post_start[d], opened.post_start[d + 1]):
                if not reaches(clock, chain_of, index_in_chain, opened.post[at], opened.commit_head[c]):
                    count = put(found, count, opened.post[at], opened.commit_head[c], RW, version, next_version)
        if full:
            # Not all of this chain's edges fit: take back what it settled and let the caller come again with more room.
            count = start_count
            for i in range(rows):
                settled[settled_start[c] + i] = 0
            break
        c += 1
    return count, c


def sort_heads(opened: Open, chain_of: SmallInts, index_in_chain: SmallInts) -> Heads:
    key, key_count = opened.key, len(opened.key_start) - 1
    place, chain = index_in_chain[opened.begin_head], chain_of[opened.begin_head]
    by_place = group_by(place, int(place.max(initial=-1)) + 1)[1]
    by_chain = by_place[group_by(chain[by_place], int(chain.max(initial=-1)) + 1)[1]]
    entry = by_chain[group_by(key[by_chain], key_count)[1]]
    new_row = np.ones(len(entry), bool)
    new_row[1:] = (np.diff(key[entry]) != 0) | (np.diff(chain[entry]) != 0)
    row_start = np.append(np.flatnonzero(new_row), len(entry))
    first = entry[row_start[:-1]]
    return Heads(
        key_row=offsets(np.bincount(key[first], minlength=key_count)),
        row_chain=chain[first],
        row_start=row_start,
        place=place[entry],
        chain=entry.astype(np.int32),
    )


def find_open(graph: Graph, chain_of: SmallInts, index_in_chain: SmallInts, chain_count: int) -> Open:
    chains, key_count = graph.chains, int(np.count_nonzero(graph.version_txn < 0))
    head, tail = chains.chain_head[key_count:], chains.chain_tail[key_count:]
    first_tail = chains.chain_tail[:key_count]
    key = graph.version_key[head]
    readers = chains.reader_start, chains.reader, graph.begin, chain_of, index_in_chain, chain_count
    post_start, post = last_readers(tail, *readers)
    first_post_start, first_post = last_readers(first_tail, *readers)
    first_writer = graph.version_txn[first_tail]
    return Open(
        key_start=offsets(np.bincount(key, minlength=key_count)),
        key=key,
        head_version=head,
        tail_version=tail,
        begin_head=graph.begin[graph.version_txn[head]],
        commit_head=graph.commit[graph.version_txn[head]],
        commit_tail=graph.commit[graph.version_txn[tail]],
        post_start=post_start,
        post=post,
        first_tail=np.where(first_writer >= 0, graph.commit[first_writer], -1).astype(np.int32),
        first_tail_version=first_tail,
        first_post_start=first_post_start,
        first_post=first_post,
    )


class DerivedEdges:
    """Edges found by pruning, in growing columns and as linked lists from both ends."""

    def __init__(self, node_count: int) -> None:
        self.count = 0
        self.first_out = np.full(node_count, -1, np.int32)
        self.first_in = np.full(node_count, -1, np.int32)
        self.next_out = np.empty(0, np.int32)
        self.next_in = np.empty(0, np.int32)
        self.found = Found(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.uint8, np.int32, np.int32)))
        self.fresh = np.ones(node_count, np.uint8)  # per node: a new edge leads to it
        self.make_room()

    def make_room(self) -> None:
        size = max(1024, 2 * len(self.next_out))

        def longer(old: np.ndarray) -> np.ndarray:
            new = np.empty(size, old.dtype)
            new[: self.count] = old[: self.count]
            return new

        self.next_out, self.next_in = longer(self.next_out), longer(self.next_in)
        self.found = Found(*map(longer, self.found))

    def link(self, count: int) -> None:
        """Take the edges up to `count` into the lists, and mark their targets as fresh."""
        ends = self.found.source, self.found.target
        lists = self.first_out, self.first_in, self.next_out, self.next_in
        link_edges(*ends, *lists, self.count, count, self.fresh)
        self.count = count

    def edges(self) -> Edges:
        return Edges(*(column[: self.count] for column in self.found))


@kernel
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
    derived = DerivedEdges(n)
    derived_start = [len(own.source)]

    def sort() -> bool:
        lists = derived.first_out, derived.next_out, derived.found.target
        return bool(topological_order(n, out_start, out_to, *lists, order) == n)

    acyclic = sort()
    # With a cycle there is no order to cover by chains, and no clock either.
    chain_of, index_in_chain = np.zeros(n, np.int32), np.zeros(n, np.int32)
    chain_count = cover_by_chains(order, in_start, in_from, graph.next_node, chain_of, index_in_chain) if acyclic else 1
    places = chain_of, index_in_chain
    opened = find_open(graph, *places, chain_count)
    heads = sort_heads(opened, *places)

    if acyclic:
        key = 0
        while True:
            count, key = order_initial_chains(opened, heads, derived.found, derived.count, key)
            derived.link(count)
            if key == len(opened.key_start) - 1:
                break
            derived.make_room()
        acyclic = sort()

    clock_dtype = clock_type(int(index_in_chain.max(initial=0)) + 1)
    too_wide = n * chain_count * np.dtype(clock_dtype).itemsize > CLOCK_BYTES_MAX
    clock = np.zeros((n if acyclic and not too_wide else 0, chain_count), clock_dtype)
    changed = np.zeros(n, np.uint8)
    settled_start = offsets(np.diff(heads.key_row)[opened.key])
    settled = np.zeros(int(settled_start[-1]), np.uint8)
    while acyclic and not too_wide:
        derived_start.append(len(own.source) + derived.count)
        lists = derived.first_in, derived.next_in, derived.found.source
        count_reaching(order, in_start, in_from, *lists, *places, derived.fresh, clock, changed)
        derived.fresh[:] = 0
        before = derived.count
        chain = 0
        while True:
            flags = changed, settled, settled_start
            count, chain = order_forced_chains(
                opened, heads, clock, *places, *flags, derived.found, derived.count, chain
            )
            derived.link(count)
            if chain == opened.size:
                break
            derived.make_room()
        if derived.count == before:
            break
        acyclic = sort()

    return Pruned(
        graph=graph,
        edges=Edges.join([own, derived.edges()]),
        derived_start=derived_start,
        cyclic=not acyclic,
        too_wide=too_wide,
        open=opened,
        heads=heads,
        settled=settled,
        settled_start=settled_start,
        chain_of=chain_of,
        index_in_chain=index_in_chain,
        clock=clock,
        order=order,
    )
