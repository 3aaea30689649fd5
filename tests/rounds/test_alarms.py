"""An alarm waits for whoever could take it back, and is withdrawn by what comes late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mussurana.verifier.rounds.alarms import TAINT_SECONDS, AlarmChange
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire import NOT_KNOWN_YET
from mussurana.wire.history_pb2 import Coverage, Fragment, SessionEvent
from tests.rounds.feeding import SECOND_NS, Wire, key, tag


class Fleet(Wire):
    """Collectors whose clocks are the verifier's, each with one session at work."""

    def join(self, *collectors: str) -> None:
        for collector in collectors:
            made = self.make(collector)
            made.session_event.add(what=SessionEvent.OPEN, session=0)
            for row in "xyz":
                made.key_name.add(key=key(row), name=f"{'people' if row == 'z' else 'seats'}/{row}")
            self.tell(collector, made)

    def tell(self, collector: str, made: object) -> None:
        made.sealed_ns = self.now_ns  # type: ignore[attr-defined]
        self.send(collector, made)  # type: ignore[arg-type]

    def hear(self, collector: str) -> None:
        self.tell(collector, self.make(collector))

    def taint(self, collector: str, table: str, shape: str = "COPY") -> None:
        made = self.make(collector)
        made.coverage.add(table=table, shape=shape, observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
        self.tell(collector, made)

    def skew(self) -> str:
        """A violation on table seats that a and b record at this time; its id."""
        at = f"@{self.now_ns / SECOND_NS - 0.2:.3f}-{self.now_ns / SECOND_NS - 0.1:.3f}"
        self.tell("a", self.make("a", f"0{at} x:=a10 y:=a11", f"0{at} x==a10 y:=a12<a11"))
        self.tell("b", self.make("b", f"0{at} y==a11 x:=b13<a10"))
        (violation,) = self.round().violations
        return violation.id

    def decided(self) -> list[AlarmChange]:
        return self.machine.decide_alarms(self.now_ns)

    def restart(self) -> None:
        settings = [level.settings for level in self.machine.levels]
        self.machine = Verifier.from_state(settings, self.limits, self.machine.state())


def fleet(*collectors: str, limits: Limits | None = None) -> Fleet:
    wire = Fleet("serializable", limits or Limits(), now_ns=100 * SECOND_NS)
    wire.join(*collectors)
    wire.later(1)
    return wire


def states(changes: list[AlarmChange]) -> list[str]:
    return [change.state for change in changes]


def test_an_alarm_is_told_at_once_if_all_at_work_were_heard_up_to_it() -> None:
    wire = fleet("a", "b", "c")
    wire.hear("c")
    assert [(each.id, each.state) for each in [*wire.decided()]] == []
    id = wire.skew()
    assert [(each.id, each.state) for each in wire.decided()] == [(id, "told")]
    assert wire.decided() == []


def test_an_alarm_waits_for_a_collector_that_is_at_work_and_was_not_heard_up_to_it() -> None:
    wire = fleet("a", "b", "c")
    id = wire.skew()
    assert wire.decided() == []
    assert wire.machine.gauges().alarms_waiting == 1
    wire.later(0.4)
    wire.hear("c")
    assert [(each.id, each.state) for each in wire.decided()] == [(id, "told")]
    assert wire.machine.gauges().alarms_waiting == 0


def test_an_alarm_waits_no_longer_than_the_limit() -> None:
    wire = fleet("a", "b", "c")
    wire.skew()
    wire.later(4.9)
    assert wire.decided() == []
    wire.later(0.1)
    assert states(wire.decided()) == ["told"]


def test_an_alarm_that_may_not_wait_is_told_at_once() -> None:
    wire = fleet("a", "b", "c", limits=replace(Limits(), alarm_wait_ns_max=0))
    wire.skew()
    assert states(wire.decided()) == ["told"]


@pytest.mark.parametrize("what", [SessionEvent.IDLE, SessionEvent.CLOSE])
def test_nobody_waits_for_a_collector_that_said_that_it_rests(what: SessionEvent.What) -> None:
    wire = fleet("a", "b", "c")
    made = wire.make("c")
    made.session_event.add(what=what, session=0)
    wire.tell("c", made)
    wire.later(1)
    wire.skew()
    assert states(wire.decided()) == ["told"]


def test_a_taint_that_arrives_while_an_alarm_waits_withdraws_it_untold() -> None:
    wire = fleet("a", "b", "c")
    id = wire.skew()
    assert wire.decided() == []
    wire.taint("c", "seats")
    assert wire.decided() == [AlarmChange(id, "withdrawn", " @3 wrote to seats unseen", wire.now_ns)]
    wire.later(10)
    assert wire.decided() == []


@pytest.mark.parametrize("table", ["seats", ""])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_taint_that_comes_after_the_alarm_was_told_withdraws_it(table: str, is_restarted: bool) -> None:
    wire = fleet("a", "b", "c")
    id = wire.skew()
    wire.later(6)
    assert states(wire.decided()) == ["told"]
    if is_restarted:
        wire.restart()
    wire.taint("c", table)
    assert [(each.id, each.state) for each in wire.decided()] == [(id, "withdrawn")]


def test_a_taint_of_another_table_withdraws_nothing() -> None:
    wire = fleet("a", "b", "c")
    wire.skew()
    wire.taint("c", "people")
    assert states(wire.decided()) == ["told"]


def test_who_was_heard_up_to_an_alarm_withdraws_it_no_more() -> None:
    """What it wrote unseen, it wrote later."""
    wire = fleet("a", "b", "c")
    wire.skew()
    wire.hear("c")
    assert states(wire.decided()) == ["told"]
    wire.later(TAINT_SECONDS + 0.5)
    wire.hear("c")
    wire.later(0.5)
    wire.taint("c", "seats")
    assert wire.decided() == []


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("ahead_seconds", [0.05, 0.3, 2.0, 30.0])
def test_a_clock_that_is_ahead_does_not_keep_a_taint_from_withdrawing_an_alarm(
    ahead_seconds: float, is_told: bool
) -> None:
    """By its own clock the collector had been heard up to the alarm, before it wrote unseen."""
    wire = fleet("a", "b", "c")
    ahead_ns = int(ahead_seconds * SECOND_NS)

    def say(made: Fragment, at_ns: int) -> None:
        made.sealed_ns = at_ns + ahead_ns
        wire.send("c", made)

    say(wire.make("c"), wire.now_ns - SECOND_NS // 8)
    wire.skew()
    if is_told:
        wire.later(5)
        assert states(wire.decided()) == ["told"]
    else:
        wire.later(0.3)
    late = wire.make("c")
    late.coverage.add(table="seats", shape="COPY", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
    say(late, wire.now_ns)
    assert states(wire.decided()) == ["withdrawn"]


def test_unless_it_found_out_only_afterwards() -> None:
    """A trigger or another name for the table, which it saw when it read its catalog again."""
    wire = fleet("a", "b", "c")
    wire.skew()
    wire.hear("c")
    assert states(wire.decided()) == ["told"]
    wire.later(1)
    wire.taint("c", "seats", NOT_KNOWN_YET)
    assert states(wire.decided()) == ["withdrawn"]


def test_a_process_that_nobody_had_heard_of_withdraws_an_alarm_by_its_taint() -> None:
    wire = fleet("a", "b")
    wire.skew()
    assert states(wire.decided()) == ["told"]
    wire.taint("d", "seats")
    assert states(wire.decided()) == ["withdrawn"]


def never_written(wire: Fleet) -> str:
    """A read of a version of c's that c says nobody wrote; the alarm's id."""
    made = wire.make("c", "0 z:=c1", settled=10)
    wire.tell("c", made)
    wire.tell("a", wire.make("a", "0 x==c5"))
    (violation,) = wire.round().violations
    return violation.id


def test_a_gap_that_comes_late_withdraws_an_alarm_about_what_was_lost_in_it() -> None:
    wire = fleet("a", "b", "c")
    id = never_written(wire)
    made = wire.make("c")
    made.gap.add(reason="late").write_ids.add(tag=tag("c"), first=4, end=6)
    wire.tell("c", made)
    assert [(each.id, each.state) for each in wire.decided()] == [(id, "withdrawn")]


def test_a_gap_of_somebody_else_withdraws_nothing() -> None:
    wire = fleet("a", "b", "c")
    never_written(wire)
    made = wire.make("m")
    made.gap.add(reason="x").write_ids.add(tag=tag("c"), first=1, end=2**32)
    wire.tell("m", made)
    wire.later(6)
    assert states(wire.decided()) == ["told"]


def test_a_second_process_of_the_same_tag_withdraws_an_alarm_about_its_versions() -> None:
    wire = fleet("a", "b", "c")
    never_written(wire)
    made = wire.make("d", "0 x:=c5")
    made.write_ids.add(tag=tag("c"), settled=6)
    wire.tell("d", made)
    wire.later(6)
    assert states(wire.decided()) == ["withdrawn"]


def test_an_alarm_waits_on_after_a_restart_and_is_told() -> None:
    wire = fleet("a", "b", "c")
    id = wire.skew()
    assert wire.decided() == []
    wire.restart()
    assert wire.decided() == []
    wire.later(6)
    assert [(each.id, each.state) for each in wire.decided()] == [(id, "told")]


def test_downtime_gives_collectors_their_time_back() -> None:
    wire = fleet("a", "b", "c")
    wire.skew()
    wire.later(3600)
    wire.machine.resume(wire.now_ns)
    assert wire.decided() == []
    wire.later(5)
    assert states(wire.decided()) == ["told"]
