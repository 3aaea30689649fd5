"""Ticks, against comparing every pair of events."""

from __future__ import annotations

from random import Random

import numpy as np

from mussurana.verifier.engine.realtime import NEVER, tick_edges
from mussurana.verifier.history import UNKNOWN_TIME
from tests.engine.twins import reachability


def test_ticks_connect_exactly_what_clocks_prove_with_three_edges_per_event() -> None:
    proven = 0
    for seed in range(1500):
        rng = Random(seed)
        sources, targets = rng.randint(0, 8), rng.randint(0, 8)
        high = [rng.choice((NEVER, *[rng.randrange(12)] * 5)) for _ in range(sources)]
        low = [rng.choice((UNKNOWN_TIME, *[rng.randrange(12)] * 5)) for _ in range(targets)]
        drift_ns = rng.choice((0, 0, 1, 3))
        first_tick = sources + targets + rng.randint(0, 2)
        numbers = rng.sample(range(first_tick), sources + targets)
        edge_from, edge_to, ticks = tick_edges(
            np.array(numbers[:sources], np.int32),
            np.array(high, np.int64),
            np.array(numbers[sources:], np.int32),
            np.array(low, np.int64),
            drift_ns,
            first_tick,
        )
        edges = list(zip(edge_from.tolist(), edge_to.tolist(), strict=True))
        reach = reachability(first_tick + ticks, edges)
        for i, end in enumerate(high):
            for j, start in enumerate(low):
                before = end != NEVER and start != UNKNOWN_TIME and end + drift_ns < start
                assert reach[numbers[i], numbers[sources + j]] == before
                proven += before
        assert len(edges) <= 3 * max(sources, targets)
        assert {(u, u + 1) for u in range(first_tick, first_tick + ticks - 1)} <= set(edges)
    assert proven > 1000
