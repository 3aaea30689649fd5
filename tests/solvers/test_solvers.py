"""The solvers against each other, against trying everything, and against the definition of a solution."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from importlib.util import find_spec
from random import Random

import numpy as np
import pytest

from mussurana.verifier import solvers
from mussurana.verifier.engine import cdcl
from mussurana.verifier.engine.problem import GaveUp, NoOrder, Ordered, Problem, Solution
from mussurana.verifier.solvers import find_solver
from tests.solvers.random_problem import (
    Size,
    as_choices,
    combinations_to_try,
    contended_problem,
    is_solved_by,
    known_edges,
    only_edges_among,
    pigeonhole,
    random_problem,
    small_problem,
    solvable,
    tangled_problem,
)

MONOSAT = pytest.param(
    "monosat",
    marks=pytest.mark.skipif(
        find_spec("monosat") is None, reason="needs MonoSAT's Python binding, built from its sources"
    ),
)
ALL = ["own", "python-sat", "z3", MONOSAT]


def never() -> bool:
    return False


def at_once() -> bool:
    return True


def answer(name: str, problem: Problem) -> bool:
    """Whether that solver finds a solution, which is checked."""
    solution = find_solver(name)(problem, never)
    assert not isinstance(solution, GaveUp)
    if isinstance(solution, Ordered):
        assert is_solved_by(problem, solution.order), f"{name} says that {solution.order} is a solution of {problem}"
    return isinstance(solution, Ordered)


def compare(make: Callable[[Random], Problem], seeds: range, names: tuple[str, ...]) -> None:
    """All these solvers agree, on problems of which a fair part can and a fair part cannot be solved."""
    solved = 0
    for seed in seeds:
        problem = make(Random(seed))
        answers = {name: answer(name, problem) for name in names}
        assert len(set(answers.values())) == 1, f"{make.__name__}(Random({seed})): {answers}"
        solved += answers[names[0]]
    assert 0.3 <= solved / len(seeds) <= 0.75


def test_own_solver_agrees_with_python_sat_on_small_problems() -> None:
    compare(small_problem, range(5000), ("own", "python-sat"))


def test_own_solver_agrees_with_python_sat_on_tangled_problems() -> None:
    compare(tangled_problem, range(60), ("own", "python-sat"))


@pytest.mark.parametrize("name", ["z3", MONOSAT])
def test_other_solvers_agree_on_small_problems(name: str) -> None:
    compare(small_problem, range(150), ("own", name))


def test_own_solver_agrees_with_trying_everything() -> None:
    tried = 0
    for seed in range(1000):
        problem = small_problem(Random(seed))
        if combinations_to_try(problem) <= 1000:
            assert answer("own", problem) == solvable(problem), f"small_problem(Random({seed}))"
            tried += 1
    assert tried > 700


def test_own_solver_solves_what_a_hidden_order_solves() -> None:
    for seed in range(300):  # 270 is one where a chain has to be looked at again after both of its orders failed
        assert answer("own", contended_problem(Random(seed))), f"contended_problem(Random({seed}))"


def test_write_orders_are_choices_between_two_alternatives() -> None:
    for seed in range(1000):
        problem = small_problem(Random(seed))
        assert answer("own", problem) == answer("own", as_choices(problem)), f"small_problem(Random({seed}))"


def test_blamed_nodes_are_enough_to_refute() -> None:
    refuted = fewer = 0
    for seed in range(1500):
        problem = small_problem(Random(seed))
        solution = cdcl.solve(problem, never)
        if isinstance(solution, NoOrder):
            assert not answer("python-sat", only_edges_among(problem, solution.nodes)), f"small_problem(Random({seed}))"
            refuted += 1
            fewer += len(solution.nodes) < problem.node_count
    assert fewer > refuted // 2


def test_answer_does_not_depend_on_the_preferred_order() -> None:
    for seed in range(500):
        problem = tangled_problem(Random(seed))
        # The same nodes, later ones as soon as they can come.
        waits_for = [{u for u, v in known_edges(problem) if v == node} for node in range(problem.node_count)]
        order: list[int] = []
        while len(order) < problem.node_count:
            order.append(max(n for n in range(problem.node_count) if n not in order and waits_for[n] <= set(order)))
        other = replace(problem, preference=np.array(order, np.int32))
        assert answer("own", problem) == answer("own", other), f"tangled_problem(Random({seed}))"


def test_a_preferred_order_that_is_a_solution_is_kept() -> None:
    for seed in range(1000):
        problem = small_problem(Random(seed))
        solution = cdcl.solve(problem, never)
        if isinstance(solution, Ordered) and not len(problem.guards):
            again = cdcl.solve(replace(problem, preference=solution.order), never)
            assert isinstance(again, Ordered)
            assert again.conflicts == 0
            assert again.order.tolist() == solution.order.tolist()


def test_solving_twice_gives_the_same_and_leaves_the_problem_alone() -> None:
    for seed in range(50):
        problem, untouched = tangled_problem(Random(seed)), tangled_problem(Random(seed))
        once, twice = cdcl.solve(problem, never), cdcl.solve(problem, never)
        assert shown(once) == shown(twice)
        for field in fields(problem):
            assert np.array_equal(getattr(problem, field.name), getattr(untouched, field.name)), field.name


def shown(solution: Solution) -> tuple[str, int, list[int]]:
    nodes = {Ordered: "order", NoOrder: "nodes"}.get(type(solution))
    return type(solution).__name__, solution.conflicts, getattr(solution, nodes).tolist() if nodes else []


@pytest.mark.parametrize("name", ALL)
def test_a_choice_without_alternatives_has_no_solution(name: str) -> None:
    nothing = np.zeros(0, np.int32)
    empty = Problem(1, nothing, nothing, np.zeros(1, np.int32), choice_start=np.zeros(2, np.int64))
    assert not answer(name, empty)


@pytest.mark.parametrize("name", ALL)
def test_pigeons_fit_if_there_are_holes_enough(name: str) -> None:
    assert answer(name, pigeonhole(4, 4))
    assert not answer(name, pigeonhole(5, 4))


def test_tables_grow_when_they_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    grown: set[str] = set()
    grow = cdcl._grow

    def watched(state: cdcl.State, pair_edges_max: int) -> cdcl.State:
        after = grow(state, pair_edges_max)
        grown.update(name for name in cdcl.State._fields if len(getattr(after, name)) > len(getattr(state, name)))
        return after

    monkeypatch.setattr(cdcl, "_grow", watched)
    # A thousand pairs with several edges each, of which the hidden order is one solution.
    many_pairs = Size(
        txns=300, split=True, known=0.0, keys=4, chains_max=100, long_chains=0.0, readers=2.0, truthful=1.0
    )
    assert answer("own", random_problem(Random(1), many_pairs))
    assert {"variable", "literal", "edge", "pair_slot"} <= grown
    # Thousands of learned clauses.
    assert not answer("own", pigeonhole(11, 10))
    assert {"clause", "arena"} <= grown


def test_pauses_do_not_change_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        return False

    problems = [pigeonhole(6, 5), *(tangled_problem(Random(seed)) for seed in range(20))]
    in_one_go = [shown(cdcl.solve(problem, never)) for problem in problems]
    monkeypatch.setattr(cdcl, "STEPS_PER_CALL", 10)
    assert [shown(cdcl.solve(problem, look)) for problem in problems] == in_one_go
    assert looks > 100


@pytest.mark.parametrize("name", ALL)
def test_solver_gives_up_when_out_of_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = find_solver(name)
    module = sys.modules[solver.__module__]
    for pause, little in (("STEPS_PER_CALL", 10_000), ("POLL_MILLISECONDS", 10), ("CONFLICTS_PER_CALL", 100)):
        if hasattr(module, pause):
            monkeypatch.setattr(module, pause, little)
    solution = solver(pigeonhole(20, 19), at_once)
    assert isinstance(solution, GaveUp)


@pytest.mark.parametrize(
    ("name", "module", "library", "advice"),
    [
        ("python-sat", "sat", "pysat.solvers", "pip install python-sat"),
        ("z3", "smt", "z3", "pip install z3-solver"),
        ("monosat", "mono", "monosat", "MonoSAT's Python binding, built from its sources"),
    ],
)
def test_missing_library_says_what_to_install(
    name: str, module: str, library: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"{solvers.__name__}.{module}", raising=False)
    monkeypatch.delattr(solvers, module, raising=False)
    with pytest.raises(ImportError, match=advice):
        find_solver(name)


def test_unknown_solver_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="own, python-sat, z3, monosat"):
        find_solver("minisat")
