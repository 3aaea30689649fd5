"""The whole engine against an oracle that tries every order, on tiny histories. `python -m tests.fuzz` runs more."""

from __future__ import annotations

import pytest

from mussurana.verifier import check
from mussurana.verifier.verdict import Accepted, Rejected, Unknown
from tests.fuzz.case import complaint, has_duplicates, make
from tests.notation import show
from tests.random_history import LEVELS

CASES_PER_LEVEL = 3000  # of each of the six levels; most of a minute on one core


@pytest.mark.parametrize("level", LEVELS)
def test_verdicts_agree_with_brute_force_and_their_proofs_hold(level: str) -> None:
    for seed in range(CASES_PER_LEVEL):
        history, settings = make(seed, level)
        problem = complaint(history, settings)
        assert not problem, f"python -m tests.fuzz --seed {seed} --cases 1 --level {level}: {show(history)}"


def test_random_histories_have_verdicts_of_every_kind() -> None:
    verdicts = [
        (has_duplicates(history), check(history, settings).verdict) for history, settings in map(make, range(500))
    ]
    for kind, least in ((Accepted, 100), (Rejected, 100), (Unknown, 1)):
        assert sum(isinstance(verdict, kind) for _, verdict in verdicts) >= least
    assert any(duplicates and not isinstance(verdict, Unknown) for duplicates, verdict in verdicts)
