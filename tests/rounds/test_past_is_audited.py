"""A window whose first transactions are past has witnesses and counterexamples that the auditor accepts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from mussurana.verifier import Accepted, Rejected, Settings, check
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import certificate
from mussurana.verifier.history import History
from tests.brute_force import brute_force
from tests.notation import h
from tests.random_history import random_history

LEVELS = ("serializable", "strict-serializable", "strong-session-si", "generalized-si", "strong-si")


def with_past(text: str, past: int) -> History:
    return replace(h(text), past=past)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_past_comes_before_who_saw_the_initial_version(level: str) -> None:
    settings = Settings(level)
    whole = with_past("[x:=1] | [x==_]", 0)
    assert isinstance(check(whole, settings).verdict, Accepted)
    cut = with_past("[x:=1] | [x==_]", 1)
    result = check(cut, settings)
    assert isinstance(result.verdict, Rejected)
    assert audit(certificate(result, cut), cut).ok


def test_a_witness_that_puts_something_before_the_past_is_refused() -> None:
    settings = Settings("serializable")
    whole, cut = with_past("[x:=1] | [y:=1]", 0), with_past("[x:=1] | [y:=1]", 1)
    backwards = {"witness": [1, 0]}
    assert audit(certificate(check(whole, settings), whole) | backwards, whole).ok
    refused = audit(certificate(check(cut, settings), cut) | backwards, cut)
    assert refused.message == "transaction 0 has to come before 1 at place 2"


def test_verdicts_about_windows_with_a_past_are_proven_whichever_they_are() -> None:
    verdicts = {"accepted": 0, "rejected": 0}
    for seed in range(400):
        rng = Random(seed)
        history = random_history(rng)
        settings = Settings(rng.choice(LEVELS))
        cut = replace(history, past=rng.randint(1, max(1, history.txn_count - 1)))
        result = check(cut, settings)
        if isinstance(result.verdict, Accepted):
            assert brute_force(history, settings), "the past only ever adds to what is demanded"
            verdicts["accepted"] += 1
        else:
            verdicts["rejected"] += 1
        told = audit(certificate(result, cut), cut)
        assert told.ok, f"seed {seed} at {settings.level}: {told.message}"
    assert min(verdicts.values()) > 30
