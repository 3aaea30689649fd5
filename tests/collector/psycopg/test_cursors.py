"""Cursors share their connection's adapters, and nobody can tell."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.adapt import Dumper, Loader
from psycopg.types import TypeInfo

from mussurana.collector.psycopg_cursors import STATEMENTS_MAX, can_share
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording

READ = "SELECT k, v FROM t WHERE k = %s"
AT = "SELECT at FROM t WHERE k = %s"
WRITE = "UPDATE t SET v = %s WHERE k = %s RETURNING v"

pytestmark = NEWEST


class Shouted(Loader):
    def load(self, data: Any) -> str:
        return bytes(data).decode().upper()


class Whispered(Dumper):
    oid = 25

    def dump(self, value: str) -> bytes:
        return value.lower().encode()


class Own(psycopg.Cursor[Any]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.note = "mine"


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    adopt(
        database,
        "CREATE TABLE t (k int PRIMARY KEY, v text, at timestamptz DEFAULT '2026-01-01T00:00:00Z')",
        "INSERT INTO t VALUES (1, 'one'), (2, 'Two')",
    )
    with recording(database, tmp_path, fence_interval_seconds=60) as made:
        yield made
        assert made.failures == 0


def warm(connection: Any) -> Any:
    for _ in range(6):  # then it is prepared
        for query, params in ((READ, (1,)), (AT, (1,)), (WRITE, ("one", 1))):
            connection.execute(query, params)
    connection.commit()
    return connection


def rows(cursor: Any) -> Any:
    return repr(cursor.fetchall()), [(column[:], repr(column)) for column in cursor.description]


def of_the_cursor(connection: Any) -> Any:
    first, other = connection.cursor(), connection.cursor()
    first.adapters.register_loader("text", Shouted)
    first.adapters.register_dumper(str, Whispered)
    return [rows(cursor.execute(*each)) for cursor in (first, other) for each in ((READ, (2,)), (WRITE, ("Ab", 1)))]


def when_rows_are_there(connection: Any) -> Any:
    first, other = connection.execute(READ, (2,)), connection.execute(READ, (2,))
    first.adapters.register_loader("text", Shouted)
    return rows(first), rows(other), rows(first.execute(READ, (1,))), rows(other.execute(READ, (1,)))


def of_the_connection(connection: Any) -> Any:
    cursors = [connection.cursor()]
    connection.adapters.register_dumper(str, Whispered)
    cursors.append(connection.cursor())
    connection.adapters.register_loader("text", Shouted)
    cursors.append(connection.cursor())
    return [rows(cursor.execute(*each)) for cursor in cursors for each in ((READ, (2,)), (WRITE, ("Ab", 1)))]


def what_depends_on_the_connection(connection: Any) -> Any:
    connection.execute("SET client_encoding TO latin1")
    connection.execute("SET timezone TO 'Asia/Kathmandu'")
    return rows(connection.execute(WRITE, ("Bär", 1))), rows(connection.execute(AT, (1,)))


def a_type(connection: Any) -> Any:
    before = connection.cursor()
    connection.adapters.types.add(TypeInfo("shout", 25, 1009, regtype="shout"))
    return rows(before.execute(READ, (1,))), rows(connection.execute(READ, (1,)))


def several(connection: Any) -> Any:
    cursor = connection.cursor(binary=True)
    seen = [cursor.description, rows(cursor.execute(READ, (1,))), rows(cursor.execute(READ, (3,)))]
    seen.append(connection.execute("UPDATE t SET v = %s WHERE k = %s", ("x", 1)).description)
    cursor.close()
    seen += [cursor.closed, isinstance(cursor.adapters, psycopg.adapt.AdaptersMap), cursor.adapters is cursor.adapters]
    return [*seen, connection.cursor().adapters is connection.cursor().adapters]


def descriptions(connection: Any) -> Any:
    """Of more statements than are remembered, changed by whoever got them, and of altered and renamed columns."""
    seen = []
    for number in (*range(STATEMENTS_MAX + 9), 0, STATEMENTS_MAX):
        for _ in range(2):
            cursor = connection.execute(f"SELECT v AS v{number}, k FROM t WHERE k = %s", (1,), prepare=True)
            seen.append(rows(cursor))
            cursor.description.clear()
    connection.commit()
    for change in ("ALTER COLUMN v TYPE varchar(9)", "RENAME v TO w", "RENAME w TO v", "ALTER COLUMN v TYPE text"):
        connection.execute(f"ALTER TABLE t {change}")
        connection.commit()
        for _ in range(3):
            try:
                seen.append(rows(connection.execute(READ, (1,))))
                connection.commit()
            except psycopg.Error as error:
                seen.append(type(error))
                connection.rollback()
    return seen


ACTS = [
    of_the_cursor,
    when_rows_are_there,
    of_the_connection,
    what_depends_on_the_connection,
    a_type,
    several,
    descriptions,
]


@pytest.mark.parametrize("act", ACTS)
def test_adapters_belong_to_whom_they_belonged(made: Recording, act: Callable[[Any], Any]) -> None:
    seen = []
    for connect in (lambda: psycopg.connect(made.database.conninfo), made.connect):
        with connect() as connection:
            seen.append(act(warm(connection)))
            connection.rollback()
    assert seen[1] == seen[0]


def test_cursors_that_are_made_otherwise_are(made: Recording) -> None:
    assert can_share(psycopg.Cursor)
    assert not can_share(Own)
    with made.connect(cursor_factory=Own) as connection:
        cursor = warm(connection).execute(READ, (1,))
        assert (cursor.note, cursor.fetchall()) == ("mine", [(1, "one")])


def test_a_cursor_that_goes_on_keeps_no_rows(made: Recording) -> None:
    goes_on: list[Callable[[Any], Any]] = [
        lambda cursor: cursor.execute("SELECT count(*) FROM t"),
        lambda cursor: cursor.execute("SELECT * FROM t WHERE k = %s", (2,)),
        lambda cursor: cursor.executemany("UPDATE t SET v = %s WHERE k = %s", [("a", 1), ("b", 2)]),
        lambda cursor: cursor.close(),
    ]
    with made.connect() as connection:
        for go_on in goes_on:
            warm(connection)
            cursor = connection.cursor()
            result = cursor.execute(READ, (1,)).pgresult
            connection.commit()
            assert cursor._mussurana_answer.result is result
            go_on(cursor)
            connection.commit()
            # Here it has two, and a closed cursor has one with psycopg as well: that of its transformer.
            assert sys.getrefcount(result) <= 2 + cursor.closed, go_on


def test_nothing_keeps_a_connection_alive(made: Recording) -> None:
    connection = warm(made.connect())
    connection.close()
    gone = weakref.ref(connection)
    gc.disable()
    try:
        del connection
        assert gone() is None
    finally:
        gc.enable()
