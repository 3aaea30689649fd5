"""Counterexamples are complete, minimal and say what they should."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mussurana.verifier import check
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import certificate
from mussurana.verifier.engine.cdcl import solve
from mussurana.verifier.engine.cycles import suspects
from mussurana.verifier.engine.decide import decide
from mussurana.verifier.engine.resolve import resolve, restrict, with_observers
from mussurana.verifier.explain.shown import time_words
from mussurana.verifier.levels import LEVELS
from mussurana.verifier.verdict import Counterexample, Rejected, Settings
from tests.notation import h
from tests.random_history import random_history, random_settings


def rejected(text: str, level: str = "serializable") -> Counterexample:
    verdict = check(h(text), Settings(level, clock_drift_ns=0)).verdict
    assert isinstance(verdict, Rejected)
    return verdict.counterexample


def test_transactions_without_operations_stay_in_a_proof_even_where_values_repeat() -> None:
    found = rejected("[]@25..27 []@13..17 | [x+=2] | [x+=2]", "strict-serializable")
    assert [transaction.txn for transaction in found.transactions] == [0, 1]


def test_suspects_are_refused_on_their_own() -> None:
    refusals = 0
    for seed in range(1500):
        rng = Random(seed)
        history, settings = random_history(rng), random_settings(rng)
        resolved = resolve(history, LEVELS[settings.level].split)
        decision = decide(resolved, settings, solve)
        if resolved.impossible or not decision.refused:
            continue
        refusals += 1
        part = restrict(resolved, with_observers(resolved, suspects(decision)[0]))
        assert decide(part, settings, solve).refused, f"seed {seed}"
    assert refusals > 100


def test_no_transaction_of_a_counterexample_can_be_left_out() -> None:
    for seed in range(600):
        rng = Random(seed)
        history, settings = random_history(rng), random_settings(rng)
        verdict = check(history, settings).verdict
        resolved = resolve(history, LEVELS[settings.level].split)
        if not isinstance(verdict, Rejected) or resolved.impossible:
            continue
        txns = [transaction.txn for transaction in verdict.counterexample.transactions]
        for left_out in txns:
            part = restrict(resolved, np.array([txn for txn in txns if txn != left_out], np.int64))
            assert not decide(part, settings, solve).refused, f"seed {seed}: {left_out} of {txns} is needless"


def test_an_obvious_order_of_writes_is_stated_and_not_supposed() -> None:
    found = rejected("[z:=1] [z:=2 y==_] | [z==1 y:=1]")
    (case,) = found.cases
    assert case.assumptions == ("T1 wrote z before T2 did, since T1 comes before T2, because session s0 ran T1 first.",)


def test_an_obvious_order_of_writes_names_the_rule_where_it_takes_one() -> None:
    text = "[y==_ x==1 z:=1] | [x:=1 w:=1 z:=2] | [w==_ y:=1 z:=3]"
    (case,) = rejected(text, "adya-si").cases
    assert case.assumptions == (
        "T1 wrote z before T3 did, since two that write one key do not overlap and T1 began before T3 committed, "
        "because T1 read y at its initial version and T3 wrote 1.",
    )


def test_lists_that_disagree_are_quoted_as_they_were_read_even_if_some_of_their_writers_are_left_out() -> None:
    found = rejected("[x+=1] [x+=3] | [x+=2] | [x==(1 2)] | [x==(1 3)]")
    assert found.anomaly == "incompatible order"
    assert found.facts == ("T3 read x as [1, 2].", "T4 read x as [1, 3].")


def test_who_appends_to_what_another_read_otherwise_is_quoted_as_well() -> None:
    found = rejected("[x+=1] | [x==(1) x+=3] | [x+=2] | [x==(1 2)]")
    assert found.facts == ("T1 read x as [1] and appended 3 to that.", "T3 read x as [1, 2].")


def test_a_lost_update_of_a_list_speaks_of_lists() -> None:
    (case,) = rejected("[x+=1] | [x==(1) x+=2] | [x==(1) x+=3]").cases
    assert case.steps[0].reason == "T1 comes before T2, because T1 read x as [1] and T2 appended 3."


def test_the_order_of_appends_is_told_by_who_read_them() -> None:
    (case,) = rejected("[x+=1] [x+=2] | [x==(2 1)]").cases
    assert case.steps[1].reason == "T2 comes before T1, because T3 read x as [2, 1], where 2 comes before 1."


def test_a_rejection_is_told_even_if_there_is_no_time_to_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """How, is said as far as one gets; the auditor tries all of it in any case."""
    monkeypatch.setattr("mussurana.verifier.engine.check.EXPLAIN_SECONDS_MIN", 0.0)
    history = h("[x:=1 y:=1] | [x:=2 y:=2] | [x==1 y==2] | [z:=1] | [z==1]")
    result = check(history, Settings("serializable"), timeout_seconds=1e-9)
    assert isinstance(result.verdict, Rejected)
    found = result.verdict.counterexample
    assert {0, 1, 2} <= {transaction.txn for transaction in found.transactions}
    assert "could not be told in the time that was given" in found.cases[0].conclusion
    assert audit(certificate(result, history), history).ok


def test_an_open_order_of_writes_becomes_two_cases() -> None:
    found = rejected("[x:=1] | [x:=2] | [x==1] [x==2] | [x==2] [x==1]")
    assert sorted(case.assumptions for case in found.cases) == [
        ("Suppose T1 wrote x before T2 did.",),
        ("Suppose T2 wrote x before T1 did.",),
    ]
    assert found.adya == "G-single-session"


def test_steps_form_a_cycle() -> None:
    for text in ("[x==_ y:=1] | [y==_ x:=2]", "[x:=1] | [y:=1] | [x==1 y==_] | [x==_ y==1]"):
        for case in rejected(text).cases:
            assert [step.target for step in case.steps] == [
                *(step.source for step in case.steps[1:]),
                case.steps[0].source,
            ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[x==_ y:=1] | [y==_ x:=2]", "T1 comes before T2, because T1 read x at its initial version and T2 wrote 2."),
        ("[x:=1] | [x==1 y==_] | [y:=1] [x==_]", "T1 comes before T2, because T2 read x at 1, which T1 wrote."),
        ("[x+=1] | [x==(1)] [x==()]", "T3 comes before T1, because T3 read x as [] and T1 appended 1."),
        ("[x:=1] [x==_]", "T1 comes before T2, because session s0 ran T1 first."),
    ],
)
def test_edges_explain_themselves(text: str, sentence: str) -> None:
    assert sentence in [step.reason for case in rejected(text).cases for step in case.steps]


def test_real_time_is_explained_with_its_times() -> None:
    (case,) = rejected("[x:=1]@1..2 | [x==_]@5..6", "strict-serializable").cases
    assert case.steps[0].reason == (
        "T1 comes before T2, because T1 ended at 2 s and T2 began at 5 s, further apart than the clocks can be."
    )


def test_a_write_skew_is_told_in_two_transactions_whoever_wrote_what_they_read() -> None:
    found = rejected("[x:=1] | [y:=2] | [x==1 y==2 x:=3<1] | [x==1 y==2 y:=4<2]")
    assert [transaction.txn for transaction in found.transactions] == [2, 3]
    assert found.anomaly == "write skew"
    assert "T1 read y at 2 and T2 replaced 2 by 4" in found.cases[0].steps[0].reason


@pytest.mark.parametrize(
    ("time_ns", "words"),
    [
        (10**9, "1 s"),
        (123_456_789_012_000, "123456.789012 s"),
        (123_456_789_013_000, "123456.789013 s"),
        (1_700_000_000_005_123_456, "22:13:20.005123"),
    ],
)
def test_times_that_differ_by_a_microsecond_do_not_look_the_same(time_ns: int, words: str) -> None:
    assert time_words(time_ns) == words
