"""Makes a failing case smaller: fewer transactions, events, operations, fragments, rounds, for as long as it fails."""

from __future__ import annotations

from collections.abc import Callable

from tests.rounds.equality import Case, make_case


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A case that fails, while none with one part less does. Large pieces are tried first."""
    while True:
        parts = [*case.world.parts(), *(f"a{at}" for at in range(len(case.schedule)) if f"a{at}" not in case.without)]
        size = len(parts)
        while size:
            for start in range(0, len(parts), size):
                smaller = make_case(case.seed, case.without.union(parts[start : start + size]))
                if smaller.world.gone | smaller.without != case.world.gone | case.without and fails(smaller):
                    break
            else:
                size //= 2
                continue
            case = smaller
            break
        else:
            return case
