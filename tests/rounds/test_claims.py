"""What one collector claims reaches as far as its own versions, and what a taint hides is told with the round."""

from __future__ import annotations

from time import perf_counter

import pytest

from mussurana.verifier.rounds.machine import ERA_AHEAD_SECONDS_MAX, Verifier
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.verifier.rounds.taints import Taint, Taints
from mussurana.wire import ERA_BEGIN_SECONDS
from mussurana.wire.history_pb2 import Coverage, Fragment
from tests.rounds.feeding import SECOND_NS, Wire, key, tag

ERA = 1_000_000
ATTACKER = "m"


def at_work(level: str = "serializable") -> Wire:
    """Two collectors with sessions that have fenced, at a time that suits their era."""
    wire = Wire(level)
    wire.now_ns = (ERA_BEGIN_SECONDS + ERA + 100) * SECOND_NS
    for collector, before, epoch in (("a", "0", 1), ("b", "a50001", 2)):
        wire.event(collector, "open", 0)
        wire.feed(collector, f"0 f:={collector}{50_000 + epoch}<{before}#{ERA}:{epoch}")
    wire.last_fence = "b50002"
    assert wire.round().verdict == "accepted"
    return wire


def is_found(wire: Wire) -> bool:
    skew(wire)
    outcome: RoundOutcome = wire.round()
    return bool(outcome.violations)


def skew(wire: Wire) -> None:
    wire.feed("a", "0 x:=a10 y:=a11", "0 x==a10 y:=a12<a11")
    wire.feed("b", "0 y==a11 x:=b13<a10")


def bare(wire: Wire) -> Fragment:
    """The attacker's next fragment, which claims no tag."""
    made = wire.make(ATTACKER)
    del made.write_ids[:]
    return made


def gap_over_all_tags(wire: Wire) -> Fragment:
    made = bare(wire)
    gap = made.gap.add(reason="x", txn_count=1)
    for one in range(128):
        gap.write_ids.add(tag=one, first=1, end=2**32)
    return made


def gap_beyond_its_tag(wire: Wire) -> Fragment:
    made = bare(wire)
    made.write_ids.add(tag=1, settled=1)
    made.gap.add(reason="x", txn_count=1).write_ids.add(tag=1, first=1, end=2**32)
    return made


def claim(wire: Wire) -> Fragment:
    made = bare(wire)
    made.write_ids.add(tag=tag("a"), settled=1, drawn=1)
    return made


def claim_of_all_tags(wire: Wire) -> Fragment:
    made = bare(wire)
    for one in range(1, 1_000):
        made.write_ids.add(tag=one, settled=2**32)
    return made


def write_under_another_tag(wire: Wire) -> Fragment:
    made = wire.make(ATTACKER, "0 z:=a1")
    made.write_ids.add(tag=tag("a"), settled=2**32)
    return made


def era(ahead_seconds: int) -> object:
    def made(wire: Wire) -> Fragment:
        return wire.make(ATTACKER, f"0 f:=m1<0#{ERA + ahead_seconds}:1")

    return made


@pytest.mark.parametrize("level", ["serializable", "strong-session-si"])
@pytest.mark.parametrize(
    "attack",
    [
        gap_over_all_tags,
        gap_beyond_its_tag,
        claim,
        claim_of_all_tags,
        write_under_another_tag,
        era(2**31 - 3 - ERA),
        era(ERA_AHEAD_SECONDS_MAX // 2),
        era(50),
    ],
)
def test_what_one_collector_claims_hides_nothing_of_others(level: str, attack: object) -> None:
    wire = at_work("serializable")
    wire.send(ATTACKER, attack(wire))  # type: ignore[operator]
    wire.round()
    state = wire.machine.state()
    assert is_found(wire)
    settings = [one.settings for one in wire.machine.levels]
    wire.machine = Verifier.from_state(settings, wire.limits, state)
    wire.sequence["a"] -= 1
    wire.sequence["b"] -= 1
    assert is_found(wire)


def test_a_tag_that_was_claimed_before_its_owner_came_is_its_owners() -> None:
    wire = at_work()
    made = bare(wire)
    made.write_ids.add(tag=tag("c"), settled=2**32)
    made.gap.add(reason="x").write_ids.add(tag=tag("c"), first=1, end=2**32)
    wire.send(ATTACKER, made)
    wire.round()
    wire.event("c", "open", 1)
    wire.feed("c", f"1 f:=c50003<b50002#{ERA}:3", "1 x:=c1 y:=c2", "1 x==c1 y:=c3<c2")
    wire.feed("a", "0 y==c2 x:=a5<c1")
    assert wire.round().violations
    assert wire.machine.gauges().unchecked_reads["lost"] == 0


@pytest.mark.parametrize("who_first", ["ab", "ba"])
def test_two_processes_that_drew_the_same_tag_cause_no_alarm(who_first: str) -> None:
    """Collector b draws from a's tag; what it wrote is read by c under the same names as a's versions."""
    wire = Wire("serializable")
    of_a = wire.make("a", "0 x:=a1", "0 x:=a2<a1")
    of_b = wire.make("b", "0 y:=a1 x:=a3", "0 y:=a2<a1")
    of_b.write_ids.add(tag=tag("a"), settled=100)
    for which in who_first:
        wire.send(which, {"a": of_a, "b": of_b}[which])
    wire.feed("c", "0 x==a1 y==a1", "0 x==a2 y==a2", "1 y==a2", "1 x==a3")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().clashing_tags == 1


def test_a_collector_that_writes_under_tags_of_two_others_is_refused() -> None:
    wire = at_work()
    made = wire.make(ATTACKER, "0 z:=a1", "0 z:=b1")
    for one in ("a", "b"):
        made.write_ids.add(tag=tag(one), settled=2**32)
    with pytest.raises(Exception, match="is another collector's, and so is"):
        wire.send(ATTACKER, made)


def test_settled_is_the_owners_word_alone() -> None:
    wire = at_work()
    wire.feed("b", "0 z:=b1", settled=5)
    wire.feed("a", "0 x==b150000")
    made = bare(wire)
    made.write_ids.add(tag=tag("b"), settled=2**32)
    wire.send(ATTACKER, made)
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().waiting == 1
    wire.feed("b", "0 x:=b150000")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().waiting == 0
    assert wire.machine.gauges().ignored_claims >= 1


# Taints


def tainted(wire: Wire, collector: str, table: str, name: str = "") -> None:
    made = wire.make(collector)
    made.collector_name = name
    made.coverage.add(table=table, shape="COPY", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
    wire.send(collector, made)


def named(wire: Wire) -> None:
    made = wire.make("a")
    for row in "xyz":
        made.key_name.add(key=key(row), name=f"{'people' if row == 'z' else 'seats'}/{row}")
    wire.send("a", made)


def test_a_round_says_what_taints_left_unchecked_and_whose_they_are() -> None:
    wire = at_work()
    named(wire)
    tainted(wire, ATTACKER, "seats", "m/1")
    skew(wire)
    wire.feed("a", "0 z==0")
    outcome = wire.round()
    assert outcome.verdict == "accepted"
    assert [(one.reason, one.collector, one.table, one.reads) for one in outcome.unchecked] == [
        ("tainted", "m/1 @3", "seats", 2)
    ]
    assert outcome.read_count == 3
    assert wire.machine.gauges().unchecked_by == {("m/1 @3", "seats"): 2}
    wire.feed("a", "0 z==0")
    assert wire.round().unchecked == ()


def anew(wire: Wire, era: int) -> None:
    """Everybody at work finds a fence row of a new era."""
    wire.feed("a", f"0 f:=a200001<0#{era}:1")
    wire.feed("b", f"0 f:=b200002<a200001#{era}:2")
    assert wire.round().verdict == "accepted"


def test_a_taint_ends_when_the_operator_begins_a_new_era() -> None:
    wire = at_work()
    named(wire)
    tainted(wire, ATTACKER, "seats")
    assert not is_found(wire)
    wire.later(1000)
    anew(wire, ERA + 1000)
    wire.feed("a", "0 x:=a200010 y:=a200011", "0 x==a200010 y:=a200012<a200011")
    wire.feed("b", "0 y==a200011 x:=b200013<a200010")
    assert wire.round().violations


def test_a_taint_stays_if_its_collector_writes_unseen_around_the_new_era() -> None:
    wire = at_work()
    named(wire)
    wire.later(1000)
    tainted(wire, ATTACKER, "seats")
    anew(wire, ERA + 1000)
    wire.feed("a", "0 x:=a200010 y:=a200011", "0 x==a200010 y:=a200012<a200011")
    wire.feed("b", "0 y==a200011 x:=b200013<a200010")
    assert not wire.round().violations


def test_what_was_there_before_a_taint_ended_stays_unknown() -> None:
    """The row was written, then removed and made anew by somebody unseen, so that it has no version again."""
    wire = at_work()
    named(wire)
    wire.feed("a", "0 x:=a10")
    tainted(wire, ATTACKER, "seats")
    wire.round()
    wire.later(1000)
    anew(wire, ERA + 1000)
    wire.feed("a", "0 x==0", "0 x:=a200010<0")
    wire.feed("b", "0 x==a200010", "0 y==a10")
    assert wire.round().verdict == "accepted"


def test_an_era_that_all_who_are_at_work_find_is_followed() -> None:
    wire = at_work()
    wire.later(10)
    anew(wire, ERA + 105)
    assert wire.machine.begun_anew == 1
    wire.feed("a", "0 x:=a200010 y:=a200011", "0 x==a200010 y:=a200012<a200011")
    wire.feed("b", "0 y==a200011 x:=b200013<a200010")
    assert wire.round().violations


def test_a_key_whose_name_has_thousands_of_slashes_costs_no_more_than_another() -> None:
    """Each of them may end the name of its table. Beyond some it may be of any."""
    taints = Taints()
    taints.tell(Taint(b"a" * 16, "schema/table"), 1)
    assert taints.of_name("schema/table/1/2/3") == 0
    assert taints.of_name("another/table/1/2/3") == -1
    started = perf_counter()
    assert {taints.of_name(f"{n}{'/' * 4_900}") for n in range(2_000)} == {0}
    assert perf_counter() - started < 1
