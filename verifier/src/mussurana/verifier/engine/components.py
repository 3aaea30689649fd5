"""Cut what pruning left open into the parts where cycles are still possible.

Add to the known graph every edge that some undecided pair of chains might bring. A cycle can only run inside a
strongly connected component of that graph, so the solver gets nothing but the components that hold undecided pairs.
On real histories that is a small part of the whole, and often nothing at all.

The possible edges are not enumerated pair by pair either: on each graph chain the undecided heads are a window, and
an edge to the first head of the window reaches the rest of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.problem import Problem
from mussurana.verifier.engine.prune import Pruned, all_before, count_below, reaches
from mussurana.verifier.history import Ints, SmallInts, offsets
from mussurana.verifier.kernels import kernel


@dataclass(frozen=True)
class Leftover:
    undecided_pairs: int
    problem: Problem
    nodes: Ints  # per node of the problem: its node in the graph
    chains: Ints  # per chain of the problem: its number among the open chains


@kernel
def possible_edges(opened, heads, split, clock, chain_of, index_in_chain, before, source, target, is_open):
    """The edges that undecided pairs might bring, up to what known edges imply.

    Pre:  pruning has reached its fixpoint.
    Post: is_open[c] is 1 iff chain c is in an undecided pair that matters. Returns (number of edges, twice the number
          of pairs); edges beyond the room in source and target are counted but not stored.

    Without split, a pair of chains that are single unread writes does not matter: any order of them will do. They are
    most of the chains of a hot key, so their other pairs are found from the other side.
    """
    count = 0
    pairs = 0
    for c in range(len(opened.head_version)):
        key, tail = opened.key[c], opened.commit_tail[c]
        if opened.key_start[key + 1] - opened.key_start[key] < 2 or (not split and is_plain(opened, c)):
            continue
        own = heads.row_of[c] - heads.key_row[key]
        for i in range(heads.key_row[key + 1] - heads.key_row[key]):
            if all_before(heads, before, i, c):
                continue
            row = heads.key_row[key] + i
            start, end = heads.row_start[row], heads.row_start[row + 1]
            if heads.chain[start] != c and all_before(heads, before, own, heads.chain[start]):
                continue  # all of the row comes after c; the clocks say so too, but are far away in memory
            # Before the window: heads known to come before c. After it: heads that c is known to come before.
            window = start + count_below(heads.place, start, end, clock[tail, heads.row_chain[row]])
            first = last = -1
            for at in range(window, end):
                d = heads.chain[at]
                if d == c:
                    continue
                if reaches(clock, chain_of, index_in_chain, tail, opened.begin_head[d]):
                    break
                is_open[c] = 1
                if not split and is_plain(opened, d):
                    is_open[d] = 1
                    pairs += 2
                    last = d
                else:
                    pairs += 1
                if first < 0:  # it reaches the later heads of the window
                    first = d
                    count = put_edge(source, target, count, tail, opened.begin_head[d])
                    for j in range(opened.post_start[c], opened.post_start[c + 1]):
                        count = put_edge(source, target, count, opened.post[j], opened.commit_head[d])
            if last >= 0:  # the earlier single writes of the window reach the last one
                count = put_edge(source, target, count, opened.commit_tail[last], opened.begin_head[c])
    return count, pairs


@kernel
def put_edge(source, target, at, u, v):
    """Store an edge if there is room, and return where the next one goes."""
    if at < len(source):
        source[at], target[at] = u, v
    return at + 1


@kernel
def is_plain(opened, c):
    """Whether a chain is a single write that nobody read."""
    return opened.head_version[c] == opened.tail_version[c] and opened.post_start[c] == opened.post_start[c + 1]


@kernel
def strong_components(node_count, out_start, out_to):
    """Number the strongly connected components (Tarjan, without recursion). Returns (component of each node, count)."""
    component = np.full(node_count, -1, np.int32)
    low = np.zeros(node_count, np.int32)
    number = np.full(node_count, -1, np.int32)
    cursor = np.zeros(node_count, np.int64)
    path = np.empty(node_count, np.int32)
    stack = np.empty(node_count, np.int32)
    depth = stacked = numbered = count = 0
    for root in range(node_count):
        if number[root] >= 0:
            continue
        path[0] = root
        depth = 1
        while depth > 0:
            u = path[depth - 1]
            if number[u] < 0:
                number[u] = low[u] = numbered
                numbered += 1
                cursor[u] = out_start[u]
                stack[stacked] = u
                stacked += 1
            descended = False
            while cursor[u] < out_start[u + 1]:
                v = out_to[cursor[u]]
                if number[v] < 0:
                    path[depth] = v
                    depth += 1
                    descended = True
                    break
                if component[v] < 0:
                    low[u] = min(low[u], low[v])
                cursor[u] += 1
            if descended:
                continue
            depth -= 1
            if low[u] == number[u]:
                while True:
                    stacked -= 1
                    v = stack[stacked]
                    component[v] = count
                    if v == u:
                        break
                count += 1
    return component, count


def undecided(pruned: Pruned) -> tuple[np.ndarray, int, SmallInts, SmallInts]:
    """Which open chains are in undecided pairs, how many such pairs there are, and the edges that they might bring."""
    is_open = np.zeros(pruned.open.size, np.uint8)
    clocks = pruned.clock, pruned.chain_of, pruned.index_in_chain, pruned.before
    room = 2 * len(pruned.edges.source)  # usually enough; if not, the second try has what it needs
    while True:
        source, target = np.empty(room, np.int32), np.empty(room, np.int32)
        split = pruned.graph.level.split
        count, twice = possible_edges(pruned.open, pruned.heads, split, *clocks, source, target, is_open)
        if count <= room:
            return is_open, twice // 2, source[:count], target[:count]
        room = count


def leave_over(pruned: Pruned, preference: SmallInts) -> Leftover:
    """The search problem that pruning left, in node numbers of its own. `preference` orders the graph's nodes."""
    graph, opened = pruned.graph, pruned.open
    if pruned.too_wide:
        is_open = (np.diff(opened.key_start)[opened.key] > 1).astype(np.uint8)
        pairs, component, component_count = opened.pairs, np.zeros(graph.node_count, np.int32), 1
    else:
        is_open, pairs, source, target = undecided(pruned)
        sources, targets = np.concatenate([pruned.source, source]), np.concatenate([pruned.target, target])
        component, component_count = strong_components(
            graph.node_count, *adjacency(sources, targets, graph.node_count)[:2]
        )
    if pairs == 0:
        nothing = np.zeros(0, np.int32)
        return Leftover(0, Problem(0, nothing, nothing, nothing), nothing.astype(np.int64), nothing.astype(np.int64))

    chains = np.flatnonzero(is_open)
    wanted = np.zeros(component_count, bool)
    wanted[component[opened.begin_head[chains]]] = True
    inside = wanted[component]
    nodes = np.flatnonzero(inside)
    number = np.full(graph.node_count, -1, np.int32)
    number[nodes] = np.arange(len(nodes), dtype=np.int32)
    kept = inside[pruned.source] & (component[pruned.source] == component[pruned.target])

    # Readers outside the component are in no cycle; they follow from the order found.
    post_of = np.repeat(np.arange(opened.size), np.diff(opened.post_start))
    post_kept = (is_open[post_of] != 0) & (component[opened.post] == component[opened.begin_head[post_of]])
    post_count = np.bincount(post_of[post_kept], minlength=opened.size)[chains]
    # A group is a key within a component, in order of components, so that the solver goes through them one by one.
    label = component[opened.begin_head[chains]].astype(np.int64) * len(opened.key_start) + opened.key[chains]
    in_order = np.argsort(label, kind="stable")
    new_group = np.flatnonzero(np.append(True, np.diff(label[in_order]) != 0))
    return Leftover(
        undecided_pairs=pairs,
        problem=Problem(
            node_count=len(nodes),
            source=number[pruned.source[kept]],
            target=number[pruned.target[kept]],
            preference=number[preference[inside[preference]]],
            group_start=np.append(new_group, len(chains)),
            group_chain=in_order.astype(np.int32),
            begin_head=number[opened.begin_head[chains]],
            commit_head=number[opened.commit_head[chains]],
            commit_tail=number[opened.commit_tail[chains]],
            post_start=offsets(post_count),
            post=number[opened.post[post_kept]],
        ),
        nodes=nodes,
        chains=chains,
    )
