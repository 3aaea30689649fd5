"""What a transaction really ran at is recorded: asked for, set, or whatever the session's default is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.verifier.history import History, Isolation
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, adopt, recording

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
