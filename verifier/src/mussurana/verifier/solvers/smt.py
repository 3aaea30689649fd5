"""z3 as an independent solver: every node gets a number, every edge says which of two is smaller."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mussurana.verifier.engine.problem import GaveUp, NoOrder, Ordered, Problem, Solution

try:
    import z3
except ImportError as error:
    raise ImportError("the z3 solver needs the package z3-solver: pip install z3-solver") from error

POLL_MILLISECONDS = 1_000  # how often z3 comes back so that the clock can be looked at


def solve(problem: Problem, out_of_time: Callable[[], bool]) -> Solution:
    solver = z3.SolverFor("QF_IDL")
    place = [z3.Int(f"place{n}") for n in range(problem.node_count)]
    holds = [z3.Bool(f"alternative{a}") for a in range(int(problem.choice_start[-1]))]
    for u, v in zip(problem.source.tolist(), problem.target.tolist(), strict=True):
        solver.add(place[u] < place[v])
    for start, end in zip(problem.choice_start[:-1].tolist(), problem.choice_start[1:].tolist(), strict=True):
        solver.add(z3.PbEq([(holds[a], 1) for a in range(start, end)], 1) if end > start else z3.BoolVal(False))
    for e, guards in enumerate(problem.guards.tolist()):
        before = place[int(problem.guarded_source[e])] < place[int(problem.guarded_target[e])]
        solver.add(z3.Implies(z3.And([holds[g] for g in guards if g >= 0]), before))
    for c, d in problem.pairs():
        first = z3.And([place[u] < place[v] for u, v in problem.edges_if_before(c, d)])
        second = z3.And([place[u] < place[v] for u, v in problem.edges_if_before(d, c)])
        solver.add(z3.Or(first, second))
    while True:
        solver.set("timeout", POLL_MILLISECONDS)
        answer = solver.check()
        if answer == z3.unsat:
            return NoOrder(np.arange(problem.node_count, dtype=np.int32))
        if answer == z3.sat:
            model = solver.model()
            value = [model.eval(p, model_completion=True).as_long() for p in place]
            return Ordered(np.argsort(value, kind="stable").astype(np.int32))
        if out_of_time():
            return GaveUp()
