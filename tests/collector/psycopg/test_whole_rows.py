"""Rows as a whole: where they are arguments of functions, the application sees them without our columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

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


@pytest.mark.parametrize("text", ["SELECT row_to_json(a) FROM accounts a", SAME[-8]])
def test_such_statements_are_recorded(database: Database, tmp_path: Path, text: str) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made:
        with made.connect() as connection:
            connection.execute(text)
        assert {key for txn in made.operations() for _, key, *_ in txn} >= {"accounts/1"}
