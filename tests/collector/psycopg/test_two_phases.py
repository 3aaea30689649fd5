"""Two-phase commit: what is finished elsewhere, or later, is in doubt, and raises no alarm whenever it takes effect."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from mussurana.verifier.verdict import Accepted
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, online, recording
from tests.collector.psycopg.test_exactness import explained

READ = "SELECT balance FROM accounts WHERE id = %s"
WRITE = "UPDATE accounts SET balance = balance + 1 WHERE id = %s"
KEYS = 6


@pytest.fixture
def bank(database: Database) -> Database:
    adopt(
        database,
        "CREATE TABLE accounts (id int PRIMARY KEY, balance int)",
        f"INSERT INTO accounts SELECT n, 0 FROM generate_series(1, {KEYS}) n",
    )
    return database


def accepted(made: Recording, *levels: str) -> None:
    for level in levels:
        verdict = made.verdict(level)
        assert isinstance(verdict, Accepted), f"{level}: {explained(verdict)}"
        assert {outcome.verdict for outcome in online(made.spool, level)} == {"accepted"}


def statuses(made: Recording) -> list[str]:
    return [txn[0][2] for txn in made.operations()]


@pytest.mark.parametrize("how", ["COMMIT", "ROLLBACK"])
def test_finished_by_another_connection_while_its_own_goes_on(bank: Database, tmp_path: Path, how: str) -> None:
    with recording(bank, tmp_path) as made:
        with made.connect() as one, made.connect(autocommit=True) as other:
            one.execute(WRITE, (1,))
            one.execute("PREPARE TRANSACTION 'g'")
            assert one.execute(READ, (1,)).fetchall() == [(0,)]  # its own session does not see it yet
            one.execute(WRITE, (2,))
            one.commit()
            assert other.execute(READ, (1,)).fetchall() == [(0,)]
            other.execute(f"{how} PREPARED 'g'")
            expected = [(1,)] if how == "COMMIT" else [(0,)]
            assert other.execute(READ, (1,)).fetchall() == expected
            assert one.execute(READ, (1,)).fetchall() == expected
        assert "in doubt" in statuses(made)
        accepted(made, "serializable", "strict-serializable", "strong-session-si", "strong-si")


def test_finished_later_by_its_own_connection(bank: Database, tmp_path: Path) -> None:
    with recording(bank, tmp_path) as made:
        with made.connect() as one:
            one.execute(WRITE, (1,))
            one.execute("PREPARE TRANSACTION 'g'")
            one.execute(READ, (1,))
            one.commit()
            one.autocommit = True
            one.execute("COMMIT PREPARED 'g'")
            assert one.execute(READ, (1,)).fetchall() == [(1,)]
        assert statuses(made)[0] == "in doubt"
        accepted(made, "serializable", "strict-serializable", "strong-session-si", "strong-si")


def test_one_that_is_never_finished_is_in_doubt(bank: Database, tmp_path: Path) -> None:
    with recording(bank, tmp_path) as made:
        one = made.connect()
        one.execute(WRITE, (1,))
        one.execute("PREPARE TRANSACTION 'g'")
        one.close()
        with made.connect() as other:
            assert other.execute(READ, (1,)).fetchall() == [(0,)]
        assert statuses(made) == ["in doubt", "committed"]
        accepted(made, "serializable", "strict-serializable", "strong-session-si", "strong-si")


@NEWEST
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("isolation", "levels"),
    [
        (IsolationLevel.SERIALIZABLE, ("serializable",)),
        (IsolationLevel.REPEATABLE_READ, ("strong-session-si", "strong-si")),
    ],
)
def test_finished_at_any_time_by_anybody(
    bank: Database, tmp_path: Path, isolation: IsolationLevel, levels: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(seed)
    with recording(bank, tmp_path, fence_interval_seconds=0.02) as made:
        connections = [made.connect() for _ in range(8)]
        prepared: list[str] = []
        finished = 0
        for connection in connections:
            connection.isolation_level = isolation
            connection.execute("SET lock_timeout = '20ms'")
            connection.commit()
        for number in range(250):
            connection = rng.choice(connections)
            try:
                finished += step(rng, connection, prepared, f"g{seed} {number}")
            except psycopg.OperationalError:
                connection.rollback()
        for connection in connections:
            connection.close()
        assert finished > 10
        assert statuses(made).count("in doubt") > 5
        accepted(made, *levels)


def step(rng: random.Random, connection: Any, prepared: list[str], name: str) -> int:
    """One statement, or the end of a transaction. Returns how many prepared ones were finished."""
    what = rng.randrange(10)
    if what < 4:
        connection.execute(READ, (rng.randint(1, KEYS),)).fetchall()
    elif what < 7:
        connection.execute(WRITE, (rng.randint(1, KEYS),))
    elif what < 8:
        connection.commit()
    elif connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS and len(prepared) < 3:
        connection.execute(f"PREPARE TRANSACTION '{name}'".encode())
        prepared.append(name)
    elif prepared:
        connection.commit()
        connection.autocommit = True
        try:
            which = prepared.pop(rng.randrange(len(prepared)))
            connection.execute(f"{rng.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} PREPARED '{which}'".encode())
            return 1
        finally:
            connection.autocommit = False
    return 0
