"""Verifying for ever in bounded memory: what is retained, the table and the time of a round stop growing."""

from __future__ import annotations

from statistics import mean, median
from time import process_time

import pytest

from mussurana.verifier import Settings
from mussurana.verifier.rounds.machine import Verifier
from tests.rounds.load import COLLECTOR, Load

TXNS, ROUND_FRAGMENTS = 100_000, 5
RETAINED_MAX = 5_000  # as many as a round has; what a session does between two of its fences is 200

LOADS = {
    "reads": Load(read_share=0.9),
    "blind_writes": Load(read_share=0.5, blind=True),
}


@pytest.mark.parametrize(
    ("level", "load"),
    [("serializable", "reads"), ("serializable", "blind_writes"), ("strong-session-si", "reads")],
)
def test_memory_and_round_time_stay_flat(level: str, load: str) -> None:
    machine = Verifier([Settings(level)])
    retained, seconds = [], []
    for number, fragment in enumerate(LOADS[load].fragments(TXNS), start=1):
        machine.feed(COLLECTOR, fragment, fragment.sealed_ns)
        if number % ROUND_FRAGMENTS == 0:
            started = process_time()
            (told,) = machine.step(fragment.sealed_ns, force=True)
            seconds.append(process_time() - started)
            retained.append(told.retained)
            assert told.verdict == "accepted"
    third = len(retained) // 3
    assert mean(retained[-third:]) <= 1.2 * mean(retained[third:-third])
    assert max(retained) <= RETAINED_MAX
    assert machine.gauges().table_keys[level] <= LOADS[load].keys + 1
    assert median(seconds[-third:]) <= 1.5 * median(seconds[third:-third]) + 0.02
