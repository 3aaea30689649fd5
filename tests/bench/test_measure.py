"""The measuring itself: memory, time, and processes of their own."""

from pathlib import Path

import numpy as np
import pytest

from bench.memory import give_back_unused, peak_bytes, reset_peak, resident_bytes
from bench.processes import import_seconds
from bench.worker import PHASES, Unreadable, measure, measure_apart
from mussurana.verifier.formats import save
from mussurana.verifier.simulate import blindw

BLOCK_BYTES = 64 * 2**20
SLACK_BYTES = 8 * 2**20  # the kernel counts pages per thread and adds them up later


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "small.mus"
    save(blindw(4, 100, 30, 4, 0.5), path)
    return path


def test_memory_that_was_used_and_freed_is_in_the_peak_until_it_is_reset() -> None:
    give_back_unused()
    reset_peak()
    before = resident_bytes()
    block = np.ones(BLOCK_BYTES, np.uint8)
    del block
    assert peak_bytes() - before > BLOCK_BYTES - SLACK_BYTES
    reset_peak()
    if peak_bytes() - before > SLACK_BYTES:
        pytest.skip("this kernel does not let a process reset its peak")


def test_the_best_run_is_reported_with_its_phases(history: Path) -> None:
    measured = measure([history], "serializable", repeat=3)
    assert (measured.transactions, measured.sessions, measured.verdict) == (100, 4, "accepted")
    assert len(measured.totals) == 3
    assert measured.seconds["total"] == min(measured.totals)
    assert 0 < sum(measured.seconds[phase] for phase in PHASES) <= measured.seconds["total"]


def test_a_collection_adds_up_its_histories(history: Path) -> None:
    measured = measure([history, history], "serializable", repeat=1)
    assert (measured.transactions, measured.verdict) == (200, "2 accepted")


def test_a_process_of_its_own_measures_the_same_history(history: Path) -> None:
    measured = measure_apart([history], "strong-session-si", repeat=1)
    assert (measured.transactions, measured.verdict) == (100, "accepted")
    assert 0 < measured.loaded_bytes <= measured.peak_bytes


def test_what_cannot_be_read_is_told_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n")
    with pytest.raises(Unreadable, match=r"notes\.txt"):
        measure_apart([path], "serializable", repeat=1)


def test_an_import_inside_another_one_is_counted_once() -> None:
    printed = """import time: self [us] | cumulative | imported package
import time:       200 |        200 |   numpy.core
import time:       100 |        300 | numpy
import time:       700 |        700 | numba
"""
    assert import_seconds(printed) == pytest.approx(0.001)
