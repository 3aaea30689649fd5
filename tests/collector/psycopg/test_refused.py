"""A statement that the database takes as it was written, but not with what we added."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from mussurana.verifier.verdict import Accepted
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import Recording, adopt, recording

UPDATE = "UPDATE accounts SET balance = balance + 1 WHERE id = %s"
SELECT = "SELECT balance FROM accounts WHERE id = %s"


@pytest.fixture
def bank(database: Database) -> Database:
    adopt(
        database,
        "CREATE TABLE accounts (id int PRIMARY KEY, balance int)",
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO accounts VALUES (1, 10), (2, 20)",
    )
    return database


def take_back(bank: Database) -> None:
    """Our columns go while an application is running, past `unadopt`, which would have noticed."""
    bank.run("ALTER TABLE accounts DROP COLUMN mussurana_wid, DROP COLUMN IF EXISTS mussurana_prev_wid")


def finished(made: Recording) -> None:
    assert isinstance(made.verdict(), Accepted)


@pytest.mark.parametrize("prepare_threshold", [5, 0])
def test_outside_of_a_transaction_it_runs_again_as_it_was_written(
    bank: Database, tmp_path: Path, prepare_threshold: int
) -> None:
    options = {"autocommit": True, "prepare_threshold": prepare_threshold}
    with recording(bank, tmp_path) as made, made.connect(**options) as connection:
        connection.execute(UPDATE, (1,))
        take_back(bank)
        cursor = connection.execute(UPDATE, (1,))
        assert (cursor.rowcount, cursor.statusmessage, cursor.description) == (1, "UPDATE 1", None)
        assert connection.execute(SELECT, (1,)).fetchall() == [(12,)]
        for _ in range(2):
            connection.execute(UPDATE, (2,))
        assert connection.execute(SELECT, (2,)).fetchall() == [(22,)]
        finished(made)


def test_in_a_transaction_it_is_left_alone_from_the_next_one_on(bank: Database, tmp_path: Path) -> None:
    with recording(bank, tmp_path) as made, made.connect() as connection:
        connection.execute(UPDATE, (1,))
        connection.commit()
        take_back(bank)
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            connection.execute(UPDATE, (1,))
        connection.rollback()
        for _ in range(3):
            connection.execute(UPDATE, (1,))
            assert connection.execute(SELECT, (1,)).fetchone() is not None
            connection.commit()
        assert connection.execute(SELECT, (1,)).fetchall() == [(14,)]
        connection.commit()
        finished(made)


@pytest.mark.parametrize("autocommit", [False, True])
def test_rights_to_some_columns_are_enough(bank: Database, tmp_path: Path, autocommit: bool) -> None:
    bank.run(
        f"CREATE ROLE {bank.name}_clerk",
        f"GRANT SELECT (id, balance), UPDATE (balance) ON accounts TO {bank.name}_clerk",
        f"GRANT SELECT, UPDATE ON mussurana_fence TO {bank.name}_clerk",
    )
    try:
        with recording(bank, tmp_path) as made, made.connect(autocommit=True) as connection:
            connection.execute(UPDATE, (1,))
            connection.execute(f"SET ROLE {bank.name}_clerk")  # the catalog was read as somebody else
            connection.autocommit = autocommit
            if not autocommit:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(UPDATE, (1,))
                connection.rollback()
            connection.execute(UPDATE, (1,))
            assert connection.execute("SELECT id, balance FROM accounts WHERE id = 1").fetchall() == [(1, 12)]
            connection.execute("RESET ROLE")
            connection.commit()
            finished(made)
    finally:
        bank.run(f"DROP OWNED BY {bank.name}_clerk", f"DROP ROLE {bank.name}_clerk")


@pytest.mark.parametrize("autocommit", [False, True])
def test_what_is_wrong_by_itself_stays_recorded_once_it_is_right(
    bank: Database, tmp_path: Path, autocommit: bool
) -> None:
    wrong = "SELECT balance, nothing FROM accounts WHERE id = %s"
    with recording(bank, tmp_path) as made:
        errors = []
        for connect in (made.connect, lambda **given: psycopg.connect(bank.conninfo, **given)):
            with connect(autocommit=autocommit) as connection, pytest.raises(psycopg.errors.UndefinedColumn) as raised:
                connection.execute(wrong, (1,))
            errors.append((str(raised.value), raised.value.diag.statement_position))
        assert errors[0] == errors[1]
        with made.connect() as connection:
            with pytest.raises(psycopg.errors.UndefinedColumn):
                connection.execute(wrong, (1,))
            connection.rollback()
            connection.execute(UPDATE, (1,))
        assert made.operations() == [[("write", "accounts/1", "committed", False)]]
        assert not any("refused" in row.shape for row in made.coverage)
