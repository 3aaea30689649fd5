"""Slow, obvious twins: what the engine's kernels compute, from the words of their contracts and with nothing clever.

Reachability is a matrix, pruning tries all pairs, reads are looked up by going through all writes. The tests in
`kernels/` compare; `covers` marks which kernel a test is about, so that none can be forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mussurana.verifier.engine import components, prune
from mussurana.verifier.engine.components import Leftover
from mussurana.verifier.engine.graph import Graph
from mussurana.verifier.engine.prune import Pruned
from mussurana.verifier.engine.resolve import (
    ABORTED_READ,
    AMBIGUOUS,
    DUPLICATE_ELEMENT,
    FUTURE,
    INTERMEDIATE,
    INTERNAL,
    NEVER_WRITTEN,
    RESOLVED,
)
from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, History, Kind, Status

Edge = tuple[int, int]
Matrix = npt.NDArray[np.bool_]
Test = TypeVar("Test", bound=Callable[..., None])


def kernel_name(kernel: Any) -> str:
    """Its module below `mussurana.verifier`, and its name."""
    return f"{kernel.py_func.__module__.removeprefix('mussurana.verifier.')}.{kernel.py_func.__name__}"


def covers(*kernels: Any) -> Callable[[Test], Test]:
    """Marks a test that compares these kernels with their twins."""

    def mark(test: Test) -> Test:
        test.covers = {kernel_name(kernel) for kernel in kernels}  # type: ignore[attr-defined]
        return test

    return mark


# Graphs


def reachability(node_count: int, edges: Iterable[Edge]) -> Matrix:
    """reach[u, v]: a path of any length, even none, leads from u to v (Warshall)."""
    reach = np.eye(node_count, dtype=bool)
    for u, v in edges:
        reach[u, v] = True
    for middle in range(node_count):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


def is_cyclic(reach: Matrix, edges: Iterable[Edge]) -> bool:
    return any(reach[v, u] for u, v in edges)


def edge_list(edges: Any) -> list[Edge]:
    """The ends of anything that has a source and a target column."""
    return list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))


# Pruning


@dataclass(frozen=True)
class Chain:
    """A version chain, told apart by its first version. The one of the initial version may have no writer at all."""

    head: int
    tail: int
    begin_head: int
    commit_head: int
    commit_tail: int  # -1 where nobody wrote the last version
    readers: tuple[int, ...]  # begins of those who read the last version

    def edges_if_before(self, other: Chain) -> list[Edge]:
        after_writer = [(self.commit_tail, other.begin_head)] if self.commit_tail >= 0 else []
        return after_writer + [(reader, other.commit_head) for reader in self.readers]

    @property
    def plain(self) -> bool:
        return self.head == self.tail and not self.readers


def chains_by_key(graph: Graph) -> dict[int, tuple[Chain, list[Chain]]]:
    """For each key the chain of its initial version, and the others."""
    following, readers = graph.chains.following.tolist(), defaultdict(list)
    for version, start in enumerate(graph.chains.reader_start[:-1]):
        for txn in graph.chains.reader[start : graph.chains.reader_start[version + 1]]:
            readers[version].append(int(graph.begin[txn]))
    chains: dict[int, tuple[Chain, list[Chain]]] = {}
    for head in sorted(set(range(len(following))) - set(following)):
        tail = head
        while following[tail] >= 0:
            tail = following[tail]
        first, last = int(graph.version_txn[head]), int(graph.version_txn[tail])
        chain = Chain(
            head,
            tail,
            int((graph.commit if graph.version_new[head] else graph.begin)[first]) if first >= 0 else -1,
            int(graph.commit[first]) if first >= 0 else -1,
            int(graph.commit[last]) if last >= 0 else -1,
            tuple(readers[tail]),
        )
        if first < 0:
            chains[int(graph.version_key[head])] = (chain, [])
        else:
            chains[int(graph.version_key[head])][1].append(chain)
    return chains


@dataclass
class PrunedByHand:
    """A graph in which every pair of chains that has only one possible order is in that order."""

    chains: list[list[Chain]]  # of each key, without those of initial versions
    edges: set[Edge]
    reach: Matrix
    cyclic: bool
    undecided: list[tuple[Chain, Chain]] = field(default_factory=list)


def prune_by_hand(graph: Graph) -> PrunedByHand:
    by_key = chains_by_key(graph)
    chains = [rest for _, rest in by_key.values()]
    edges = set(edge_list(graph.edges))
    for first, rest in by_key.values():
        edges.update(edge for chain in rest for edge in first.edges_if_before(chain))
    while True:
        reach = reachability(graph.node_count, edges)
        if is_cyclic(reach, edges):
            return PrunedByHand(chains, edges, reach, cyclic=True)
        impossible = {
            (c.head, d.head)
            for rest in chains
            for c, d in permutations(rest, 2)
            if is_cyclic(reach, c.edges_if_before(d))
        }
        more = {
            edge
            for rest in chains
            for c, d in permutations(rest, 2)
            if (c.head, d.head) in impossible
            for edge in d.edges_if_before(c)
        }
        if more <= edges:
            break
        edges |= more
    undecided = [
        (c, d)
        for rest in chains
        for c, d in combinations(rest, 2)
        if (c.head, d.head) not in impossible and (d.head, c.head) not in impossible
    ]
    return PrunedByHand(chains, edges, reach, cyclic=False, undecided=undecided)


def pairs_that_matter(graph: Graph, by_hand: PrunedByHand) -> list[tuple[Chain, Chain]]:
    """Undecided pairs, but where begin and commit are one, not those of two single unread writes."""
    return [(c, d) for c, d in by_hand.undecided if graph.level.split or not (c.plain and d.plain)]


def pruning_complaint(graph: Graph, by_hand: PrunedByHand) -> str:
    """What the engine's pruning, and what it leaves over, have otherwise than the twins; nothing if all is well."""
    pruned = prune.prune(graph)
    if pruned.cyclic != by_hand.cyclic:
        return f"cyclic is {pruned.cyclic}"
    if pruned.cyclic:
        return ""
    if not np.array_equal(reachability(graph.node_count, edge_list(pruned.edges)), by_hand.reach):
        return "pruning decides other pairs"
    if not np.array_equal(clock_reach(pruned.clock, pruned.chain_of, pruned.index_in_chain), by_hand.reach):
        return "clocks are wrong"
    return leftover_complaint(pruned, by_hand, components.leave_over(pruned, pruned.order))


def clock_reach(clock: Any, chain_of: Any, index_in_chain: Any) -> Matrix:
    """The reachability that clocks stand for."""
    return np.asarray(np.greater(clock[:, chain_of].T, index_in_chain[:, None]))


def leftover_complaint(pruned: Pruned, by_hand: PrunedByHand, leftover: Leftover) -> str:
    """What is wrong with the problem that is left for the solver."""
    graph, problem = pruned.graph, leftover.problem
    matter = pairs_that_matter(graph, by_hand)
    if leftover.undecided_pairs != len(matter):
        return f"{leftover.undecided_pairs} pairs are left, not {len(matter)}"
    heads = [int(pruned.open.head_version[c]) for c in leftover.chains]
    if set(heads) != {chain.head for pair in matter for chain in pair}:
        return "other chains are left"
    if len(heads) != len(set(heads)):
        return "a chain is left twice"

    # A cycle can only run inside a component of the graph with all edges that undecided pairs might bring.
    possible = [edge for c, d in matter for edge in (*c.edges_if_before(d), *d.edges_if_before(c))]
    reach = reachability(graph.node_count, [*by_hand.edges, *possible])
    together = reach & reach.T
    open_chains = {chain.head: chain for pair in matter for chain in pair}
    nodes = {int(node) for chain in open_chains.values() for node in np.flatnonzero(together[chain.begin_head])}
    if sorted(nodes) != leftover.nodes.tolist():
        return "other nodes are left"
    inside = together[np.ix_(leftover.nodes, leftover.nodes)]
    if not np.array_equal(
        reachability(problem.node_count, edge_list(problem)) & inside,
        by_hand.reach[np.ix_(leftover.nodes, leftover.nodes)] & inside,
    ):
        return "other known edges are left"

    group_of = {}
    for group, (start, end) in enumerate(zip(problem.group_start[:-1], problem.group_start[1:], strict=True)):
        group_of.update({heads[c]: group for c in problem.group_chain[start:end]})
    if any(group_of[c.head] != group_of[d.head] for c, d in matter):
        return "an undecided pair is torn apart"
    for c, head in enumerate(heads):
        chain = open_chains[head]
        ends = [leftover.nodes[column[c]] for column in (problem.begin_head, problem.commit_head, problem.commit_tail)]
        if ends != [chain.begin_head, chain.commit_head, chain.commit_tail]:
            return "a chain has other ends"
        kept = {int(n) for n in leftover.nodes[problem.post[problem.post_start[c] : problem.post_start[c + 1]]]}
        readers = {reader for reader in chain.readers if together[reader, chain.begin_head]}
        if not kept <= readers or not all(any(by_hand.reach[r, k] for k in kept) for r in readers):
            return "a chain has other readers"
    place = {int(node): at for at, node in enumerate(problem.preference)}
    if len(place) != problem.node_count or any(place[u] >= place[v] for u, v in edge_list(problem)):
        return "the preferred order is none"
    return ""


# Resolving


@dataclass
class Scanned:
    """Columns over operations, as `scan_transactions` fills them."""

    seen_op: list[int]
    first_in_txn: list[int]
    final: list[int]
    new_row: list[int]
    bad: list[int]


def scan_by_hand(history: History, split: bool) -> Scanned:
    columns = Scanned(*([0] * history.op_count for _ in range(5)))
    for txn in range(history.txn_count):
        own: dict[int, list[int]] = defaultdict(list)  # the writes made so far, by key
        outside: dict[int, int] = {}  # the version of others that was seen first, by key
        for op in history.operations(txn):
            kind, key = int(history.kind[op]), int(history.key[op])
            mine = [int(history.value[write]) for write in own[key]]
            if kind == Kind.READ_LIST:
                seen = history.list_seen(op)
                theirs = seen[: max(0, len(seen) - len(mine))]
                if theirs + mine != seen:
                    columns.bad[op] = INTERNAL
                    continue
                columns.seen_op[op] = 2
                last = theirs[-1] if theirs else INITIAL
                if outside.setdefault(key, last) != last:
                    columns.bad[op] = INTERNAL
                continue
            saw = int(history.value[op] if kind == Kind.READ else history.previous[op])
            is_new = split and bool(own[key]) and history.previous[own[key][0]] == NO_ROW
            if saw == NO_VALUE or (kind != Kind.READ and saw == NO_ROW):
                pass
            elif mine and (saw == mine[-1] or kind != Kind.READ or not is_new):
                columns.bad[op] = INTERNAL if saw != mine[-1] else 0
            else:
                columns.seen_op[op] = int(key not in outside)
                columns.bad[op] = INTERNAL if outside.setdefault(key, saw) != saw else 0
            if kind != Kind.READ:
                own[key].append(op)
        for writes in own.values():
            for at, write in enumerate(writes):
                columns.first_in_txn[write] = int(at == 0)
                columns.new_row[write] = int(split and history.previous[writes[0]] == NO_ROW)
                columns.final[write] = int(at == len(writes) - 1)
    return columns


def writes_of(history: History, key: int, value: int) -> list[int]:
    """All operations that write this value to this key."""
    return [
        op
        for op in range(history.op_count)
        if history.kind[op] in (Kind.WRITE, Kind.APPEND) and history.key[op] == key and history.value[op] == value
    ]


def txn_of(history: History, op: int) -> int:
    return next(txn for txn in range(history.txn_count) if op in history.operations(txn))


def find_writer_by_hand(
    history: History, final: list[int], reader: int, key: int, value: int, allow_partial: bool
) -> tuple[int, set[int]]:
    """(what a transaction that saw this version saw, the operations that may be named for it)."""
    writes = writes_of(history, key, value)
    if not writes:
        return NEVER_WRITTEN, {-1}
    others = {op for op in writes if txn_of(history, op) != reader}
    aborted = {op for op in others if history.status[txn_of(history, op)] == Status.ABORTED}
    whole = {op for op in others - aborted if final[op] or allow_partial}
    if whole:
        return (RESOLVED if len({txn_of(history, op) for op in whole}) == 1 else AMBIGUOUS), whole
    if aborted:
        return ABORTED_READ, aborted
    return (INTERMEDIATE, others) if others else (FUTURE, {writes[0]})


@dataclass
class ResolvedByHand:
    in_effect: set[int]
    what: dict[int, int]  # by operation that saw the outside, of transactions in effect
    writers: dict[int, set[int]]  # by such an operation: what may be named as the write it saw, -1 for none
    elements: dict[int, int]  # by place in list_value: the write of the element, -2 where it is the reader's own
    sees: dict[int, set[int]]  # by transaction in effect: those it saw something of


def resolve_by_hand(history: History, scanned: Scanned) -> ResolvedByHand:
    result = ResolvedByHand(set(), {}, {}, {}, defaultdict(set))
    waiting = {txn for txn in range(history.txn_count) if history.status[txn] == Status.COMMITTED}
    while waiting:
        txn = waiting.pop()
        result.in_effect.add(txn)
        for op in history.operations(txn):
            if scanned.seen_op[op] == 1:
                _resolve_read(history, scanned, txn, op, result)
            elif scanned.seen_op[op] == 2:
                _resolve_list(history, scanned, txn, op, result)
        waiting |= result.sees[txn] - result.in_effect
    return result


def _resolve_read(history: History, scanned: Scanned, txn: int, op: int, result: ResolvedByHand) -> None:
    value = int(history.value[op] if history.kind[op] == Kind.READ else history.previous[op])
    if value == INITIAL:
        result.what[op], result.writers[op] = RESOLVED, {-1}
        return
    what, writers = find_writer_by_hand(history, scanned.final, txn, int(history.key[op]), value, False)
    result.what[op], result.writers[op] = what, writers
    if what == RESOLVED:
        result.sees[txn] |= {txn_of(history, write) for write in writers}


def _resolve_list(history: History, scanned: Scanned, txn: int, op: int, result: ResolvedByHand) -> None:
    """Element by element, up to the first that cannot be."""
    key = int(history.key[op])
    outside: list[int] = []  # the writes of the elements so far that are not the reader's own
    listed: set[int] = set()

    def stop(what: int, writers: set[int]) -> None:
        result.what[op], result.writers[op] = what, writers

    for at, value in enumerate(history.list_seen(op), int(history.list_start[op])):
        writes = writes_of(history, key, value)
        if len(writes) > 1:
            return stop(AMBIGUOUS, {-1})
        repeated, listed = value in listed, listed | {value}
        own = bool(writes) and txn_of(history, writes[0]) == txn and writes[0] < op
        if own and not repeated:
            result.elements[at] = -2
            continue
        what, writers = find_writer_by_hand(history, scanned.final, txn, key, value, True)
        if own or (what == RESOLVED and repeated):
            return stop(DUPLICATE_ELEMENT, writers)
        if what != RESOLVED:
            return stop(what, writers)
        (write,) = writers
        if not scanned.first_in_txn[write]:
            appends = [
                other
                for other in history.operations(txn_of(history, write))
                if history.kind[other] == Kind.APPEND and history.key[other] == key
            ]
            if outside[-1:] != [appends[appends.index(write) - 1]]:
                return stop(INTERMEDIATE, writers)
        elif outside and not scanned.final[outside[-1]]:
            return stop(INTERMEDIATE, {outside[-1]})
        result.elements[at] = write
        outside.append(write)
        result.sees[txn].add(txn_of(history, write))
    if outside and not scanned.final[outside[-1]]:
        return stop(INTERMEDIATE, {outside[-1]})
    return stop(RESOLVED, {-1})
