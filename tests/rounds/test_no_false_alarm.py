"""Whatever gets lost on the way, a database that keeps its promise is never accused; see `loss.py`.

`python -m tests.rounds --loss` goes on where this ends.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.rounds.__main__ import complaint
from tests.rounds.loss import KEPT_BY, keeps_promise, make_loss, run_renewed

BLOCKS, BLOCK_CASES = 16, 50
EVERYTHING = {
    *(level for levels in KEPT_BY.values() for level in levels),
    *("gap", "lost", "never sent", "unheard"),
    *("forgot", "unknown", "unfenced", "given up", "unchecked"),
}


@cache
def block(number: int) -> tuple[list[str], Counter[str]]:
    failures, traits = [], Counter[str]()
    for seed in range(number * BLOCK_CASES, (number + 1) * BLOCK_CASES):
        case = make_loss(seed)
        if told := complaint(case, traits):
            failures.append(f"{case.replay}  # {told}")
    return failures, traits


@pytest.mark.parametrize("number", range(BLOCKS))
def test_loss_is_never_an_alarm(number: int) -> None:
    failures, _ = block(number)
    assert not failures, failures[0]


def test_everything_gets_lost_often_enough() -> None:
    met = sum((block(number)[1] for number in range(BLOCKS)), Counter[str]())
    assert not {trait: met[trait] for trait in EVERYTHING if met[trait] < 0.05 * BLOCKS * BLOCK_CASES}


@pytest.mark.parametrize("number", range(4))
def test_rows_that_were_made_anew_are_never_an_alarm(number: int) -> None:
    runs = {seed: run_renewed(seed) for seed in range(number * BLOCK_CASES, (number + 1) * BLOCK_CASES)}
    assert not {seed: run.complaint for seed, run in runs.items() if run.complaint}
    assert sum(run.machine.begun_anew > 0 for run in runs.values()) > 0.8 * BLOCK_CASES


def test_sessions_heard_of_only_after_the_row_was_made_anew_are_no_alarm() -> None:
    run = run_renewed(990)  # all fences of the first row come after one of the second
    assert not run.complaint
    assert run.machine.unchecked["unfenced"]


def test_the_databases_do_keep_their_promises() -> None:
    assert all(keeps_promise(make_loss(seed)) for seed in range(60))
