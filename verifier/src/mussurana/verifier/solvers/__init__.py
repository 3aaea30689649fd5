"""Solvers for what pruning leaves open: our own, and independent ones for tests and for those who ask for them."""

from __future__ import annotations

from mussurana.verifier.engine.problem import Solver

SOLVERS = ("own", "python-sat", "z3", "monosat")


def find_solver(name: str) -> Solver:
    """The solver of that name. Raises ImportError, saying what to install, when its library is missing."""
    if name == "own":
        from mussurana.verifier.engine.cdcl import solve

        return solve
    if name == "python-sat":
        from mussurana.verifier.solvers import sat

        return sat.solve
    if name == "z3":
        from mussurana.verifier.solvers import smt

        return smt.solve
    if name == "monosat":
        from mussurana.verifier.solvers import mono

        return mono.solve
    raise ValueError(f"unknown solver {name!r}; the solvers are {', '.join(SOLVERS)}")
