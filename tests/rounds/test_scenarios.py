"""What the round machine does, one scene each. A scene is told in the words of `feeding.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mussurana.verifier.rounds import level as level_module
from mussurana.verifier.rounds.limits import SECOND_NS, Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire import history_pb2 as pb
from tests.rounds.feeding import Wire, tag, version

ONLINE = ("serializable", "strict-serializable", "strong-session-si", "strong-si")  # those that fences help
MEMORY = Limits(wait_ns_max=5 * SECOND_NS, silence_ns_max=60 * SECOND_NS, in_doubt_ns_max=5 * SECOND_NS)


def forget_all(wire: Wire, collector: str, *sessions: int) -> None:
    """Two fences per session, after which what came before them can go."""
    wire.fence(collector, *sessions)
    wire.fence(collector, *sessions)
    wire.round()


# Forgetting


@pytest.mark.parametrize("level", ONLINE)
def test_a_stale_read_of_something_forgotten_is_found(level: str) -> None:
    """Dissertation 4.4.1: T4 reads x from T1 and y from T3, but T2 replaced x before T3 began."""
    wire = Wire(level)
    wire.feed("a", "0 x:=a1", "1 x==a1 x:=a2<a1", "1 y:=a3", "2 z==0")
    forget_all(wire, "a", 0, 1, 2)
    assert wire.retained <= 3
    wire.feed("a", "2 x==a1 y==a3")
    told = wire.round()
    assert told.verdict == "rejected"
    assert told.violations[0].counterexample.anomaly == "stale read"


@pytest.mark.parametrize("level", ONLINE)
def test_the_last_versions_of_what_was_forgotten_can_be_read(level: str) -> None:
    wire = Wire(level)
    wire.feed("a", "0 x:=a1", "1 x==a1 x:=a2<a1", "1 y:=a3", "2 z==0")
    forget_all(wire, "a", 0, 1, 2)
    wire.feed("a", "2 x==a2 y==a3 z==0", "0 x:=a4<a2")
    assert wire.round().verdict == "accepted"
    assert not any(wire.machine.gauges().unchecked_reads.values())


@pytest.mark.parametrize("level", ONLINE)
def test_nothing_is_forgotten_before_the_first_fence(level: str) -> None:
    """The first fence follows no other, so it does not prove that its session comes after anything."""
    wire = Wire(level)
    wire.feed("a", "0 x:=a1", "0 x:=a2<a1", "0 x:=a3<a2")
    wire.round()
    assert wire.retained == 3
    wire.event("b", "open", 0)
    wire.feed("b", "0 f:=b1<0", "0 x==a1")
    assert wire.round().verdict == "accepted"


def dissertation_443() -> Wire:
    """T1 and T4, in one session, and T2, T3, T5 in theirs; all order between them is open. T6 replaced b."""
    wire = Wire("serializable")
    wire.feed("a", "0 d:=a1 a:=a2", "0 b:=a3 c:=a4")  # T1, T4
    wire.feed("a", "1 d:=a5 a:=a6", "2 a==a6 b:=a7", "3 b==a7 c:=a8")  # T2, T3, T5
    wire.fence("a", 0, 1, 2, 3, 0)
    wire.feed("a", "0 b:=a9")  # T6
    forget_all(wire, "a", 0, 1, 2, 3)
    wire.fence("a", 0, 1, 2, 3)
    assert wire.round().verdict == "accepted"
    return wire


def test_forgetting_keeps_what_later_reads_may_decide() -> None:
    """Dissertation 4.4.3: T7 and T8 together decide the order of transactions that are long past, and close a cycle."""
    wire = dissertation_443()
    level = wire.machine.levels[0]
    assert 0 < level.past < 8
    wire.feed("a", "1 d==a1", "2 c==a8")  # T7, T8
    told = wire.round()
    assert told.verdict == "rejected"
    assert len(told.violations[0].counterexample.transactions) >= 4


@pytest.mark.parametrize("reads", [["1 d==a1"], ["2 c==a8"], ["1 d==a5", "2 c==a8"], ["1 d==a1", "2 c==a4"]])
def test_either_decision_alone_is_fine(reads: list[str]) -> None:
    wire = dissertation_443()
    wire.feed("a", *reads)
    assert wire.round().verdict == "accepted"


def test_what_was_decided_later_is_forgotten_as_well() -> None:
    wire = dissertation_443()
    wire.feed("a", "1 d==a5", "2 c==a8")
    forget_all(wire, "a", 0, 1, 2, 3)
    forget_all(wire, "a", 0, 1, 2, 3)
    assert wire.machine.levels[0].past == 0
    assert not wire.machine.levels[0].real_key


@pytest.mark.parametrize("level", ["strict-serializable", "strong-si", "strong-session-si"])
def test_a_session_stays_in_order_when_only_parts_of_it_are_kept(level: str) -> None:
    """A witness of time may be earlier in its session than what is kept because its order is open."""
    wire = Wire(level)
    wire.feed("a", "0@5-5.3 f:=a1<0", "0@6-10 x:=a2", "1@9-17 x:=a3", "0@11-19 y:=a4", "1@18-29 y:=a5")
    wire.feed("a", "2@31-31.3 f:=a6<a1")
    wire.round()
    wire.feed("a", "0@67-68 f:=a7<a6", "1@73-74 f:=a8<a7", "2@75-76 f:=a9<a8")
    assert wire.round().verdict == "accepted"
    assert wire.round().verdict == "accepted"


def test_what_may_still_have_to_come_after_something_new_is_not_past() -> None:
    """a1 is before the end of both sessions, but a2 is not, and may have to come before a1."""
    wire = Wire("serializable")
    wire.feed("a", "1 x:=a2", "0 x:=a1")
    wire.fence("a", 0, 1)
    wire.round()
    wire.feed("a", "1 x==a1", "0 x==a1")
    assert wire.round().verdict == "accepted"


AGED = replace(MEMORY, snapshot_age_ns_max=5 * SECOND_NS)


def aged_snapshots() -> Wire:
    """Two overlapping commits, whose order only snapshots can tell; long ago, as the clocks have it."""
    wire = Wire("generalized-si", AGED)
    wire.feed("a", "0@10-20 x:=a1 y:=a2", "1@11-21 x:=a3 y:=a4")
    wire.feed("a", "0@100-101 z:=a5", "1@100-101 w:=a6")
    wire.round()
    wire.feed("a", "0@110-111 z:=a7", "1@110-111 w:=a8")
    wire.round()
    return wire


def test_a_snapshot_older_than_memory_raises_no_alarm() -> None:
    """The first of two transactions read a snapshot between two commits that are long past, the second a later one."""
    wire = aged_snapshots()
    wire.feed("a", "0@120-121 x==a1 y==a2", "1@120-121 y==a4 x==a3")
    assert wire.round().verdict == "accepted"


def test_a_collector_far_behind_raises_no_alarm_where_sessions_keep_no_order() -> None:
    """b wrote x and y before a replaced x; a has forgotten that when b's fragment comes, with one who saw both."""
    wire = Wire("generalized-si", AGED)
    wire.feed("a", "0@10-12 x:=a1", "0@100-101 z:=a2", "0@110-111 z:=a3")
    wire.round()
    wire.feed("a", "0@120-121 x==a1 y==b2")
    wire.round()
    wire.feed("b", "0@2-2.5 f:=b9<0", "0@3-5 x:=b1 y:=b2")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 2


@pytest.mark.parametrize("status", ["", "?"])
@pytest.mark.parametrize("level", ["strict-serializable", "strong-si"])
def test_what_clocks_put_before_the_past_is_found(level: str, status: str) -> None:
    """By the fences, the second session's transaction came after what is forgotten; by the clocks, before it."""
    wire = Wire(level)
    wire.feed("a", f"0{status}@10-11 x:=a1", "1 x==a1")
    forget_all(wire, "a", 0, 1)
    wire.fence("a", 0, 1)
    wire.round()
    assert wire.machine.levels[0].table.count >= 2
    wire.feed("a", "1@1-2 z:=a2")
    assert wire.round().verdict == "rejected"


def long_and_late(level: str) -> Wire:
    """Forgotten: a transaction that began at 10, and one that began before it and committed after it, from 1 to 20."""
    wire = Wire(level)
    wire.feed("a", "0@10-11 x:=a1", "2@1/20-21 y:=a3", "1 x==a1 y==a3")
    forget_all(wire, "a", 0, 1, 2)
    wire.fence("a", 0, 1, 2)
    wire.round()
    assert wire.machine.levels[0].table.count >= 3
    return wire


def test_who_committed_before_the_last_of_the_past_began_is_found() -> None:
    wire = long_and_late("strict-serializable")
    wire.feed("a", "1@5-6 z:=a2")
    assert wire.round().verdict == "rejected"
    wire = long_and_late("strict-serializable")
    wire.feed("a", "1@12-13 z:=a2")
    assert wire.round().verdict == "accepted"


@pytest.mark.parametrize("level", ["strong-session-si", "strong-si"])
def test_who_began_before_the_last_of_the_past_committed_is_found(level: str) -> None:
    wire = long_and_late(level)
    wire.feed("a", "1@12-13 z:=a2")
    assert wire.round().verdict == "rejected"
    wire = long_and_late(level)
    wire.feed("a", "1@22-23 z:=a2")
    assert wire.round().verdict == "accepted"


def test_without_session_order_clocks_tell_the_order_of_writes_only_beyond_their_drift() -> None:
    """Which of two writes is the last one the clocks do not prove, so neither is forgotten and either may be read."""
    wire = Wire("generalized-si", AGED, drift_ns=SECOND_NS)
    wire.feed("a", "0@10-11 x:=a1", "1@11.5/11.5-12 x:=a2")
    wire.feed("a", "0@100-101 z:=a5", "1@100-101 w:=a6")
    wire.round()
    wire.feed("a", "0@110-111 z:=a7", "1@110-111 w:=a8")
    wire.round()
    wire.feed("a", "0@112-113 x==a1")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unchecked_reads["lost"] == 0


def test_snapshots_from_before_anything_was_written_may_be_old() -> None:
    wire = aged_snapshots()
    wire.feed("a", "0@120-121 x==0 y==0", "2@120-121 u==0")
    assert wire.round().verdict == "accepted"
    wire.feed("a", "0@122-123 u:=a9<0 v==0", "1@122-123 v:=a10<0 u==0", "2@124-125 u==a9 v==0", "3@124-125 u==0 v==a10")
    assert wire.round().verdict == "rejected"  # a long fork: reads of initial versions are still checked


# Violations


def test_a_second_violation_is_found_and_the_first_is_not_told_again() -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x==0 y:=a1", "1 y==0 x:=a2")  # write skew
    first = wire.round()
    assert first.verdict == "rejected"
    assert len(first.violations) == 1
    wire.feed("a", "0 z:=a3", "1 w:=a4")
    assert wire.round().verdict == "accepted"
    wire.feed("a", "0 p==0 q:=a5", "1 q==0 p:=a6")
    second = wire.round()
    assert second.verdict == "rejected"
    assert len(second.violations) == 1
    assert second.violations[0].id != first.violations[0].id
    forget_all(wire, "a", 0, 1)
    assert wire.round().verdict == "accepted"


def test_two_violations_in_one_round_are_told_apart() -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x==0 y:=a1", "1 y==0 x:=a2", "2 p==0 q:=a3", "3 q==0 p:=a4", "0 r==a99")
    told = wire.round()
    assert len({violation.id for violation in told.violations}) == 3


def test_beyond_a_few_violations_are_only_counted() -> None:
    wire = Wire("serializable", replace(MEMORY, violations_explained_max=2))
    skews = [text for n in range(4) for text in (f"{2 * n} {'abcd'[n]}==0 {'pqrs'[n]}:=a{2 * n + 1}",
                                                 f"{2 * n + 1} {'pqrs'[n]}==0 {'abcd'[n]}:=a{2 * n + 2}")]  # fmt: skip
    wire.feed("a", *skews)
    told = wire.round()
    assert len(told.violations) == 2
    assert told.further_violations >= 4
    assert wire.round().verdict == "accepted"


def test_who_read_from_a_violation_is_not_accused_as_well() -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x==0 y:=a1", "1 y==0 x:=a2")
    assert wire.round().verdict == "rejected"
    wire.feed("a", "2 y==a1 x==a2", "2 y:=a3<a1")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unchecked_reads["lost"] == 3


def test_of_two_levels_on_one_stream_each_has_its_own_verdict() -> None:
    wire = Wire("serializable strong-session-si")
    wire.feed("a", "0 x==0 y:=a1", "1 y==0 x:=a2")
    assert [outcome.verdict for outcome in wire.rounds()] == ["rejected", "accepted"]
    wire.feed("a", "2 x==a2 y==a1")
    assert [outcome.verdict for outcome in wire.rounds()] == ["accepted", "accepted"]
    wire.feed("a", "3 x:=a3<a2", "2 x:=a4<a2")  # a lost update, at any level; the first one does not know of a2
    assert [outcome.verdict for outcome in wire.rounds()] == ["accepted", "rejected"]


# What is not known


def calm(wire: Wire) -> None:
    """A few more rounds of ordinary life, none of which may raise an alarm."""
    for _ in range(3):
        wire.later(10)
        assert wire.round().verdict == "accepted"


def test_a_commit_in_doubt_that_nobody_saw_is_counted_and_forgotten() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 x:=a1", "1? x:=a2<a1")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().in_doubt == 1
    calm(wire)
    assert wire.machine.gauges().in_doubt == 0
    wire.feed("a", "0 x==a2")  # so it did commit, but that was long ago
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unchecked_reads["lost"] == 1


def test_a_commit_in_doubt_that_somebody_saw_did_happen() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 x:=a1", "1? x:=a2<a1 y==0")
    wire.round()
    wire.feed("a", "0 x==a2", "2 x==a1")
    assert wire.round().verdict == "accepted"
    wire.feed("a", "0 x==a1")
    assert wire.round().verdict == "rejected"


def test_a_transaction_waits_for_a_writer_that_is_late() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("b", "0 y:=b1", settled=2)
    wire.feed("a", "0 x==b7", "0 z:=a1", "1 z==a1", "2 w:=a2")
    assert wire.round().txn_count == 2
    gauges = wire.machine.gauges()
    assert (gauges.waiting, gauges.waiting_since_ns) == (3, SECOND_NS)
    wire.feed("b", "0 x:=b7")
    assert wire.round().txn_count == 4
    assert wire.machine.gauges().waiting == 0
    assert wire.machine.gauges().unknown_txns == 0


def test_a_transaction_that_waits_for_a_stream_that_is_gone_becomes_unknown() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 x==b7 y:=a1", "1 y==a1")  # nobody ever heard of collector b
    assert wire.round().txn_count == 0
    wire.later(6)
    told = wire.round()
    assert (told.verdict, told.txn_count) == ("accepted", 2)
    assert wire.machine.gauges().unknown_txns == 1


def test_when_too_many_wait_the_oldest_stop_waiting() -> None:
    wire = Wire("serializable", replace(MEMORY, waiting_txns_max=2))
    wire.feed("a", *(f"{n} x==b{n + 1}" for n in range(5)))
    told = wire.round()
    assert (told.verdict, told.txn_count) == ("accepted", 3)
    assert wire.machine.gauges().waiting == 2
    assert wire.machine.gauges().unknown_txns == 3


def test_a_read_of_a_version_that_never_was_is_a_violation() -> None:
    wire = Wire("serializable")
    wire.feed("b", "0 y:=b1", settled=9)
    wire.feed("a", "0 x==b7")
    assert wire.round().verdict == "rejected"


def test_reads_from_a_gap_are_left_out_and_counted() -> None:
    wire = Wire("serializable", MEMORY)
    made = wire.make("b", settled=9)
    gap = made.gap.add(reason="spool full", txn_count=3)
    gap.write_ids.add(tag=tag("b"), first=2, end=8)
    wire.send("b", made)
    wire.feed("a", "0 x==b7", "1 x:=a1<b7", "1 x==a1")
    assert wire.round().verdict == "accepted"
    gauges = wire.machine.gauges()
    assert (gauges.lost_txns, gauges.unchecked_reads["lost"]) == (3, 2)


def test_what_lost_fragments_may_have_written_is_known_from_the_next_one() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("b", "0 y:=b1", settled=2, drawn=2)
    wire.machine.lose(b"b" * 16, 2, 3, wire.now_ns)
    wire.sequence["b"] = 3
    wire.feed("a", "0 x==b5", "1 y==b1")
    assert wire.round().txn_count == 2  # b's own first, and who read from it
    wire.feed("b", "0 z:=b9", settled=10, drawn=10)
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unchecked_reads["lost"] == 1
    wire.feed("a", "1 z==b9", "1 z==b11")
    assert wire.round().verdict == "accepted"
    wire.feed("b", settled=20, drawn=20)
    wire.feed("a", "1 x==b12")
    assert wire.round().verdict == "rejected"  # drawn after the loss, and never written


def test_a_read_that_two_levels_leave_out_counts_once() -> None:
    wire = Wire("serializable strong-session-si", MEMORY)
    made = wire.make("a")
    made.gap.add(txn_count=1).write_ids.add(tag=tag("a"), first=1, end=2)
    wire.send("a", made)
    wire.feed("a", "0 x==a1")
    wire.rounds()
    assert wire.machine.gauges().unchecked_reads["lost"] == 1


@pytest.mark.parametrize("told", [True, False])
def test_who_joins_late_does_not_take_older_write_ids_for_inventions(told: bool) -> None:
    """The verifier is new, or lost its first fragments; the collector has been running for long."""
    wire = Wire("serializable", MEMORY)
    wire.sequence["b"] = 6
    if told:
        wire.machine.lose(b"b" * 16, 1, 6, wire.now_ns)
    wire.feed("b", "0 y:=b90 x==b7", settled=91, drawn=91)
    wire.feed("a", "0 x==b8")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unchecked_reads["lost"] == 2


def test_a_dead_collector_holds_nothing_back_for_long() -> None:
    wire = Wire("serializable", MEMORY)
    wire.event("b", "open", 0)
    wire.fence("b", 0)
    wire.feed("b", "0 x:=b1", settled=2)
    wire.event("a", "open", 0)
    wire.fence("a", 0)
    for n in range(1, 9):
        wire.feed("a", f"0 y:=a{n}")
        wire.fence("a", 0)
        wire.round()
    assert wire.retained > 8
    wire.later(61)
    wire.feed("a", "0 y:=a20")
    wire.fence("a", 0)
    wire.fence("a", 0)
    wire.round()
    assert wire.machine.gauges().sessions_idle == 1
    assert wire.retained < 5


# Sessions


def test_a_session_that_comes_back_without_a_fence_is_left_out_until_it_fences() -> None:
    wire = Wire("serializable", MEMORY)
    wire.fence("a", 0, 1)
    wire.feed("a", "0 x:=a1")
    wire.event("a", "idle", 1)
    forget_all(wire, "a", 0)
    wire.feed("a", "0 x:=a2<a1")
    forget_all(wire, "a", 0)
    wire.feed("a", "1 x==a1", "1? y:=a3 x==a1", "0 y==a3")  # a stale snapshot, before all that was forgotten
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 2
    wire.fence("a", 1)
    wire.feed("a", "1 x==a1")
    assert wire.round().verdict == "rejected"


def test_a_session_that_rests_twice_has_to_fence_twice() -> None:
    wire = Wire("serializable", MEMORY)
    wire.fence("a", 0, 1)
    wire.feed("a", "0 x:=a1")
    wire.event("a", "idle", 1)
    forget_all(wire, "a", 0)
    wire.feed("a", "0 x:=a2<a1")
    forget_all(wire, "a", 0)
    made = wire.make("a", "1 x==a1")
    made.session_event.add(what=pb.SessionEvent.IDLE, session=1)  # its fence got lost, and it rests again
    wire.send("a", made)
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 1
    wire.feed("a", "1 x==a1")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 2


@pytest.mark.parametrize("level", ONLINE)
def test_what_a_session_did_before_it_rested_is_forgotten_if_it_reads_the_fence_before_it_closes(level: str) -> None:
    wire = Wire(level, MEMORY)
    wire.feed("a", "0@1-2 f:=a1<0#1", "0@3-4 x==0")
    wire.event("a", "idle", 0)
    wire.feed("b", "0@5-6 f:=b1<a1#2", "0@7-8 f:=b2<b1#3")
    wire.round()
    wire.feed("a", "0@9-10 f==b2#3")
    wire.event("a", "close", 0)
    wire.feed("b", "0@11-12 f:=b3<b2#4")
    wire.round()
    assert wire.machine.gauges().unknown_txns == 0
    assert wire.retained < 3


def test_a_session_that_rested_and_read_an_old_fence_has_proved_nothing() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 f:=a1<0#1", "0 x==0")
    wire.event("a", "idle", 0)
    wire.feed("b", "0 f:=b1<a1#2", "0 y:=b5", "0 y:=b6<b5", "0 f:=b2<b1#3", "0 f:=b3<b2#4", "0 f:=b4<b3#5")
    wire.round()
    wire.feed("a", "0 f==b1#2", "0 y==b5")  # a stale snapshot, which serializability allows
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 2


def test_a_fence_that_arrives_too_late_proves_nothing() -> None:
    """b's fence came between two of a's, but a's stopped waiting for it."""
    wire = Wire("serializable", MEMORY)
    wire.event("a", "open", 0)
    wire.feed("a", "0 f:=a1<0", "0 x:=a2", "0 f:=a3<b1", "0 x:=a4<a2", "0 f:=a5<a3", "0 f:=a6<a5")
    wire.round()
    wire.later(6)
    wire.round()
    wire.feed("a", "0 f:=a7<a6")
    wire.round()
    wire.event("b", "open", 0)
    wire.feed("b", "0 f:=b1<a1", "0 x==a2")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 3


@pytest.mark.parametrize("level", ONLINE)
def test_who_follows_a_fence_in_doubt_that_took_effect_is_checked(level: str) -> None:
    wire = Wire(level, MEMORY)
    wire.event("a", "open", 0)
    wire.feed("a", "0 f:=a1<0", "0 x:=a2", "0 x:=a3<a2", "0 f:=a4<a1", "0 f:=a5<a4")
    wire.event("a", "close", 0)
    wire.round()
    wire.event("a", "open", 1)
    wire.feed("a", "1? f:=a6<a5", "1 x==a2")  # which proves nothing about its own session
    wire.round()
    assert wire.machine.gauges().unknown_txns == 1
    wire.event("a", "open", 2)
    wire.feed("a", "2 f:=a7<a6", "2 x==a2")
    assert wire.round().verdict == "rejected"
    assert wire.machine.gauges().unknown_txns == 1


def fence_in_a_gap(level: str = "serializable", is_round_between: bool = True) -> Wire:
    """All sessions are over, and the last fence, a3, was lost, as will be a4: only epochs tell what follows them."""
    wire = Wire(level, MEMORY)
    wire.event("a", "open", 0)
    wire.feed("a", "0 f:=a1<0#1", "0 f:=a2<a1#2", "0 x:=a10", "0 f:=a8<a2#3")
    wire.event("a", "close", 0)
    if is_round_between:
        wire.round()
    made = wire.make("a")
    made.gap.add(txn_count=2).write_ids.add(tag=tag("a"), first=3, end=5)
    wire.send("a", made)
    return wire


@pytest.mark.parametrize("is_round_between", [True, False])
@pytest.mark.parametrize("level", ONLINE)
def test_a_gap_with_a_fence_in_it_blinds_nobody(level: str, is_round_between: bool) -> None:
    wire = fence_in_a_gap(level, is_round_between)
    before, epoch = "a3", 4
    for n in range(20, 60, 2):
        wire.event("a", "open", n)
        wire.feed("a", f"{n}@{n}-{n}.5 f:=a{n}<{before}#{epoch + 1}", f"{n}@{n}.6-{n}.7 x==a10")
        wire.feed("a", f"{n}@{n}.8-{n}.9 f:=a{n + 1}<a{n}#{epoch + 2}")
        wire.event("a", "close", n)
        if is_round_between or n > 30:
            assert wire.round().verdict == "accepted"
        before, epoch = f"a{n + 1}", epoch + 2
        if n == 24:
            before, epoch = "a4", epoch + 1  # which is lost as well
    assert wire.machine.gauges().unknown_txns == 0
    assert wire.retained < 3  # of 60: forgetting goes on
    wire.event("a", "open", 99)
    wire.feed("a", f"99@99-100 f:=a99<{before}#{epoch + 1}", "99@100-101 x==0")
    assert wire.round().verdict == "rejected"


def test_a_fence_that_follows_a_lost_one_proves_something_only_by_a_later_epoch() -> None:
    for epoch, unknown in (("", 2), ("#3", 2), ("#4", 0), ("#5", 0)):
        wire = fence_in_a_gap()
        wire.event("b", "open", 0)
        wire.feed("b", f"0 f:=b1<a3{epoch}", "0 x==0")
        assert wire.round().verdict == ("accepted" if unknown else "rejected")
        assert wire.machine.gauges().unknown_txns == unknown


@pytest.mark.parametrize("level", ["serializable", "serializable strong-session-si"])
def test_a_late_fence_after_a_gap_is_no_alarm_whatever_the_clocks_say(level: str) -> None:
    """b's fence came early, but its clock is far ahead, and the fences around it are lost."""
    wire = Wire(level, MEMORY)
    wire.event("a", "open", 0)
    wire.feed("a", "0@1-2 f:=a1<0#1", "0@3-4 f:=a5<a4#5", "0@5-6 x:=a10", "0@7-8 f:=a6<a5#6", "0@9-9.5 f:=a7<a6#7")
    made = wire.make("a")
    made.gap.add(txn_count=2).write_ids.add(tag=tag("a"), first=2, end=5)
    wire.send("a", made)
    wire.round()
    wire.event("b", "open", 0)
    wire.feed("b", "0@1000-1001 f:=b1<a2#3", "0@1002-1003 x==0")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 2


def test_a_late_fence_of_an_open_session_finds_its_place_between_two_others() -> None:
    """a6 is linked to b1 across lost ones, until b4 arrives, which came between."""
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 f:=a1<0#1")
    wire.feed("b", "0 f:=b1<a1#2")
    wire.round()
    made = wire.make("a", "0 f:=a6<a5#6", "0 y==0")
    made.gap.add(txn_count=2).write_ids.add(tag=tag("a"), first=2, end=6)
    wire.send("a", made)
    assert wire.round().verdict == "accepted"
    wire.feed("b", "0 f:=b4<a3#4", "0 x:=b9")
    wire.feed("a", "0 x==b9")
    assert wire.round().verdict == "accepted"
    wire.feed("a", "0 x==0")  # and what came before a6 is known to
    assert wire.round().verdict == "rejected"
    assert wire.machine.gauges().unknown_txns == 0


def test_a_violation_with_fences_in_it_does_not_end_forgetting() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 x:=a1", "0 f:=a2<0#1", "1 f:=a3<a2#2", "1 x==0")
    assert wire.round().verdict == "rejected"
    before = "a3"
    for n in range(10, 100):
        wire.feed("a", f"{n % 2} f:=a{n}<{before}#{n - 7}", f"{n % 2} y:=a{n + 100}")
        before = f"a{n}"
        assert wire.round().verdict == "accepted"
    assert wire.retained < 10


def test_fences_without_epochs_prove_nothing_after_a_lost_one_until_all_begins_anew() -> None:
    wire = fence_in_a_gap()
    before = "a3"
    for n in range(20, 40, 2):
        wire.event("a", "open", n)
        wire.feed("a", f"{n} f:=a{n}<{before}", f"{n} x==0", f"{n} f:=a{n + 1}<a{n}")
        wire.event("a", "close", n)
        assert wire.round().verdict == "accepted"
        before = f"a{n + 1}"
    assert wire.machine.gauges().unknown_txns == 30
    wire.later(61)
    for n in range(40, 60, 2):
        c = "c" if n == 40 else "d"  # what c has settled when all begins anew is lost
        wire.event(c, "open", n)
        wire.feed(c, f"{n} f:={c}{n}<{before}", f"{n} x==0 y:={c}{n + 100}", f"{n} f:={c}{n + 1}<{c}{n}")
        wire.event(c, "close", n)
        assert wire.round().verdict == "accepted"
        before = f"{c}{n + 1}"
    assert wire.machine.gauges().unknown_txns < 40  # with what was let go
    wire.feed("d", f"60 f:=d60<{before}", "60 y==d144")
    assert wire.round().verdict == "rejected"


def live_on(wire: Wire, before: str, epoch: int, era: str = "") -> None:
    """Sessions come and go, and a stale read is found in the end."""
    for n in range(200, 220, 2):
        wire.event("c", "open", n)
        wire.feed(
            "c",
            f"{n} f:=c{n}<{before}#{era}{epoch + 1}",
            f"{n} z:=c{n + 100}",
            f"{n} f:=c{n + 1}<c{n}#{era}{epoch + 2}",
        )
        wire.event("c", "close", n)
        assert wire.round().verdict == "accepted"
        before, epoch = f"c{n + 1}", epoch + 2
    assert wire.retained < 6
    wire.event("c", "open", 999)
    wire.feed("c", f"999 f:=c999<{before}#{era}{epoch + 1}", "999 z==c310")
    assert wire.round().verdict == "rejected"


@pytest.mark.parametrize("era", ["", "7:"])
@pytest.mark.parametrize("level", ONLINE)
def test_a_new_fence_row_is_no_alarm_and_all_begins_anew(level: str, era: str) -> None:
    """The hidden columns were dropped and added again, so the rows have no versions either."""
    wire = Wire(level, MEMORY)
    wire.feed("a", "0 f:=a1<0#1", "0 x:=a2", "0 f:=a3<a1#2", "0 f:=a4<a3#3", "1 f:=a5<a4#4", "1 x:=a6<a2")
    wire.event("a", "close", 0)
    wire.round()
    wire.event("b", "open", 0)
    wire.feed("b", f"0 f:=b1<0#{era}1", "0 x==0", "0 x:=b2<0")
    assert wire.round().verdict == "accepted"
    wire.feed("b", "0 x==b2", f"0 f:=b3<b1#{era}2")
    wire.event("b", "close", 0)
    assert wire.round().verdict == "accepted"
    wire.event("a", "close", 1)
    live_on(wire, "b3", 2, era)


def test_what_comes_late_from_the_time_before_a_new_fence_row_is_unknown() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 f:=a1<0#5:1", "0 x:=a2", "1 f:=a3<a1#5:2")
    wire.round()
    wire.event("b", "open", 0)
    wire.feed("b", "0 f:=b1<c9#7:2", "0 x==0 y:=b2", "0 f:=b3<b1#7:3")  # the first fence of the new row is late
    wire.feed("c", settled=1)
    wire.round()
    wire.feed("c", "0 f:=c9<0#7:1")
    assert wire.round().verdict == "accepted"
    wire.feed("a", "1 y:=a4 x:=a5<a2", "0 f:=a6<a3#5:3", "0 x==a5 y==a4")
    wire.event("d", "open", 0)
    wire.feed("d", "0 f:=d1<a6#5:4", "0 y==a4")
    unknown = wire.machine.gauges().unknown_txns
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == unknown + 5
    wire.feed("a", "1 f:=a7<b3#7:4", "1 y==0")  # one that lives on has fenced in the new row
    assert wire.round().verdict == "rejected"


def test_a_fence_row_that_went_back_is_a_violation_and_blinds_nobody_for_long() -> None:
    """A backup was restored: commits that had been acknowledged are gone."""
    wire = Wire("serializable", MEMORY)
    before = "0"
    for n in range(1, 30):
        wire.feed("a", f"0 f:=a{n}<{before}#{n}")
        before = f"a{n}"
    wire.event("a", "close", 0)
    wire.round()
    wire.event("b", "open", 0)
    wire.feed("b", "0 f:=b1<a5#6", "0 y:=b2", "0 f:=b3<b1#7")
    wire.event("b", "close", 0)
    assert wire.round().verdict == "rejected"
    live_on(wire, "b3", 7)


def test_a_fence_row_that_went_back_after_a_gap_is_unknown_until_all_begins_anew() -> None:
    wire = fence_in_a_gap()
    wire.event("b", "open", 0)
    wire.feed("b", "0 f:=b1<a1#2", "0 y:=b2")
    wire.event("b", "close", 0)
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 2
    wire.later(61)
    wire.feed("d", "0 f:=d1<b1#3", "0 x==a10")
    wire.event("d", "close", 0)
    assert wire.round().verdict == "accepted"
    assert wire.machine.begun_anew == 1
    live_on(wire, "d1", 3)


def test_a_silent_session_no_longer_holds_back_forgetting() -> None:
    wire = Wire("serializable", MEMORY)
    wire.fence("a", 0, 1)
    for n in range(1, 6):
        wire.feed("a", f"0 x:=a{n}")
        wire.fence("a", 0)
        wire.round()
    assert wire.retained > 8
    wire.later(61)
    wire.fence("a", 0)
    wire.fence("a", 0)
    wire.round()
    assert wire.retained < 4
    wire.feed("a", "1 x==a1")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 1


def test_two_collectors_with_one_tag_are_not_told_apart() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("a", "0 x:=a1")
    made = wire.make("b", "0 x:=a1", "0 y:=a2")
    made.write_ids.add(tag=tag("a"), settled=100)
    wire.send("b", made)
    wire.feed("a", "1 x==a1", "1 x==a1 y==a2")
    assert wire.round().verdict == "accepted"
    gauges = wire.machine.gauges()
    assert gauges.unchecked_reads["contested"] == 3
    assert gauges.clashing_tags == 1


# Downtime


def test_downtime_is_nobodys_silence() -> None:
    wire = Wire("serializable", MEMORY)
    wire.event("a", "open", 0)
    wire.fence("a", 0)
    wire.feed("a", "0 x:=a1")
    wire.round()
    wire.later(3600)
    wire.machine.resume(wire.now_ns)
    wire.round()
    wire.feed("a", "0 x:=a2<a1")  # it was running all the time, and saw no reason to fence
    assert wire.round().verdict == "accepted"
    wire.feed("a", "0 x==a1")  # so its own past is still known
    assert wire.round().verdict == "rejected"
    assert wire.machine.gauges().unknown_txns == 0


def test_who_stays_away_after_a_downtime_is_silent_in_the_end() -> None:
    wire = Wire("serializable", MEMORY)
    wire.event("a", "open", 0)
    wire.fence("a", 0)
    wire.later(3600)
    wire.machine.resume(wire.now_ns)
    wire.later(59)
    wire.round()
    assert wire.machine.gauges().sessions_open == 1
    wire.later(2)
    wire.round()
    assert wire.machine.gauges().sessions_open == 0


def test_who_waits_and_who_is_in_doubt_has_as_long_after_a_downtime_as_before() -> None:
    wire = Wire("serializable", MEMORY)
    wire.feed("b", settled=1)
    wire.feed("a", "0 x==b1", "1? y:=a1")
    wire.round()
    wire.later(3600)
    wire.machine.resume(wire.now_ns)
    wire.round()
    assert (wire.machine.gauges().waiting, wire.machine.gauges().in_doubt) == (1, 1)
    wire.feed("b", "0 x:=b1", "0 y==a1")
    assert wire.round().verdict == "accepted"
    gauges = wire.machine.gauges()
    assert (gauges.waiting, gauges.unknown_txns, gauges.unchecked_reads["lost"]) == (0, 0, 0)


# Collectors that are long gone


def long_gone(level: str = "serializable") -> Wire:
    """Collector b wrote x and y and is forgotten, some of what it may have written was never told; a goes on."""
    wire = Wire(level, replace(MEMORY, collector_silence_ns_max=1000 * SECOND_NS))
    wire.event("a", "open", 0)
    wire.event("b", "open", 0)
    wire.fence("b", 0)
    wire.feed("b", "0 x:=b1", "0 x:=b2<b1 y:=b7", settled=4)
    forget_all(wire, "b", 0)
    for _ in range(40):
        wire.later(40)
        wire.fence("a", 0)
        wire.round()
    assert list(wire.machine.collectors) == [b"a" * 16]
    assert list(wire.machine.owners.of) == [tag("a")]
    assert len(wire.machine.sessions) == 1
    return wire


def restored(wire: Wire) -> None:
    settings = [level.settings for level in wire.machine.levels]
    wire.machine = Verifier.from_state(settings, wire.limits, wire.machine.state())


def test_what_a_collector_wrote_outlives_it() -> None:
    wire = long_gone()
    restored(wire)
    wire.feed("a", "0 x==b2 y==b7")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().waiting == 0
    wire.feed("a", "0 x==b1")
    assert wire.round().verdict == "rejected"


def test_what_a_collector_that_is_gone_may_have_written_untold_is_no_invention() -> None:
    wire = long_gone()
    wire.feed("a", "0 z==b99999")  # SETTLED is what the fences of b said
    assert wire.round().verdict == "rejected"
    wire.feed("a", "0 z==b100005")
    wire.round()
    assert wire.machine.gauges().waiting == 1
    wire.later(6)
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unknown_txns == 1


@pytest.mark.parametrize("level", ONLINE)
def test_fragments_sent_again_after_their_collector_was_forgotten_raise_no_alarm(level: str) -> None:
    wire = long_gone(level)
    restored(wire)
    wire.sequence["b"] = 0
    wire.event("b", "open", 0)
    wire.feed("b", "0 f:=b50001<0", "0 x:=b1", "0 x:=b2<b1 y:=b7", settled=4)
    wire.feed("b", "0 f:=b50002<b50001", "0 f:=b50003<b50002", "0 x==b2")
    assert wire.round().verdict == "accepted"
    wire.fence("a", 0)
    wire.feed("a", "0 x==b2", "0 y==b7")
    assert wire.round().verdict == "accepted"


def test_a_collector_that_was_forgotten_and_comes_back_is_followed_again_once_it_fences() -> None:
    wire = long_gone()
    wire.feed("b", "0 x:=b200000<b2", settled=300_000, drawn=300_000)
    wire.round()
    assert wire.machine.gauges().unknown_txns == 1
    wire.fences = 300_000  # so many are drawn
    wire.fence("b", 0)
    wire.feed("b", "0 z:=b300002", settled=400_000, drawn=400_000)
    wire.feed("a", "0 z==b300002")
    assert wire.round().verdict == "accepted"
    gauges = wire.machine.gauges()
    assert (gauges.unknown_txns, gauges.clashing_tags) == (1, 0)
    wire.feed("a", "0 z==0")
    assert wire.round().verdict == "rejected"


def test_a_new_collector_that_draws_the_tag_of_one_long_gone_clashes() -> None:
    wire = long_gone()
    made = wire.make("c", "0 z:=b5")
    made.write_ids.add(tag=tag("b"), settled=100)
    wire.send("c", made)
    wire.feed("a", "0 z==b5 x==b2")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().clashing_tags == 1


@pytest.mark.parametrize("level", ["strict-serializable", "strong-si"])
def test_a_clock_that_steps_back_is_not_believed(level: str) -> None:
    wire = Wire(level)
    wire.feed("a", "0@20-21 x:=a1")
    made = wire.make("a", "1@5-6 x==a1")
    made.sealed_ns = 0
    wire.send("a", made)
    assert wire.round().verdict == "accepted"
    wire.feed("a", "1@5-6 x==a1")  # with a clock that goes on, it is a violation
    assert wire.round().verdict == "rejected"


def test_times_of_one_transaction_that_go_backwards_are_not_believed() -> None:
    wire = Wire("strict-serializable")
    wire.feed("a", "0@20-21 x:=a1", "1@6-5 x==a1")
    assert wire.round().verdict == "accepted"


# Checkpoints


def test_a_restored_machine_has_the_same_state() -> None:
    wire = dissertation_443()
    wire.feed("b", "0? x:=b1", "1 y==c9", "2! z:=b3", settled=2)
    wire.round()
    saved = wire.machine.state()
    settings = [level.settings for level in wire.machine.levels]
    restored = Verifier.from_state(settings, wire.limits, saved)
    assert restored.state() == saved
    assert restored.gauges() == wire.machine.gauges()


def test_versions_have_names_that_people_can_follow() -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x:=a1")
    made = wire.make("a", "0 x==a77")
    made.key_name.add(key=ord("x"), name="accounts/42")
    made.statement.add(number=3, text="SELECT 1")
    made.op_statement = b"\3\0\0\0"
    wire.send("a", made)
    shown = wire.round().violations[0].counterexample.transactions[0].operations[0]
    assert (shown.key, shown.version, shown.statement) == ("accounts/42", "v77@1", "SELECT 1")
    assert version("a77") > 0


@pytest.mark.parametrize("level", ["serializable", "strong-session-si"])
def test_of_many_updates_of_one_version_all_are_left_out_at_once(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass through the window for each of them would take minutes."""
    monkeypatch.setattr(level_module, "PASSES_MAX", 2 * Limits().violations_explained_max)
    wire = Wire(level)
    wire.feed("a", "0 x:=a1", "0 y:=a2", "0 z:=a3")
    wire.feed("a", *(f"{n} {'xyz'[n % 3]}:=a{n + 10}<a{n % 3 + 1}" for n in range(200)))
    outcome = wire.round()
    assert (outcome.verdict, outcome.failure) == ("rejected", "")
    assert len(outcome.violations) == Limits().violations_explained_max
    assert outcome.further_violations > 150
    wire.feed("b", "0 y:=b1")
    assert wire.round().verdict == "accepted"
