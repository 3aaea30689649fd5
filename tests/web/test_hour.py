"""The ring of the last hour, and what fills it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mussurana.verifier.daemon.board import Board, Progress
from mussurana.verifier.daemon.web.hour import INTERVAL_SECONDS, INTERVALS_MAX, Hour
from mussurana.verifier.daemon.web.sampler import Sampler
from mussurana.verifier.rounds.outcome import Gauges
from tests.web.stage import SECOND_NS, a_round

NOW_SECONDS = 1_800_000_000
NOW_NS = NOW_SECONDS * SECOND_NS
HOUR_SECONDS = INTERVAL_SECONDS * INTERVALS_MAX


def test_an_hour_is_an_hour() -> None:
    assert HOUR_SECONDS == 3600


def test_rounds_of_an_interval_are_added_up() -> None:
    hour = Hour()
    hour.note_round(a_round(1, NOW_NS, txn_count=100, lag_seconds=(0.1, 0.2, 0.3)))
    hour.note_round(a_round(2, NOW_NS + SECOND_NS, "rejected", txn_count=300, lag_seconds=(0.5, 0.6, 0.7)))
    columns = hour.columns(NOW_NS + 2 * SECOND_NS)
    assert columns["start_seconds"] == [NOW_SECONDS]
    assert columns["transactions"] == [400]
    assert (columns["accepted"], columns["rejected"], columns["unknown"]) == ([1], [1], [0])
    assert columns["lag_longest_seconds"] == [0.7]
    assert columns["lag_typical_seconds"] == [0.4], "medians count by their transactions"


def test_levels_look_at_the_same_transactions_and_keep_their_own() -> None:
    hour = Hour()
    hour.note_round(a_round(1, NOW_NS, txn_count=100, retained=7))
    hour.note_round(a_round(1, NOW_NS, level="strong-session-si", txn_count=100, retained=5))
    columns = hour.columns(NOW_NS)
    assert columns["transactions"] == [100]
    assert columns["retained"] == [12]
    assert columns["accepted"] == [2]


def test_what_waits_for_a_verdict_counts_as_lag_while_no_round_ends() -> None:
    hour = Hour()
    for second in range(12):
        hour.note_progress(NOW_NS + second * SECOND_NS, float(second), {"serializable": 3}, waiting=1)
    assert hour.columns(NOW_NS + 12 * SECOND_NS)["lag_longest_seconds"] == [4.0, 9.0, 11.0]


def test_an_interval_of_which_nothing_is_known_is_not_there() -> None:
    hour = Hour()
    hour.note_round(a_round(1, NOW_NS))
    hour.note_round(a_round(2, NOW_NS + 60 * SECOND_NS))
    assert hour.columns(NOW_NS + 60 * SECOND_NS)["start_seconds"] == [NOW_SECONDS, NOW_SECONDS + 60]


def test_rounds_without_commit_times_have_no_lag() -> None:
    hour = Hour()
    hour.note_round(a_round(1, NOW_NS, lag_seconds=None))
    columns = hour.columns(NOW_NS)
    assert (columns["lag_longest_seconds"], columns["lag_typical_seconds"]) == ([None], [None])


@given(st.lists(st.integers(0, 3 * HOUR_SECONDS), max_size=60), st.integers(0, 3 * HOUR_SECONDS))
def test_the_ring_is_the_intervals_of_the_last_hour_in_whatever_order_they_came(offsets: list[int], asked: int) -> None:
    hour = Hour()
    latest = max([*offsets, asked], default=0)
    for number, offset in enumerate(offsets, 1):
        hour.note_round(a_round(number, NOW_NS + offset * SECOND_NS, txn_count=1))
    columns = hour.columns(NOW_NS + latest * SECOND_NS)

    def interval(offset: int) -> int:
        return (NOW_SECONDS + offset) // INTERVAL_SECONDS * INTERVAL_SECONDS

    within = [interval(offset) for offset in offsets if interval(offset) > interval(latest) - HOUR_SECONDS]
    assert columns["start_seconds"] == sorted(set(within))
    # An earlier round may have been taken for too old only if a later one had its place, a whole hour on.
    assert columns["transactions"] == [within.count(start) for start in sorted(set(within))]


def test_only_what_is_new_can_be_asked_for() -> None:
    hour = Hour()
    for second in range(0, 50, 5):
        hour.note_round(a_round(1, NOW_NS + second * SECOND_NS))
    since = NOW_SECONDS + 40
    assert hour.columns(NOW_NS + 50 * SECOND_NS, since)["start_seconds"] == [since, since + 5]


def test_the_sampler_notes_each_round_once_and_what_was_there_at_the_start() -> None:
    board, hour = Board(), Hour()
    board.publish(tuple(a_round(number, NOW_NS - (5 - number) * SECOND_NS) for number in range(1, 4)))
    sampler = Sampler(board, hour, lambda: NOW_NS, lambda: 0.25)
    sampler.look()
    sampler.look()
    board.publish((a_round(4, NOW_NS),))
    sampler.look()
    assert sum(hour.columns(NOW_NS)["accepted"]) == 4


def test_the_sampler_says_nothing_before_the_machine_does() -> None:
    board, hour = Board(), Hour()
    sampler = Sampler(board, hour, lambda: NOW_NS, lambda: 0.25)
    sampler.look()
    assert hour.columns(NOW_NS)["start_seconds"] == []
    board.progress = Progress("verifying", Gauges({"serializable": 9}, 2, 0, {}, {}, {}, 0, 0, 0, {}, 0, 0, 0, 0, 0))
    sampler.look()
    columns = hour.columns(NOW_NS)
    assert (columns["retained"], columns["waiting"], columns["lag_longest_seconds"]) == ([9], [2], [0.25])
