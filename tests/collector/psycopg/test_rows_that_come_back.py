"""A key that was deleted and is inserted again: PostgreSQL compares rows, and a new row is not the old one."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.errors import SerializationFailure

from mussurana.verifier.verdict import Accepted, Rejected
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, online, recording
from tests.collector.psycopg.test_exactness import explained

SESSIONS = 8
KEYS = 4
TXNS = 60  # per session


@pytest.fixture
def seats(database: Database) -> Database:
    adopt(
        database,
        "CREATE TABLE seats (id int PRIMARY KEY, guest text)",
        "INSERT INTO seats SELECT n, 'nobody' FROM generate_series(1, 4) n",
    )
    return database


def connect(made: Recording, level: IsolationLevel) -> Any:
    connection = made.connect()
    connection.isolation_level = level
    return connection


def free_and_take(made: Recording, level: IsolationLevel, reads: bool) -> list[Any]:
    """One session takes a seat that another freed after the first one's snapshot. Returns what was seen of it."""
    one, other = connect(made, level), connect(made, level)
    one.execute("SELECT guest FROM seats WHERE id = %s", (1 if reads else 2,)).fetchall()
    other.execute("DELETE FROM seats WHERE id = 1")
    other.commit()
    one.execute("INSERT INTO seats VALUES (1, 'one')")
    seen: list[Any] = one.execute("SELECT guest FROM seats WHERE id = 1").fetchall() if reads else []
    one.commit()
    seen += other.execute("SELECT guest FROM seats WHERE id = 1").fetchall()
    other.commit()
    one.close()
    other.close()
    return seen


@pytest.mark.parametrize("reads", [False, True])
def test_a_snapshot_may_be_older_than_the_deletion_that_made_room(seats: Database, tmp_path: Path, reads: bool) -> None:
    with recording(seats, tmp_path) as made:
        seen = free_and_take(made, IsolationLevel.REPEATABLE_READ, reads)
        # With its old snapshot the transaction sees both rows: the one that is gone, and its own.
        assert sorted(seen) == [("nobody",), ("one",), ("one",)][0 if reads else 2 :]
        for level in ("adya-si", "generalized-si", "strong-session-si", "strong-si"):
            verdict = made.verdict(level)
            assert isinstance(verdict, Accepted), explained(verdict)
        assert isinstance(made.verdict("serializable"), Rejected if reads else Accepted)
        assert {outcome.verdict for outcome in online(tmp_path, "strong-session-si", "strong-si")} == {"accepted"}


def test_serializable_refuses_who_saw_the_row_that_is_gone(seats: Database, tmp_path: Path) -> None:
    with recording(seats, tmp_path) as made:
        with pytest.raises(SerializationFailure):
            free_and_take(made, IsolationLevel.SERIALIZABLE, reads=True)
        assert isinstance(made.verdict("serializable"), Accepted)


@pytest.mark.parametrize("action", ["NOTHING", "UPDATE SET guest = 'me'"])
def test_a_row_that_the_snapshot_does_not_have_is_not_replaced(seats: Database, action: str) -> None:
    """What the rule builds on: who finds a row that has come since its snapshot never gets to write there."""
    with seats.connect() as one, seats.connect() as other:
        one.isolation_level = other.isolation_level = IsolationLevel.REPEATABLE_READ
        one.execute("SELECT 1 FROM seats WHERE id = 1")
        other.execute("DELETE FROM seats WHERE id = 2")
        other.execute("INSERT INTO seats VALUES (2, 'other'), (9, 'other')")
        other.commit()
        with pytest.raises(SerializationFailure):
            one.execute(f"INSERT INTO seats VALUES (9, 'one') ON CONFLICT (id) DO {action}".encode())
        one.rollback()


class Guest(threading.Thread):
    """A session that deletes, inserts, upserts, updates and reads a few rows, again and again."""

    def __init__(self, made: Recording, level: IsolationLevel, seed: int) -> None:
        super().__init__()
        self.connection = connect(made, level)
        self.rng = random.Random(seed)
        self.committed = self.inserted = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(TXNS):
                inserted = 0
                try:
                    for _ in range(self.rng.randrange(1, 4)):
                        inserted += self.step()
                    self.connection.commit()
                    self.committed += 1
                    self.inserted += inserted
                except (psycopg.errors.IntegrityError, psycopg.OperationalError):
                    with suppress(psycopg.OperationalError):
                        self.connection.rollback()
            self.connection.close()
        except BaseException as error:
            self.error = error

    def step(self) -> int:
        key, what = self.rng.randrange(1, 1 + KEYS), self.rng.randrange(6)
        execute = self.connection.execute
        if what == 0:
            return int(execute("INSERT INTO seats VALUES (%s, 'x') ON CONFLICT DO NOTHING", (key,)).rowcount)
        if what == 1:
            return int(execute("INSERT INTO seats VALUES (%s, 'y')", (key,)).rowcount)
        if what == 2:
            execute("INSERT INTO seats VALUES (%s, 'z') ON CONFLICT (id) DO UPDATE SET guest = 'u'", (key,))
        elif what == 3:
            execute("DELETE FROM seats WHERE id = %s", (key,))
        elif what == 4:
            execute("UPDATE seats SET guest = 'w' WHERE id = %s", (key,))
        else:
            execute("SELECT guest FROM seats WHERE id IN (%s, %s)", (key, 1 + key % KEYS)).fetchall()
        return 0


def run(made: Recording, level: IsolationLevel, seed: int) -> None:
    guests = [Guest(made, level, 100 * seed + number) for number in range(SESSIONS)]
    for guest in guests:
        guest.start()
    for guest in guests:
        guest.join()
    assert [guest.error for guest in guests if guest.error] == []
    assert sum(guest.committed for guest in guests) > SESSIONS * TXNS / 5
    assert sum(guest.inserted for guest in guests) > 10
    assert made.failures == 0


@NEWEST
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("isolation", "level"),
    [(IsolationLevel.REPEATABLE_READ, "strong-session-si"), (IsolationLevel.SERIALIZABLE, "serializable")],
)
def test_rows_may_come_and_go_at_random(
    seats: Database, tmp_path: Path, isolation: IsolationLevel, level: str, seed: int
) -> None:
    with recording(seats, tmp_path, fence_interval_seconds=0.05) as made:
        run(made, isolation, seed)
        verdict = made.verdict(level)
        assert isinstance(verdict, Accepted), explained(verdict)
        outcomes = online(tmp_path, level)
        found = [violation.counterexample.summary for outcome in outcomes for violation in outcome.violations]
        assert {outcome.verdict for outcome in outcomes} == {"accepted"}, found
