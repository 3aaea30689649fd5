"""Rows as a whole: the application sees them, and compares them, without our columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.string import TextLoader

from mussurana.verifier.embedded_postgres import EmbeddedPostgres
from tests.collector.postgres import Database, create_database, drop_database
from tests.collector.psycopg.recording import adopt, recording

TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int)",
    "CREATE TABLE owners (id int PRIMARY KEY, name text)",
    "INSERT INTO accounts VALUES (1, 10), (2, NULL)",
    "INSERT INTO owners VALUES (1, 'one')",
)

SAME = (
    "SELECT row_to_json(accounts) FROM accounts",
    "SELECT to_jsonb(a) AS x, id FROM accounts AS a WHERE a.id = %s",
    'SELECT row_to_json("A".*) FROM accounts "A"',
    "SELECT json_agg(a ORDER BY id) FROM accounts a",
    "SELECT json_agg(a) FILTER (WHERE a.id = 1) FROM accounts a",
    "SELECT to_json(array_agg(a ORDER BY id)) FROM accounts a",
    "SELECT json_build_object('a', a, 'o', o) FROM accounts a LEFT JOIN owners o ON o.id = a.id ORDER BY a.id",
    "SELECT to_json(o) FROM accounts a LEFT JOIN owners o ON o.id = a.id ORDER BY a.id",
    "SELECT jsonb_build_array(a, 1) FROM accounts a ORDER BY 1",
    "SELECT concat(a) FROM accounts a",
    "SELECT count(a) FROM accounts a",
    "SELECT (SELECT row_to_json(o) FROM owners o WHERE o.id = a.id) FROM accounts a ORDER BY a.id",
    "SELECT row_to_json(s) FROM (SELECT * FROM accounts) s",
    "SELECT s.j FROM (SELECT row_to_json(o) AS j, id FROM owners o) s ORDER BY id",
    "SELECT row_to_json(o) FROM owners o, (SELECT id AS k FROM accounts) s WHERE s.k = o.id",
    "WITH c AS (SELECT id FROM accounts) SELECT row_to_json(o) FROM owners o JOIN c ON c.id = o.id",
    "SELECT to_jsonb(x) FROM accounts AS x(a, b) ORDER BY x.a",
    "SELECT a.id, json_agg(o) FROM accounts a LEFT JOIN owners o ON o.id = a.id GROUP BY a.id ORDER BY 1",
    "SELECT json_object_agg(a.id, a ORDER BY a.id) FROM accounts a",
    "SELECT format('%%s', a), a || 'x', 'x' || a, concat_ws('-', a, %s::int) FROM accounts a ORDER BY id",
    "SELECT row_to_json(a) FROM accounts a GROUP BY a.balance, a.id, a ORDER BY a.id LIMIT 0",
    "UPDATE accounts a SET balance = 5 WHERE id = 1 RETURNING row_to_json(a), a.id",
    "INSERT INTO accounts VALUES (3, 30) RETURNING to_jsonb(accounts)",
    "DELETE FROM accounts WHERE id = 3 RETURNING to_jsonb(accounts)",
    "SELECT * INTO copied FROM accounts",
    "SELECT * FROM copied",
    "CREATE TABLE copied_too AS SELECT * FROM accounts",
    "SELECT * FROM copied_too",
    "TABLE accounts",
)


def seen(connection: Any, text: str) -> tuple[Any, ...]:
    cursor = connection.execute(text, (1,) if "%s" in text else None)
    described = [(column.name, column.type_code) for column in cursor.description or ()]
    return cursor.statusmessage, described, cursor.fetchall() if described else None


def test_functions_get_rows_as_they_were(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    with_columns, without = create_database(postgres), create_database(postgres)
    try:
        without.run(*TABLES)
        adopt(with_columns, *TABLES)
        with (
            recording(with_columns, tmp_path) as made,
            made.connect() as recorded,
            psycopg.connect(without.conninfo) as plain,
        ):
            for text in SAME:
                assert seen(recorded, text) == seen(plain, text), text
                recorded.commit()
                plain.commit()
            assert made.failures == 0
    finally:
        drop_database(with_columns)
        drop_database(without)


VALUES = (
    "CREATE TYPE pair AS (x int, y text)",
    "CREATE TABLE ones (id int PRIMARY KEY)",
    "CREATE TABLE odd (id int PRIMARY KEY, t text, b bytea, p pair, a int[], n numeric)",
    "CREATE FUNCTION pick(n int) RETURNS accounts LANGUAGE sql STABLE AS 'SELECT a FROM accounts a WHERE id = n'",
    "CREATE VIEW whole AS SELECT a AS x, id FROM accounts a",
    "INSERT INTO owners VALUES (2, NULL), (3, 'a \"b\\ c'), (5, '')",
    "INSERT INTO ones VALUES (1), (2)",
    "INSERT INTO odd VALUES (1, '(,)\"\\ {}', '\\x00ff22', ROW(1, 'a,\"b'), '{1,2,NULL}', 1.50),"
    " (2, '', NULL, NULL, NULL, NULL), (3, 'é', '', ROW(NULL, NULL), '{}', 'NaN'),"
    " (4, 'NULL', NULL, ROW(2, ''), '{{1},{2}}', 0)",
)

RETURNED = (
    "SELECT accounts FROM accounts ORDER BY id",
    "SELECT a AS x, a.id FROM accounts a ORDER BY a",
    "SELECT (a) FROM accounts a ORDER BY 1 DESC",
    "SELECT o FROM odd o ORDER BY id",
    "SELECT array_agg(o ORDER BY id) FROM odd o",
    "SELECT array_agg(o ORDER BY id DESC) FROM owners o",
    "SELECT o, array_agg(o) OVER () FROM ones o",
    "SELECT ARRAY[[o, NULL], [o, o]] FROM ones o",
    "SELECT ARRAY(SELECT o FROM owners o ORDER BY 1)",
    "SELECT DISTINCT a FROM accounts a, owners ORDER BY a",
    "SELECT a, count(*) FROM accounts a, owners o GROUP BY a ORDER BY a",
    "SELECT a, o FROM accounts a FULL JOIN owners o USING (id) ORDER BY id",
    "SELECT coalesce(a, a), CASE WHEN a.id = 1 THEN a END FROM accounts a ORDER BY 1",
    "SELECT a FROM accounts a UNION SELECT a FROM accounts a ORDER BY 1",
    "SELECT * FROM (SELECT a AS x FROM accounts a) s ORDER BY 1",
    "SELECT (a).*, (s.x).balance FROM accounts a, (SELECT a AS x FROM accounts a) s ORDER BY 1, 3",
    "SELECT *, x FROM whole ORDER BY id",
    "SELECT pick(1), pick(7)",
    "SELECT lag(a) OVER (ORDER BY id), ((array_agg(a) OVER (ORDER BY id))[1]).id, pg_typeof(a) FROM accounts a",
)

COMPARED = (
    "SELECT count(DISTINCT a) FROM accounts a, owners",
    "SELECT a = ROW(1, 10), ROW(2, NULL::int) = a, a < ROW(2, 0), a <> ROW(4, 4) FROM accounts a ORDER BY id",
    "SELECT a.id FROM accounts a JOIN accounts b ON a = b ORDER BY 1",
    "SELECT a.id FROM accounts a WHERE a IN (SELECT b FROM accounts b WHERE id < 2) ORDER BY 1",
    "SELECT a.id FROM accounts a WHERE a IN (ROW(1, 10), ROW(2, 3)) AND ROW(1, 10) IN (a)",
    "SELECT a.id FROM accounts a WHERE a NOT IN (SELECT ROW(1, 10)) ORDER BY 1",
    "SELECT a.id FROM accounts a WHERE a = ANY (SELECT ROW(id, balance) FROM accounts) ORDER BY 1",
    "SELECT a IS DISTINCT FROM ROW(1, 10), ROW(1, 10) IS NOT DISTINCT FROM a FROM accounts a ORDER BY id",
    "SELECT o = o, o IS DISTINCT FROM NULL, o IS NULL FROM accounts a LEFT JOIN owners o ON o.id = a.id + 2",
    "SELECT a BETWEEN ROW(1, 10) AND ROW(2, 10) FROM accounts a ORDER BY id",
    "SELECT CAST(a AS text), a::text AS b FROM accounts a ORDER BY a DESC",
)

WRITTEN = (
    "UPDATE accounts a SET balance = 5 WHERE a = ROW(1, 10) RETURNING a",
    "UPDATE accounts SET balance = 6 WHERE id = 1 RETURNING accounts, accounts.*, id",
    "INSERT INTO accounts VALUES (9, 9) RETURNING accounts",
    "INSERT INTO accounts VALUES (1, 9) ON CONFLICT (id) DO UPDATE SET balance = 3 RETURNING ARRAY[accounts]",
    "DELETE FROM accounts a USING owners o WHERE a.id = o.id AND o.id = 2 RETURNING a, o",
    "WITH x AS (UPDATE owners SET name = 'x' WHERE id = 1 RETURNING owners) SELECT * FROM x",
)

COPIED = (
    "SELECT a, o FROM accounts a LEFT JOIN owners o USING (id) ORDER BY id",
    "SELECT array_agg(a ORDER BY id) FROM accounts a",
    "SELECT (a).* FROM accounts a, owners",
    "WITH c AS (SELECT 1) SELECT row_to_json(a), a = ROW(1, 10) FROM accounts a",
)


def text(connection: Any, query: str) -> Any:
    return connection.execute(query)


def binary(connection: Any, query: str) -> Any:
    return connection.execute(query, binary=True)


def prepared(connection: Any, query: str) -> Any:
    cursor = connection.cursor(row_factory=dict_row)
    cursor.execute(query, (), prepare=True)
    if query in WRITTEN:
        connection.rollback()
    return cursor.execute(query, ())


def many(connection: Any, query: str) -> Any:
    cursor = connection.cursor()
    cursor.executemany(query, [()], returning=True)
    return cursor


def pipeline(connection: Any, query: str) -> Any:
    with connection.pipeline():
        return connection.execute(query)


def stream(connection: Any, query: str) -> Any:
    return list(connection.cursor(row_factory=dict_row).stream(query))


def server_cursor(connection: Any, query: str) -> Any:
    cursor = connection.cursor("c", scrollable=True)
    cursor.execute(query)
    rows = [cursor.fetchone(), cursor.fetchmany(2), cursor.fetchall()]
    cursor.scroll(0, "absolute")
    return [rows, cursor.fetchall()]


def server_binary(connection: Any, query: str) -> Any:
    cursor = connection.cursor("c", binary=True)
    cursor.execute(query)
    return list(cursor)


def fetch(connection: Any, query: str) -> Any:
    connection.execute(f"DECLARE c CURSOR FOR {query}")
    return connection.execute("FETCH ALL FROM c")


def one_of_two(connection: Any, query: str) -> Any:
    cursor = connection.execute(f"SELECT 1 AS a; {query}")
    cursor.nextset()
    return cursor


def loader_registered_late(connection: Any, query: str) -> Any:
    class Upper(TextLoader):
        def load(self, data: Any) -> Any:
            return str(super().load(data)).upper()

    cursor = connection.execute(query)
    for column in cursor.description:
        cursor.adapters.register_loader(column.type_code, Upper)
    return cursor


def copy(connection: Any, query: str) -> Any:
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT") as copied:
        return [bytes(block) for block in copied]


Way = Callable[[Any, str], Any]
WAYS: tuple[tuple[Way, tuple[str, ...]], ...] = (
    *((way, RETURNED + COMPARED + WRITTEN) for way in (text, binary, prepared, many, pipeline, stream)),
    *((way, RETURNED + COMPARED) for way in (server_cursor, server_binary, fetch)),
    *((way, RETURNED) for way in (one_of_two, loader_registered_late)),
    (copy, COPIED),
)


def all_seen(way: Way, connection: Any, query: str) -> str:
    found = way(connection, query)
    if isinstance(found, psycopg.Cursor):
        result: Any = found.pgresult
        described = [tuple(column) for column in found.description or ()]
        values = [result.get_value(row, at) for row in range(result.ntuples) for at in range(result.nfields)]
        found = [found.statusmessage, found.rowcount, described, found.fetchall(), values]
    connection.rollback()
    return repr(found)


@pytest.mark.parametrize("registered", [False, True])
def test_rows_as_values_are_as_they_were(database: Database, tmp_path: Path, registered: bool) -> None:
    database.run(*TABLES, *VALUES)
    without = create_database(database.server, template=database.name)
    adopt(database)
    try:
        with (
            recording(database, tmp_path) as made,
            made.connect() as recorded,
            psycopg.connect(without.conninfo) as plain,
        ):
            for connection in (recorded, plain) if registered else ():
                for name in ("accounts", "owners", "ones", "pair"):
                    info = CompositeInfo.fetch(connection, name)
                    assert info is not None
                    assert not any(field.startswith("mussurana") for field in info.field_names)
                    register_composite(info, connection)
                connection.commit()
            for way, queries in WAYS:
                for query in queries:
                    assert all_seen(way, recorded, query) == all_seen(way, plain, query), (way.__name__, query)
            assert made.failures == 0
    finally:
        drop_database(without)


def test_columns_that_were_added_after_ours_stay(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    database.run("ALTER TABLE accounts ADD COLUMN late text DEFAULT 'x', DROP COLUMN balance")
    with recording(database, tmp_path) as made, made.connect() as connection:
        assert connection.execute("SELECT a FROM accounts a WHERE id = 1").fetchone() == ("(1,x)",)


def test_who_was_told_of_our_fields_gets_them(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    with database.connect() as plain:
        info = CompositeInfo.fetch(plain, "owners")
    assert info is not None
    with recording(database, tmp_path) as made, made.connect() as connection:
        register_composite(info, connection)
        (owner,) = connection.execute("SELECT o FROM owners o").fetchone()
        assert owner[:2] == (1, "one")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT row_to_json(a) FROM accounts a",
        "SELECT a FROM accounts a",
        "SELECT a.id FROM accounts a WHERE a = ROW(1, 10)",
        "UPDATE accounts a SET balance = 5 WHERE id = 1 RETURNING row_to_json(a), a.id",
        "UPDATE accounts SET balance = 5 RETURNING accounts",
    ],
)
def test_such_statements_are_recorded(database: Database, tmp_path: Path, text: str) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made:
        with made.connect() as connection:
            connection.execute(text)
        assert {key for txn in made.operations() for _, key, *_ in txn} >= {"accounts/1"}
