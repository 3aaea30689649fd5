"""Whoever makes a history that is hard to order, or hard to explain, keeps others waiting for a bounded time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mussurana.verifier.rounds.limits import Limits
from tests.attack.collectors import Sender, real
from tests.attack.hard import Formula
from tests.daemon.watching import is_verified, until
from tests.rounds.feeding import Wire, tag


def test_what_no_search_orders_in_time_is_left_out_and_all_else_goes_on() -> None:
    wire = Wire("serializable", Limits(search_calls_max=1))
    wire.feed("a", "0 u:=a1", "1 v:=a2")
    wire.round()
    wire.send("e", Formula(120, seed=1).fragment(1, tag("e")))
    started = time.thread_time()
    wire.feed("a", "0 x==0 y:=a3", "1 y==0 x:=a4")
    first = wire.round()
    assert "it will be tried again with more time" in first.reason
    assert len(first.violations) == 1
    second = wire.machine.step(wire.now_ns + 1, force=True)[0]
    assert "6,612 transactions that it was about are left out" in second.reason
    assert time.thread_time() - started < 30
    started = time.thread_time()
    wire.feed("a", "2 p==0 q:=a5", "3 q==0 p:=a6")
    assert len(wire.round().violations) == 1
    assert time.thread_time() - started < 1
    assert wire.machine.gauges().unknown_txns == 6612


def test_a_contradiction_of_thousands_of_transactions_is_told_as_far_as_it_may_take() -> None:
    wire = Wire("serializable", Limits(explained_txns_max=3_000))
    wire.send("e", Formula(40, seed=1).fragment(1, tag("e")))
    started = time.thread_time()
    (told,) = wire.round().violations
    assert time.thread_time() - started < 20
    assert len(told.counterexample.transactions) > 100


@pytest.mark.attack
@pytest.mark.parametrize("variables", [40, 80, 120])
def test_a_hard_history_keeps_a_daemon_from_nothing_for_longer_than_two_minutes(data: Path, variables: int) -> None:
    with real(data) as daemon, Sender(daemon, "a") as good, Sender(daemon, "e") as evil:
        good.tell("0 u:=a1<0", "1 v:=a2<0")
        until(lambda: is_verified(daemon), 60)
        evil.send(Formula(variables, seed=1).fragment(1, tag("e")))
        evil.wait_durable(1)
        started = time.monotonic()
        good.tell("0 u==a1 v:=a3<a2", "1 v==a2 u:=a4<a1")
        until(lambda: any("x, y" not in each.summary for each in daemon.service.violations.summaries()), 120)
        until(lambda: is_verified(daemon), 120)
        print(f"{variables} variables: verified after {time.monotonic() - started:.1f} s")
        assert daemon.service.board.progress.trouble == ""
