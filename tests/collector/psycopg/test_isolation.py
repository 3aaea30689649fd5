"""What a transaction really ran at is recorded: asked for, set, or whatever the session's default is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text

from mussurana.collector.database import forget_all
from mussurana.verifier.history import History, Isolation
from mussurana.verifier.verdict import Rejected
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, adopt, plain, recording

pytestmark = NEWEST

TABLE = ("CREATE TABLE a (id int PRIMARY KEY, v int)", "INSERT INTO a SELECT n, 0 FROM generate_series(1, 60) n")

RC, RR, SER = Isolation.READ_COMMITTED, Isolation.REPEATABLE_READ, Isolation.SERIALIZABLE
NOT_KNOWN = Isolation.NOT_KNOWN


def levels(history: History) -> list[Isolation]:
    """Of the transactions that touched a row, in the order of the rows."""
    found = {}
    for txn in range(history.txn_count):
        for op in history.operations(txn):
            key = history.key_names[int(history.key[op])]
            if key.startswith("a/"):
                found[int(key.removeprefix("a/"))] = Isolation(int(history.isolation[txn]))
    return [found[row] for row in sorted(found)]


class Session:
    """Each `touch` is of the next row, and asks the server at which level it is."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.real: list[Isolation] = []

    def touch(self) -> None:
        row = len(self.real) + 1
        cursor = self.connection.execute(
            "UPDATE a SET v = 1 WHERE id = %s RETURNING current_setting('transaction_isolation')", (row,)
        )
        self.real.append(Isolation[cursor.fetchone()[0].upper().replace(" ", "_")])


@pytest.mark.parametrize("versions", ["columns", "xmin"])
@pytest.mark.parametrize("default", ["", "serializable"])
def test_what_was_asked_for_or_set_is_recorded(database: Database, tmp_path: Path, versions: str, default: str) -> None:
    adopt(database, *TABLE)
    if default:
        database.run(f"ALTER DATABASE {database.name} SET default_transaction_isolation = '{default}'")
    with recording(database, tmp_path, versions=versions) as made, made.connect() as connection:
        session = Session(connection)

        def run(*statements: str, ends: str = "commit") -> None:
            for statement in statements:
                connection.execute(statement)
            session.touch()
            getattr(connection, ends)()

        run()
        run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        run("SET transaction_isolation TO 'repeatable read'")
        run()
        for level in psycopg.IsolationLevel:
            connection.isolation_level = level
            run()
        connection.autocommit = True
        run()  # psycopg sends no BEGIN that could ask for a level
        run("BEGIN ISOLATION LEVEL REPEATABLE READ")
        run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        run("SET default_transaction_isolation = serializable")
        run("SET LOCAL default_transaction_isolation = 'read committed'")
        run("RESET default_transaction_isolation")
        run("SELECT set_config('default_transaction_isolation', 'repeatable read', false)")
        run("DISCARD ALL")
        run("DO $$ BEGIN SET default_transaction_isolation = 'serializable'; END $$")
        run("BEGIN", "SET default_transaction_isolation = 'repeatable read'")
        run("BEGIN", "SET default_transaction_isolation = 'read committed'", ends="rollback")
        run()
        run("BEGIN", "SAVEPOINT s", "SET default_transaction_isolation = 'read committed'", "ROLLBACK TO s")
        run()
        run("BEGIN ISOLATION LEVEL SERIALIZABLE")
        session.touch()
        connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        session.touch()
        connection.execute("COMMIT AND CHAIN")
        session.touch()
        connection.commit()
        connection.close()
        assert made.failures == 0
        assert levels(made.history()) == session.real
        assert {RC, RR, SER} <= set(session.real)


@contextmanager
def server_default(database: Database, level: str) -> Iterator[None]:
    """As if postgresql.conf said so."""

    def set_to(words: str) -> None:
        with psycopg.connect(database.server.conninfo(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM {words}".encode())
            connection.execute("SELECT pg_reload_conf()")

    def shown() -> str:
        (found,) = plain(database, "SHOW default_transaction_isolation")[0]
        return str(found)

    before = shown()
    set_to(f"SET default_transaction_isolation = '{level}'")
    try:
        await_that(lambda: shown() == level)
        yield
    finally:
        set_to("RESET default_transaction_isolation")
        await_that(lambda: shown() == before)


def await_that(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("the server did not take its new settings")


def test_so_is_the_default_of_a_role_and_of_the_server(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLE, "CREATE ROLE careful LOGIN SUPERUSER")
    real: list[Isolation] = []
    try:
        with recording(database, tmp_path) as made:

            def touch(user: str) -> None:
                with made.connect(autocommit=True, user=user) as connection:
                    session = Session(connection)
                    session.real = real
                    session.touch()

            database.run("ALTER ROLE careful SET default_transaction_isolation = 'serializable'")
            touch("careful")
            touch("postgres")
            with server_default(database, "repeatable read"):
                forget_all()
                touch("careful")
                touch("postgres")
            assert levels(made.history()) == real == [SER, RC, SER, RR]
    finally:
        database.run("DROP ROLE careful")


def test_a_read_in_autocommit_on_a_serializable_engine_ran_at_the_default(database: Database, tmp_path: Path) -> None:
    """SQLAlchemy asks for the level with BEGIN, and sends none in autocommit. Here that makes an anomaly."""
    adopt(database, *TABLE)
    with recording(database, tmp_path) as made:
        engine = create_engine(
            database.url(),
            plugins=["mussurana"],
            isolation_level="SERIALIZABLE",
            mussurana_spool=str(tmp_path),
            mussurana_database="test",
        )
        read = text("SELECT * FROM a WHERE id IN (1, 2)")
        with engine.connect() as skewed:
            skewed.execute(read).all()
            with engine.begin() as other:
                other.execute(text("UPDATE a SET v = 1 WHERE id = 2"))
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as reader:
                shown = reader.execute(text("SHOW transaction_isolation")).scalar()
                reader.execute(read).all()
            skewed.execute(text("UPDATE a SET v = 1 WHERE id = 1"))
            skewed.commit()
        engine.dispose()
        assert shown == "read committed"
        verdict = made.verdict()
        assert isinstance(verdict, Rejected)
        found = verdict.counterexample
        assert sorted(txn.isolation for txn in found.transactions) == ["READ COMMITTED", "SERIALIZABLE", "SERIALIZABLE"]
        (below,) = (place for place, txn in enumerate(found.transactions, 1) if txn.isolation == "READ COMMITTED")
        assert found.summary.startswith(f"T{below} ran at READ COMMITTED, so the database did not promise it this.")


def test_a_pipeline_in_autocommit_runs_at_the_default(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLE)
    with recording(database, tmp_path) as made, made.connect(autocommit=True) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        with connection.pipeline():
            connection.execute("UPDATE a SET v = 1 WHERE id = 1")
        with connection.pipeline(), connection.transaction():
            connection.execute("UPDATE a SET v = 1 WHERE id = 2")
        connection.close()
        assert levels(made.history()) == [RC, SER]
