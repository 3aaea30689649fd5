"""What proves nothing is left out, counted and told: by rounds, and by one check of the same fragments as a spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier import Rejected, Settings, Unknown, check
from mussurana.verifier.formats import load
from mussurana.verifier.formats.spool import AMBIGUOUS_KEYS, CLOCKS_SET_BACK, OTHER_TXNS, STRANGE_READS
from mussurana.verifier.history import History, Status
from mussurana.verifier.rounds import collisions
from mussurana.verifier.rounds.level import LevelRounds
from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire import FENCE_KEY, segments
from mussurana.wire.history_pb2 import Coverage, Fragment, Hello, Upload
from tests.rounds.feeding import Wire, key

SETTLED = 40_000


class Both(Wire):
    """Whatever is fed to the machine goes into a spool as well."""

    def __init__(self, level: str, folder: Path) -> None:
        super().__init__(level)
        self.folder = folder

    def send(self, collector: str, made: Fragment) -> None:
        super().send(collector, made)
        id = collector.encode() * 16
        appender = segments.Appender(self.folder / f"{collector}-{made.sequence:08}", 1 << 20)
        uploads = Upload(hello=Hello(protocol=1, collector=id, name=collector)), Upload(fragment=made)
        appender.append([upload.SerializeToString() for upload in uploads])
        appender.close()

    def named(self, collector: str, name: str, number: str, *txns: str) -> None:
        made = self.make(collector, *txns, settled=SETTLED, drawn=SETTLED)
        made.key_name.add(key=key(number), name=name)
        self.send(collector, made)

    def spool(self) -> History:
        return load(self.folder, "spool")

    def left_out(self) -> dict[str, int]:
        return {each.what: each.count for each in self.spool().left_out}

    def restore(self) -> None:
        levels = [level.settings for level in self.machine.levels]
        self.machine = Verifier.from_state(levels, self.limits, self.machine.state())


@pytest.mark.parametrize("level", ["strong-session-si", "generalized-si", "strong-si"])
def test_a_row_of_a_tainted_table_that_comes_back_is_no_alarm(level: str, tmp_path: Path) -> None:
    both = Both(level, tmp_path)
    made = both.make("a")
    for number, name in (("x", "t/1"), ("y", "u/1"), ("z", "u/2")):
        made.key_name.add(key=key(number), name=name)
    made.coverage.add(table="t", shape="COPY", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
    both.send("a", made)
    both.feed("a", "0 y==0 z:=a3 x:=a1", "1 z==0 y:=a4 x:=a2<new")  # neither saw the other, so they overlap
    assert both.round().verdict == "accepted"
    assert not isinstance(check(both.spool(), Settings(level)).verdict, Rejected)


@pytest.mark.parametrize("again", [False, True])
def test_two_rows_whose_names_have_one_hash_are_left_out(again: bool, tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.named("a", "t/1", "x", "0 x:=a1<0")
    if again:
        both.round()
        both.restore()
    both.named("b", "t/2", "x", "0 x:=b1<0")
    assert both.round().verdict == "accepted"
    assert both.machine.gauges().unchecked_reads["colliding"] == (1 if again else 2)
    both.restore()
    both.feed("c", "0 x==0")
    assert both.round().verdict == "accepted"
    assert not isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)
    assert both.left_out()[AMBIGUOUS_KEYS] == 3


@pytest.mark.parametrize("again", [False, True])
def test_what_a_second_name_leaves_unchecked_is_told_by_who_told_it_and_table(again: bool, tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.named("a", "t/1", "x", "0 x:=a1<0")
    both.named("e", "other/1", "x")
    if again:
        both.restore()
    both.feed("a", "0 x==a1 z:=a2", "1 z==0 x:=a3<a1")
    (told,) = both.round().unchecked
    assert (told.reason, told.collector, told.table, told.reads) == ("colliding", " @2", "t", 1)
    assert both.machine.key_names[key("x")] == "t/1"


@pytest.mark.parametrize("again", [False, True])
def test_whoever_tells_too_many_second_names_has_told_one_of_every_key_but_the_fence(
    again: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And nobody is refused for it: the right name may be the one that came second."""
    monkeypatch.setattr(collisions, "COLLIDING_KEYS_MAX", 1)
    both = Both("serializable", tmp_path)
    for name, number in (("t/1", "x"), ("t/2", "x"), ("t/3", "x"), ("u/1", "y")):
        both.named("a", name, number)
    both.feed("a", "0 w==0 z:=a1", "1 z==0 w:=a2")
    assert both.round().verdict == "rejected"
    both.named("b", "u/2", "y")
    if again:
        both.restore()
    both.feed("a", "0 u==0 v:=a3", "1 v==0 u:=a4")
    done = both.round()
    assert done.verdict == "accepted"
    assert [(told.reason, told.collector, told.reads) for told in done.unchecked] == [("colliding", " @2", 2)]
    both.feed("a", "0 f:=a50000<0", "1 f:=a50001<0")
    assert both.round().verdict == "rejected"


@pytest.mark.parametrize("level", ["serializable", "strong-session-si"])
def test_a_fence_after_one_that_came_once_more_follows_none_and_the_round_ends(level: str) -> None:
    wire = Wire(level)
    wire.feed("a", "2 x:=a1", settled=SETTLED, drawn=SETTLED)
    wire.feed("a", "0 f:=a10<0#1", "1 f:=a11<0#2", settled=SETTLED, drawn=SETTLED)
    for _ in range(3):
        wire.feed("b", "3 y:=b1 z==0", "4 z:=b2 y==0")
        assert not wire.round().failure
        assert wire.machine.levels[0].failures == 0


def test_a_round_whose_passes_change_nothing_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What once was possible: each pass takes away what the next one puts back."""
    wire = Wire("serializable")
    monkeypatch.setattr(LevelRounds, "_without_ambiguous", lambda self, window, ops, outcome: window.batch)
    wire.feed("a", "0 x:=a1", "1 x:=a1", "2 x==a1")
    assert "1,000 passes" in wire.round().failure


def test_a_name_of_the_fence_row_says_nothing(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.named("a", "one", "f", "0 f:=a1<0")
    both.named("a", "other", "f", "0 f:=a2<a1", "1 f:=a3<a1")
    assert both.round().verdict == "rejected"
    assert isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)


@pytest.mark.parametrize("first", ["is retained", "is forgotten"])
def test_a_version_that_was_written_twice_and_read_is_unknown(first: str, tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 x:=a1", drawn=10)
    if first == "is forgotten":
        for _ in range(3):
            both.fence("a", 0)
        both.round()
        assert both.retained == 0
        both.restore()
    both.feed("a", "0 x:=a1", "0 y:=a2", drawn=10)
    both.fence("b", 0)
    both.feed("b", "0 x==a1 y==0")
    told = both.round()
    assert told.verdict == "unknown"
    assert "several transactions wrote" in told.reason
    assert both.machine.gauges().unchecked_reads["repeated"] > 0
    verdict = check(both.spool(), Settings("serializable")).verdict
    assert isinstance(verdict, Unknown)
    assert "several transactions wrote" in verdict.reason
    both.restore()
    both.feed("b", "0 x==a1")
    assert both.round().verdict == "unknown"


def test_who_reads_a_version_twice_written_when_one_writer_is_forgotten_is_unknown(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 x:=a1", "1 x==a1 x:=a1")
    both.round()
    both.fence("a", *(0, 1) * 3)
    both.round()
    assert both.retained <= 1
    both.fence("b", 0)
    both.feed("b", "0 x==a1")
    assert both.round().verdict == "unknown"
    assert isinstance(check(both.spool(), Settings("serializable")).verdict, Unknown)


def forget(both: Both, *sessions: int) -> None:
    """Have all sessions of a pass fences until what they did before is forgotten."""
    for _ in range(2):
        both.fence("a", *sessions * 3)
        both.round()
    retained = both.machine.levels[0].retained
    assert (retained.key[(retained.status == Status.COMMITTED)[retained.op_txn]] == FENCE_KEY).all()


def test_of_two_writers_of_a_version_none_is_believed_before_the_other_one_may_enter(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 x:=a1", "1 z==b7 x:=a1", "2 x==a1 y==0", settled=2)  # b7 has not arrived
    assert both.round().txn_count == 0
    both.feed("b", "0 z:=b7", settled=10)
    assert both.round().verdict == "unknown"
    assert isinstance(check(both.spool(), Settings("serializable")).verdict, Unknown)


def test_who_contradicts_itself_is_rejected_whoever_wrote_what_it_saw(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 x:=a1<0", "1 x:=a1<a1")
    both.round()
    forget(both, 0, 1)
    both.feed("a", "0 x:=a3 x:=a4<a1")
    assert both.round().verdict == "rejected"
    assert isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)


def test_a_transaction_sees_its_own_write_also_under_the_name_of_a_forgotten_one(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 x:=a1<0")
    both.fence("a", 0, 1)
    both.feed("a", "1 x:=a1<a1 x:=a2<a1")
    both.fence("a", 0)
    for _ in range(2):
        assert both.round().verdict == "accepted"
    assert both.retained == 2  # the second writer, and the last fence
    assert not isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)


@pytest.mark.parametrize("other", ["1! x:=a1", "1 x:=a1<a1 x:=a2<a1"])
def test_a_write_that_nobody_can_have_left_behind_raises_no_doubt(other: str, tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 x:=a1", other)
    both.round()
    forget(both, 0, 1)
    both.feed("a", "0 y==0 x==a1")
    verdict = check(both.spool(), Settings("serializable")).verdict
    assert both.round().verdict == type(verdict).__name__.lower() != "unknown"


@pytest.mark.parametrize("level", ["strict-serializable", "strong-si"])
def test_a_transaction_whose_clock_went_back_has_no_times(level: str, tmp_path: Path) -> None:
    both = Both(level, tmp_path)
    both.feed("a", "0@20-21 x:=a1", "1@6-5 x==a1")
    assert both.round().verdict == "accepted"
    assert both.machine.gauges().clocks_set_back == 1
    assert not isinstance(check(both.spool(), Settings(level)).verdict, Rejected)
    assert both.left_out() == {CLOCKS_SET_BACK: 1}


def with_horizon(both: Both, collector: str, horizon: int, *txns: str) -> None:
    made = both.make(collector, *txns)
    made.xid_horizon = horizon
    both.send(collector, made)


def test_rows_from_before_recording_have_their_initial_version(tmp_path: Path) -> None:
    """Versions without a letter are the database's own ids."""
    both = Both("serializable", tmp_path)
    with_horizon(both, "a", 100, "0 x==40", "0 x:=200<40", "1 y==41")
    assert both.round().verdict == "accepted"
    assert both.machine.gauges().waiting == 0
    assert not both.machine.gauges().unchecked_reads["lost"]
    both.restore()
    with_horizon(both, "a", 100, "1 x:=201<40")
    assert both.round().verdict == "rejected"  # two replaced the same
    assert isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)


def test_a_row_with_two_versions_from_before_recording_is_left_out(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    with_horizon(both, "a", 100, "0 x==40 x:=200<40")
    both.round()
    both.restore()
    with_horizon(both, "a", 100, "1 x:=201<41")
    assert both.round().verdict == "accepted"
    assert both.machine.gauges().unchecked_reads["lost"] == 1
    assert not isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)
    assert both.left_out()[STRANGE_READS] == 3


def test_who_began_to_record_earlier_may_have_written_what_others_take_for_initial(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    with_horizon(both, "a", 100, "0 x==80 z:=200")
    assert both.round().verdict == "accepted"
    with_horizon(both, "b", 70, "0 x:=80", "0 z==0")  # so that the first of a comes after both
    assert both.round().verdict == "accepted"
    assert not isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)


def test_nobody_is_believed_to_be_initial_while_somebody_records_other_versions(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    with_horizon(both, "a", 100, "0 x==40")
    both.feed("b", "0 y:=b1")
    with_horizon(both, "a", 100, "1 x==41")
    assert both.round().verdict == "accepted"
    assert both.machine.gauges().waiting == 2  # for whoever wrote them
    assert both.left_out() == {STRANGE_READS: 2}


def test_all_operations_that_are_shown_of_a_long_transaction_have_their_sql(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    others = " ".join(f"{name}==0" for name in "abcdeghijklmnopqrst")
    made = both.make("a", f"0 {others} x==0 y:=a1", f"1 {others} y==0 x:=a2")
    numbers = [*range(1, 22)] * 2
    made.op_statement = b"".join(number.to_bytes(4, "little") for number in numbers)
    for number in range(1, 22):
        made.statement.add(number=number, text=f"SQL {number}")
    both.send("a", made)
    told = both.round().violations[0].counterexample
    verdict = check(both.spool(), Settings("serializable")).verdict
    assert isinstance(verdict, Rejected)
    for counterexample in (told, verdict.counterexample):
        shown = [[operation.statement for operation in txn.operations] for txn in counterexample.transactions]
        assert shown == [["SQL 20", "SQL 21"], ["SQL 20", "SQL 21"]]


def test_a_fence_row_that_was_made_anew_accuses_nobody(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 f:=a1<0#1:1", "0 x:=a2<0", "1 y==0")
    assert both.round().verdict == "accepted"
    both.feed("a", "0 x==0", "0 f:=a3<0#2:1", "0 x:=a4<0", "0 y==0")
    assert both.round().verdict == "accepted"
    assert not isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)
    assert both.left_out() == {OTHER_TXNS: 4}
    both.feed("a", "0 x==0")
    assert both.round().verdict == "rejected"
    assert isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)


def test_two_collectors_that_drew_one_tag_accuse_nobody(tmp_path: Path) -> None:
    both = Both("serializable", tmp_path)
    both.feed("a", "0 x:=a1 y:=a2")
    made = both.make("b", "0 x:=a1 z:=a3", "1 z==a3")
    made.write_ids.add(tag=ord("a"), settled=100)
    both.send("b", made)
    both.feed("c", "0 x==a1 y==a2 z==a3")
    assert both.round().verdict == "accepted"
    assert both.machine.gauges().clashing_tags == 1
    assert not isinstance(check(both.spool(), Settings("serializable")).verdict, Rejected)
    assert both.left_out()[OTHER_TXNS] == 1


def test_a_fence_that_saw_another_one_twice_written_does_not_keep_a_round_from_its_end() -> None:
    """What it saw is left out, and its epoch must not bring that back: the next pass would leave it out again."""
    wire = Wire("serializable")
    for counter in (1, 2, 3):
        wire.feed(
            "a",
            f"0 f:=a{counter}<{f'a{counter - 1}' if counter > 1 else 0}#{counter}",
            settled=counter + 1,
            drawn=counter + 1,
        )
    assert wire.round().verdict == "accepted"
    wire.feed("a", "1 f:=a2<a3#4", "0 f:=a4<a2#5", settled=5, drawn=5)
    outcome = wire.round()
    assert (outcome.verdict, outcome.failure) == ("unknown", "")


def test_a_fence_that_saw_one_written_twice_in_the_same_round_does_not_keep_it_from_its_end() -> None:
    """The other writer is in doubt, so it counts only while somebody is linked to it."""
    wire = Wire("serializable")
    wire.feed("a", "0 f:=a1<0#1", settled=2, drawn=2)
    wire.feed("a", "1? f:=a2<a1#2", "0 f:=a2<a1#2", "0 f:=a3<a2#3", settled=4, drawn=4)
    outcome = wire.round()
    assert (outcome.verdict, outcome.failure) == ("unknown", "")
