"""An error in the verifier itself costs what it was about, is told, and accuses nobody; verification goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mussurana.verifier.rounds import level as level_module
from mussurana.verifier.rounds.admission import Admission, WriteIdProgress
from mussurana.verifier.rounds.alarms import Alarms
from mussurana.verifier.rounds.fragments import BadFragment
from mussurana.verifier.rounds.level import FAILURES_MAX, LevelRounds
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.machine import Session, Verifier
from mussurana.verifier.rounds.moved import MovedRows
from mussurana.verifier.rounds.owners import Owners
from mussurana.verifier.rounds.taints import Taints
from mussurana.wire import history_pb2 as pb
from tests.rounds.feeding import Wire, tag


def breaking(after: Callable[..., Any] | None) -> Callable[..., Any]:
    """The same function, but it raises when it is done."""

    def broken(*arguments: Any, **named: Any) -> Any:
        if after is not None:
            after(*arguments, **named)
        raise IndexError("nobody expected this")

    return broken


FED_BY = [
    *((Verifier, name) for name in ("_new_collector", "_learn_owners", "_claim", "_learn_taints", "_own_times")),
    *((Owners, name) for name in ("claim", "prove", "contest", "note_pairs")),
    (Taints, "tell"),
    (MovedRows, "add"),
    *((Alarms, name) for name in ("taint", "lose", "disown")),
    *((Verifier, name) for name in ("_open", "_session", "_deliver", "_lose", "_note_lost")),
    (Session, "rest"),
    (Admission, "deliver"),
    *((WriteIdProgress, name) for name in ("deliver", "settle")),
    (LostVersions, "add"),
]


def eventful(wire: Wire, collector: str) -> pb.Fragment:
    """A fragment that touches all that a fragment can."""
    made = wire.make(collector, f"0 x:={collector}8 y==0", f"7 x:={collector}9<a1 z:=q7", settled=20)
    made.write_ids.add(tag=tag("q"), settled=1)  # of somebody else
    made.write_ids.add(tag=tag(collector) + 1000, settled=1)
    for what in (pb.SessionEvent.OPEN, pb.SessionEvent.IDLE, pb.SessionEvent.CLOSE):
        made.session_event.add(what=what, session=9 + what, name="new", fenced=True)
    made.session_event.add(what=pb.SessionEvent.CLOSE, session=0)
    made.gap.add(txn_count=3).write_ids.add(tag=tag("a"), first=50, end=60)
    made.gap.add(txn_count=4).write_ids.add(tag=tag("a"), first=70, end=80)
    made.coverage.add(table="y", shape="COPY", observed=pb.Coverage.UNOBSERVED_WRITE, statement_count=1)
    made.beginning.add(table="x")
    made.collector_name = "another name"
    made.sealed_ns = wire.now_ns
    return made


@pytest.mark.parametrize(("owner", "name"), FED_BY, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("collector", ["a", "n"])  # one that is known, and a new one
def test_a_fragment_that_fails_half_way_leaves_nothing_behind(
    owner: type, name: str, collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire("serializable strong-si")
    wire.feed("q", "0 z:=q1")
    wire.feed("a", "0 x:=a1", "1 x==a1 y==0", settled=5)
    wire.round()
    wire.feed("a", "0 x:=a2<a1", settled=5)
    before = wire.machine.state()
    made = eventful(wire, collector)
    called, complaint = [], ""
    with monkeypatch.context() as patched:
        original = getattr(owner, name)

        def then_breaks(*arguments: Any, **named: Any) -> Any:
            called.append(True)
            return breaking(original)(*arguments, **named)

        patched.setattr(owner, name, then_breaks)
        try:
            wire.send(collector, made)
        except BadFragment as error:
            complaint = str(error)
    if not called:
        pytest.skip("this collector has nothing of it")
    assert "IndexError: nobody expected this" in complaint
    assert wire.machine.state() == before
    wire.send(collector, made)
    assert wire.machine.state() != before


def skewed(wire: Wire) -> None:
    """Two transactions that no serial order explains."""
    wire.feed("a", "0 u==0 v:=a100<0", "1 v==0 u:=a101<0")


@pytest.mark.parametrize("place", ["make_window", "resolve", "decide", "find_past"])
def test_a_round_that_fails_again_and_again_is_unknown_and_the_next_one_is_not(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x:=a1", "1 x==a1")
    wire.fence("a", 0, 1)
    with monkeypatch.context() as patched:
        patched.setattr(level_module, place, breaking(None))
        for number in range(1, FAILURES_MAX + 1):
            wire.feed("a", f"0 x:=a{number + 1}<a{number}")
            wire.fence("a", 0, 1)
            outcome = wire.round()
            assert outcome.verdict == "unknown"
            assert "IndexError: nobody expected this" in outcome.failure
            assert ("is left out" in outcome.reason) == (number == FAILURES_MAX)
    wire.feed("a", f"0 x==a{FAILURES_MAX + 1}", "1 x==a2")  # of before, one of them stale: nothing to say of it
    wire.fence("a", 0, 1)
    assert (wire.round().verdict, wire.machine.gauges().unknown_txns > 0) == ("accepted", True)
    skewed(wire)
    assert wire.round().verdict == "rejected"


def test_what_was_found_before_the_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire("serializable")
    skewed(wire)
    with monkeypatch.context() as patched:
        patched.setattr(LevelRounds, "_forget", breaking(None))
        outcome = wire.round()
    assert outcome.verdict == "rejected"
    assert len(outcome.violations) == 1
    assert [each.id for each in wire.round().violations] == [outcome.violations[0].id]


def test_an_error_before_the_levels_are_asked_lets_go_of_what_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x:=a1", "1 x==a1 y==b9")
    wire.fence("a", 0)
    for owner, name in ((Admission, "admit"), (Verifier, "_enter"), (Verifier, "_number_epochs")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, breaking(getattr(owner, name)))
            wire.feed("a", "0 x:=a2<a1", "1 x==a2")
            outcome = wire.round()
            assert (outcome.verdict, outcome.txn_count) == ("unknown", 0)
            assert "IndexError" in outcome.failure
    wire.fence("a", 0, 1)
    wire.feed("a", "0 x:=a3<a2", "1 x==a3")
    assert wire.round().verdict == "accepted"
    skewed(wire)
    assert wire.round().verdict == "rejected"


def test_cleaning_that_fails_is_told_and_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire("serializable")
    monkeypatch.setattr(Verifier, "_clean", breaking(None))
    outcomes = []
    for number in range(1, 20):
        wire.feed("a", f"0 x:=a{number}")
        outcomes.append(wire.round())
    assert {outcome.verdict for outcome in outcomes} == {"accepted"}
    assert sum("IndexError" in outcome.failure for outcome in outcomes) == 1
