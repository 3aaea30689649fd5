"""What `mussurana check` prints."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mussurana.verifier.render.text import WIDTH, WIDTH_MIN, result_text, width_for
from mussurana.verifier.render.words import cells, elide, visible, wrap
from mussurana.verifier.verdict import Rejected
from tests.render import samples

ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=300) | st.just(samples.HOSTILE_CONTROL)


def test_write_skew_reads_like_the_example() -> None:
    assert result_text(samples.write_skew(), "prod.log") == (
        """\
REJECTED  serializable  prod.log: write skew (G2-item), 2 transactions
  T1 and T2 each read what the other then replaced, so neither can come first.
  T1  web-3 / conn 17 / txn 9021  10:04:11.203 .. 10:04:11.219
        read  doctors/7 v41           SELECT on_call FROM doctors WHERE shift = %s AND on_call
        wrote doctors/9 v12 -> v58    UPDATE doctors SET on_call = %s WHERE id = %s
  T2  web-1 / conn 4 / txn 8830   10:04:11.207 .. 10:04:11.221
        read  doctors/9 v12
        wrote doctors/7 v41 -> v60
  Times are UTC, 2024-05-03.
  T1 comes before T2, because T1 read doctors/7 at v41 and T2 replaced v41 by v60.
  T2 comes before T1, because T2 read doctors/9 at v12 and T1 replaced v12 by v58.
  No serial order has both.
  Checked 9,564 transactions in 24 sessions, 255 ms.
  111,947 choices: 109,668 pruned, 0 solved. Left out: 12 × aborted transactions that nobody read.
"""
    )


def test_accepted_says_size_time_effort_and_what_was_left_out() -> None:
    text = result_text(samples.accepted(), "history.edn")
    assert text.startswith("ACCEPTED  serializable  history.edn: 9,564 transactions in 24 sessions, 254 ms\n")
    assert "111,947 choices: 109,668 pruned, 2,279 solved." in text
    assert "  Left out: 12 × aborted transactions that nobody read; 40 × nemesis events.\n" in text


def test_accepted_without_choices_is_one_line() -> None:
    text = result_text(samples.accepted_with_events())
    assert text == "ACCEPTED  adya-si  without session order  3 transactions in 1 session, 0.40 ms\n"


def test_unknown_says_why() -> None:
    first, second, *_ = result_text(samples.unknown()).splitlines()
    assert first == "UNKNOWN   strong-si  100,171 transactions in 24 sessions, 61.4 s"
    assert second == "  The search ended after 60 s with 41 choices open; a longer --timeout may decide them."


def test_small_times_are_shown_as_seconds() -> None:
    assert "T1  0 / txn 3  1.203 s .. 1.219 s\n" in result_text(samples.lost_update())


def test_times_that_differ_by_less_than_a_millisecond_stay_apart() -> None:
    result = samples.write_skew()
    assert isinstance(result.verdict, Rejected)
    found = result.verdict.counterexample
    first = replace(found.transactions[0], begin_ns=samples.MORNING_NS + 1_000, committed_ns=samples.MORNING_NS + 2_000)
    changed = replace(found, transactions=(first, found.transactions[1]))
    text = result_text(replace(result, verdict=Rejected(changed)))
    assert "10:04:11.000001 .. 10:04:11.000002" in text


def test_times_on_two_days_have_their_dates() -> None:
    result = samples.write_skew()
    assert isinstance(result.verdict, Rejected)
    found = result.verdict.counterexample
    first = replace(found.transactions[0], begin_ns=samples.MORNING_NS - 86_400 * 10**9, committed_ns=None)
    text = result_text(replace(result, verdict=Rejected(replace(found, transactions=(first, found.transactions[1])))))
    assert "2024-05-02 10:04:11.000 .. ?" in text
    assert "2024-05-03 10:04:11.207 .. 2024-05-03 10:04:11.221" in text


def test_a_time_before_the_epoch_is_a_negative_number_of_seconds() -> None:
    result = samples.lost_update()
    assert isinstance(result.verdict, Rejected)
    found = result.verdict.counterexample
    first = replace(found.transactions[0], begin_ns=-1_500_000_000)
    text = result_text(replace(result, verdict=Rejected(replace(found, transactions=(first, found.transactions[1])))))
    assert "-1.500 s .. 1.219 s" in text


def test_cases_begin_with_their_assumption_and_indent_what_follows() -> None:
    lines = result_text(samples.two_cases()).splitlines()
    start = lines.index("  Case 2 of 2. Suppose T2 wrote x before T1 did.")
    assert lines[start + 3 : start + 5] == [
        "    T4 comes before T1, because T4 read x at 2 and T1 replaced 2 by 1.",
        "    No serial order has all three.",
    ]


def test_long_lists_lose_their_middle_but_never_what_the_steps_are_about() -> None:
    result = samples.same_session()
    assert isinstance(result.verdict, Rejected)
    found = result.verdict.counterexample
    t2 = found.transactions[1]
    middle = replace(t2, operations=(*t2.operations[1:16], t2.operations[0], *t2.operations[16:]))
    text = result_text(replace(result, verdict=Rejected(replace(found, transactions=(found.transactions[0], middle)))))
    assert "read  cart/9 v7\n" in text
    assert "read  item/0 v0\n" in text
    assert "read  item/29 v29\n" in text
    assert "item/12" not in text
    assert "more operations ..." in text


def test_facts_stand_alone_where_there_is_no_cycle() -> None:
    text = result_text(samples.aborted_read())
    assert "  T2 read balance/42 at v7, which T1 wrote and rolled back.\n" in text
    assert "10:04:11.900  aborted\n" in text
    assert "Case" not in text


@pytest.mark.parametrize("width", [WIDTH_MIN, 80, WIDTH])
@pytest.mark.parametrize("name", samples.ALL)
def test_no_line_is_wider_than_the_limit(name: str, width: int) -> None:
    text = result_text(samples.ALL[name](), "jepsen/" + "run" * 80 + "/history.edn", width=width)
    assert max(cells(line) for line in text.splitlines()) <= width


def test_a_narrow_terminal_still_shows_who_it_was_and_which_table_was_meant() -> None:
    result = samples.write_skew()
    assert isinstance(result.verdict, Rejected)
    found = result.verdict.counterexample
    first = found.transactions[0]
    read = replace(
        first.operations[0], statement="SELECT doctors.id, doctors.shift_id, doctors.on_call FROM doctors WHERE"
    )
    first = replace(first, name="", session="web-1 / conn 4946", operations=(read, *first.operations[1:]))
    text = result_text(replace(result, verdict=Rejected(replace(found, transactions=(first,)))), width=80)
    assert "T1  web-1 / conn 4946 / txn" in text
    assert "SELECT … FROM doctors WHERE" in text


def test_text_is_as_wide_as_the_terminal_within_reason() -> None:
    assert [width_for(columns) for columns in (0, 80, 200)] == [WIDTH_MIN, 80, WIDTH]


@pytest.mark.parametrize("name", samples.ALL)
def test_colour_changes_nothing_but_colour(name: str) -> None:
    plain = result_text(samples.ALL[name](), "here")
    coloured = result_text(samples.ALL[name](), "here", color=True)
    assert coloured.startswith("\x1b[1;3")
    for code in ("\x1b[1m", "\x1b[0m", "\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


@settings(max_examples=40, deadline=None)
@given(ANY_TEXT)
def test_names_from_the_history_neither_steer_the_terminal_nor_widen_the_text(name: str) -> None:
    text = result_text(samples.everywhere(name), name)
    text.encode()
    for line in text.split("\n"):
        assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert cells(line) <= WIDTH


@given(ANY_TEXT, st.integers(3, 40))
def test_elided_text_fits_and_keeps_short_text_whole(text: str, width: int) -> None:
    short = elide(text, width)
    assert cells(short) <= width
    assert short == visible(text) or "…" in short


@given(st.text("ab 木\n", max_size=80), st.integers(2, 20))
def test_wrapped_text_fits_and_loses_no_letter(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == visible(text).replace(" ", "")
