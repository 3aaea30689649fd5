"""Every injected fault really is in the history, and the table of who forbids it is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mussurana.verifier.history import History, Kind
from mussurana.verifier.simulate import DATABASES, FORBIDDEN, Workload, inject, simulate
from mussurana.verifier.verdict import Settings
from tests.brute_force import brute_force
from tests.notation import show

LEVELS = sorted(set().union(*FORBIDDEN.values()))
ALONE = Workload(transactions=0)
SEEDS = range(8)  # enough for each fault to come with and without a transaction that writes the first versions

CLAIMS = {
    "stale read": "[x==_ x:=2]@2-2..3-3 | [x==_]@4-4..5-5",
    "lost update": "[x==_ x:=2]@2-2..4-4 | [x==_ x:=3]@3-3..5-5",
    "dirty read": "[x:=2 y:=2]@2-2..5-5 | [x==2 y==_]@3-3..4-4",
    "aborted read": "[x:=2]!@2-2..5-5 | [x==2]@3-3..4-4",
    "intermediate read": "[x:=2 x:=3]@2-2..5-5 | [x==2]@3-3..4-4",
    "write skew": "[x==_ y==_ x:=2]@2-2..4-4 | [x==_ y==_ y:=2]@3-3..5-5",
    "long fork": "[x:=2]@2-2..4-4 | [y:=2]@3-3..5-5 | [x==2 y==_]@6-6..8-8 | [x==_ y==2]@7-7..9-9",
    "broken session order": "[x==_ x:=2]@2-2..3-3 [x==_]@4-4..5-5",
    "real-time inversion": "[x==2]@2-2..3-3 | [x:=2]@4-4..5-5",
}


def small_history(lists: bool, seed: int) -> History:
    return simulate("serial", Workload(sessions=1, transactions=2, operations=(1, 2), keys=2, lists=lists, seed=seed))


@pytest.mark.parametrize("fault", FORBIDDEN)
def test_a_fault_reads_what_its_name_says(fault: str) -> None:
    history, injected = inject(simulate("serial", ALONE), fault, seed=0)
    assert injected.anomaly == fault
    assert sorted(show(history).replace("_fault0", "").split(" | ")) == sorted(CLAIMS[fault].split(" | "))


@pytest.mark.parametrize("fault", FORBIDDEN)
@pytest.mark.parametrize("lists", [False, True], ids=["registers", "lists"])
def test_a_fault_is_rejected_by_exactly_the_levels_that_forbid_it(fault: str, lists: bool) -> None:
    for seed in SEEDS:
        history, _ = inject(small_history(lists, seed), fault, seed)
        rejecting = {level for level in LEVELS if not brute_force(history, Settings(level))}
        assert rejecting == FORBIDDEN[fault], show(history)


@pytest.mark.parametrize("fault", FORBIDDEN)
def test_the_transactions_named_are_enough_to_show_the_fault(fault: str) -> None:
    for seed in SEEDS:
        history, injected = inject(simulate("serial", ALONE), fault, seed)
        begins = history.begin_ns[list(injected.transactions)].tolist()
        assert begins == sorted(begins)
        left_over = set(range(history.txn_count)) - set(injected.transactions)
        assert all(history.kind[op] == Kind.WRITE for txn in left_over for op in history.operations(txn))


@pytest.mark.parametrize("database", DATABASES)
def test_the_history_around_a_fault_stays_as_it_was(database: str) -> None:
    for lists in (False, True):
        before = simulate(database, Workload(lists=lists))
        after, injected = inject(before, "long fork", seed=3)
        assert min(injected.transactions) >= before.txn_count
        assert show(after.restrict(range(before.txn_count))) == show(before)
        added = np.arange(before.txn_count, after.txn_count)
        assert not set(after.session[added].tolist()) & set(before.session.tolist())
        assert not set(after.key[before.op_count :].tolist()) & set(before.key.tolist())


def test_a_fault_happens_while_the_history_runs() -> None:
    history = simulate("snapshot", Workload(transactions=200))
    begins = []
    for seed in range(20):
        after, injected = inject(history, "write skew", seed)
        begins.append(int(after.begin_ns[injected.transactions[0]]))
    assert min(begins) < np.quantile(history.begin_ns, 0.3)
    assert max(begins) > np.quantile(history.begin_ns, 0.7)


def test_two_faults_in_one_history_have_different_names_for_their_keys_and_sessions() -> None:
    history, _ = inject(simulate("serial", replace(ALONE, transactions=5)), "stale read")
    history, _ = inject(history, "stale read")
    assert len(set(history.key_names)) == len(history.key_names)
    assert len(set(history.session_names)) == len(history.session_names)
