"""Our own solver: conflict-driven search for an acyclic graph, guided by an order (design 3.4).

It keeps a topological order of all edges in force (Pearce and Kelly) and decides only what that order gets wrong: two
chains of a key are fine as long as one lies wholly before the other. So as long as no decision fails, this
is the greedy pass that ends almost every real history; a decision that closes a cycle is a conflict, from which a
clause is learned as in any CDCL solver, and after a backjump the order is still a good one, since taking edges away
never breaks it. When no pair overlaps, the order is the solution: whatever was never decided can be read off it.

Literals are 2 * variable, plus 1 for its negation. The first variables are the alternatives of explicit choices; one
more is made for each pair of chains that has to be decided ("the first comes before the second"). An edge is in force
when its one or two guards are true. Everything is arrays, in one named tuple, so that numba can compile and cache it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mussurana.verifier.engine.arrays import adjacency, group_by
from mussurana.verifier.engine.problem import GaveUp, NoOrder, Ordered, Problem, Solution
from mussurana.verifier.kernels import inner_kernel, kernel

# Where the counters live in State.meta.
VARIABLES, EDGES, IN_FORCE, TRAIL, HEAD, LEVEL, CLAUSES, LITERALS, DIRTY, CONFLICTS, STEPS, EPOCH, EXPLICIT = range(13)

# Columns of the tables in State.
PLACE, OUT_FIRST, IN_FIRST, MARK, PARENT, PARENT_EDGE, BLAMED = range(7)  # node
FROM, TO, GUARD, _, GUARD_NEXT, _, FORCED, OUT_NEXT, IN_NEXT = range(9)  # edge; GUARD and GUARD_NEXT have two columns
VALUE, AT_LEVEL, REASON, SEEN, PAIR_FIRST, PAIR_SECOND = range(6)  # variable
GUARD_FIRST, WATCH_FIRST = range(2)  # literal
START, SIZE, WATCH_NEXT, _ = range(4)  # clause; WATCH_NEXT has two columns
BEGIN_HEAD, COMMIT_HEAD, COMMIT_TAIL, GROUP, RANK, DIRT = range(6)  # chain
TRAIL_START, FORCE_START = range(2)  # level
FORWARD, BACKWARD, QUEUE, QUEUE_NEXT = range(4)  # rows of scratch

FOUND, IMPOSSIBLE, PAUSED, FULL = range(4)

STEPS_PER_CALL = 300_000  # well under a second: how often the caller can look at the clock


class State(NamedTuple):
    """Tables with the columns named above. Few and wide, since each array makes every function slower to compile."""

    meta: np.ndarray
    # the graph and its order
    out_start: np.ndarray
    out_to: np.ndarray
    in_start: np.ndarray
    in_from: np.ndarray
    node: (
        np.ndarray
    )  # place in the order; first of its edges in force; marks of searches; whether some conflict's cycle has it
    node_at: np.ndarray  # per place: its node
    # guarded edges
    edge: (
        np.ndarray
    )  # ends; guards, -1 for none; next edge in each guard's list, as 2 * edge + which; next edges in force
    force_trail: np.ndarray
    # assignment
    variable: (
        np.ndarray
    )  # 1 true, -1 false, 0 open; its level; the clause that implied it, or -1; its pair of chains, or -1
    literal: np.ndarray  # first edge that it guards, first clause that watches it as 2 * clause + slot
    trail: np.ndarray
    level: np.ndarray  # where each level starts on the two trails
    # clauses
    clause: (
        np.ndarray
    )  # where its literals start in the arena, how many; next clause in the lists of the two it watches
    arena: np.ndarray
    # chains
    chain: np.ndarray  # nodes; its group, its place in group_chain; whether it has to be looked at
    post_start: np.ndarray
    post: np.ndarray
    group_start: np.ndarray
    group_chain: (
        np.ndarray
    )  # the chains of each group, sorted by the places of their heads, except for those to be looked at
    node_chain_start: np.ndarray  # chains of which a node is head, tail or reader
    node_chain: np.ndarray
    dirty_stack: np.ndarray  # chains to be looked at
    pair_slot: np.ndarray  # hash table from pairs of chains to variables
    # scratch
    conflict: np.ndarray
    learned: np.ndarray
    scratch: np.ndarray


@inner_kernel
def is_true(s, literal):
    return s.variable[literal >> 1, VALUE] == (-1 if literal & 1 else 1)


@inner_kernel
def is_false(s, literal):
    return s.variable[literal >> 1, VALUE] == (1 if literal & 1 else -1)


@inner_kernel
def assign(s, literal, reason):
    variable = literal >> 1
    s.variable[variable, VALUE] = -1 if literal & 1 else 1
    s.variable[variable, AT_LEVEL] = s.meta[LEVEL]
    s.variable[variable, REASON] = reason
    s.trail[s.meta[TRAIL]] = literal
    s.meta[TRAIL] += 1


@inner_kernel
def add_edge(s, u, v, guard, other_guard):
    """Add an edge that is in force when its guards are true. Pre: neither guard is true yet; there is room."""
    e = s.meta[EDGES]
    s.meta[EDGES] += 1
    s.edge[e, FROM], s.edge[e, TO] = u, v
    s.edge[e, FORCED] = 0
    s.edge[e, GUARD], s.edge[e, GUARD + 1] = guard, other_guard
    s.edge[e, GUARD_NEXT] = s.literal[guard, GUARD_FIRST]
    s.literal[guard, GUARD_FIRST] = 2 * e
    if other_guard >= 0:
        s.edge[e, GUARD_NEXT + 1] = s.literal[other_guard, GUARD_FIRST]
        s.literal[other_guard, GUARD_FIRST] = 2 * e + 1


@inner_kernel
def add_variable(s, first, second):
    variable = s.meta[VARIABLES]
    s.meta[VARIABLES] += 1
    s.variable[variable, VALUE] = 0
    s.variable[variable, SEEN] = 0
    s.variable[variable, PAIR_FIRST], s.variable[variable, PAIR_SECOND] = first, second
    for literal in (2 * variable, 2 * variable + 1):
        s.literal[literal, GUARD_FIRST] = -1
        s.literal[literal, WATCH_FIRST] = -1
    return variable


@inner_kernel
def add_clause(s, literals, size):
    """Add a clause of at least two literals and watch its first two. Pre: there is room."""
    clause = s.meta[CLAUSES]
    s.meta[CLAUSES] += 1
    start = s.meta[LITERALS]
    s.meta[LITERALS] += size
    s.clause[clause, START], s.clause[clause, SIZE] = start, size
    for i in range(size):
        s.arena[start + i] = literals[i]
    for slot in range(2):
        watched = literals[slot]
        s.clause[clause, WATCH_NEXT + slot] = s.literal[watched, WATCH_FIRST]
        s.literal[watched, WATCH_FIRST] = 2 * clause + slot
    return clause


@inner_kernel
def blame_cycle(s, e):
    """Fill s.conflict with the negated guards of the cycle that edge e closes. Returns their number.

    Pre: s.parent and s.parent_edge lead from the edge's source back to its target.
    """
    size = 0
    node = s.edge[e, FROM]
    edge = e
    while True:
        s.node[node, BLAMED] = 1
        if edge >= 0:
            for which in range(2):
                guard = s.edge[edge, GUARD + which]
                if guard >= 0 and s.variable[guard >> 1, SEEN] == 0:
                    s.variable[guard >> 1, SEEN] = 1
                    s.conflict[size] = guard ^ 1
                    size += 1
        if node == s.edge[e, TO]:
            break
        edge = s.node[node, PARENT_EDGE]
        node = s.node[node, PARENT]
    for i in range(size):
        s.variable[s.conflict[i] >> 1, SEEN] = 0
    return size


@inner_kernel
def sort(numbers):
    """Sort a short array in place (Shell's sort, because numpy's takes far longer to compile)."""
    gap = len(numbers) // 2
    while gap > 0:
        for i in range(gap, len(numbers)):
            number = numbers[i]
            j = i
            while j >= gap and numbers[j - gap] > number:
                numbers[j] = numbers[j - gap]
                j -= gap
            numbers[j] = number
        gap = (4 * gap + 4) // 9  # by 9 to 4, which moves less than halving; 1 comes before 0


@inner_kernel
def put_in_force(s, e):
    """Add edge e to the graph and restore the order (Pearce and Kelly 2006). Returns -1, or the size of the conflict.

    Only nodes between the edge's two ends in the order are looked at. The search forwards goes by the number of guarded
    edges used, so that a cycle, if there is one, blames few literals.
    """
    u, v = s.edge[e, FROM], s.edge[e, TO]
    if s.node[u, PLACE] < s.node[v, PLACE]:
        link(s, e)
        return -1
    low, high = s.node[v, PLACE], s.node[u, PLACE]
    s.meta[EPOCH] += 1
    epoch = s.meta[EPOCH]
    queue, queue_next = s.scratch[QUEUE], s.scratch[QUEUE_NEXT]
    queue[0] = v
    waiting, waiting_next, ahead = 1, 0, 0
    s.node[v, MARK] = epoch
    while waiting > 0:
        waiting -= 1
        x = queue[waiting]
        s.scratch[FORWARD, ahead] = s.node[x, PLACE]
        ahead += 1
        if x == u:
            return blame_cycle(s, e)
        for i in range(s.out_start[x], s.out_start[x + 1]):
            y = s.out_to[i]
            if s.node[y, PLACE] <= high and s.node[y, MARK] != epoch:
                s.node[y, MARK] = epoch
                s.node[y, PARENT] = x
                s.node[y, PARENT_EDGE] = -1
                queue[waiting] = y
                waiting += 1
        f = s.node[x, OUT_FIRST]
        while f >= 0:
            y = s.edge[f, TO]
            if s.node[y, PLACE] <= high and s.node[y, MARK] != epoch:
                s.node[y, MARK] = epoch
                s.node[y, PARENT] = x
                s.node[y, PARENT_EDGE] = f
                queue_next[waiting_next] = y
                waiting_next += 1
            f = s.edge[f, OUT_NEXT]
        if waiting == 0:
            queue, queue_next = queue_next, queue
            waiting, waiting_next = waiting_next, 0
    s.scratch[QUEUE, 0] = u
    waiting, behind = 1, 0
    s.node[u, MARK] = epoch
    while waiting > 0:
        waiting -= 1
        x = s.scratch[QUEUE, waiting]
        s.scratch[BACKWARD, behind] = s.node[x, PLACE]
        behind += 1
        for i in range(s.in_start[x], s.in_start[x + 1]):
            y = s.in_from[i]
            if s.node[y, PLACE] >= low and s.node[y, MARK] != epoch:
                s.node[y, MARK] = epoch
                s.scratch[QUEUE, waiting] = y
                waiting += 1
        f = s.node[x, IN_FIRST]
        while f >= 0:
            y = s.edge[f, FROM]
            if s.node[y, PLACE] >= low and s.node[y, MARK] != epoch:
                s.node[y, MARK] = epoch
                s.scratch[QUEUE, waiting] = y
                waiting += 1
            f = s.edge[f, IN_NEXT]
    s.meta[STEPS] += ahead + behind
    # Those behind keep their order and get the first places, those ahead the last.
    places_ahead, places_behind = s.scratch[FORWARD, :ahead], s.scratch[BACKWARD, :behind]
    sort(places_ahead)
    sort(places_behind)
    for i in range(behind):
        s.scratch[QUEUE, i] = s.node_at[places_behind[i]]
    for i in range(ahead):
        s.scratch[QUEUE, behind + i] = s.node_at[places_ahead[i]]
    i = j = 0
    for at in range(ahead + behind):
        if j >= ahead or (i < behind and places_behind[i] < places_ahead[j]):
            place = places_behind[i]
            i += 1
        else:
            place = places_ahead[j]
            j += 1
        node = s.scratch[QUEUE, at]
        s.node_at[place] = node
        s.node[node, PLACE] = place
        for k in range(s.node_chain_start[node], s.node_chain_start[node + 1]):
            look_at(s, s.node_chain[k])
    link(s, e)
    return -1


@inner_kernel
def link(s, e):
    s.edge[e, FORCED] = 1
    s.force_trail[s.meta[IN_FORCE]] = e
    s.meta[IN_FORCE] += 1
    u, v = s.edge[e, FROM], s.edge[e, TO]
    s.edge[e, OUT_NEXT] = s.node[u, OUT_FIRST]
    s.node[u, OUT_FIRST] = e
    s.edge[e, IN_NEXT] = s.node[v, IN_FIRST]
    s.node[v, IN_FIRST] = e


@inner_kernel
def propagate(s):
    """Work out what the newly true literals imply. Returns -1, or the size of a conflict.

    The literals of the conflict are in s.conflict; all are false.
    """
    while s.meta[HEAD] < s.meta[TRAIL]:
        literal = s.trail[s.meta[HEAD]]
        s.meta[HEAD] += 1
        x = s.literal[literal, GUARD_FIRST]
        while x >= 0:
            other = s.edge[x >> 1, GUARD + 1 - (x & 1)]
            if s.edge[x >> 1, FORCED] == 0 and (other < 0 or is_true(s, other)):
                size = put_in_force(s, x >> 1)
                if size >= 0:
                    return size
            x = s.edge[x >> 1, GUARD_NEXT + (x & 1)]
        fallen = literal ^ 1
        before = -1
        x = s.literal[fallen, WATCH_FIRST]
        while x >= 0:
            s.meta[STEPS] += 1
            following = s.clause[x >> 1, WATCH_NEXT + (x & 1)]
            clause, slot = x >> 1, x & 1
            start = s.clause[clause, START]
            partner = s.arena[start + 1 - slot]
            moved = False
            if not is_true(s, partner):
                for i in range(start + 2, start + s.clause[clause, SIZE]):
                    candidate = s.arena[i]
                    if not is_false(s, candidate):
                        s.arena[i] = fallen
                        s.arena[start + slot] = candidate
                        s.clause[x >> 1, WATCH_NEXT + (x & 1)] = s.literal[candidate, WATCH_FIRST]
                        s.literal[candidate, WATCH_FIRST] = x
                        moved = True
                        break
                if not moved:
                    if is_false(s, partner):
                        size = s.clause[clause, SIZE]
                        for i in range(size):
                            s.conflict[i] = s.arena[start + i]
                        return size
                    assign(s, partner, clause)
            if moved:
                if before < 0:
                    s.literal[fallen, WATCH_FIRST] = following
                else:
                    s.clause[before >> 1, WATCH_NEXT + (before & 1)] = following
            else:
                before = x
            x = following
    return -1


@inner_kernel
def backjump(s, level):
    while s.meta[TRAIL] > s.level[level, TRAIL_START]:
        s.meta[TRAIL] -= 1
        s.variable[s.trail[s.meta[TRAIL]] >> 1, VALUE] = 0
    while s.meta[IN_FORCE] > s.level[level, FORCE_START]:
        s.meta[IN_FORCE] -= 1
        e = s.force_trail[s.meta[IN_FORCE]]
        s.edge[e, FORCED] = 0
        s.node[s.edge[e, FROM], OUT_FIRST] = s.edge[e, OUT_NEXT]
        s.node[s.edge[e, TO], IN_FIRST] = s.edge[e, IN_NEXT]
    s.meta[HEAD] = s.meta[TRAIL]
    s.meta[LEVEL] = level


@inner_kernel
def learn(s, size):
    """Turn the conflict in s.conflict into a clause with one literal of the current level, jump back, and assert it.

    Pre:  the conflict's literals are all false, at least one at the current level, which is not 0. There is room for
          a clause.
    """
    level = s.meta[LEVEL]
    learned = s.learned
    count = 1
    open_here = 0
    at = s.meta[TRAIL]
    resolved = -1
    start = 0
    from_conflict = True
    while True:
        for i in range(start, start + size):
            literal = s.conflict[i] if from_conflict else s.arena[i]
            variable = literal >> 1
            if variable != resolved and s.variable[variable, SEEN] == 0 and s.variable[variable, AT_LEVEL] > 0:
                s.variable[variable, SEEN] = 1
                if s.variable[variable, AT_LEVEL] == level:
                    open_here += 1
                else:
                    learned[count] = literal
                    count += 1
        at -= 1
        while s.variable[s.trail[at] >> 1, SEEN] == 0:
            at -= 1
        resolved = s.trail[at] >> 1
        s.variable[resolved, SEEN] = 0
        open_here -= 1
        if open_here == 0:
            break
        clause = s.variable[resolved, REASON]
        from_conflict = False
        start, size = s.clause[clause, START], s.clause[clause, SIZE]
    learned[0] = s.trail[at] ^ 1
    target = 0
    for i in range(1, count):
        s.variable[learned[i] >> 1, SEEN] = 0
        if s.variable[learned[i] >> 1, AT_LEVEL] > target:
            target = s.variable[learned[i] >> 1, AT_LEVEL]
            learned[1], learned[i] = learned[i], learned[1]
    backjump(s, target)
    if count == 1:
        assign(s, learned[0], -1)
    else:
        assign(s, learned[0], add_clause(s, learned, count))


@inner_kernel
def latest(s, chain):
    """The last place of what has to come before any later chain's head: (tail's commit, last reader's begin)."""
    reader = -1
    for i in range(s.post_start[chain], s.post_start[chain + 1]):
        reader = max(reader, s.node[s.post[i], PLACE])
    return s.node[s.chain[chain, COMMIT_TAIL], PLACE], reader


@inner_kernel
def wholly_before(s, c, d):
    tail, reader = latest(s, c)
    return tail < s.node[s.chain[d, BEGIN_HEAD], PLACE] and reader < s.node[s.chain[d, COMMIT_HEAD], PLACE]


@inner_kernel
def look_at(s, chain):
    """Remember that something about this chain changed."""
    if s.chain[chain, DIRT] == 0:
        s.chain[chain, DIRT] = 1
        s.dirty_stack[s.meta[DIRTY]] = chain
        s.meta[DIRTY] += 1


@inner_kernel
def find_overlap(s):
    """Two chains of a group of which neither lies wholly before the other in the order, or (-1, -1) if there are none.

    The first of the two is the one whose head comes first. Sorted by their heads, chains overlap only if neighbours
    do, so it is enough to put each chain that changed back into its place and to look at its neighbours.
    """
    while s.meta[DIRTY] > 0:
        s.meta[DIRTY] -= 1
        c = s.dirty_stack[s.meta[DIRTY]]
        s.chain[c, DIRT] = 0
        first, last = s.group_start[s.chain[c, GROUP]], s.group_start[s.chain[c, GROUP] + 1] - 1
        place = s.node[s.chain[c, BEGIN_HEAD], PLACE]
        old = at = s.chain[c, RANK]
        while at > first and s.node[s.chain[s.group_chain[at - 1], BEGIN_HEAD], PLACE] > place:
            s.group_chain[at] = s.group_chain[at - 1]
            s.chain[s.group_chain[at], RANK] = at
            at -= 1
        while at < last and s.node[s.chain[s.group_chain[at + 1], BEGIN_HEAD], PLACE] < place:
            s.group_chain[at] = s.group_chain[at + 1]
            s.chain[s.group_chain[at], RANK] = at
            at += 1
        if at != old:
            s.group_chain[at] = c
            s.chain[c, RANK] = at
            look_at(s, s.group_chain[old])  # it has a new neighbour
        s.meta[STEPS] += 1 + abs(at - old)
        if at > first and not wholly_before(s, s.group_chain[at - 1], c):
            look_at(s, c)
            return s.group_chain[at - 1], c
        if at < last and not wholly_before(s, c, s.group_chain[at + 1]):
            look_at(s, c)
            return c, s.group_chain[at + 1]
    return -1, -1


@inner_kernel
def slot_of(s, first, second):
    """Where the pair is in the hash table, or where it goes."""
    mask = len(s.pair_slot) - 1
    at = ((np.int64(first) * 0x9E3779B1) ^ (np.int64(second) * 0x85EBCA77)) & mask
    while s.pair_slot[at] >= 0:
        variable = s.pair_slot[at]
        if s.variable[variable, PAIR_FIRST] == first and s.variable[variable, PAIR_SECOND] == second:
            break
        at = (at + 1) & mask
    return at


@kernel
def index_pairs(s):
    """Fill an empty hash table with the pairs that have variables."""
    for variable in range(s.meta[EXPLICIT], s.meta[VARIABLES]):
        s.pair_slot[slot_of(s, s.variable[variable, PAIR_FIRST], s.variable[variable, PAIR_SECOND])] = variable


@inner_kernel
def literal_for(s, c, d):
    """The literal that says that chain c comes before chain d; made with its edges when the pair is new.

    Pre: there is room.
    """
    first, second = min(c, d), max(c, d)
    at = slot_of(s, first, second)
    if s.pair_slot[at] >= 0:
        return 2 * s.pair_slot[at] + (c != first)
    variable = add_variable(s, first, second)
    s.pair_slot[at] = variable
    for literal, x, y in ((2 * variable, first, second), (2 * variable + 1, second, first)):
        add_edge(s, s.chain[x, COMMIT_TAIL], s.chain[y, BEGIN_HEAD], literal, -1)
        for i in range(s.post_start[x], s.post_start[x + 1]):
            add_edge(s, s.post[i], s.chain[y, COMMIT_HEAD], literal, -1)
    return 2 * variable + (c != first)


@inner_kernel
def cost_of(s, c, d):
    """How far apart the things are that would have to change places for chain c to come wholly before chain d."""
    tail, reader = latest(s, c)
    return max(tail - s.node[s.chain[d, BEGIN_HEAD], PLACE], reader - s.node[s.chain[d, COMMIT_HEAD], PLACE])


@inner_kernel
def agrees(s, literal):
    """Whether the edges that this literal alone guards follow the order."""
    x = s.literal[literal, GUARD_FIRST]
    while x >= 0:
        if (
            s.edge[x >> 1, GUARD + 1 - (x & 1)] < 0
            and s.node[s.edge[x >> 1, FROM], PLACE] > s.node[s.edge[x >> 1, TO], PLACE]
        ):
            return False
        x = s.edge[x >> 1, GUARD_NEXT + (x & 1)]
    return True


@inner_kernel
def decide(s):
    """Open a level with the next decision. Returns False when there is nothing left to decide."""
    literal = -1
    for variable in range(s.meta[EXPLICIT]):
        if s.variable[variable, VALUE] == 0 and (literal < 0 or agrees(s, 2 * variable)):
            literal = 2 * variable
            if agrees(s, literal):
                break
    if literal < 0:
        c, d = find_overlap(s)
        if c < 0:
            return False
        literal = literal_for(s, c, d) if cost_of(s, c, d) <= cost_of(s, d, c) else literal_for(s, d, c)
    s.level[s.meta[LEVEL], TRAIL_START] = s.meta[TRAIL]
    s.level[s.meta[LEVEL], FORCE_START] = s.meta[IN_FORCE]
    s.meta[LEVEL] += 1
    assign(s, literal, -1)
    return True


@kernel
def search(s, pair_edges_max, steps_max):
    """Run until a solution, a proof that there is none, a full array or the end of the steps.

    Can be called again after the last two.
    """
    while True:
        variables = s.meta[VARIABLES]
        if (
            variables + 1 >= len(s.variable)
            or s.meta[EDGES] + pair_edges_max >= len(s.edge)
            or s.meta[CLAUSES] + 1 >= len(s.clause)
            or s.meta[LITERALS] + variables + 2 >= len(s.arena)
        ):
            return FULL
        if s.meta[STEPS] > steps_max:
            return PAUSED
        size = propagate(s)
        if size >= 0:
            s.meta[CONFLICTS] += 1
            if s.meta[LEVEL] == 0:
                return IMPOSSIBLE
            learn(s, size)
        elif not decide(s):
            return FOUND


def _state(problem: Problem) -> State:
    n, chains, groups = problem.node_count, len(problem.begin_head), len(problem.group_start) - 1
    alternatives, guarded = int(problem.choice_start[-1]), len(problem.guarded_source)
    sizes = np.diff(problem.choice_start)
    clauses = len(sizes) + int((sizes * (sizes - 1) // 2).sum())
    out_start, out_to, _ = adjacency(problem.source, problem.target, n)
    in_start, in_from, _ = adjacency(problem.target, problem.source, n)
    node = np.zeros((n, 7), np.int32)
    node[problem.preference, PLACE] = np.arange(n)
    node[:, [OUT_FIRST, IN_FIRST]] = -1

    group = np.empty(chains, np.int32)
    group[problem.group_chain] = np.repeat(np.arange(groups, dtype=np.int32), np.diff(problem.group_start))
    by_place = np.lexsort((node[problem.begin_head, PLACE], group)).astype(np.int32)
    chain = np.zeros((chains, 6), np.int32)
    chain[:, BEGIN_HEAD], chain[:, COMMIT_HEAD], chain[:, COMMIT_TAIL] = (
        problem.begin_head,
        problem.commit_head,
        problem.commit_tail,
    )
    chain[:, GROUP] = group
    chain[by_place, RANK] = np.arange(chains)
    chain[:, DIRT] = 1
    every = np.arange(chains, dtype=np.int32)
    readers = np.repeat(every, np.diff(problem.post_start))
    touched = np.concatenate([problem.begin_head, problem.commit_head, problem.commit_tail, problem.post])
    node_chain_start, by_node = group_by(touched, n)

    edges_room = 1024 + 2 * (guarded + 8 * chains)
    variables_room = 256 + alternatives + chains
    clauses_room = 1024 + 2 * clauses
    state = State(
        meta=np.zeros(13, np.int64),
        out_start=out_start,
        out_to=out_to,
        in_start=in_start,
        in_from=in_from,
        node=node,
        node_at=problem.preference.astype(np.int32),
        edge=np.zeros((edges_room, 9), np.int32),
        force_trail=np.zeros(edges_room, np.int32),
        variable=np.zeros((variables_room, 6), np.int32),
        literal=np.zeros((2 * variables_room, 2), np.int32),
        trail=np.zeros(variables_room, np.int32),
        level=np.zeros((variables_room, 2), np.int32),
        clause=np.zeros((clauses_room, 4), np.int32),
        arena=np.zeros(16 * clauses_room + alternatives, np.int32),
        chain=chain,
        post_start=problem.post_start,
        post=problem.post,
        group_start=problem.group_start,
        group_chain=by_place,
        node_chain_start=node_chain_start,
        node_chain=np.concatenate([every, every, every, readers])[by_node],
        dirty_stack=by_place[::-1].copy(),
        pair_slot=_no_pairs(variables_room),
        conflict=np.zeros(variables_room, np.int32),
        learned=np.zeros(variables_room, np.int32),
        scratch=np.zeros((4, n + 1), np.int32),
    )
    state.meta[DIRTY] = chains
    return state


def _no_pairs(variables: int) -> np.ndarray:
    return np.full(1 << (4 * variables).bit_length(), -1, np.int32)


def _longer(table: np.ndarray, rows: int) -> np.ndarray:
    longer = np.zeros((rows, *table.shape[1:]), table.dtype)
    longer[: len(table)] = table
    return longer


def _grow(s: State, pair_edges_max: int) -> State:
    """The same state with room for more of whatever is short."""
    variables = int(s.meta[VARIABLES])
    if variables + 1 >= len(s.variable):
        rows = 2 * len(s.variable)
        s = s._replace(
            variable=_longer(s.variable, rows),
            trail=_longer(s.trail, rows),
            level=_longer(s.level, rows),
            literal=_longer(s.literal, 2 * rows),
            conflict=_longer(s.conflict, rows),
            learned=_longer(s.learned, rows),
            pair_slot=_no_pairs(rows),
        )
        index_pairs(s)
    if s.meta[EDGES] + pair_edges_max >= len(s.edge):
        rows = 2 * len(s.edge) + pair_edges_max
        s = s._replace(edge=_longer(s.edge, rows), force_trail=_longer(s.force_trail, rows))
    if s.meta[CLAUSES] + 1 >= len(s.clause):
        s = s._replace(clause=_longer(s.clause, 2 * len(s.clause)))
    if s.meta[LITERALS] + variables + 2 >= len(s.arena):
        s = s._replace(arena=_longer(s.arena, 2 * len(s.arena) + variables + 2))
    return s


@kernel
def add_choices(s, choice_start, guarded_source, guarded_target, guards):
    """Add the explicit choices: exactly one alternative of each is true. Returns False if one has none.

    Pre: there is room.
    """
    for _ in range(choice_start[-1]):
        add_variable(s, -1, -1)
    s.meta[EXPLICIT] = choice_start[-1]
    pair = np.empty(2, np.int32)
    for i in range(len(choice_start) - 1):
        first, end = choice_start[i], choice_start[i + 1]
        if end - first == 1:
            assign(s, 2 * first, -1)
        elif end - first >= 2:
            for a in range(first, end):
                s.learned[a - first] = 2 * a
            add_clause(s, s.learned, end - first)
        else:
            return False
        for a in range(first, end):
            for b in range(a + 1, end):
                pair[0], pair[1] = 2 * a + 1, 2 * b + 1
                add_clause(s, pair, 2)
    for e in range(len(guarded_source)):
        other = guards[e, 1]
        add_edge(s, guarded_source[e], guarded_target[e], 2 * guards[e, 0], 2 * other if other >= 0 else -1)
    return True


def solve(problem: Problem, out_of_time: Callable[[], bool]) -> Solution:
    """Find an order, or show that there is none. Deterministic."""
    state = _state(problem)
    per_chain = np.diff(problem.post_start)
    pair_edges_max = 2 + 2 * int(per_chain.max(initial=0))
    if not add_choices(state, problem.choice_start, problem.guarded_source, problem.guarded_target, problem.guards):
        return NoOrder(np.zeros(0, np.int32))
    while True:
        outcome = search(state, pair_edges_max, int(state.meta[STEPS]) + STEPS_PER_CALL)
        conflicts = int(state.meta[CONFLICTS])
        if outcome == FOUND:
            return Ordered(state.node_at, conflicts)
        if outcome == IMPOSSIBLE:
            return NoOrder(np.flatnonzero(state.node[:, BLAMED]).astype(np.int32), conflicts)
        if outcome == FULL:
            state = _grow(state, pair_edges_max)
        elif out_of_time():
            return GaveUp(conflicts)
