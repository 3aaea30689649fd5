"""Async connections, pools, and classes of the application's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from mussurana.collector.psycopg_adapter import AsyncConnection, Connection, recorded, watch_connection
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording

pytestmark = NEWEST

TABLES = ("CREATE TABLE accounts (id int PRIMARY KEY, balance int)", "INSERT INTO accounts VALUES (1, 10), (2, 20)")
READ, WRITE = "SELECT * FROM accounts WHERE id = %s", "UPDATE accounts SET balance = balance + 1 WHERE id = %s"


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    adopt(database, *TABLES)
    with recording(database, tmp_path, fence_interval_seconds=0.05) as made:
        yield made
        assert made.failures == 0


def test_async_connections(made: Recording) -> None:
    async def work(number: int) -> None:
        connection = await made.connect_async()
        assert isinstance(connection, psycopg.AsyncConnection)
        async with connection:
            for _ in range(10):
                async with connection.transaction():
                    cursor = await connection.execute(READ, (number % 2 + 1,))
                    assert len((await cursor.fetchone()) or ()) == 2
                    await connection.execute(WRITE, (number % 2 + 1,))
            async with connection.pipeline():
                await connection.execute(WRITE, (1,))
            async with connection.cursor("named", row_factory=dict_row) as cursor:
                await cursor.execute("SELECT * FROM accounts ORDER BY id")
                assert [list(row) for row in await cursor.fetchall()] == [["id", "balance"]] * 2
            assert [len(row) async for row in connection.cursor().stream(READ, (1,))] == [2]

    async def main() -> None:
        await asyncio.gather(*map(work, range(4)))

    asyncio.run(main())
    operations = made.operations()
    assert len(operations) == 4 * 10 + 4
    assert all(len(each) == 2 for each in operations[:-4] if each[-1][0] == "write")


def test_pools(made: Recording) -> None:
    options: dict[str, Any] = {"kwargs": {"mussurana": made.settings}, "min_size": 1, "max_size": 2}
    with ConnectionPool(made.database.conninfo, connection_class=Connection, **options) as pool:
        for _ in range(5):
            with pool.connection() as connection:
                connection.execute(WRITE, (1,))

    async def main() -> None:
        made_pool = AsyncConnectionPool(made.database.conninfo, connection_class=AsyncConnection, **options)
        async with made_pool as pool, pool.connection() as connection:
            await connection.execute(WRITE, (1,))

    asyncio.run(main())
    assert [len(operations) for operations in made.operations()] == [1] * 6


class OwnCursor(psycopg.Cursor[Any]):
    """A cursor with a method of its own."""

    def one(self, query: Any, *params: Any) -> Any:
        return self.execute(query, params).fetchone()


class OwnConnection(psycopg.Connection[Any]):
    greeting = "hello"


def test_classes_of_the_application_stay_what_they_are(made: Recording) -> None:
    with OwnConnection.connect(made.database.conninfo, cursor_factory=OwnCursor) as connection:
        before = repr(connection)
        assert watch_connection(connection, made.settings)
        assert watch_connection(connection, made.settings)  # twice is harmless
        assert repr(connection) == before
        assert isinstance(connection, OwnConnection)
        assert connection.cursor_factory is OwnCursor
        cursor = connection.cursor()
        assert isinstance(cursor, OwnCursor)
        assert cursor.one(READ, 1) == (1, 10)
        assert type(cursor).__name__ == "OwnCursor"
        assert recorded(type(cursor)) is type(cursor)
        assert isinstance(connection.cursor("named"), psycopg.ServerCursor)
    assert [len(operations) for operations in made.operations()] == [1]


def test_a_cursor_made_past_the_connection_ends_the_recording_loudly(
    made: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    with made.connect() as connection:
        connection.execute(READ, (1,))
        psycopg.ClientCursor(connection).execute("UPDATE accounts SET balance = 0")
        connection.execute(READ, (1,))
    assert "nothing of this database is recorded any more" in caplog.text
    assert made.operations() == []


def test_prepared_statements_stay_few(made: Recording) -> None:
    """The text is the same from call to call, so the server parses each statement once."""
    with made.connect(prepare_threshold=0) as connection:
        for number in range(20):
            connection.execute(WRITE, (number,))
            connection.execute(READ, (number,))
        connection.commit()
        names = connection.execute("SELECT statement FROM pg_prepared_statements WHERE statement ~ 'accounts'")
        assert len(names.fetchall()) == 3  # the two, and this one


def test_a_driver_with_other_insides_is_left_alone(made: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mussurana.collector.psycopg_adapter.unfit_driver", lambda: "psycopg 9 is different")
    with pytest.warns(RuntimeWarning, match="psycopg 9 is different"):
        connection = made.connect()
    assert connection._mussurana is None
    connection.execute("UPDATE accounts SET balance = 0")
    connection.close()


def test_search_paths_and_temporary_tables_change_what_names_mean(made: Recording) -> None:
    made.database.run("CREATE SCHEMA tenant", "CREATE TABLE tenant.accounts (id int PRIMARY KEY, balance int)")
    with made.connect(autocommit=True) as connection:
        connection.execute(READ, (1,))
        connection.execute("SET search_path TO tenant")
        connection.execute("INSERT INTO accounts VALUES (1, 1)")  # has none of our columns
        assert connection.execute(READ, (1,)).fetchall() == [(1, 1)]
        connection.execute("SET search_path TO public")
        assert connection.execute(READ, (1,)).fetchall() == [(1, 10)]
        connection.execute("CREATE TEMP TABLE accounts (id int)")
        connection.execute("INSERT INTO accounts VALUES (7)")
        assert connection.execute("SELECT * FROM accounts").fetchall() == [(7,)]
    # The catalog knows that the name is not unique, so that nothing is recorded; and nothing is made up either.
    assert made.operations() == []
