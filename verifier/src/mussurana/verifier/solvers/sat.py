"""python-sat as an independent solver: guess an order of each pair, find a cycle, forbid it, again.

Slow and simple on purpose; it shares nothing with our own solver but the problem.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from mussurana.verifier.engine.problem import GaveUp, NoOrder, Ordered, Problem, Solution
from mussurana.verifier.solvers.cycles import sort_or_cycle

try:
    from pysat.solvers import Cadical153
except ImportError as error:
    raise ImportError("the python-sat solver needs the package python-sat: pip install python-sat") from error


def solve(problem: Problem, out_of_time: Callable[[], bool]) -> Solution:
    successors: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(problem.node_count)]  # (node, guards)
    for u, v in zip(problem.source.tolist(), problem.target.tolist(), strict=True):
        successors[u].append((v, ()))
    alternatives = int(problem.choice_start[-1])
    for e, (a, b) in enumerate(problem.guards.tolist()):
        guards = (a + 1,) if b < 0 else (a + 1, b + 1)
        successors[int(problem.guarded_source[e])].append((int(problem.guarded_target[e]), guards))
    for i, (c, d) in enumerate(problem.pairs()):
        variable = alternatives + i + 1
        for literal, first, second in ((variable, c, d), (-variable, d, c)):
            for u, v in problem.edges_if_before(first, second):
                successors[u].append((v, (literal,)))

    conflicts = 0
    with Cadical153() as sat:
        for start, end in zip(problem.choice_start[:-1].tolist(), problem.choice_start[1:].tolist(), strict=True):
            sat.add_clause([a + 1 for a in range(start, end)])
            for a, b in combinations(range(start, end), 2):
                sat.add_clause([-a - 1, -b - 1])
        while sat.solve():
            true = set(sat.get_model() or ())
            # A variable that is in no clause yet may be missing from the model; then it is false.
            chosen = [
                [(v, guards) for v, guards in row if all(g in true or (g < 0 and -g not in true) for g in guards)]
                for row in successors
            ]
            order, cycle = sort_or_cycle(chosen)
            if not cycle:
                return Ordered(np.array(order, np.int32), conflicts)
            if out_of_time():
                return GaveUp(conflicts)
            conflicts += 1
            sat.add_clause([-g for g in sorted(cycle)])
    return NoOrder(np.arange(problem.node_count, dtype=np.int32), conflicts)
