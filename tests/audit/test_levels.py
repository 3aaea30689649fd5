"""The relations between levels that docs/levels.md promises, and its example."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from mussurana.verifier.audit import LEVELS as AUDITED
from mussurana.verifier.history import UNKNOWN_TIME, History
from mussurana.verifier.verdict import Settings
from tests.brute_force import brute_force
from tests.notation import h, show
from tests.random_history import LEVELS, random_history


def without_inner_times(history: History) -> History:
    unknown = np.full(history.txn_count, UNKNOWN_TIME)
    return replace(history, begun_ns=unknown, commit_ns=unknown)


@pytest.mark.parametrize(
    ("stronger", "weaker", "inner_times"),
    [
        ("strict-serializable", "serializable", True),
        ("serializable", "adya-si", True),
        ("strong-si", "strong-session-si", True),
        ("strong-session-si", "generalized-si", True),
        ("generalized-si", "adya-si", True),
        ("strict-serializable", "strong-si", False),
    ],
)
def test_one_level_implies_another(stronger: str, weaker: str, inner_times: bool) -> None:
    weaker_alone = 0
    for seed in range(800):
        history = random_history(Random(seed))
        if not inner_times:
            history = without_inner_times(history)
        strong, weak = (brute_force(history, Settings(level, clock_drift_ns=0)) for level in (stronger, weaker))
        assert weak or not strong, show(history)
        weaker_alone += weak and not strong
    assert weaker_alone > 0


@pytest.mark.parametrize(
    ("text", "accepting"),
    [
        ("[x==_ y==_ x:=1] | [x==_ y==_ y:=1]", ["adya-si", "generalized-si", "strong-session-si", "strong-si"]),
        ("[x:=1]@0..1 [x==_]@5..6", ["adya-si", "generalized-si"]),
        ("[x:=1]@0..1 | [x==_]@5..6", ["serializable", "adya-si", "generalized-si", "strong-session-si"]),
    ],
)
def test_the_examples_of_the_documentation_hold(text: str, accepting: list[str]) -> None:
    assert [level for level in LEVELS if brute_force(h(text), Settings(level))] == accepting


def test_auditor_and_oracle_know_the_same_levels() -> None:
    assert tuple(AUDITED) == LEVELS
