"""Simulated databases, whose level is known by construction: nothing valid is rejected, no fault is missed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mussurana.verifier import check
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import certificate
from mussurana.verifier.history import History
from mussurana.verifier.simulate import DATABASES, FORBIDDEN, Workload, inject, levels_given, simulate
from mussurana.verifier.verdict import Accepted, Rejected, Settings, Verdict
from tests.random_history import LEVELS

WORKLOADS = {
    "registers": Workload(abort_probability=0.1, in_doubt_probability=0.1),
    "few hot registers": Workload(sessions=6, keys=3, skew=1.0, read_fraction=0.3),
    "read-modify-write": Workload(read_modify_write=True, in_doubt_probability=0.1),
    "lists": Workload(lists=True, abort_probability=0.1, in_doubt_probability=0.1),
    "late answers": Workload(latency_ns=3_000_000_000, in_doubt_probability=0.05),
    "outer times": Workload(times="outer", latency_ns=1_000_000_000),
    "no times": Workload(times="none", sessions=8, transactions=80),
}
SEEDS = range(6)


def audited(history: History, level: str) -> Verdict:
    result = check(history, Settings(level))
    outcome = audit(certificate(result, history), history)
    assert outcome.ok, f"{history.source}, {level}: {outcome.message}"
    return result.verdict


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
@pytest.mark.parametrize("database", DATABASES)
def test_valid_histories_are_accepted_at_the_levels_their_database_gives(database: str, workload: Workload) -> None:
    for seed in SEEDS:
        history = simulate(database, replace(workload, seed=seed))
        for level in levels_given(database, workload):
            assert isinstance(audited(history, level), Accepted), f"{history.source}, {level}"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fault", FORBIDDEN)
def test_faults_are_rejected_exactly_where_they_are_forbidden(fault: str, level: str) -> None:
    for seed in SEEDS:
        workload = Workload(seed=seed, lists=seed % 2 == 1)
        history, injected = inject(simulate("serial", workload), fault, seed)
        verdict = audited(history, level)
        if level in FORBIDDEN[fault]:
            assert isinstance(verdict, Rejected), f"{fault} from seed {seed} was missed at {level}"
            named = {transaction.txn for transaction in verdict.counterexample.transactions}
            assert named & set(injected.transactions)
        else:
            assert isinstance(verdict, Accepted), f"{fault} from seed {seed} was rejected at {level}"


@pytest.mark.parametrize("level", LEVELS)
def test_read_committed_histories_are_caught_sooner_or_later(level: str) -> None:
    workload = Workload(sessions=6, keys=3, transactions=60)
    verdicts = [audited(simulate("read-committed", replace(workload, seed=seed)), level) for seed in SEEDS]
    assert any(isinstance(verdict, Rejected) for verdict in verdicts)


def test_write_skew_of_a_snapshot_database_is_caught_at_serializable() -> None:
    workload = Workload(sessions=6, keys=3, transactions=60)
    verdicts = [audited(simulate("snapshot", replace(workload, seed=seed)), "serializable") for seed in SEEDS]
    assert any(isinstance(verdict, Rejected) for verdict in verdicts)
