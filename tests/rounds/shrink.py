"""Makes a failing case smaller: fewer transactions, events, operations, fragments, rounds, for as long as it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.rounds.equality import Case
from tests.rounds.loss import LossCase

AnyCase = TypeVar("AnyCase", Case, LossCase)


def shrink(case: AnyCase, make: Callable[[int, frozenset[str]], AnyCase], fails: Callable[[AnyCase], bool]) -> AnyCase:
    """A case that fails, while none with one part less does. Large pieces are tried first."""
    while True:
        parts = [*case.world.parts(), *(f"a{at}" for at in range(len(case.schedule)) if f"a{at}" not in case.without)]
        size = len(parts)
        while size:
            for start in range(0, len(parts), size):
                smaller = make(case.seed, case.without.union(parts[start : start + size]))
                if smaller.world.gone | smaller.without != case.world.gone | case.without and fails(smaller):
                    break
            else:
                size //= 2
                continue
            case = smaller
            break
        else:
            return case
