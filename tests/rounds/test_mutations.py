"""Switch off each rule of forgetting and admission in turn: the comparison with one check must notice.

A mutation is a rule and a patch that takes its effect away from outside; the machine has no switches for that. Rules
that random worlds touch seldom, or that honest and complete recordings never do, have a scene in `test_scenarios.py`
that fails without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from mussurana.verifier.history import NO_VALUE, UNKNOWN_TIME
from mussurana.verifier.rounds import admission, ended, forget, fragments, level, machine, window
from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.fences import UNKNOWN_EPOCH, Border
from mussurana.verifier.rounds.level import LevelRounds
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.table import VersionTable
from tests.rounds import test_doubts as doubts
from tests.rounds import test_scenarios as scenes
from tests.rounds.__main__ import complaint
from tests.rounds.equality import make_case
from tests.rounds.twins import blocked_by_hand

CASES_MAX = 4_000
"""Where the seeds below no longer notice, because worlds have changed, others are tried, as many as this."""


@dataclass(frozen=True)
class Mutation:
    rule: str  # what holds, and is switched off
    target: Any
    name: str
    wrong: Callable[[Any], Any]  # from the right one
    noticed_by: tuple[int, ...] = ()  # seeds
    scene: Callable[[], None] | None = None  # one that is about this rule

    def seeds(self) -> Iterator[int]:
        return chain(self.noticed_by, range(CASES_MAX))


def constant(value: Any) -> Callable[[Any], Any]:
    return lambda right: lambda *arguments, **named: value


def mark_only_the_start(right: Any) -> Any:
    def wrong(start: Any, out_start: Any, out_to: Any, reached: Any) -> None:
        reached[start] = True

    return wrong


def nothing_kept(right: Any) -> Any:
    def wrong(*arguments: Any) -> forget.Past:
        past: forget.Past = right(*arguments)
        return replace(past, kept=np.zeros_like(past.kept))

    return wrong


def no_border(right: Any) -> Any:
    def wrong(*arguments: Any) -> Any:
        window = right(*arguments)
        return replace(window, history=replace(window.history, past=0))

    return wrong


def without_memory(right: Any) -> Any:
    def wrong(rounds: LevelRounds, *arguments: Any) -> None:
        right(rounds, *arguments)
        rounds.memory_ns = UNKNOWN_TIME

    return wrong


def one_witness(by_begin: bool) -> Callable[[Any], Any]:
    def mutated(right: Any) -> Any:
        def wrong(rounds: LevelRounds, batch: Batch, gone: forget.Flags) -> Any:
            commit_low = np.where(batch.commit_ns != UNKNOWN_TIME, batch.commit_ns, batch.begin_ns)
            low = np.where(gone, batch.begin_ns if by_begin else commit_low, UNKNOWN_TIME)
            return right(rounds, batch, gone & (np.arange(len(batch)) == np.argmax(low)))

        return wrong

    return mutated


def exact_clocks(right: Any) -> Any:
    return lambda graph, times, drift_ns, is_stable, is_live: right(graph, times, 0, is_stable, is_live)


def unread(right: Any) -> Any:
    return lambda pruned, readable: right(pruned, np.zeros_like(readable))


def known_edges_only(right: Any) -> Any:
    return lambda pruned, readable: (pruned.edges.source, pruned.edges.target)


def not_yet_due(right: Any) -> Any:
    def wrong(machine_: Verifier, batch: Batch, silent_ns: int) -> Batch:
        for session in machine_.sessions.values():
            session.fence_due = -1
        entered: Batch = right(machine_, batch, silent_ns)
        return entered

    return wrong


def without_epoch(right: Any) -> Any:
    return lambda rounds, seen, epoch, is_write: right(rounds, seen, UNKNOWN_EPOCH, is_write)


def as_if_it_wrote(right: Any) -> Any:
    return lambda machine_, seen, epoch, is_write: right(machine_, seen, epoch, True)


def linked_once(right: Any) -> Any:
    def wrong(batch: Batch, border: Border, lost: LostVersions, repeated: LostVersions) -> Batch:
        linked: Batch = right(batch, border, lost, repeated)
        stays = (batch.seen != NO_VALUE) & ~lost.has(batch.seen)
        return replace(
            linked,
            version=np.where(stays, batch.version, linked.version),
            previous=np.where(stays, batch.previous, linked.previous),
        )

    return wrong


def nothing_lost(right: Any) -> Any:
    def wrong(rounds: LevelRounds, batch: Batch, bad: Any) -> Batch:
        remembered = LostVersions(rounds.lost.start, rounds.lost.end)
        rest: Batch = right(rounds, batch, bad)
        rounds.lost = remembered
        return rest

    return wrong


def forgets_what_an_insert_found(right: Any) -> Any:
    def wrong(batch: Batch, ops: forget.Flags) -> Batch:
        less: Batch = right(replace(batch, previous=np.where(ops, NO_VALUE, batch.previous)), ops)
        return less

    return wrong


def no_key(right: Any) -> Any:
    return lambda machine_, key: np.zeros(len(key), bool)


def first_horizon(right: Any) -> Any:
    def wrong(machine_: Verifier, *arguments: Any) -> None:
        if not machine_.admission.progress.horizons:
            right(machine_, *arguments)

    return wrong


def in_folder(scene: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    def played() -> None:
        with TemporaryDirectory() as folder:
            scene(*arguments, tmp_path=Path(folder))

    return played


def believed(right: Any) -> Any:
    return lambda times: ([np.where(column == 0, UNKNOWN_TIME, column) for column in times], right(times)[1])


MUTATIONS = [
    # Forgetting
    Mutation("what follows something unstable is not past", forget, "mark_reached", mark_only_the_start, (44, 58)),
    Mutation("edges that open pairs might bring count", forget, "_all_edges", known_edges_only, (570, 693),
             scenes.test_what_may_still_have_to_come_after_something_new_is_not_past),
    Mutation("unread writes that can still be read need an order", forget, "_all_edges", unread, (570, 693),
             scenes.test_what_may_still_have_to_come_after_something_new_is_not_past),
    Mutation("open components are kept", forget, "split_past", nothing_kept, (693, 1506),
             scenes.test_forgetting_keeps_what_later_reads_may_decide),
    Mutation("the past comes first", level, "make_window", no_border, (4905,),
             partial(scenes.test_what_clocks_put_before_the_past_is_found, "strict-serializable", "")),
    Mutation("closed keys have names of their own", level, "_closed_name", lambda right: lambda key, version: key,
             (768, 815)),
    Mutation("the latest of the past by the clocks stay", LevelRounds, "_latest_by_clock", constant(Batch.empty()),
             (4905,), partial(scenes.test_what_clocks_put_before_the_past_is_found, "strong-si", "?")),
    Mutation("of the past, the one that began last stays", LevelRounds, "_latest_by_clock", one_witness(by_begin=False),
             (), scenes.test_who_committed_before_the_last_of_the_past_began_is_found),
    Mutation("of the past, the one that committed last stays", LevelRounds, "_latest_by_clock",
             one_witness(by_begin=True), (),
             partial(scenes.test_who_began_before_the_last_of_the_past_committed_is_found, "strong-session-si")),
    Mutation("clocks prove no more than their drift allows", level, "find_past_by_time", exact_clocks, (),
             scenes.test_without_session_order_clocks_tell_the_order_of_writes_only_beyond_their_drift),
    Mutation("a new session's fence follows the last one", LevelRounds, "_last_fences", constant([]), (23, 35)),
    Mutation("forgetting waits for open sessions", machine.Session, "is_open", lambda right: property(lambda s: False),
             (32, 159)),
    Mutation("one in doubt may turn out to precede others", LevelRounds, "_might_follow",
             lambda right: lambda rounds, window, pruned, txn: np.zeros(len(pruned.graph.txns), bool), (51, 621)),
    Mutation("last versions go to the table", VersionTable, "put", constant(None), (7, 9)),
    Mutation("what is older than memory is left out", LevelRounds, "_let_go", without_memory, (),
             scenes.test_a_collector_far_behind_raises_no_alarm_where_sessions_keep_no_order),
    # Admission
    Mutation("who waits makes its session wait", admission, "blocked_by",
             lambda right: partial(blocked_by_hand, by_session=False), (5, 32)),
    Mutation("who waits makes its readers wait", admission, "blocked_by",
             lambda right: partial(blocked_by_hand, by_version=False), (1, 9)),
    Mutation("what is late is waited for", admission.WriteIdProgress, "late",
             lambda right: lambda progress, versions: np.zeros(len(versions), bool), (9, 1)),
    # Time, and who is gone
    Mutation("downtime is nobody's silence", Verifier, "resume", constant(None), (),
             scenes.test_downtime_is_nobodys_silence),
    Mutation("write ids of those long gone are still settled", ended.EndedTags, "has_settled",
             lambda right: lambda tags, versions: np.zeros(len(versions), bool), (),
             scenes.test_what_a_collector_wrote_outlives_it),
    Mutation("a tag of one long gone is known again", ended.EndedTags, "owner_of", constant(None), (),
             scenes.test_a_new_collector_that_draws_the_tag_of_one_long_gone_clashes),
    # What proves nothing
    Mutation("that an INSERT found no row stays", Batch, "without_reads", forgets_what_an_insert_found, (),
             in_folder(doubts.test_a_row_of_a_tainted_table_that_comes_back_is_no_alarm, "strong-si")),
    Mutation("keys with two names are left out", Verifier, "_is_colliding", no_key, (),
             in_folder(doubts.test_two_rows_whose_names_have_one_hash_are_left_out, False)),
    Mutation("a write id that comes again is noticed", admission.WriteIdProgress, "is_again",
             lambda right: lambda progress, versions: np.zeros(len(versions), bool), (),
             in_folder(doubts.test_a_version_that_was_written_twice_and_read_is_unknown, "is forgotten")),
    Mutation("that several wrote a version is not forgotten with one of them", LevelRounds, "_note_forgotten_writers",
             constant(None), (),
             in_folder(doubts.test_who_reads_a_version_twice_written_when_one_writer_is_forgotten_is_unknown)),
    Mutation("writers of one version enter together", admission, "blocked_by",
             lambda right: partial(blocked_by_hand, by_name=False), (),
             in_folder(doubts.test_of_two_writers_of_a_version_none_is_believed_before_the_other_one_may_enter)),
    Mutation("who sees its own write does not see the version before the window", window, "_own_again",
             lambda right: lambda batch, current: np.zeros(len(batch.kind), bool), (),
             in_folder(doubts.test_a_transaction_sees_its_own_write_also_under_the_name_of_a_forgotten_one)),
    Mutation("times that go backwards are not believed", fragments, "_sane", believed, (),
             in_folder(doubts.test_a_transaction_whose_clock_went_back_has_no_times, "strict-serializable")),
    Mutation("who began to record earlier makes others doubt", Verifier, "_learn_horizon", first_horizon, (),
             in_folder(doubts.test_who_began_to_record_earlier_may_have_written_what_others_take_for_initial)),
    # What honest and complete recordings never show
    Mutation("a session that rested has to fence", Verifier, "_enter", not_yet_due, (),
             scenes.test_a_session_that_comes_back_without_a_fence_is_left_out_until_it_fences),
    Mutation("a late fence proves nothing", Verifier, "_is_before", constant(True), (),
             scenes.test_a_fence_that_arrives_too_late_proves_nothing),
    Mutation("a fence after a lost one proves something by its epoch", LevelRounds, "is_before", without_epoch, (),
             partial(scenes.test_a_gap_with_a_fence_in_it_blinds_nobody, "serializable", True)),
    Mutation("a fence after a lost one proves nothing without a later epoch", LevelRounds, "is_before", constant(True),
             (), partial(scenes.test_a_late_fence_after_a_gap_is_no_alarm_whatever_the_clocks_say, "serializable")),
    Mutation("a fence that only reads proves nothing if what it saw is old", Verifier, "_is_before", as_if_it_wrote, (),
             scenes.test_a_session_that_rested_and_read_an_old_fence_has_proved_nothing),
    Mutation("fences are linked across lost ones", level, "link", lambda right: lambda batch, *rest: batch, (),
             partial(scenes.test_a_gap_with_a_fence_in_it_blinds_nobody, "serializable", False)),
    Mutation("a fence that arrives late finds its place", level, "link", linked_once, (),
             scenes.test_a_late_fence_of_an_open_session_finds_its_place_between_two_others),
    Mutation("a new fence row begins everything anew", Verifier, "_begin_anew", constant(None), (),
             partial(scenes.test_a_new_fence_row_is_no_alarm_and_all_begins_anew, "serializable", "7:")),
    Mutation("who belongs to an earlier fence row is left out", machine, "era_of", constant(0), (),
             scenes.test_what_comes_late_from_the_time_before_a_new_fence_row_is_unknown),
    Mutation("what was written before all began anew is lost", admission.WriteIdProgress, "known",
             constant((np.zeros(0, np.int64), np.zeros(0, np.int64))), (),
             scenes.test_a_fence_row_that_went_back_after_a_gap_is_unknown_until_all_begins_anew),
    Mutation("what violations wrote is lost", LevelRounds, "_set_aside", nothing_lost, (),
             scenes.test_who_read_from_a_violation_is_not_accused_as_well),
]  # fmt: skip


@contextmanager
def switched_off(mutation: Mutation) -> Iterator[None]:
    """Without the rule. A patch that nobody calls, since the rule has moved, takes nothing away and is an error."""
    wrong = mutation.wrong(getattr(mutation.target, mutation.name))
    is_property = isinstance(wrong, property)
    called = False

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal called
        called = True
        return (wrong.fget if is_property else wrong)(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutation.target, mutation.name, property(counted) if is_property else counted)
        yield
    assert called, f"nobody called {mutation.name}"


def named(mutations: Iterable[Mutation]) -> list[Any]:
    return [pytest.param(mutation, id=mutation.rule.replace(" ", "_")) for mutation in mutations]


@pytest.mark.parametrize("mutation", named(mutation for mutation in MUTATIONS if mutation.noticed_by))
def test_rounds_differ_from_one_check_without_the_rule(mutation: Mutation) -> None:
    with switched_off(mutation):
        assert any(complaint(make_case(seed)) for seed in mutation.seeds())


@pytest.mark.parametrize("mutation", named(mutation for mutation in MUTATIONS if mutation.scene))
def test_its_scene_fails_without_the_rule(mutation: Mutation) -> None:
    assert mutation.scene
    with switched_off(mutation), pytest.raises(AssertionError):
        mutation.scene()


def test_a_patch_that_nobody_calls_is_noticed() -> None:
    unused = Mutation("nobody asks for it", machine, "short", constant(0))
    with pytest.raises(AssertionError, match="nobody called short"), switched_off(unused):
        pass


def test_twin_without_mutation_is_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "blocked_by", blocked_by_hand)
    assert not any(complaint(make_case(seed)) for seed in range(9, 24))
