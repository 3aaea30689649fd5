"""Who reaches whom, without a matrix (design 3.3).

Sessions are chains of events, and there are few of them. Give every node a clock: how many nodes of each chain
reach it. Then u reaches v iff clock[v, chain(u)] > index(u): one look-up, memory n x chains, one pass in topological
order. Where there is no session order the chains are a greedy cover of the known graph by paths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mussurana.verifier.kernels import kernel

BLOCKS_MAX = 62


@kernel
def topological_order(node_count, out_start, out_to, order):
    """Fill `order` with the nodes in an order that all edges follow, first come first served. Returns how many got in.

    Fewer than node_count means a cycle.
    """
    waiting = np.zeros(node_count, np.int32)
    for e in range(len(out_to)):
        waiting[out_to[e]] += 1
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
def sort_again(in_start, in_from, order):
    """Rearrange `order` such that it follows all edges, and otherwise stays as it was. Returns whether that can be.

    Goes through the old order and puts before each node those of its predecessors that are not there yet.
    """
    node_count = len(order)
    done = np.zeros(node_count, np.uint8)  # 1: on the path at hand, 2: in the new order
    cursor = in_start[:-1].copy()
    path = np.empty(node_count, np.int32)
    old = order.copy()
    count = 0
    for at in range(node_count):
        if done[old[at]]:
            continue
        path[0] = old[at]
        done[old[at]] = 1
        depth = 1
        while depth > 0:
            v = path[depth - 1]
            while cursor[v] < in_start[v + 1] and done[in_from[cursor[v]]] == 2:
                cursor[v] += 1
            if cursor[v] == in_start[v + 1]:
                done[v] = 2
                order[count] = v
                count += 1
                depth -= 1
                continue
            u = in_from[cursor[v]]
            if done[u] == 1:
                return False
            done[u] = 1
            path[depth] = u
            depth += 1
    return True


@kernel
def extend_rows(in_start, in_from, needed, source, target):
    """Rows of predecessors without those that are not needed and with new edges. Returns (row starts, nodes)."""
    node_count = len(in_start) - 1
    start = np.zeros(node_count + 1, np.int64)
    for v in range(node_count):
        for i in range(in_start[v], in_start[v + 1]):
            start[v + 1] += needed[i]
    for e in range(len(target)):
        start[target[e] + 1] += 1
    for v in range(node_count):
        start[v + 1] += start[v]
    nodes = np.empty(start[node_count], np.int32)
    cursor = start[:-1].copy()
    for v in range(node_count):
        for i in range(in_start[v], in_start[v + 1]):
            if needed[i]:
                nodes[cursor[v]] = in_from[i]
                cursor[v] += 1
    for e in range(len(target)):
        nodes[cursor[target[e]]] = source[e]
        cursor[target[e]] += 1
    return start, nodes


@kernel
def count_reaching(order, place, in_start, in_from, needed, fresh, chain_of, index_in_chain, clock, changed, shift):
    """Bring `clock` up to date: how many nodes of each chain reach each node.

    Pre:  `order` is a topological order and `place` its inverse; `clock` is zero, or right for the graph without the
          edges added since; fresh[v] is 1 where v has a new incoming edge (everywhere, the first time); `needed` is 1;
          shift is block_shift(number of chains).
    Post: u reaches v, or u is v, iff clock[v, chain_of[u]] > index_in_chain[u]. Bit b of changed[v] tells whether one
          of the counts of v grew whose chains, shifted right by `shift`, are b. needed[i] is 0 only if in_from[i]
          reaches another predecessor in its row.
    """
    chains, width = clock.shape[1], 1 << shift
    all_blocks = (1 << (((chains - 1) >> shift) + 1)) - 1
    new = np.empty(chains, clock.dtype)
    for at in range(len(order)):
        v = order[at]
        stale = all_blocks if fresh[v] else 0
        last = -1  # the last predecessor in the order; it is likely to have what the others have
        for i in range(in_start[v], in_start[v + 1]):
            stale |= changed[in_from[i]]
            last = max(last, place[in_from[i]])
        changed[v] = 0
        if stale == 0:
            continue
        row = clock[v]
        if stale != all_blocks:
            for i in range(in_start[v], in_start[v + 1]):
                if changed[in_from[i]]:
                    changed[v] |= merge_blocks(clock[in_from[i]], changed[in_from[i]], width, row)
            continue
        if last >= 0:
            other = clock[order[last]]
            for c in range(chains):  # a slice would do the same, but not as SIMD code
                new[c] = other[c]
        else:
            new[:] = 0
        for i in range(in_start[v], in_start[v + 1]):
            u = in_from[i]
            needed[i] = place[u] == last or merge_clock(clock, chain_of, index_in_chain, u, new)
        new[chain_of[v]] = index_in_chain[v] + 1
        for start in range(0, chains, width):
            grew = replace_clock(new[start : start + width], row[start : start + width])
            changed[v] |= grew << (start >> shift)


@kernel
def merge_clock(clock, chain_of, index_in_chain, u, row):
    """Take into `row` all that reaches u. Returns whether it was not there: what has u has all that reaches u."""
    if row[chain_of[u]] > index_in_chain[u]:
        return False
    other = clock[u]
    for c in range(len(row)):  # without a branch, so that it becomes SIMD code
        row[c] = max(row[c], other[c])
    return True


@kernel
def merge_blocks(other, blocks, width, row):
    """Take the given blocks of a clock into another one. Returns those that grew."""
    grown = 0
    block = 0
    while blocks >> block != 0:
        if (blocks >> block) & 1:
            start = block * width
            mine, theirs = row[start : start + width], other[start : start + width]
            more = False
            for c in range(len(mine)):
                more |= theirs[c] > mine[c]
                mine[c] = max(mine[c], theirs[c])
            grown |= more << block
        block += 1
    return grown


@kernel
def replace_clock(new, row):
    """Copy `new` into `row`. Returns whether that changes it."""
    changes = False
    for c in range(len(row)):
        changes |= new[c] != row[c]
        row[c] = new[c]
    return changes


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


def block_shift(chains: int) -> int:
    """How chains are put together to tell which counts of a clock changed: chain c belongs to block c >> shift.

    The blocks are the bits of a number, without its sign. Where there are few chains, each is a block of its own; else
    blocks are wide enough for SIMD code.
    """
    shift = 0 if chains <= BLOCKS_MAX else 6
    while (chains - 1) >> shift >= BLOCKS_MAX:
        shift += 1
    return shift
