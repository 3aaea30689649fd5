"""The one part of the solver that means something by itself; `tests/solvers` has the rest."""

from __future__ import annotations

from random import Random

import numpy as np

from mussurana.verifier.engine import cdcl
from tests.engine.twins import covers


@covers(cdcl.sort)
def test_shell_sort_sorts() -> None:
    for seed in range(500):
        rng = Random(seed)
        numbers = np.array([rng.randrange(50) for _ in range(rng.randint(0, 40))], np.int32)
        expected = sorted(numbers.tolist())
        cdcl.sort.py_func(numbers)  # the compiled one cannot be called from outside
        assert numbers.tolist() == expected
