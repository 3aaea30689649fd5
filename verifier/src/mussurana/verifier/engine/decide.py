"""From a resolved history to a verdict without words: build, prune, solve.

Deciding knows transactions only by number. `explain/` turns a refusal into a story, and calls this again on
smaller and smaller parts of the history while it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from mussurana.verifier.engine.arrays import adjacency
from mussurana.verifier.engine.components import Leftover, leave_over
from mussurana.verifier.engine.cycles import all_suspects
from mussurana.verifier.engine.graph import Graph, build_graph, keeps_sessions
from mussurana.verifier.engine.problem import GaveUp, NoOrder, Ordered, Solver
from mussurana.verifier.engine.prune import Pruned, prune
from mussurana.verifier.engine.reach import topological_order
from mussurana.verifier.engine.resolve import Resolved, restrict, with_observers
from mussurana.verifier.history import Ints, SmallInts, ranges
from mussurana.verifier.verdict import Choices, Settings, Witness

SESSIONS_FIRST_MIN = 500  # transactions; smaller histories are decided before it would pay
SESSIONS_FIRST_ROUNDS_MAX = 20  # by then it would have been quicker to decide without sessions


@dataclass
class Decision:
    """What was found, and what led there. Exactly one of `witness`, `refused` and `gave_up` is set."""

    graph: Graph
    witness: Witness | None = None
    refused: bool = False
    gave_up: bool = False
    pruned: Pruned | None = None
    leftover: Leftover | None = None
    blamed: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # nodes of the graph that the solver blames
    choices: Choices = field(default_factory=Choices)
    conflicts: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def decide(
    resolved: Resolved,
    settings: Settings,
    solver: Solver,
    out_of_time: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda phase: None,
) -> Decision:
    """Decide whether the transactions in effect have an order that the level allows."""
    seconds = dict.fromkeys(("build", "prune", "solve"), 0.0)

    def attempt(part: Resolved, with_sessions: bool, free: Ints | None = None) -> Decision:
        started = perf_counter()
        graph = build_graph(part, settings, with_sessions, free)
        seconds["build"] += perf_counter() - started
        return _decide(graph, solver, out_of_time, report, seconds)

    decision = None
    if not keeps_sessions(settings) and resolved.history.txn_count >= SESSIONS_FIRST_MIN:
        decision = _sessions_first(resolved, attempt, out_of_time)
    return decision or attempt(resolved, keeps_sessions(settings))


def _sessions_first(
    resolved: Resolved, attempt: Callable[..., Decision], out_of_time: Callable[[], bool]
) -> Decision | None:
    """Decide as if sessions kept their order, though the level does not ask for it; None if that does not tell.

    Most databases keep sessions in order even where they need not. With that order the graph is covered by few chains,
    and an order of transactions that keeps more than it has to is as good as any. Of a refusal, the transactions that
    it rests on are looked at on their own and without sessions. If they are refused, so is the whole. If not, the place
    of some of them in a session mattered: they are let go from it, and the whole is tried again.
    """
    free = np.zeros(0, np.int64)
    for _ in range(SESSIONS_FIRST_ROUNDS_MAX):
        decision = attempt(resolved, True, free)
        if not decision.refused:
            return decision
        started = perf_counter()
        some = with_observers(resolved, all_suspects(decision))
        part = restrict(resolved, some)
        decision.seconds["solve"] += perf_counter() - started
        alone = attempt(part, False)
        if alone.refused:
            alone.graph, alone.choices = replace(alone.graph, txns=some[alone.graph.txns]), decision.choices
            return alone
        if out_of_time():
            return replace(decision, refused=False, gave_up=True, choices=Choices(decision.choices.generated))
        if np.isin(some, free).all():
            return None
        free = np.union1d(free, some)
    return None


def _decide(
    graph: Graph,
    solver: Solver,
    out_of_time: Callable[[], bool],
    report: Callable[[str], None],
    seconds: dict[str, float],
) -> Decision:
    """Decide on a graph, and add to the seconds of each phase what it took."""
    decision = Decision(graph, seconds=seconds)
    if graph.chains.clash is not None:
        decision.refused = True
        return decision
    if not len(graph.txns):
        decision.witness = _witness(graph, np.zeros(0, np.int32))
        return decision

    report("pruning")
    started = perf_counter()
    decision.pruned = pruned = prune(graph, out_of_time)
    pairs = pruned.open.pairs
    seconds["prune"] += perf_counter() - started
    decision.choices = Choices(generated=pairs, pruned=pairs)
    if pruned.cyclic:
        decision.refused = True
        return decision
    if pruned.unfinished:
        decision.gave_up, decision.choices = True, Choices(pairs)
        return decision

    report("solving")
    started = perf_counter()
    decision.leftover = leftover = leave_over(pruned, likely_order(pruned))
    decision.choices = Choices(pairs, pairs - leftover.undecided_pairs, leftover.undecided_pairs)
    order = pruned.order
    if leftover.undecided_pairs:
        solution = solver(leftover.problem, out_of_time)
        decision.conflicts = solution.conflicts
        if isinstance(solution, GaveUp):
            decision.gave_up = True
            decision.choices = replace(decision.choices, solved=0)
        elif isinstance(solution, NoOrder):
            decision.refused = True
            decision.blamed = leftover.nodes[solution.nodes]
        else:
            order = _order_all(pruned, leftover, solution)
    seconds["solve"] += perf_counter() - started
    if not decision.refused and not decision.gave_up:
        decision.witness = _witness(graph, order)
    return decision


def likely_order(pruned: Pruned) -> SmallInts:
    """An order of all nodes that follows the known edges and is probably close to what happened.

    The number of nodes that are known to come before a node grows along every edge, and it tells time about as well as
    the clients' clocks, which not every history has (docs/design.md has the figures).
    """
    if pruned.too_wide:
        return pruned.order
    known_before = pruned.clock.sum(axis=1, dtype=np.int64)
    return pruned.order[np.argsort(known_before[pruned.order], kind="stable")]


def _order_all(pruned: Pruned, leftover: Leftover, solution: Ordered) -> SmallInts:
    """An order of all nodes that follows the known edges and the solver's order of the open chains."""
    problem, opened = leftover.problem, pruned.open
    place = np.empty(problem.node_count, np.int64)
    place[solution.order] = np.arange(problem.node_count)
    group = np.repeat(np.arange(len(problem.group_start) - 1), np.diff(problem.group_start))
    by_place = np.lexsort((place[problem.begin_head[problem.group_chain]], group))
    chain = leftover.chains[problem.group_chain[by_place]]
    neighbours = np.flatnonzero(group[1:] == group[:-1])
    before, after = chain[neighbours], chain[neighbours + 1]
    counts = np.diff(opened.post_start)[before]
    posts = ranges(opened.post_start[before], opened.post_start[before + 1])
    source = np.concatenate([pruned.source, opened.commit_tail[before], opened.post[posts]])
    target = np.concatenate([pruned.target, opened.begin_head[after], np.repeat(opened.commit_head[after], counts)])
    n = pruned.graph.node_count
    out_start, out_to, _ = adjacency(source, target, n)
    order = np.empty(n, np.int32)
    done = topological_order(n, out_start, out_to, order)
    assert done == n, "the solver's order contradicts the known edges"
    return order


def _witness(graph: Graph, order: SmallInts) -> Witness:
    txn = graph.node_txn[order]
    order, txn = order[txn >= 0], txn[txn >= 0]
    number = graph.txns[txn]
    if not graph.level.split:
        return Witness(number, events=False)
    is_begin, is_commit = graph.begin[txn] == order, graph.commit[txn] == order
    both = is_begin & is_commit
    events = np.repeat(2 * number + (is_commit & ~is_begin), 1 + both)
    events[np.flatnonzero(np.repeat(both, 1 + both))[1::2]] += 1
    return Witness(events, events=True)
