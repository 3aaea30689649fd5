"""Order what has only one possible order, again and again until nothing changes (Cobra 4.3.3, without its matrix).

Chain d must come before chain c of the same key when the other order would close a cycle with what is known:

    begin(head of d) reaches commit(tail of c), or
    commit(head of d) reaches begin(r) for a reader r of c's last version.

A head that begins a row anew may overlap those before it: its commit then stands where others have their begin.

Enumerating all pairs of chains of a hot key would be quadratic. But clocks count along graph chains: for a chain c
and a graph chain s, the heads on s that satisfy this are a prefix of those on s. One look-up and a binary search find
the last of them, and it is enough to order that one: the earlier ones come before it, so their edges are implied.
What is left between the prefix and the heads known to come later is undecided, and goes to the solver. Bits for each
chain and each graph chain with heads of its key say where nothing is left, so that nobody looks there again.

The initial version's chain comes before all others of its key; that is where pruning starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mussurana.verifier.engine.arrays import adjacency, group_by
from mussurana.verifier.engine.graph import RW, WW, Edges, Graph
from mussurana.verifier.engine.reach import (
    block_shift,
    clock_type,
    count_reaching,
    cover_by_chains,
    extend_rows,
    sort_again,
    topological_order,
)
from mussurana.verifier.history import Ints, SmallInts, offsets
from mussurana.verifier.kernels import kernel

CLOCK_BYTES_MAX = 1 << 30  # more would not pay: a graph that needs it has hardly any order to prune with
EDGES_ROOM_MIN = 1024  # places for the edges that pruning finds, to begin with


class Heads(NamedTuple):
    """Begins of the heads of open chains, by key, graph chain and place on it. A *row* is a key on one graph chain.

    The rows of a key are in the order of their first heads, as the open chains are.
    """

    key_row: Ints  # rows of key k: key_row[k] : key_row[k + 1]
    row_chain: SmallInts  # per row: its graph chain
    row_start: Ints  # entries of row i: row_start[i] : row_start[i + 1]
    place: SmallInts  # per entry: index on the graph chain
    chain: SmallInts  # per entry: the open chain whose head this is
    row_of: SmallInts  # per open chain: the row that has its head
    word: Ints  # per open chain: where its bits start in `Pruned.before`, one for each row of its key


class Open(NamedTuple):
    """The version chains whose order is open: all that do not start with the initial version.

    They are grouped by key, and in each key in the order of their heads in a topological order: likely the right one.
    """

    key_start: Ints  # open chains of key k: key_start[k] : key_start[k + 1]
    key: SmallInts
    head_version: SmallInts
    tail_version: SmallInts
    begin_head: SmallInts  # the commit, where the head begins a row anew
    commit_head: SmallInts
    commit_tail: SmallInts
    post_start: Ints  # begins of the readers of the last version, the last one on each graph chain
    post: SmallInts
    edges_max: int  # how many edges there can be from one chain to another
    apart: int  # 1 where begin and commit of a writer are two nodes, one right after the other
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
    unfinished: bool  # there was no time: nothing can be said
    too_wide: bool  # there was no room for clocks: nothing is pruned but the order of initial versions
    open: Open
    heads: Heads
    before: Ints  # bits (see Heads.word): all other heads of a row are known to come before an open chain
    settled: Ints  # bits: they are all known to come before or after it; where nobody looked, neither bit is set
    source: SmallInts  # the ends of enough edges: what the others say follows from these
    target: SmallInts
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
def has_bit(heads, bits, c, i):
    """The bit of chain c for the i-th row of its key."""
    return (bits[heads.word[c] + (i >> 6)] >> (i & 63)) & 1 != 0


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
    opened, heads, place, row_place, clock, chain_of, index_in_chain, changed, shift, before, settled, found, count, c
):
    """Add the edges for pairs of chains that have only one possible order, given the clocks.

    Pre:  `place` is a topological order; row_place has the places of the first heads of rows; a bit of `before` is set
          only if all other heads of its row come before its chain, given the edges found so far, and a bit of `settled`
          only if they all come before or after it.
    Post: the same, with more bits set.

    Only chains whose clocks changed are looked at, and of each only rows where they did. A row is left out if it is
    settled, or if its heads are all later in the order than what the chain's clocks are of. Where d comes before c, so
    does all that comes before d, and needs no edges of its own; this is why chains are looked at in their likely order,
    and rows from the last one on.

    Starts at chain `c` with `count` edges found. Returns (edges found, next chain); there was no room for more if that
    is not the end.
    """
    while c < len(opened.head_version):
        tail, posts, posts_end = opened.commit_tail[c], opened.post_start[c], opened.post_start[c + 1]
        grown, latest = changed[tail], place[tail]
        for at in range(posts, posts_end):
            grown |= changed[opened.post[at]]
            latest = max(latest, place[opened.post[at]])
        key = opened.key[c]
        first_row, rows = heads.key_row[key], heads.key_row[key + 1] - heads.key_row[key]
        if grown == 0 or opened.key_start[key + 1] - opened.key_start[key] < 2:
            c += 1
            continue
        if count + rows * opened.edges_max > len(found.source):
            break
        bits = heads.word[c]
        for i in range(rows - 1, -1, -1):
            row = first_row + i
            column = heads.row_chain[row]
            if (
                (settled[bits + (i >> 6)] >> (i & 63)) & 1
                or row_place[row] > latest
                or (grown >> (column >> shift)) & 1 == 0
            ):
                continue
            limit = np.int64(0)
            for at in range(posts, posts_end):
                limit = max(limit, np.int64(clock[opened.post[at], column]))
            first, end = heads.row_start[row], heads.row_start[row + 1]
            # A head's commit comes right after its begin, so that begins below n - 1 have their commits below n.
            after = first + count_below(
                heads.place, first, end, max(np.int64(clock[tail, column]), limit - opened.apart)
            )
            if after < end and heads.place[after] < limit:
                d = heads.chain[after]  # it stands at its commit
                if opened.begin_head[d] == opened.commit_head[d]:
                    after += 1
            last = after - 1
            if after < end and heads.chain[after] == c:
                after += 1
            if last >= first and heads.chain[last] == c:
                last -= 1
            if after == end:
                before[bits + (i >> 6)] |= 1 << (i & 63)
            if after == end or reaches(clock, chain_of, index_in_chain, tail, opened.begin_head[heads.chain[after]]):
                settled[bits + (i >> 6)] |= 1 << (i & 63)
            if last < first:
                continue
            d = heads.chain[last]
            for word in range((rows + 63) >> 6):
                before[bits + word] |= before[heads.word[d] + word]
                settled[bits + word] |= before[heads.word[d] + word]
            version, next_version = opened.tail_version[d], opened.head_version[c]
            if not reaches(clock, chain_of, index_in_chain, opened.commit_tail[d], opened.begin_head[c]):
                count = put(found, count, opened.commit_tail[d], opened.begin_head[c], WW, version, next_version)
            for at in range(opened.post_start[d], opened.post_start[d + 1]):
                if not reaches(clock, chain_of, index_in_chain, opened.post[at], opened.commit_head[c]):
                    count = put(found, count, opened.post[at], opened.commit_head[c], RW, version, next_version)
        c += 1
    return count, c


@kernel
def number_rows(key_start, chain, chain_count):
    """Number the rows of each key as they appear. Returns (row of each open chain, key_row, row_chain)."""
    row_of = np.empty(len(chain), np.int32)
    row_chain = np.empty(len(chain), np.int32)
    key_row = np.zeros(len(key_start), np.int64)
    latest = np.full(chain_count, -1, np.int64)  # the latest row on each graph chain
    rows = 0
    for key in range(len(key_start) - 1):
        for c in range(key_start[key], key_start[key + 1]):
            if latest[chain[c]] < key_row[key]:
                latest[chain[c]] = rows
                row_chain[rows] = chain[c]
                rows += 1
            row_of[c] = latest[chain[c]]
        key_row[key + 1] = rows
    return row_of, key_row, row_chain[:rows].copy()


def sort_heads(opened: Open, chain_of: SmallInts, index_in_chain: SmallInts, chain_count: int) -> Heads:
    row_of, key_row, row_chain = number_rows(opened.key_start, chain_of[opened.begin_head], chain_count)
    row_start, entry = group_by(row_of, len(row_chain))
    place = index_in_chain[opened.begin_head[entry]]
    word = offsets((np.diff(key_row)[opened.key] + 63) // 64)
    return Heads(key_row, row_chain, row_start, place, entry.astype(np.int32), row_of, word)


def find_open(graph: Graph, order: SmallInts, chain_of: SmallInts, index_in_chain: SmallInts, chain_count: int) -> Open:
    chains, key_count = graph.chains, int(np.count_nonzero(graph.version_txn < 0))
    place = np.zeros(graph.node_count, np.int32)
    place[order] = np.arange(graph.node_count, dtype=np.int32)
    head = chains.chain_head[key_count:]
    begin, commit = graph.begin[graph.version_txn[head]], graph.commit[graph.version_txn[head]]
    begin = np.where(graph.version_new[head], commit, begin)
    by_place = group_by(place[begin], graph.node_count)[1]
    likely = by_place[group_by(graph.version_key[head[by_place]], key_count)[1]]
    head, tail = head[likely], chains.chain_tail[key_count:][likely]
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
        begin_head=begin[likely],
        commit_head=commit[likely],
        commit_tail=graph.commit[graph.version_txn[tail]],
        post_start=post_start,
        post=post,
        edges_max=1 + int(np.diff(post_start).max(initial=0)),
        apart=int(graph.level.split),
        first_tail=np.where(first_writer >= 0, graph.commit[first_writer], -1).astype(np.int32),
        first_tail_version=first_tail,
        first_post_start=first_post_start,
        first_post=first_post,
    )


def with_more_room(found: Found) -> Found:
    size = max(EDGES_ROOM_MIN, 2 * len(found.source))
    longer = Found(*(np.empty(size, column.dtype) for column in found))
    for new, old in zip(longer, found, strict=True):
        new[: len(old)] = old
    return longer


def prune(graph: Graph, out_of_time: Callable[[], bool] = lambda: False) -> Pruned:
    """Derive known edges until nothing changes, or until they form a cycle, or until there is no more time."""
    n, own = graph.node_count, graph.edges
    order = np.zeros(n, np.int32)
    acyclic = topological_order(n, *adjacency(own.source, own.target, n)[:2], order) == n
    in_start, in_from, _ = adjacency(own.target, own.source, n)
    # With a cycle there is no order to cover by chains, and no clock either.
    chain_of, index_in_chain = np.zeros(n, np.int32), np.zeros(n, np.int32)
    chain_count = cover_by_chains(order, in_start, in_from, graph.next_node, chain_of, index_in_chain) if acyclic else 1
    places = chain_of, index_in_chain
    opened = find_open(graph, order, *places, chain_count)
    heads = sort_heads(opened, *places, chain_count)

    found = Found(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.uint8, np.int32, np.int32)))
    count = key = 0
    while acyclic:
        count, key = order_initial_chains(opened, heads, found, count, key)
        if key == len(opened.key_start) - 1:
            break
        found = with_more_room(found)

    clock_dtype = clock_type(int(index_in_chain.max(initial=0)) + 1)
    too_wide = n * chain_count * np.dtype(clock_dtype).itemsize > CLOCK_BYTES_MAX
    clock = np.zeros((n if acyclic and not too_wide else 0, chain_count), clock_dtype)
    changed, shift = np.zeros(n, np.int64), block_shift(chain_count)
    before, settled = np.zeros(int(heads.word[-1]), np.int64), np.zeros(int(heads.word[-1]), np.int64)
    needed, fresh, place = np.ones(len(in_from), np.uint8), np.ones(n, np.uint8), np.empty(n, np.int32)
    derived_start = [len(own.source)]
    unfinished = False
    linked = 0  # so many of the edges found are in the rows of predecessors
    while acyclic:
        new = slice(linked, count)
        in_start, in_from = extend_rows(in_start, in_from, needed, found.source[new], found.target[new])
        needed = np.ones(len(in_from), np.uint8)
        fresh[found.target[new]] = 1
        linked = count
        acyclic = sort_again(in_start, in_from, order)
        unfinished = len(derived_start) > 1 and out_of_time()  # one pass is the least that can be expected
        if not acyclic or too_wide or unfinished:
            break
        derived_start.append(len(own.source) + count)
        place[order] = np.arange(n, dtype=np.int32)
        count_reaching(order, place, in_start, in_from, needed, fresh, *places, clock, changed, shift)
        fresh[:] = 0
        row_place = place[opened.begin_head[heads.chain[heads.row_start[:-1]]]]
        chain = 0
        while True:
            clocks = clock, *places, changed, shift
            count, chain = order_forced_chains(
                opened, heads, place, row_place, *clocks, before, settled, found, count, chain
            )
            if chain == opened.size:
                break
            found = with_more_room(found)
        if count == linked:
            break

    return Pruned(
        graph=graph,
        edges=Edges.join([own, Edges(*(column[:count] for column in found))]),
        derived_start=derived_start,
        cyclic=not acyclic,
        unfinished=unfinished and acyclic,
        too_wide=too_wide,
        open=opened,
        heads=heads,
        before=before,
        settled=settled,
        source=in_from[needed != 0],
        target=np.repeat(np.arange(n, dtype=np.int32), np.diff(in_start))[needed != 0],
        chain_of=chain_of,
        index_in_chain=index_in_chain,
        clock=clock,
        order=order,
    )
