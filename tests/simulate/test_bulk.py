"""Large generated histories are what they claim to be: valid, of the size asked for, and silent about their order."""

from __future__ import annotations

import numpy as np
import pytest

from mussurana.verifier.history import UNKNOWN_TIME, History, Kind
from mussurana.verifier.simulate import FORBIDDEN, blindw, hot_keys
from mussurana.verifier.verdict import Settings
from tests.brute_force import brute_force
from tests.notation import show

LEVELS = sorted(set().union(*FORBIDDEN.values()))
STRICT = 0  # a clock drift that lets every recorded time bind


@pytest.mark.parametrize("seed", range(40))
def test_tiny_ones_satisfy_every_level(seed: int) -> None:
    for history in (
        blindw(sessions=3, transactions=6, keys=3, operations=2, read_fraction=0.5, seed=seed),
        hot_keys(sessions=3, transactions=6, keys=4, writes=2, read_fraction=0.3, seed=seed),
    ):
        for level in LEVELS:
            assert brute_force(history, Settings(level, clock_drift_ns=STRICT)), f"{level}: {show(history)}"


def operation_txn(history: History) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.repeat(np.arange(history.txn_count), np.diff(history.op_start))


def test_hot_keys_has_its_writes_in_every_transaction_and_its_share_of_reads() -> None:
    history = hot_keys(sessions=24, transactions=5_000, keys=20, writes=4, read_fraction=0.1)
    is_read = history.kind == Kind.READ
    assert np.mean(is_read) == pytest.approx(0.1, abs=0.001)
    assert set(np.bincount(operation_txn(history)[~is_read]).tolist()) == {4}
    assert len(np.unique(history.key)) == 20


def test_blindw_has_its_operations_sessions_and_keys() -> None:
    history = blindw(sessions=50, transactions=5_000, keys=1_000, operations=8, read_fraction=0.5)
    assert set(np.bincount(history.session).tolist()) == {100}
    assert set(np.diff(history.op_start).tolist()) == {8}
    assert len(np.unique(history.key)) == 1_000
    assert np.mean(history.kind == Kind.READ) == pytest.approx(0.5, abs=0.02)


def test_no_transaction_uses_a_key_twice_and_no_version_is_written_twice() -> None:
    history = hot_keys(sessions=5, transactions=2_000, keys=10, writes=4, read_fraction=0.3)
    pairs = operation_txn(history) * 10 + history.key
    assert len(np.unique(pairs)) == history.op_count
    written = history.value[history.kind == Kind.WRITE]
    assert len(np.unique(written)) == len(written)


def test_reads_and_writes_are_mixed_within_transactions() -> None:
    history = hot_keys(sessions=5, transactions=2_000, keys=20, writes=4, read_fraction=0.5)
    first = history.kind[history.op_start[:-1]]
    assert 0.4 < np.mean(first == Kind.READ) < 0.6


def test_times_follow_the_session_and_overlap_between_sessions() -> None:
    history = blindw(sessions=10, transactions=1_000, keys=100, operations=2, read_fraction=0.5)
    same_session = history.session[1:] == history.session[:-1]
    assert np.all(history.begin_ns < history.committed_ns)
    assert np.all(history.committed_ns[:-1][same_session] <= history.begin_ns[1:][same_session])
    assert np.all(history.begun_ns == UNKNOWN_TIME)
    by_begin = np.argsort(history.begin_ns)
    overlaps = history.committed_ns[by_begin][:-1] > history.begin_ns[by_begin][1:]
    assert np.mean(overlaps) > 0.5


def test_the_number_of_a_transaction_does_not_tell_when_it_ran() -> None:
    history = blindw(sessions=10, transactions=1_000, keys=100, operations=2, read_fraction=0.5)
    assert np.all(np.diff(history.session) >= 0)
    assert abs(np.corrcoef(np.arange(1_000), history.begin_ns)[0, 1]) < 0.2


def test_a_seed_makes_one_history() -> None:
    one, same, other = (show(blindw(4, 50, 10, 3, 0.5, seed=seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_more_operations_than_keys_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="5 operations on different keys needs more than 4 keys"):
        blindw(sessions=2, transactions=3, keys=4, operations=5, read_fraction=0.5)
