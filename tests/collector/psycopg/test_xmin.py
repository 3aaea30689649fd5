"""Recording without columns of ours: the server's own ids as versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg import IsolationLevel
from sqlalchemy import create_engine, text

from mussurana.collector.recorder import close_all
from mussurana.collector.settings import Settings, SettingsError
from mussurana.verifier.verdict import Accepted, Rejected
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, online, plain, recording
from tests.collector.psycopg.test_exactness import explained
from tests.collector.psycopg.workload import FILLED, TABLES, run

TXNS = 60  # per session


@pytest.fixture
def shop(database: Database) -> Database:
    """Not adopted: the tables are as the application made them."""
    database.run(*TABLES, *FILLED)
    return database


def skew(made: Recording) -> None:
    """Two transactions that each read what the other one writes."""
    connections = [made.connect() for _ in range(2)]
    for number, connection in enumerate(connections):
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT balance FROM accounts WHERE id = %s", (number,)).fetchall()
    for number, connection in enumerate(connections):
        connection.execute("UPDATE accounts SET balance = 0 WHERE id = %s", (1 - number,))
    for connection in connections:
        connection.commit()
        connection.close()


@NEWEST
@pytest.mark.parametrize("seed", range(2))
def test_serializable_is_accepted_as_serializable(shop: Database, tmp_path: Path, seed: int) -> None:
    with recording(shop, tmp_path, versions="xmin") as made:
        run(made.connect, IsolationLevel.SERIALIZABLE, seed, TXNS)
        assert made.failures == 0
        verdict = made.verdict("serializable")
        assert isinstance(verdict, Accepted), explained(verdict)
        assert made.history().op_count > 500
        assert {outcome.verdict for outcome in online(tmp_path, "serializable")} == {"accepted"}


@NEWEST
def test_repeatable_read_is_snapshot_isolated_and_shows_write_skew(shop: Database, tmp_path: Path) -> None:
    with recording(shop, tmp_path, versions="xmin") as made:
        run(made.connect, IsolationLevel.REPEATABLE_READ, 0, TXNS)
        verdict = made.verdict("strong-session-si")
        assert isinstance(verdict, Accepted), explained(verdict)
        assert isinstance(made.verdict("serializable"), Rejected)
        assert "rejected" in {outcome.verdict for outcome in online(tmp_path, "serializable")}
        assert {outcome.verdict for outcome in online(tmp_path, "strong-session-si")} == {"accepted"}


@NEWEST
def test_write_skew_on_rows_from_before_recording_is_found(shop: Database, tmp_path: Path) -> None:
    with recording(shop, tmp_path, versions="xmin") as made:
        skew(made)
        verdict = made.verdict("serializable")
        assert isinstance(verdict, Rejected)
        assert verdict.counterexample.anomaly == "write skew"
        assert isinstance(made.verdict("strong-session-si"), Accepted)


def test_what_others_wrote_unrecorded_is_left_out(shop: Database, tmp_path: Path) -> None:
    """Two unknown versions of one row cannot both be the first one; ids after recording began are no first ones."""
    with recording(shop, tmp_path, versions="xmin") as made, made.connect() as connection:
        connection.autocommit = True
        for _ in range(3):
            connection.execute("SELECT balance FROM accounts WHERE id = 1").fetchall()
            shop.run("UPDATE accounts SET balance = balance + 1 WHERE id = 1")
        connection.execute("UPDATE accounts SET balance = 0 WHERE id = 1")
        connection.execute("SELECT balance FROM accounts WHERE id = 1").fetchall()
        for level in ("serializable", "strict-serializable", "strong-si"):
            assert isinstance(made.verdict(level), Accepted)
        assert sum(each.count for each in made.history().left_out if "not here" in each.what) == 3 - (shop.major < 18)


def test_savepoints_have_ids_of_their_own(shop: Database, tmp_path: Path) -> None:
    with recording(shop, tmp_path, versions="xmin") as made:
        with made.connect() as connection:
            connection.execute("UPDATE accounts SET balance = 1 WHERE id = 1")
            with connection.transaction():
                connection.execute("UPDATE accounts SET balance = 2 WHERE id = 1")
                connection.execute("UPDATE accounts SET balance = 2 WHERE id = 2")
            with connection.transaction(force_rollback=True):
                connection.execute("DELETE FROM accounts WHERE id = 2")
            connection.execute("UPDATE accounts SET balance = 3 WHERE id = 2")
            connection.execute("SELECT balance FROM accounts WHERE id IN (1, 2)").fetchall()
        with made.connect() as connection:
            connection.execute("SELECT balance FROM accounts WHERE id IN (1, 2)").fetchall()
        assert isinstance(made.verdict("strict-serializable"), Accepted)


def test_the_tables_stay_as_they_are_and_so_does_what_is_seen(shop: Database, tmp_path: Path) -> None:
    before = plain(shop, "SELECT attrelid::regclass::text, attname FROM pg_attribute ORDER BY 1, attnum")
    shop.run("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    shop.run("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (9)")
    with recording(shop, tmp_path, versions="xmin") as made:
        for connect in (made.connect, shop.connect):
            with connect() as connection:
                connection.execute("INSERT INTO parts VALUES (%s)", (1 if connect == made.connect else 2,))
                cursor = connection.execute("SELECT * FROM accounts WHERE id = 1")
                assert [column.name for column in cursor.description or ()] == ["id", "balance"]
                assert cursor.fetchall() == [(1, 100)]
                cursor = connection.execute("UPDATE accounts SET balance = 100 WHERE id = 1")
                assert (cursor.rowcount, cursor.description) == (1, None)
    shop.run("DROP TABLE parts")
    assert plain(shop, "SELECT attrelid::regclass::text, attname FROM pg_attribute ORDER BY 1, attnum") == before


@NEWEST
def test_sqlalchemy_takes_the_setting_from_the_url(shop: Database, tmp_path: Path) -> None:
    url = f"{shop.url()}{'&' if '?' in shop.url() else '?'}plugin=mussurana"
    engine = create_engine(f"{url}&mussurana_versions=xmin&mussurana_spool={tmp_path}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE accounts SET balance = balance + 1 WHERE id = :id"), {"id": 1})
    with engine.begin() as connection:
        assert connection.execute(text("SELECT * FROM accounts WHERE id = 1")).all() == [(1, 101)]
    engine.dispose()
    close_all()
    made = Recording(shop, tmp_path)
    assert [[op[:2] for op in txn] for txn in made.operations()] == [
        [("write", "accounts/1")],
        [("read", "accounts/1")],
    ]
    assert isinstance(made.verdict(), Accepted)


def test_there_is_no_third_kind_of_version() -> None:
    with pytest.raises(SettingsError, match="versions: expected 'columns' or 'xmin', found 'ctid'"):
        Settings.load(versions="ctid")
    assert Settings.load(environment={"MUSSURANA_VERSIONS": "xmin"}).versions == "xmin"
