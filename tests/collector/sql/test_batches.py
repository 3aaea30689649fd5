"""INSERTs of many rows, as SQLAlchemy sends them: one analysis, whatever the number of rows."""

from __future__ import annotations

from time import perf_counter

import pytest

from mussurana.collector.sql.tokens import FORMAT, QMARK
from tests.collector.sql.schema import plan, plans

NAMED = "(%(id__{0})s, %(owner__{0})s)"


def batch(row: str, count: int) -> str:
    return ", ".join(row.format(number) for number in range(count))


@pytest.mark.parametrize(
    ("head", "row", "tail"),
    [
        ("INSERT INTO accounts (id, owner) VALUES ", NAMED, " RETURNING accounts.id"),
        ("INSERT INTO accounts (id, owner) VALUES ", "(%s, lower(%s))", ""),
        (
            "INSERT INTO accounts (id, owner) SELECT p0::INTEGER, p1::VARCHAR FROM (VALUES ",
            "(%(id__{0})s, %(owner__{0})s, {0})",
            ") AS imp_sen(p0, p1, sen_counter) ORDER BY sen_counter RETURNING accounts.id",
        ),
    ],
)
def test_a_batch_is_rewritten_as_if_it_had_been_analysed_whole(
    head: str, row: str, tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = head + batch(row, 200) + tail
    fast = plan(text)
    monkeypatch.setattr("mussurana.collector.sql.batches.BATCH_LENGTH_MIN", len(text) + 1)
    slow = plan(text)
    assert fast.text == slow.text
    assert fast.injection == slow.injection
    assert fast.write == slow.write
    assert fast.quiet == slow.quiet
    assert fast.visible_count == slow.visible_count


def test_question_marks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "INSERT INTO accounts (id, owner) VALUES " + batch("(?, ?)", 400)
    fast = plan(text, QMARK, 0)
    monkeypatch.setattr("mussurana.collector.sql.batches.BATCH_LENGTH_MIN", len(text) + 1)
    assert (fast.text, fast.injection) == (plan(text, QMARK, 0).text, plan(text, QMARK, 0).injection)


def test_a_thousand_rows_take_a_few_milliseconds() -> None:
    made = plans()
    made.find("INSERT INTO accounts (id, owner) VALUES " + batch(NAMED, 300), FORMAT)
    times = []
    for count in range(1000, 1010):
        text = "INSERT INTO accounts (id, owner) VALUES " + batch(NAMED, count)
        started = perf_counter()
        made.find(text, FORMAT)
        times.append(perf_counter() - started)
    assert min(times) < 0.01  # analysed whole it takes fifty milliseconds and more


def test_rows_that_differ_are_analysed_whole() -> None:
    text = "INSERT INTO accounts (id, owner) VALUES " + batch(NAMED, 100) + ", (1, 'x')"
    made = plan(text)
    assert made.text.count("%(mussurana_wid)s") == 101
