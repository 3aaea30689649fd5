"""The generated load is a correct history, and what is measured of it is computed right."""

from __future__ import annotations

import pytest

from bench.online.__main__ import SHAPES, Result
from bench.online.daemon import Reading
from bench.online.workload import Shape, Workload
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.verdict import Settings


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_generated_load_is_strictly_serializable_and_is_forgotten(shape: Shape) -> None:
    small = Shape(shape.sessions, shape.operations, 500, shape.read_fraction, shape.blind_fraction, shape.collectors)
    workload, machine = Workload(small), Verifier([Settings("strict-serializable", clock_drift_ns=0)], Limits())
    forgotten = txns = 0
    for block in range(1, 13):
        for made in workload.block(2000, block * 10**9, (block + 1) * 10**9):
            machine.feed(made.id, made.fragment, block * 10**9)
            txns += made.fragment.txn_count
        for outcome in machine.step(block * 10**9, force=True):
            assert outcome.verdict == "accepted", outcome.violations
            forgotten += outcome.forgotten
    gauges = machine.gauges()
    assert txns == 24_000
    assert gauges.epoch["strict-serializable"] >= 1
    assert forgotten > txns / 2
    assert gauges.unknown_txns == gauges.waiting == 0


def test_generated_load_is_the_same_for_the_same_seed() -> None:
    one, other = Workload(Shape()), Workload(Shape())
    for _ in range(3):
        for made, again in zip(one.block(100, 1, 2), other.block(100, 1, 2), strict=True):
            assert made == again


def reading(counts: dict[str, float], at: float) -> Reading:
    buckets: dict[tuple[str, ...], float] = {(bound, "serializable"): count for bound, count in counts.items()}
    return Reading(at, {"mussurana_verification_lag_seconds_bucket": buckets}, 0.0, 0)


def test_quantiles_are_of_what_was_counted_in_between() -> None:
    before = reading({"0.5": 100.0, "1.0": 100.0, "2.0": 100.0, "+Inf": 100.0}, 0.0)
    after = reading({"0.5": 100.0, "1.0": 150.0, "2.0": 200.0, "+Inf": 200.0}, 10.0)
    result = Result(before, after, 0.0, 0.0)
    assert result.lag_seconds(0.5) == 1.0
    assert result.lag_seconds(0.25) == 0.75
    assert result.lag_seconds(0.99) == pytest.approx(1.98)
    beyond = reading({"0.5": 100.0, "1.0": 100.0, "2.0": 100.0, "+Inf": 200.0}, 10.0)
    assert Result(before, beyond, 0.0, 0.0).lag_seconds(0.5) == float("inf")
