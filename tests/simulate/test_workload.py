"""The simulated databases keep exactly what they promise, and their clients record it truthfully."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mussurana.verifier.history import INITIAL, UNKNOWN_TIME, History, Kind, Status
from mussurana.verifier.simulate import DATABASES, Times, Workload, levels_given, simulate
from mussurana.verifier.verdict import Settings
from tests.brute_force import brute_force
from tests.notation import show

BUSY = Workload(sessions=5, transactions=120, keys=6, skew=0.8, abort_probability=0.1)
TINY = Workload(sessions=3, transactions=5, keys=2, operations=(1, 3), abort_probability=0.1, in_doubt_probability=0.15)
CONTENTS = pytest.mark.parametrize("lists", [False, True], ids=["registers", "lists"])

State = dict[int, list[int]]


def run(history: History, txn: int, state: State) -> State:
    """What the keys hold after a transaction ran alone on a state; it must see what it recorded."""
    mine = {key: list(values) for key, values in state.items()}
    for op in history.operations(txn):
        held = mine.setdefault(int(history.key[op]), [])
        match Kind(int(history.kind[op])):
            case Kind.READ:
                assert history.value[op] == (held[-1] if held else INITIAL)
            case Kind.READ_LIST:
                assert history.list_seen(op) == held
            case Kind.WRITE | Kind.APPEND:
                held.append(int(history.value[op]))
    return mine


def by_commit(history: History) -> list[int]:
    committed = np.flatnonzero(history.status == Status.COMMITTED)
    return [int(txn) for txn in committed[np.argsort(history.committed_ns[committed])]]


def keys_written(history: History, txn: int) -> set[int]:
    return {int(history.key[op]) for op in history.operations(txn) if history.kind[op] in (Kind.WRITE, Kind.APPEND)}


def same_session_pairs(history: History) -> Iterator[tuple[int, int]]:
    for session in np.unique(history.session):
        yield from pairwise(int(txn) for txn in np.flatnonzero(history.session == session))


@pytest.mark.parametrize("database", DATABASES)
def test_a_seed_makes_one_history_and_another_seed_another(database: str) -> None:
    assert show(simulate(database, BUSY)) == show(simulate(database, BUSY))
    assert show(simulate(database, BUSY)) != show(simulate(database, replace(BUSY, seed=1)))


@CONTENTS
@pytest.mark.parametrize("database", ["serial", "strict-2pl"])
def test_order_of_commits_is_a_serial_witness_of_locking(database: str, lists: bool) -> None:
    history = simulate(database, replace(BUSY, lists=lists))
    state: State = {}
    for txn in by_commit(history):
        state = run(history, txn, state)
    assert sum(map(len, state.values())) > 50


@CONTENTS
def test_snapshot_transactions_see_all_commits_before_their_begin_and_no_other(lists: bool) -> None:
    history = simulate("snapshot", replace(BUSY, lists=lists))
    order = by_commit(history)
    states: list[State] = [{}]
    for txn in order:
        visible = sum(history.committed_ns[other] < history.begin_ns[txn] for other in order)
        written = keys_written(history, txn)
        assert not any(written & keys_written(history, other) for other in order[visible : order.index(txn)])
        after = run(history, txn, states[visible])
        states.append(states[-1] | {key: after[key] for key in written})


def test_transactions_of_the_serial_database_never_overlap() -> None:
    history = simulate("serial", BUSY)
    order = np.argsort(history.begun_ns)
    assert np.all(history.commit_ns[order][:-1] < history.begun_ns[order][1:])


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("latency_ns", [0, 5_000_000_000])
def test_a_client_asks_only_after_its_last_answer(database: str, latency_ns: int) -> None:
    history = simulate(database, replace(BUSY, latency_ns=latency_ns))
    assert np.all(history.begin_ns <= history.begun_ns)
    assert np.all(history.begun_ns <= history.commit_ns)
    assert np.all(history.commit_ns <= history.committed_ns)
    assert all(history.committed_ns[one] <= history.begin_ns[other] for one, other in same_session_pairs(history))


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("times", ["all", "outer", "none"])
def test_tiny_histories_satisfy_the_levels_that_their_database_gives(database: str, times: Times) -> None:
    for seed in range(60):
        workload = replace(
            TINY,
            seed=seed,
            times=times,
            lists=seed % 2 == 0,
            read_modify_write=seed % 3 == 0,
            latency_ns=3_000_000_000 * (seed % 4 == 0),
        )
        history = simulate(database, workload)
        for level in levels_given(database, workload):
            assert brute_force(history, Settings(level)), f"{database} at {level}: {workload}"


@pytest.mark.parametrize(
    ("database", "level"),
    [
        ("snapshot", "serializable"),  # write skew
        ("strict-2pl", "generalized-si"),  # a transaction sees what was committed after it began
        ("read-committed", "serializable"),
        ("read-committed", "adya-si"),  # lost update
    ],
)
def test_a_database_lets_through_what_it_does_not_promise_to_prevent(database: str, level: str) -> None:
    workloads = [replace(TINY, seed=seed) for seed in range(300)]
    assert not all(brute_force(simulate(database, workload), Settings(level)) for workload in workloads)


@pytest.mark.parametrize("database", ["strict-2pl", "snapshot"])
def test_conflicts_abort_even_when_no_client_does(database: str) -> None:
    history = simulate(database, replace(BUSY, abort_probability=0.0, read_modify_write=True))
    assert 0 < np.sum(history.status == Status.ABORTED) < history.txn_count / 2
    assert Status.ABORTED not in simulate("serial", replace(BUSY, abort_probability=0.0)).status


@pytest.mark.parametrize("database", DATABASES)
def test_nobody_sees_writes_of_aborted_transactions(database: str) -> None:
    history = simulate(database, replace(BUSY, abort_probability=0.4))
    aborted = np.repeat(history.status == Status.ABORTED, np.diff(history.op_start))
    is_read = history.kind == Kind.READ
    txn = np.repeat(np.arange(history.txn_count), np.diff(history.op_start))
    writer = {int(history.value[op]): int(txn[op]) for op in np.flatnonzero(aborted & ~is_read)}
    assert writer
    assert all(writer.get(int(history.value[op]), txn[op]) == txn[op] for op in np.flatnonzero(is_read))


def test_commits_in_doubt_take_effect_sometimes_and_their_end_is_unknown() -> None:
    history = simulate("strict-2pl", replace(BUSY, in_doubt_probability=0.3))
    in_doubt = np.flatnonzero(history.status == Status.IN_DOUBT)
    assert np.all(history.committed_ns[in_doubt] == UNKNOWN_TIME)
    last_written = [
        {
            int(history.key[op]): int(history.value[op])
            for op in history.operations(txn)
            if history.kind[op] == Kind.WRITE
        }
        for txn in in_doubt.tolist()
    ]
    read = set(history.value[history.kind == Kind.READ].tolist())
    took_effect = sum(bool(read & set(written.values())) for written in last_written)
    assert 0 < took_effect < len([written for written in last_written if written])


def test_the_workload_is_the_one_asked_for() -> None:
    history = simulate("serial", Workload(sessions=3, transactions=400, operations=(2, 5), keys=9, skew=1.2))
    assert history.txn_count == 400
    assert len(history.session_names) == 3
    assert set(np.diff(history.op_start).tolist()) == {2, 3, 4, 5}
    uses = np.bincount(history.key)[[history.key_names.index(f"k{rank}") for rank in range(9)]]
    assert uses[0] > 3 * uses[4] > 0
    assert 0.45 < np.mean(history.kind == Kind.READ) < 0.55
    written = history.value[history.kind == Kind.WRITE]
    assert len(np.unique(written)) == len(written)


def test_read_modify_write_reads_every_key_just_before_writing_it() -> None:
    history = simulate("serial", Workload(read_modify_write=True, read_fraction=0.2))
    for txn in range(history.txn_count):
        ops = history.operations(txn)
        for op in ops:
            if history.kind[op] == Kind.WRITE:
                assert op > ops[0]
                assert (history.kind[op - 1], history.key[op - 1]) == (Kind.READ, history.key[op])


@pytest.mark.parametrize(
    ("times", "recorded"), [("all", (1, 1, 1, 1)), ("outer", (1, 0, 0, 1)), ("none", (0, 0, 0, 0))]
)
def test_only_the_times_asked_for_are_recorded(times: Times, recorded: tuple[int, ...]) -> None:
    history = simulate("snapshot", replace(BUSY, times=times))
    columns = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
    for column, is_recorded in zip(columns, recorded, strict=True):
        assert np.all((column != UNKNOWN_TIME) == bool(is_recorded))
