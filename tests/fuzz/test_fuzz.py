"""Is the fuzzer able to find anything? A checker that lies in a known way must be caught and its failure made small."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from mussurana.verifier.history import History
from mussurana.verifier.verdict import Accepted, Result, Settings, Unknown, Witness
from tests.brute_force import brute_force
from tests.fuzz import case
from tests.fuzz.__main__ import main
from tests.fuzz.shrink import shrink
from tests.notation import h, show


def says_yes(history: History, settings: Settings) -> Result:
    order = np.arange(history.txn_count * (1 if "serializable" in settings.level else 2), dtype=np.int64)
    return Result(Accepted(Witness(order, events=True)), settings, history.txn_count, 1)


def says_nothing(history: History, settings: Settings) -> Result:
    return replace(says_yes(history, settings), verdict=Unknown("no idea"))


def test_a_checker_that_accepts_everything_is_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(case, "check", says_yes)
    assert main(["--seed", "0", "--cases", "200", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    again = re.search(r"reproduce  python -m tests\.fuzz (--seed \d+ --cases 1)\n", printed)
    assert again
    assert main([*again[1].split(), "--jobs", "1"]) == 1
    assert capsys.readouterr().out == printed


def test_a_checker_that_knows_nothing_is_caught_unless_values_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "check", says_nothing)
    assert "unknown" in case.complaint(h("[x:=1] | [x:=2]"), Settings("adya-si"))
    assert case.complaint(h("[x:=1] | [x:=1]"), Settings("adya-si")) == ""


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(case, "check", lambda history, settings: 1 / 0)
    assert main(["--seed", "7", "--cases", "2", "--jobs", "2"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_failure_shrinks_to_what_matters() -> None:
    history = h("[z:=1 x==_ y==_ x:=1]@1-2..3-4 [z==1] | [x==_ y==_ y:=1<_]? | [y==1 z==_ u+=1 u==(1)]@2..9 | [z:=5]!")
    settings = Settings("serializable")
    assert not brute_force(history, settings)
    smallest = shrink(history, lambda smaller: not brute_force(smaller, settings))
    assert len(smallest) <= len("[y==_ x:=1] | [x==_ y:=1]? | [y==1]")
    assert not brute_force(h(smallest), settings)


def test_what_does_not_fail_is_left_alone() -> None:
    history = h("[x:=1] | [x==1]")
    assert shrink(history, lambda smaller: False) == show(history)
