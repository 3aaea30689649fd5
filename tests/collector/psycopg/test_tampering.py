"""A database that lies is found out: each kind of lie under the collector leads to a rejection.

The lies are told between libpq and the collector: what the server answered is replaced before the hooks see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.collector.psycopg_adapter import watch_connection
from mussurana.verifier.verdict import Accepted, Rejected
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, plain, recording

pytestmark = NEWEST

TABLES = ("CREATE TABLE accounts (id int PRIMARY KEY, balance int)", "INSERT INTO accounts VALUES (1, 10), (2, 20)")

READ = "SELECT id, balance FROM accounts WHERE id = %s"
WRITE = "UPDATE accounts SET balance = balance + 1 WHERE id = %s"

Lie = Callable[[Any, list[Any]], list[Any]]


class LyingCursor(psycopg.Cursor[Any]):
    """What the server sends goes through `lie`, if there is one."""

    lie: Lie | None = None

    def _check_results(self, results: list[Any]) -> None:
        super()._check_results(results)
        if LyingCursor.lie is not None:
            results[:] = LyingCursor.lie(self, results)


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made:
        yield made
    LyingCursor.lie = None


def connect(made: Recording) -> Any:
    connection = psycopg.connect(made.database.conninfo)
    connection.cursor_factory = LyingCursor
    assert watch_connection(connection, made.settings)
    return connection


class Memory:
    """A lie that repeats an answer from before: the same statement, the same parameters, an old result."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.lies = False

    def __call__(self, cursor: Any, results: list[Any]) -> list[Any]:
        if b"SELECT id, balance" not in cursor._query.query:
            return results
        if not self.lies:
            self.kept = list(results)
            return results
        return self.kept


def test_honest_answers_are_accepted(made: Recording) -> None:
    with connect(made) as connection:
        for _ in range(3):
            connection.execute(WRITE, (1,))
            connection.execute(READ, (1,))
            connection.commit()
    assert isinstance(made.verdict(), Accepted)


def test_stale_rows(made: Recording) -> None:
    memory = LyingCursor.lie = Memory()
    with connect(made) as connection:
        connection.execute(WRITE, (1,))
        connection.commit()
        connection.execute(READ, (1,))
        connection.commit()
        connection.execute(WRITE, (1,))
        connection.commit()
        memory.lies = True
        connection.execute(READ, (1,))
        connection.commit()
    assert isinstance(made.verdict(), Rejected)


def test_a_dropped_update(made: Recording) -> None:
    with connect(made) as connection:
        connection.execute(WRITE, (1,))
        connection.commit()
        before = plain(made.database, "SELECT balance, mussurana_wid FROM accounts WHERE id = 1")[0]
        connection.execute(WRITE, (1,))
        connection.commit()
        made.database.run(f"UPDATE accounts SET balance = {before[0]}, mussurana_wid = {before[1]} WHERE id = 1")
        connection.execute(WRITE, (1,))
        connection.commit()
    assert isinstance(made.verdict(), Rejected)


def test_a_deleted_row_that_comes_back(made: Recording) -> None:
    with connect(made) as connection:
        connection.execute("INSERT INTO accounts VALUES (3, 30)")
        connection.commit()
        (row,) = plain(made.database, "SELECT * FROM accounts WHERE id = 3")
        connection.execute("DELETE FROM accounts WHERE id = 3")
        connection.commit()
        made.database.run("INSERT INTO accounts VALUES ({}, {}, {})".format(*row))
        connection.execute(READ, (3,))
        connection.commit()
    assert isinstance(made.verdict(), Rejected)


def test_swapped_versions(made: Recording) -> None:
    with connect(made) as connection:
        connection.execute(WRITE, (1,))
        connection.execute(WRITE, (2,))
        connection.commit()
        ((one,), (two,)) = plain(made.database, "SELECT mussurana_wid FROM accounts ORDER BY id")
        made.database.run(
            f"UPDATE accounts SET mussurana_wid = {two} WHERE id = 1",
            f"UPDATE accounts SET mussurana_wid = {one} WHERE id = 2",
        )
        connection.execute(READ, (1,))
        connection.commit()
    assert isinstance(made.verdict(), Rejected)


def test_a_row_that_was_rolled_back(made: Recording) -> None:
    with connect(made) as connection:
        connection.execute(WRITE, (1,))
        lost = made.recorder.write_id() - 1
        connection.rollback()
        made.database.run(f"UPDATE accounts SET mussurana_wid = {lost} WHERE id = 1")
        connection.execute(READ, (1,))
        connection.commit()
    assert isinstance(made.verdict(), Rejected)


def test_a_row_that_disappears(made: Recording) -> None:
    with connect(made) as connection:
        connection.execute("INSERT INTO accounts VALUES (4, 1)")
        connection.commit()
        made.database.run("DELETE FROM accounts WHERE id = 4")
        connection.execute(READ, (4,))
        connection.commit()
    assert isinstance(made.verdict(), Rejected)
