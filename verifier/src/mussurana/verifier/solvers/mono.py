"""MonoSAT, the solver behind Cobra and Viper, for those who have it.

It is not on PyPI, so it is used only when it can be imported.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mussurana.verifier.engine.problem import GaveUp, NoOrder, Ordered, Problem, Solution
from mussurana.verifier.solvers.cycles import sort_or_cycle

try:
    import monosat
except ImportError as error:
    raise ImportError("the monosat solver needs MonoSAT's Python binding, built from its sources") from error

CONFLICTS_PER_CALL = 10_000  # how often MonoSAT comes back so that the clock can be looked at


def solve(problem: Problem, out_of_time: Callable[[], bool]) -> Solution:
    monosat.Monosat().newSolver()
    graph = monosat.Graph()
    nodes = [graph.addNode() for _ in range(problem.node_count)]
    edges: list[tuple[int, int, object]] = []

    def edge(u: int, v: int) -> object:
        literal = graph.addEdge(nodes[u], nodes[v])
        edges.append((u, v, literal))
        return literal

    for u, v in zip(problem.source.tolist(), problem.target.tolist(), strict=True):
        monosat.Assert(edge(u, v))
    holds = [monosat.Var() for _ in range(int(problem.choice_start[-1]))]
    for start, end in zip(problem.choice_start[:-1].tolist(), problem.choice_start[1:].tolist(), strict=True):
        monosat.AssertClause(holds[start:end])
        for a in range(start, end):
            for b in range(a + 1, end):
                monosat.AssertClause([monosat.Not(holds[a]), monosat.Not(holds[b])])
    for e, guards in enumerate(problem.guards.tolist()):
        guarded = edge(int(problem.guarded_source[e]), int(problem.guarded_target[e]))
        monosat.AssertClause([guarded, *(monosat.Not(holds[g]) for g in guards if g >= 0)])
    for c, d in problem.pairs():
        first = monosat.Var()
        for u, v in problem.edges_if_before(c, d):
            monosat.AssertClause([monosat.Not(first), edge(u, v)])
        for u, v in problem.edges_if_before(d, c):
            monosat.AssertClause([first, edge(u, v)])
    monosat.Assert(graph.acyclic())
    while True:
        try:
            solved = monosat.Solve(conflict_limit=CONFLICTS_PER_CALL)
            break
        except monosat.SolveException:  # the limit was reached
            if out_of_time():
                return GaveUp()
    if not solved:
        return NoOrder(np.arange(problem.node_count, dtype=np.int32))
    successors: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(problem.node_count)]
    for u, v, literal in edges:
        if literal.value():  # type: ignore[attr-defined]
            successors[u].append((v, ()))
    order, _ = sort_or_cycle(successors)
    return Ordered(np.array(order, np.int32))
