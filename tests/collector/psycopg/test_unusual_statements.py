"""Statements that are seldom written, in every way in which they can be sent, look as they would have without us."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import DiagnosticField

from mussurana.collector.database import forget_all
from mussurana.verifier.embedded_postgres import EmbeddedPostgres
from tests.collector.postgres import Database, create_database, drop_database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording

TABLES = (
    "CREATE TYPE pair AS (x int, y text)",
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance int, note varchar(20))",
    "CREATE TABLE tree (id int PRIMARY KEY, parent int, name text, balance int CHECK (balance < 1000))",
    "CREATE TABLE pairs (p pair, id int PRIMARY KEY)",
    'CREATE TABLE odd (id int PRIMARY KEY, "%s" int, "a""b" int)',
    "CREATE TABLE note (note int PRIMARY KEY, old int, new int)",
    "CREATE TABLE days (id date PRIMARY KEY, total int)",
    "CREATE TABLE messages (text text)",
    "CREATE TABLE archive (LIKE tree)",
    "INSERT INTO accounts SELECT n, 'owner ' || n, n * 10, nullif('n0', 'n' || n % 3) FROM generate_series(1, 6) n",
    "INSERT INTO accounts VALUES (7, NULL, NULL, NULL)",
    "INSERT INTO tree SELECT n, nullif(n / 2, 0), 'name ' || n, n * 10 FROM generate_series(1, 4) n",
    "INSERT INTO pairs VALUES (ROW(1, 'one'), 1)",
    "INSERT INTO odd VALUES (1, 2, 3)",
    "INSERT INTO note VALUES (1, 2, 3)",
    "INSERT INTO days VALUES ('2020-01-01', 1)",
)

READS = (
    "SELECT FROM accounts WHERE id < 3",
    "SELECT (p).* FROM pairs",
    "SELECT note, old, new FROM note",
    "SELECT accounts.*, x.name FROM accounts, tree x WHERE x.id = accounts.id ORDER BY 1",
    'SELECT "%s" FROM odd',
    "SELECT id FROM accounts AS x(id, b) ORDER BY 1",
    "SELECT * FROM (SELECT * FROM accounts AS x(a, b)) s ORDER BY 1",
    "SELECT id, FROM accounts",
    "SELECT ARRAY[id, balance], (ARRAY[[1, 2], [id, 3]])[2:2], owner FROM accounts ORDER BY id",
    "SELECT id FROM accounts ORDER BY 2",
    "SELECT 'é', wrong FROM accounts",
    # A name in FROM may be that of a CTE.
    "WITH accounts AS (SELECT 1 AS q) SELECT * FROM (SELECT * FROM accounts) z",
    "WITH accounts AS (SELECT 1 AS q) SELECT * FROM accounts UNION SELECT * FROM accounts",
    "WITH accounts AS (SELECT id, name FROM tree) SELECT * FROM accounts NATURAL JOIN tree ORDER BY 1",
    "WITH accounts AS (SELECT id FROM accounts) SELECT * FROM accounts ORDER BY 1",
    "WITH RECURSIVE tree AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM tree WHERE id < 3) SELECT * FROM tree",
    # Joins that show columns once.
    "SELECT * FROM accounts a NATURAL JOIN tree t ORDER BY 1",
    "SELECT * FROM tree NATURAL LEFT JOIN messages ORDER BY 1",
    "SELECT * FROM accounts FULL JOIN tree USING (id) UNION ALL SELECT * FROM accounts JOIN tree USING (id) ORDER BY 1",
    "SELECT * FROM (SELECT * FROM tree t JOIN accounts a USING (balance, id)) s ORDER BY 1",
    "SELECT * FROM (SELECT * FROM note, tree JOIN accounts USING (id)) s ORDER BY 1, s.id",
    # Rows as a whole, of tables and of subqueries.
    "SELECT q.id FROM (SELECT id, note FROM accounts) q WHERE q.id > 0 AND q IS NOT NULL ORDER BY 1",
    "SELECT id, CASE WHEN q IS NOT NULL THEN 1 END FROM (SELECT id, note FROM accounts) q ORDER BY 1",
    "SELECT q.id, r.id FROM (SELECT id FROM accounts) q JOIN (SELECT id FROM tree) r ON q = r ORDER BY 1",
    "SELECT '' || q::text FROM (SELECT id, owner FROM accounts) q ORDER BY q.id",
    "SELECT q.id FROM (SELECT id, note FROM accounts) q, LATERAL (SELECT q IS NOT NULL AS ok) z WHERE z.ok ORDER BY 1",
    "SELECT a IS NULL, t IS NOT NULL, a IS NOT NULL FROM accounts a FULL JOIN tree t USING (id) ORDER BY id",
    "SELECT a::text, md5(a::text), t::text FROM accounts a FULL JOIN tree t USING (id) ORDER BY id",
    "SELECT ROW(a.*), ROW(1, a.*) FROM accounts a ORDER BY id",
    "SELECT json_agg(a ORDER BY id) FROM accounts a",
    "TABLE accounts",
    "(TABLE tree) UNION ALL TABLE tree",
)

NOT_TO_BE_COPIED = (
    "WITH accounts AS (SELECT id, name FROM tree) SELECT * FROM accounts NATURAL JOIN tree ORDER BY 1",
    "SELECT * FROM tree NATURAL LEFT JOIN messages ORDER BY 1",
)
"""What their stars stand for is not known, and COPY has no names by which our columns could be taken out again."""

WRITES = (
    "UPDATE accounts SET balance = balance + 1 WHERE id = 1",
    "UPDATE accounts SET note = '50%' WHERE id = 2 -- %s",
    "DELETE FROM accounts WHERE id = 3",
    "DELETE FROM accounts WHERE accounts IS NOT NULL AND id = 4",
    "DELETE FROM accounts WHERE wrong = 1",
    "INSERT INTO accounts DEFAULT VALUES",
    "INSERT INTO accounts VALUES (20, 'x', 1, 'n', 5)",
    "INSERT INTO accounts SELECT 21, 'x', 1, 'n', 5",
    "INSERT INTO accounts SELECT a.id + 30, a.owner FROM accounts a NATURAL JOIN tree t RETURNING id",
    "INSERT INTO accounts (id, owner) SELECT id + 40, name FROM tree ORDER BY 1 RETURNING *",
    "INSERT INTO accounts (id, owner) TABLE messages",
    "INSERT INTO tree VALUES (50, 1, 'x', 2000)",
    "INSERT INTO messages SELECT row_to_json(t)::text FROM tree t RETURNING text",
    "INSERT INTO archive SELECT * FROM tree",
    "INSERT INTO days VALUES ('2020-01-02', 2) RETURNING *",
    "INSERT INTO days VALUES ('2020-01-03', 3, 4)",
    "WITH moved AS (DELETE FROM tree WHERE id = 4 RETURNING *) INSERT INTO archive SELECT * FROM moved RETURNING *",
    "WITH moved AS (DELETE FROM tree t USING accounts a WHERE t.id = a.id AND t.id = 3 RETURNING *)"
    " SELECT row_to_json(moved) FROM moved",
    "UPDATE accounts SET balance = 0 FROM note NATURAL JOIN tree WHERE accounts.id = tree.id",
    "UPDATE note SET old = new RETURNING note, old, new",
    "MERGE INTO accounts a USING tree t ON a.id = t.id + 5 WHEN MATCHED THEN UPDATE SET balance = 0"
    " WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id + 5)",
    "CREATE TEMP TABLE joined AS SELECT * FROM accounts a JOIN tree t USING (id, balance)",
    "SELECT * FROM joined ORDER BY 1",
    "EXPLAIN (COSTS OFF) DELETE FROM tree",
)


def execute(connection: Any, text: str) -> Any:
    return connection.execute(text)


def execute_prepared(connection: Any, text: str) -> Any:
    return connection.execute(text.replace("%", "%%"), (), prepare=True)


def execute_raw(connection: Any, text: str) -> Any:
    connection.cursor_factory = psycopg.RawCursor
    try:
        return connection.execute(text)
    finally:
        connection.cursor_factory = psycopg.Cursor


def execute_many(connection: Any, text: str) -> Any:
    cursor = connection.cursor()
    cursor.executemany(text.replace("%", "%%"), [(), ()], returning=True)
    return cursor


def stream(connection: Any, text: str) -> list[Any]:
    return list(connection.cursor().stream(text))


def copy(connection: Any, text: str) -> list[bytes]:
    with connection.cursor().copy(f"COPY ({text}\n) TO STDOUT") as copied:
        return [bytes(block) for block in copied]


def seen(connection: Any, how: Callable[[Any, str], Any], text: str) -> list[Any]:
    found: list[Any] = []
    try:
        answer = how(connection, text)
        if isinstance(answer, list):
            return answer
        while True:
            described = [(tuple(column), column.type_display) for column in answer.description or ()]
            found += [answer.statusmessage, answer.rowcount, described, answer.description and answer.fetchall()]
            if not answer.nextset():
                return found
    except psycopg.Error as error:
        detail, position = error.diag.message_detail, error.diag.statement_position
        return [*found, type(error), str(error), error.sqlstate, detail, position]


@pytest.fixture
def pair(postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[tuple[Recording, Database]]:
    """A database that is recorded, and one that has the same in it."""
    plain = create_database(postgres)
    plain.run(*TABLES)
    copied = create_database(postgres)
    with psycopg.connect(postgres.conninfo(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {copied.name}".encode())
        connection.execute(f"CREATE DATABASE {copied.name} TEMPLATE {plain.name}".encode())
    adopt(copied)
    with recording(copied, tmp_path) as made:
        yield made, plain
    drop_database(copied)
    drop_database(plain)


def compare(pair: tuple[Recording, Database], how: Callable[[Any, str], Any], texts: Iterable[str]) -> None:
    made, plain = pair
    with made.connect() as recorded, plain.connect() as connection:
        for each in (recorded, connection):
            each.execute("UPDATE accounts SET owner = owner WHERE id % 2 = 0")  # so that some rows have a version
            each.commit()
        for text in texts:
            forget_all()  # what the last statement tainted
            recorded._mussurana.renew_ns = 0
            for _ in range(2):
                found = seen(recorded, how, text)
                assert found == seen(connection, how, text), text
                assert "mussurana" not in str(found)
            recorded.rollback()
            connection.rollback()
        assert made.failures == 0


@pytest.mark.parametrize("how", [execute, execute_prepared, execute_raw, execute_many, stream, copy])
def test_reads_see_the_same(pair: tuple[Recording, Database], how: Callable[[Any, str], Any]) -> None:
    texts = [text for text in READS if how is not copy or text not in NOT_TO_BE_COPIED]
    compare(pair, how, texts)


@pytest.mark.parametrize("how", [execute, execute_prepared, execute_raw, execute_many, stream])
def test_writes_see_the_same(pair: tuple[Recording, Database], how: Callable[[Any, str], Any]) -> None:
    compare(pair, how, WRITES)


def test_what_fails_alone_fails_as_it_was_written(pair: tuple[Recording, Database]) -> None:
    made, plain = pair
    with made.connect(autocommit=True) as recorded, plain.connect(autocommit=True) as connection:
        for text in (*READS, *WRITES):
            assert seen(recorded, execute, text) == seen(connection, execute, text), text
    assert made.failures == 0


@NEWEST
def test_values_never_get_into_our_column(pair: tuple[Recording, Database]) -> None:
    """By their order, those of an INSERT without names would, where a column was added after adoption."""
    made, plain = pair
    for database in (made.database, plain):
        database.run("ALTER TABLE tree ADD COLUMN more int")
    texts = (
        "INSERT INTO tree VALUES (60, 1, 'x', 3, 4) RETURNING *",
        "COPY tree (id, name) FROM '/nowhere'",  # refused, but its table is tainted from now on
        "INSERT INTO tree VALUES (61, 1, 'x', 3, 4) RETURNING *",
        "INSERT INTO tree VALUES (62, 1, 'x', 3, 4, 5) RETURNING *",
        "INSERT INTO tree SELECT id + 70, 1, 'x', 3, 4 FROM tree RETURNING *",
        "INSERT INTO tree VALUES (63, 1, 'x', 2000, 4)",
        "WITH added AS (INSERT INTO tree VALUES (64, 1, 'x', 3, 4) RETURNING *) SELECT * FROM added",
    )
    with made.connect(autocommit=True) as recorded, plain.connect(autocommit=True) as connection:
        for text in texts:
            assert seen(recorded, execute, text) == seen(connection, execute, text), text


@NEWEST
def test_more_parameters_than_fit_are_sent_as_they_are(pair: tuple[Recording, Database]) -> None:
    made, _ = pair
    rows = 32_000
    text = "INSERT INTO note (note, old) VALUES " + ", ".join(["(%s, %s)"] * rows)
    with made.connect() as connection:
        connection.execute(text, [number + 10 for number in range(rows) for _ in range(2)])
    assert ("note", "too many parameters") in {(row.table, row.shape) for row in made.coverage}


@NEWEST
@pytest.mark.parametrize("how", [execute, execute_many, execute_raw])
def test_a_statement_that_is_refused_because_of_us_is_left_alone_afterwards(
    pair: tuple[Recording, Database], how: Callable[[Any, str], Any]
) -> None:
    made, _ = pair
    text = "UPDATE tree SET name = 'x' WHERE id = 1"
    with made.connect() as connection:
        how(connection, text)
        connection.commit()
        made.database.run("ALTER TABLE tree DROP COLUMN mussurana_wid")
        with pytest.raises(psycopg.errors.UndefinedColumn, match=re.escape("mussurana_wid")):
            how(connection, text)
        connection.rollback()
        how(connection, text)


@NEWEST
@pytest.mark.parametrize("others", [(), ("CREATE TABLE others (id int PRIMARY KEY)",)])
def test_a_table_that_is_adopted_meanwhile_shows_nothing_new(
    database: Database, tmp_path: Path, others: tuple[str, ...]
) -> None:
    adopt(database, *others)
    database.run("CREATE TABLE accounts (id int PRIMARY KEY, balance int)", "INSERT INTO accounts VALUES (1, 10)")
    with recording(database, tmp_path) as made, made.connect() as connection:
        for _ in range(3):
            for _ in range(2):
                cursor = connection.execute("SELECT * FROM accounts WHERE id = %s", (1,))
                assert ([column.name for column in cursor.description], cursor.fetchall()) == (
                    ["id", "balance"],
                    [(1, 10)],
                )
            connection.rollback()
            adopt(database)
        assert made.failures == 0


@NEWEST
def test_generated_columns_are_not_copied(database: Database, tmp_path: Path) -> None:
    adopt(
        database, "CREATE TABLE boxes (id int PRIMARY KEY, double int GENERATED ALWAYS AS (id * 2) STORED, name text)"
    )
    with recording(database, tmp_path) as made, made.connect() as connection:
        with connection.cursor().copy("COPY boxes FROM STDIN") as copied:
            copied.write_row((1, "one"))
        with connection.cursor().copy("COPY boxes TO STDOUT") as copied:
            assert b"".join(map(bytes, copied)) == b"1\tone\n"
        connection.execute("INSERT INTO boxes VALUES (2, DEFAULT, 'two')")
        assert connection.execute("SELECT * FROM boxes ORDER BY id").fetchall() == [(1, 2, "one"), (2, 4, "two")]
        assert made.failures == 0


@NEWEST
@pytest.mark.parametrize("text", ["UPDATE accounts SET wrong = 1", "INSERT INTO tree VALUES (50, 1, 'x', 2000)"])
def test_the_result_in_an_error_is_as_it_was(database: Database, tmp_path: Path, text: str) -> None:
    other = create_database(database.server)
    other.run(*TABLES)
    adopt(database, *TABLES)
    errors = []
    try:
        with recording(database, tmp_path) as made, made.connect() as recorded, other.connect() as plain:
            for connection in (recorded, plain):
                with pytest.raises(psycopg.Error) as caught:
                    connection.execute(text.encode())
                result = caught.value.pgresult
                assert result is not None
                fields = [result.error_field(field) for field in DiagnosticField]
                told = result.error_message, result.get_error_message(), result.status
                kept = pickle.loads(pickle.dumps(caught.value))
                errors.append((fields, told, str(kept), kept.diag.statement_position))
    finally:
        drop_database(other)
    assert errors[0] == errors[1]
