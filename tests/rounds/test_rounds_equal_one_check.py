"""The promise that matters: any cut, any order of arrival, any crash, and the verdict is that of one check.

`make fuzz-rounds` goes on where this ends.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from mussurana.verifier.rounds.level import LevelRounds
from tests.rounds.__main__ import complaint, main
from tests.rounds.equality import LEVELS, make_case

BLOCKS, BLOCK_CASES = 40, 50

SHARES = {  # of all worlds, at least
    "forgot": 0.7,
    **{f"{level} forgot": 0.1 for level in LEVELS if level != "generalized-si"},
    "generalized-si forgot": 0.02,  # only by the clocks, which not all worlds have
    **dict.fromkeys(LEVELS, 0.1),
    "accepted": 0.4,
    "rejected": 0.25,
    "several violations": 0.1,
    "kept undecided": 0.015,
    "closed key": 0.01,
    "time witness": 0.2,
    "in doubt and seen": 0.15,
    "in doubt and not seen": 0.2,
    "waiting": 0.2,
    "idle": 0.3,
    "close": 0.3,
    "reopened": 0.1,
    "lost a race": 0.15,
    "fence in doubt": 0.1,
    "closing fence": 0.15,
    "epochs not told": 0.1,
    "clocks differ": 0.2,
    "crash": 0.05,
    "two levels": 0.05,
    "left out": 0.1,
    "tainted": 0.1,
    "tainted and inserted": 0.05,
    "colliding": 0.08,
    "clock set back": 0.07,
    "repeated and seen": 0.03,
    "repeated": 0.01,
    "unknown": 0.005,
    "doubts told late": 0.07,
    "spool": 0.5,
}


@cache
def block(number: int) -> tuple[list[str], Counter[str]]:
    """The failures of a block of cases, each with the line that replays it, and what its worlds met."""
    failures, traits = [], Counter[str]()
    for seed in range(number * BLOCK_CASES, (number + 1) * BLOCK_CASES):
        case = make_case(seed)
        if told := complaint(case, traits):
            failures.append(f"{case.replay}  # {told}")
    return failures, traits


@pytest.mark.parametrize("number", range(BLOCKS))
def test_rounds_say_what_one_check_says(number: int) -> None:
    failures, _ = block(number)
    assert not failures, failures[0]


def test_the_worlds_meet_everything() -> None:
    met = sum((block(number)[1] for number in range(BLOCKS)), Counter[str]())
    missing = {trait: met[trait] for trait, share in SHARES.items() if met[trait] < share * BLOCKS * BLOCK_CASES}
    assert not missing


def test_a_machine_that_forgets_to_look_is_caught_and_its_failure_made_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = LevelRounds._impossible

    def blind(level: LevelRounds, *arguments: object) -> object:
        bad = whole(level, *arguments)  # type: ignore[arg-type]
        arguments[2].found.clear()  # type: ignore[attr-defined]
        return bad

    monkeypatch.setattr(LevelRounds, "_impossible", blind)
    assert main(["--seed", "0", "--cases", "100"]) == 1
    printed = capsys.readouterr().out
    again = re.search(r"smaller   python -m tests\.rounds (.*)\n", printed)
    assert again
    assert main(again[1].split()) == 1
    history = re.search(r"history   (.*)\n", capsys.readouterr().out)
    assert history
    assert history[1].count("[") <= 4, "a fence or two, and a read of something that never was"


def test_what_is_fine_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--cases", "3", "--traits"]) == 0
    assert "3 cases from 5 on, no failure" in capsys.readouterr().out
