"""Rows that are fetched through a cursor are as they were at its DECLARE, and that is where they are recorded."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from mussurana.verifier.engine.check import check
from mussurana.verifier.formats.spool import read
from mussurana.verifier.verdict import Accepted
from mussurana.verifier.verdict import Settings as CheckSettings
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, online, recording
from tests.collector.psycopg.test_migrations import assert_accepted, assert_rejected, plant

pytestmark = NEWEST

TABLES = ("CREATE TABLE a (id int PRIMARY KEY, v int)", "INSERT INTO a SELECT n, n FROM generate_series(1, 9) n")
ALL = "SELECT * FROM a ORDER BY id"


def left_out(made: Recording) -> set[tuple[str, str]]:
    return {(row.table, row.shape) for row in made.coverage if row.observed == "unobserved read"}


def test_rows_that_were_updated_or_deleted_since_are_as_they_were(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, made.connect() as connection:
        with connection.cursor("named") as cursor:
            cursor.execute(ALL)
            assert cursor.fetchmany(2) == [(1, 1), (2, 2)]
            connection.execute("UPDATE a SET v = v + 1")
            connection.execute("DELETE FROM a WHERE id = 5")
            connection.execute("UPDATE a SET v = v + 1")
            assert cursor.fetchall()[:3] == [(3, 3), (4, 4), (5, 5)]
        connection.execute(ALL).fetchall()
        connection.commit()
        connection.close()
        (operations,) = made.operations()
        assert [kind for kind, *_ in operations[:9]] == ["read"] * 9  # before what was written
        assert made.failures == 0
        assert_accepted(made)


def test_scrolling_back_shows_what_was_there(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, made.connect() as connection:
        with connection.cursor("named", scrollable=True) as cursor:
            cursor.execute(ALL)
            cursor.fetchmany(4)
            connection.execute("UPDATE a SET v = v + 1 WHERE id < 4")
            cursor.scroll(0, "absolute")
            assert cursor.fetchmany(2) == [(1, 1), (2, 2)]
        connection.commit()
        connection.close()
        assert_accepted(made)


@pytest.mark.parametrize("autocommit", [False, True])
def test_what_is_fetched_beyond_the_transaction_is_left_out(
    database: Database, tmp_path: Path, autocommit: bool
) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, made.connect(autocommit=autocommit) as connection:
        with connection.cursor("held", withhold=True) as cursor:
            cursor.execute(ALL)
            cursor.fetchone()
            connection.commit()
            connection.execute("UPDATE a SET v = v + 1")
            assert cursor.fetchmany(2) == [(2, 2), (3, 3)]
            connection.commit()
            assert cursor.fetchone() == (4, 4)
        connection.close()
        assert ("a", "cursor beyond its transaction") in left_out(made)
        assert_accepted(made)


def test_a_cursor_that_locks_shows_the_latest_rows_and_is_left_out(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, made.connect() as connection:
        with connection.cursor("locking") as cursor:
            cursor.execute("SELECT * FROM a WHERE v < 100 FOR UPDATE")
            cursor.fetchone()
            connection.execute("UPDATE a SET v = v + 10")
            cursor.fetchall()
        connection.commit()
        connection.close()
        assert ("a", "cursor that locks") in left_out(made)
        assert_accepted(made)


def test_where_current_of_writes_what_it_says(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, made.connect() as connection:
        with connection.cursor("c") as cursor:
            cursor.execute("SELECT * FROM a")
            cursor.fetchone()
            connection.execute("UPDATE a SET v = 0 WHERE CURRENT OF c")
            cursor.fetchone()
            connection.execute("DELETE FROM a WHERE CURRENT OF c")
            cursor.fetchall()
        connection.commit()
        connection.execute(ALL)
        connection.commit()
        connection.close()
        assert_accepted(made)


def test_cursors_that_are_declared_in_words_are_left_out(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, made.connect() as connection:
        connection.execute("DECLARE w CURSOR FOR SELECT * FROM a ORDER BY id")
        connection.execute("UPDATE a SET v = v + 1")
        assert connection.execute("FETCH 2 FROM w").fetchall() == [(1, 1), (2, 2)]
        connection.commit()
        connection.close()
        assert ("a", "DECLARE") in left_out(made)
        assert_accepted(made)


def test_a_row_that_comes_later_is_not_absent(database: Database, tmp_path: Path) -> None:
    """Of each part of an answer the rest was once taken to be missing."""
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, made.connect() as connection:
        connection.execute("UPDATE a SET v = 5 WHERE id IN (1, 2)")
        connection.commit()
        assert len(list(connection.cursor().stream("SELECT * FROM a WHERE id IN (1, 2)"))) == 2
        with connection.cursor("named") as cursor:
            cursor.execute("SELECT * FROM a WHERE id IN (1, 2)")
            while cursor.fetchone():
                pass
        connection.commit()
        connection.close()
        assert_accepted(made)


def test_a_join_that_sqlalchemy_streams_while_it_updates_is_accepted(database: Database, tmp_path: Path) -> None:
    adopt(
        database,
        *TABLES,
        "CREATE TABLE l (id int PRIMARY KEY, a int)",
        "INSERT INTO l SELECT n, n / 4 FROM generate_series(4, 36) n",
    )
    with recording(database, tmp_path) as made:
        engine = create_engine(
            database.url(), plugins=["mussurana"], mussurana_spool=str(tmp_path), mussurana_database="test"
        )
        query = text("SELECT a.*, l.id AS n FROM a JOIN l ON l.a = a.id ORDER BY l.id")
        with Session(engine) as session, session.begin():
            for row in session.execute(query, execution_options={"yield_per": 3}):
                session.execute(text("UPDATE a SET v = v + :n WHERE id = :id"), {"n": row.n, "id": row.id})
        engine.dispose()
        assert_accepted(made)


# More of them: MUSSURANA_SEEDS=1000.
@pytest.mark.parametrize("seed", range(int(os.environ.get("MUSSURANA_SEEDS", "1"))))
@pytest.mark.parametrize("violated", [False, True], ids=["kept", "violated"])
@pytest.mark.parametrize("isolation", [2, 3, 4])
def test_random_transactions_with_cursors_are_accepted(
    isolation: int, violated: bool, seed: int, database: Database, tmp_path: Path
) -> None:
    """One session after the other: whatever they do, there is an order."""
    adopt(database, *TABLES, "CREATE TABLE b (id int PRIMARY KEY, w int)", "INSERT INTO b VALUES (1, 0)")
    with recording(database, tmp_path) as made, made.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel(isolation)
        for each in range(60 * seed, 60 * seed + 60):
            Cursors(connection, random.Random(each)).run()
        connection.close()
        if violated:
            plant(made, database, "b", "id")
            assert_rejected(made)
        else:
            assert_accepted(made)
            assert not [row for row in made.coverage if row.observed == "tainted by unobserved write"]


@pytest.mark.parametrize("isolation", [3, 4])
def test_random_transactions_of_several_sessions_with_cursors_are_accepted(
    isolation: int, database: Database, tmp_path: Path
) -> None:
    """They overlap, and what would have to wait is given up."""
    adopt(database, *TABLES)
    rng = random.Random(isolation)
    with recording(database, tmp_path) as made:
        sessions = [made.connect() for _ in range(3)]
        for connection in sessions:
            connection.execute("SET lock_timeout = '10ms'")
            connection.commit()
            connection.isolation_level = psycopg.IsolationLevel(isolation)
        open_ones = [Cursors(connection, rng) for connection in sessions]
        for _ in range(600):
            place = rng.randrange(len(sessions))
            open_ones[place].step()
            if rng.random() < 0.15:
                open_ones[place].end()
                open_ones[place] = Cursors(sessions[place], rng)
        for each in open_ones:
            each.end()
        for connection in sessions:
            connection.close()
        made.finish()
        level = "serializable" if isolation == 4 else "strong-session-si"
        assert isinstance(check(read(made.spool), CheckSettings(level)).verdict, Accepted)
        assert {outcome.verdict for outcome in online(made.spool, level)} == {"accepted"}
        assert made.failures == 0


class Cursors:
    """A transaction that declares, fetches, scrolls, writes, and goes back to savepoints."""

    def __init__(self, connection: Any, rng: random.Random) -> None:
        self.connection = connection
        self.rng = rng
        self.cursors: list[Any] = []

    def run(self) -> None:
        for _ in range(self.rng.randrange(3, 14)):
            self.step()
        self.end()

    def step(self) -> None:
        often = [self.declare, self.fetch, self.fetch, self.fetch, self.scroll, self.write, self.write, self.block]
        action = self.rng.choice([*often, self.in_words, self.current])
        try:
            with self.connection.transaction():
                action()
        except (psycopg.Error, IndexError):
            pass

    def end(self) -> None:
        try:
            self.connection.commit() if self.rng.random() < 0.8 else self.connection.rollback()
        except psycopg.Error:
            self.connection.rollback()
        for cursor in self.cursors:
            try:
                if self.rng.random() < 0.5:
                    cursor.fetchmany(3)  # if it is held
                cursor.close()
            except psycopg.Error:  # it was declared in what was rolled back
                self.connection.rollback()
                cursor._close()
        self.connection.commit()

    def declare(self) -> None:
        lock = " FOR UPDATE" if self.rng.random() < 0.1 else ""
        query = self.rng.choice([ALL, "SELECT * FROM a WHERE id IN (1, 3, 12)", "SELECT x.v, y.v FROM a x, a y"])
        name, held = f"c{len(self.cursors)}", self.rng.random() < 0.3 and not lock
        cursor = self.connection.cursor(name, scrollable=None if lock else self.rng.choice([True, None]), withhold=held)
        self.cursors.append(cursor)
        cursor.execute(query + lock)

    def fetch(self) -> None:
        if self.cursors:
            self.rng.choice(self.cursors).fetchmany(self.rng.randrange(1, 5))

    def scroll(self) -> None:
        if self.cursors:
            self.rng.choice(self.cursors).scroll(self.rng.randrange(-3, 3))

    def write(self) -> None:
        one = self.rng.randrange(1, 13)
        self.connection.execute(
            self.rng.choice(
                [
                    "UPDATE a SET v = v + 1 WHERE id <= %s",
                    "DELETE FROM a WHERE id = %s",
                    "INSERT INTO a VALUES (%s, 0) ON CONFLICT DO NOTHING",
                    "UPDATE a SET id = id + 20 WHERE id = %s",
                ]
            ),
            (one,),
        )

    def in_words(self) -> None:
        """As psql would, through the same cursors."""
        if self.cursors:
            name = self.rng.choice(self.cursors).name
            how = self.rng.choice(["FETCH BACKWARD 2", "FETCH ABSOLUTE 3", "FETCH LAST", "MOVE FIRST", "FETCH PRIOR"])
            self.connection.execute(f"{how} FROM {name}")

    def current(self) -> None:
        if self.cursors:
            name = self.rng.choice(self.cursors).name
            what = self.rng.choice(["UPDATE a SET v = v + 2", "DELETE FROM a"])
            self.connection.execute(f"{what} WHERE CURRENT OF {name}")

    def block(self) -> None:
        with self.connection.transaction():
            for _ in range(3):
                self.rng.choice([self.declare, self.fetch, self.write])()
            if self.rng.random() < 0.5:
                raise psycopg.Rollback
