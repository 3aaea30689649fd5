"""No compiled function without a twin: every kernel of the verifier is compared with something slow and obvious."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest
from numba.core.dispatcher import Dispatcher

from mussurana import verifier
from tests.engine import kernels
from tests.engine.twins import kernel_name

CDCL = "tests.solvers.test_solvers.test_own_solver_agrees_with_trying_everything"

# Kernels that are not called on their own, and the test that compares what calls them.
COVERED_THROUGH = {
    **dict.fromkeys(
        (
            "engine.cdcl.add_choices",
            "engine.cdcl.add_clause",
            "engine.cdcl.add_edge",
            "engine.cdcl.add_variable",
            "engine.cdcl.agrees",
            "engine.cdcl.assign",
            "engine.cdcl.backjump",
            "engine.cdcl.cost_of",
            "engine.cdcl.decide",
            "engine.cdcl.find_overlap",
            "engine.cdcl.is_false",
            "engine.cdcl.is_true",
            "engine.cdcl.latest",
            "engine.cdcl.learn",
            "engine.cdcl.link",
            "engine.cdcl.literal_for",
            "engine.cdcl.look_at",
            "engine.cdcl.propagate",
            "engine.cdcl.put_in_force",
            "engine.cdcl.search",
            "engine.cdcl.slot_of",
            "engine.cdcl.wholly_before",
        ),
        CDCL,
    ),
    "engine.cdcl.blame_cycle": "tests.solvers.test_solvers.test_blamed_nodes_are_enough_to_refute",
    "engine.cdcl.index_pairs": "tests.solvers.test_solvers.test_tables_grow_when_they_are_full",
    "engine.components.put_edge": (
        "tests.engine.kernels.test_components.test_possible_edges_are_those_of_undecided_pairs_up_to_what_is_implied"
    ),
    "engine.resolve._mix": "tests.engine.kernels.test_resolve.test_all_writes_of_a_value_are_found",
    "formats.cobra._long": "tests.formats.test_round_trip.test_what_was_saved_is_loaded_again",
    "formats.cobra.scan": "tests.formats.test_round_trip.test_what_was_saved_is_loaded_again",
    "formats.dbcop._long": "tests.formats.test_round_trip.test_what_was_saved_is_loaded_again",
    "formats.dbcop.scan": "tests.formats.test_round_trip.test_what_was_saved_is_loaded_again",
    "formats.interning._first_false_claim": (
        "tests.formats.test_interning.test_false_claims_are_found_where_a_dictionary_finds_them"
    ),
    "formats.interning._number_all": (
        "tests.formats.test_interning.test_numbers_are_interned_in_the_order_of_their_first_appearance"
    ),
    "formats.interning._slot": (
        "tests.formats.test_interning.test_numbers_are_interned_in_the_order_of_their_first_appearance"
    ),
}


def all_kernels() -> set[str]:
    """All compiled functions of the verifier; its adapters to other solvers, which may be missing, have none."""
    found = set()
    for module in pkgutil.walk_packages(verifier.__path__, f"{verifier.__name__}."):
        if not module.name.startswith(f"{verifier.__name__}.solvers."):
            names = vars(import_module(module.name)).values()
            found |= {kernel_name(kernel) for kernel in names if isinstance(kernel, Dispatcher)}
    return found


def kernels_with_twins() -> set[str]:
    tests = [
        test
        for module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}.")
        for name, test in vars(import_module(module.name)).items()
        if name.startswith("test_")
    ]
    return {kernel for test in tests for kernel in getattr(test, "covers", ())}


@pytest.mark.parametrize("kernel", sorted(all_kernels()))
def test_kernel_is_compared_with_a_twin(kernel: str) -> None:
    assert kernel in kernels_with_twins() | set(COVERED_THROUGH), (
        f"write a slow twin of {kernel} and a test marked @covers(...), or say which test compares what calls it"
    )


def test_kernels_said_to_be_covered_through_others_exist() -> None:
    assert set(COVERED_THROUGH) <= all_kernels() - kernels_with_twins()


@pytest.mark.parametrize("test", sorted(set(COVERED_THROUGH.values())))
def test_test_that_is_said_to_cover_others_exists(test: str) -> None:
    module, name = test.rsplit(".", 1)
    assert callable(getattr(import_module(module), name))
