"""Cursors share their connection's adapters, and nobody can tell."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.adapt import Dumper, Loader
from psycopg.types import TypeInfo

from mussurana.collector.psycopg_cursors import can_share
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


ACTS = [of_the_cursor, when_rows_are_there, of_the_connection, what_depends_on_the_connection, a_type, several]


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
