"""A row has one name, whoever reads it and in whichever format."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording

pytestmark = NEWEST

ID = uuid.UUID(int=7)


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    with recording(database, tmp_path) as made:
        yield made
        assert made.failures == 0


@pytest.mark.parametrize(
    ("columns", "key", "values", "name"),
    [
        ("id int", "id", (-7,), "t/-7"),
        ("id bigint", "id", (1 << 40,), "t/1099511627776"),
        ("id text", "id", ("it's é",), "t/'it''s é'"),
        ("id varchar(9)", "id", ("x",), "t/'x'"),
        ("id uuid", "id", (ID,), "t/00000000-0000-0000-0000-000000000007"),
        ("id bytea", "id", (b"\\\x00a",), "t/\\x5c0061"),
        ("id date", "id", (datetime.date(1970, 1, 2),), "t/'86400'"),
        ("id numeric", "id", (1.50,), "t/'1.5'"),
        ("id boolean", "id", (True,), "t/'true'"),
        ("a int, b text", "a, b", (7, "x"), "t/7,'x'"),
        ("b text, a uuid", "a, b", ("x", ID), "t/00000000-0000-0000-0000-000000000007,'x'"),
    ],
)
def test_names(made: Recording, columns: str, key: str, values: tuple[object, ...], name: str) -> None:
    adopt(made.database, f"CREATE TABLE t ({columns}, v int, PRIMARY KEY ({key}))")
    marks = ", ".join(["%s"] * len(values))
    with made.connect() as connection:
        connection.execute(f"INSERT INTO t VALUES ({marks}, 1)", values)
        connection.execute("SELECT v FROM t")
        connection.cursor(binary=True).execute("SELECT v FROM t WHERE v = %s", (1,))
        connection.execute("SET LOCAL bytea_output = 'escape'")
        connection.execute("SET LOCAL datestyle = 'German'")
        connection.execute("SELECT * FROM t")
        connection.cursor(binary=True).execute("UPDATE t SET v = v + 1")
        connection.execute("DELETE FROM t")
    (operations,) = made.operations()
    assert {operation[1].encode() for operation in operations} == {name.encode()}
    assert [operation[0] for operation in operations] == ["write", "read", "read", "read", "write", "write"]


def test_absent_rows_have_the_names_of_those_that_are_there(made: Recording) -> None:
    adopt(
        made.database,
        "CREATE TABLE numbers (id int PRIMARY KEY)",
        "CREATE TABLE ids (id uuid PRIMARY KEY)",
        "CREATE TABLE pairs (a int, b text, PRIMARY KEY (a, b))",
    )
    with made.connect() as connection:
        connection.execute("SELECT * FROM numbers WHERE id = %s", (3,))
        connection.execute("SELECT id FROM numbers WHERE id IN (%s, %s)", (4, 5))
        connection.execute("SELECT id FROM numbers WHERE id BETWEEN %s AND %s", (6, 7))
        connection.execute("SELECT id FROM ids WHERE id = %s", (str(ID).upper(),))
        connection.execute("SELECT a FROM pairs WHERE b = %(b)s AND a = %(a)s", {"a": 1, "b": "x"})
        connection.execute("DELETE FROM numbers WHERE id = ANY(%s)", ([8],))
    (operations,) = made.operations()
    assert [operation[1] for operation in operations] == [
        "numbers/3",
        "numbers/4",
        "numbers/5",
        "numbers/6",
        "numbers/7",
        f"ids/{ID}",
        "pairs/1,'x'",
        "numbers/8",
    ]
