"""Who reaches whom, without a matrix (design 3.3).

Sessions are chains of events, and there are few of them. Give every node a clock: how many nodes of each chain
reach it. Then u reaches v iff clock[v, chain(u)] > index(u): one look-up, memory n x chains, one pass in topological
order. Where there is no session order the chains are a greedy cover of the known graph by paths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mussurana.verifier.kernels import kernel


@kernel
def topological_order(node_count, out_start, out_to, extra_out, extra_next, extra_to, order):
    """Fill `order` with the nodes in an order that all edges follow, first come first served. Returns how many got in.

    Edges are the rows (out_start, out_to) and the linked lists that start at extra_out. Fewer than node_count means a
    cycle.
    """
    waiting = np.zeros(node_count, np.int32)
    for e in range(len(out_to)):
        waiting[out_to[e]] += 1
    for u in range(node_count):
        e = extra_out[u]
        while e >= 0:
            waiting[extra_to[e]] += 1
            e = extra_next[e]
    done = 0
    for u in range(node_count):
        if waiting[u] == 0:
            order[done] = u
            done += 1
    at = 0
    while at < done:
        u = order[at]
        at += 1
        for i in range(out_start[u], out_start[u + 1]):
            v = out_to[i]
            waiting[v] -= 1
            if waiting[v] == 0:
                order[done] = v
                done += 1
        e = extra_out[u]
        while e >= 0:
            v = extra_to[e]
            waiting[v] -= 1
            if waiting[v] == 0:
                order[done] = v
                done += 1
            e = extra_next[e]
    return done


@kernel
def cover_by_chains(order, in_start, in_from, next_node, chain_of, index_in_chain):
    """Cover all nodes by chains along known edges. Returns the number of chains.

    Post: nodes of one chain with increasing index reach each other. A node continues the chain of the node whose
          next_node it is; a node without such a predecessor continues any predecessor's chain that would otherwise
          end there.
    """
    node_count = len(order)
    previous = np.full(node_count, -1, np.int64)
    for u in range(node_count):
        if next_node[u] >= 0:
            previous[next_node[u]] = u
    continued = np.zeros(node_count, np.uint8)
    chains = 0
    for at in range(node_count):
        v = order[at]
        u = previous[v]
        if u < 0:
            for i in range(in_start[v], in_start[v + 1]):
                candidate = in_from[i]
                if next_node[candidate] < 0 and continued[candidate] == 0:
                    u = candidate
                    break
        if u >= 0:
            continued[u] = 1
            chain_of[v] = chain_of[u]
            index_in_chain[v] = index_in_chain[u] + 1
        else:
            chain_of[v] = chains
            index_in_chain[v] = 0
            chains += 1
    return chains


@kernel
def count_reaching(
    order, in_start, in_from, extra_in, extra_next, extra_from, chain_of, index_in_chain, fresh, clock, changed
):
    """Bring `clock` up to date: how many nodes of each chain reach each node.

    Pre:  `order` is a topological order; `clock` is zero, or right for the graph without the edges added since;
          fresh[v] is 1 where v has a new incoming edge (everywhere, the first time).
    Post: u reaches v, or u is v, iff clock[v, chain_of[u]] > index_in_chain[u]. changed[v] tells whether v's row grew.
    """
    chains = clock.shape[1]
    row = np.zeros(chains, clock.dtype)
    place = np.empty(len(order), np.int32)
    for at in range(len(order)):
        v = order[at]
        place[v] = at
        stale = fresh[v] != 0
        last = -1  # the last predecessor in the order; it is likely to have what the others have
        for i in range(in_start[v], in_start[v + 1]):
            u = in_from[i]
            stale = stale or changed[u] != 0
            last = max(last, place[u])
        e = extra_in[v]
        while e >= 0:
            u = extra_from[e]
            stale = stale or changed[u] != 0
            last = max(last, place[u])
            e = extra_next[e]
        changed[v] = 0
        if not stale:
            continue
        if last >= 0:
            row[:] = clock[order[last]]
        else:
            row[:] = 0
        for i in range(in_start[v], in_start[v + 1]):
            merge_clock(clock, chain_of, index_in_chain, in_from[i], row)
        e = extra_in[v]
        while e >= 0:
            merge_clock(clock, chain_of, index_in_chain, extra_from[e], row)
            e = extra_next[e]
        row[chain_of[v]] = index_in_chain[v] + 1
        old = clock[v]
        grown = 0
        for c in range(chains):
            grown |= row[c] ^ old[c]
            old[c] = row[c]
        changed[v] = grown != 0


@kernel
def merge_clock(clock, chain_of, index_in_chain, u, row):
    """Take into `row` all that reaches u. A row that has u already has all of that: reaching is transitive."""
    if row[chain_of[u]] > index_in_chain[u]:
        return
    other = clock[u]
    for c in range(len(row)):  # without a branch, so that it becomes SIMD code
        row[c] = max(row[c], other[c])


@kernel
def shortest_path(out_start, out_to, out_edge, source, target, edges_before, parent_edge, parent):
    """Fill parent and parent_edge along a shortest path of at least one edge from source to target, using only edges
    numbered
    below `edges_before`. Returns whether there is one."""
    node_count = len(out_start) - 1
    parent_edge[:] = -1
    queue = np.empty(node_count + 1, np.int32)
    queue[0] = source
    head, tail = 0, 1
    while head < tail:
        u = queue[head]
        head += 1
        for i in range(out_start[u], out_start[u + 1]):
            v = out_to[i]
            if out_edge[i] < edges_before and parent_edge[v] < 0:
                parent_edge[v] = out_edge[i]
                parent[v] = u
                if v == target:
                    return True
                queue[tail] = v
                tail += 1
    return False


def clock_type(chain_length_max: int) -> type[np.unsignedinteger[Any]]:
    """The narrower the clocks, the less memory moves. Only three types, since kernels are compiled for each."""
    if chain_length_max < 2**8:
        return np.uint8
    return np.uint16 if chain_length_max < 2**16 else np.uint32
