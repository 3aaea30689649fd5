"""Rows that are not written as the statement says: generated and deferrable keys, and triggers that have a say."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.collector.database import look_again
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import Recording, adopt, recording
from tests.collector.psycopg.test_migrations import assert_accepted, assert_rejected, plant

OTHER = ("CREATE TABLE other (id int PRIMARY KEY, w int)", "INSERT INTO other SELECT n, 0 FROM generate_series(1, 3) n")
APART = ("CREATE TABLE apart (id int PRIMARY KEY, w int)", "INSERT INTO apart VALUES (1, 0)")

ROWS = "INSERT INTO a (id, v) SELECT n, n FROM generate_series(1, 6) n"
PLAIN = ("CREATE TABLE a (id int PRIMARY KEY, v int)", ROWS)
GENERATED = (
    "CREATE TABLE a (x int, id int GENERATED ALWAYS AS (x * 2) STORED PRIMARY KEY, v int)",
    "INSERT INTO a (x, v) SELECT n, n FROM generate_series(1, 6) n",
)
DEFERRED = ("CREATE TABLE a (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v int)", ROWS)
AT_ONCE = ("CREATE TABLE a (id int PRIMARY KEY DEFERRABLE INITIALLY IMMEDIATE, v int)", ROWS)
PARTS = (
    "CREATE TABLE a (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF a FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high PARTITION OF a FOR VALUES FROM (10) TO (200)",
    ROWS,
)


def trigger(body: str, event: str = "BEFORE UPDATE", table: str = "a", declared: str = "") -> tuple[str, ...]:
    return (
        f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ {declared} BEGIN {body} END $$",
        f"CREATE TRIGGER t {event} ON {table} FOR EACH ROW EXECUTE FUNCTION f()",
    )


@dataclass(frozen=True)
class Case:
    tables: tuple[str, ...]
    transactions: tuple[str, ...]  # each of one or more statements
    seen_since: int = 14  # from this version of PostgreSQL on, all that is written to the table is recorded


READ, ONE = "SELECT * FROM a ORDER BY id", "SELECT * FROM a WHERE id = 1"
CHANGE, CHANGE_SHOWN = "UPDATE a SET v = v + 4 WHERE id = 1", "UPDATE a SET v = v + 4 WHERE id = 1 RETURNING *"
REPLACED = "DELETE FROM a WHERE id = 1; INSERT INTO a VALUES (1, 1)"
UPSERT = "INSERT INTO a VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET v = excluded.v"
USUAL = (READ, REPLACED, CHANGE, ONE, CHANGE_SHOWN, READ, UPSERT, READ, "DELETE FROM a WHERE id = 1", ONE, READ)
NEW = "SELECT * FROM a WHERE id = 20"
SUPPRESSED = (
    "INSERT INTO a VALUES (20, 7)",
    f"{NEW}; UPDATE a SET v = 9 WHERE id = 20",
    f"{NEW}; DELETE FROM a WHERE id = 20",
)
NEVER = 99

CASES = {
    "a generated key": Case(
        GENERATED,
        (
            READ,
            "UPDATE a SET v = v + 1 WHERE id = 2",
            "UPDATE a SET x = 10 WHERE id = 2",
            READ,
            "UPDATE a SET x = 1 WHERE id = 20",
            "INSERT INTO a VALUES (8, DEFAULT, 1)",
            "SELECT * FROM a WHERE id = 16",
            "DELETE FROM a WHERE x = 8",
            "UPDATE a SET x = x + 20; UPDATE a SET x = x - 20",
            "INSERT INTO a (x, v) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET v = a.v + 7",
            "INSERT INTO a (x, v) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET x = a.x + 30",
            READ,
            "UPDATE a SET x = 1 WHERE x = 31",
        ),
        seen_since=18,
    ),
    "a generated unique column": Case(
        ("CREATE TABLE a (id int PRIMARY KEY, v int, u int GENERATED ALWAYS AS (v * 2) STORED UNIQUE)", ROWS),
        (
            READ,
            "INSERT INTO a (id, v) VALUES (9, 1) ON CONFLICT (u) DO UPDATE SET v = a.v + 20",
            "INSERT INTO a (id, v) VALUES (8, 2) ON CONFLICT (u) DO NOTHING",
            "UPDATE a SET v = v - 20 WHERE u = 42",
            ONE,
            "DELETE FROM a WHERE u = 4",
            READ,
        ),
    ),
    "a virtual column": Case(
        ("CREATE TABLE a (id int PRIMARY KEY, v int, u int GENERATED ALWAYS AS (v * 2) VIRTUAL)", ROWS),
        (READ, "UPDATE a SET v = v + 10 WHERE u = 4", "DELETE FROM a WHERE u = 6", READ),
    ),
    "keys that are swapped at once": Case(
        AT_ONCE,
        (
            READ,
            "UPDATE a SET id = 3 - id WHERE id < 3",
            CHANGE,
            READ,
            "UPDATE a SET id = id + 1",
            READ,
            "UPDATE a SET id = id - 1",
            "SET CONSTRAINTS ALL DEFERRED; UPDATE a SET id = 2 WHERE id = 1; ROLLBACK",
            "SET CONSTRAINTS ALL DEFERRED; UPDATE a SET id = 2 WHERE id = 1; UPDATE a SET id = 1 WHERE v = 2",
            READ,
        ),
        seen_since=18,
    ),
    "two rows for a moment": Case(
        DEFERRED,
        (
            READ,
            CHANGE,
            f"UPDATE a SET id = 2 WHERE id = 1; {READ}; UPDATE a SET id = 1 WHERE id = 2 AND v = 2; {READ}",
            READ,
            "UPDATE a SET v = v * 2 WHERE id < 3",
            READ,
            "SAVEPOINT s; UPDATE a SET id = 2 WHERE id = 1; ROLLBACK TO s; UPDATE a SET v = 1 WHERE id = 1",
            READ,
            "UPDATE a SET id = 4 WHERE id = 3; UPDATE a SET v = v + 40 WHERE id = 4; DELETE FROM a WHERE v = 43",
            READ,
        ),
        seen_since=18,
    ),
    "a second row that goes or stays": Case(
        DEFERRED,
        (
            READ,
            f"INSERT INTO a VALUES (1, 100); {READ}; DELETE FROM a WHERE id = 1 AND v < 100",
            READ,
            CHANGE,
            f"INSERT INTO a VALUES (1, 200); DELETE FROM a WHERE v = 200; {READ}",
            READ,
            CHANGE,
            READ,
            "DELETE FROM a WHERE id = 1; INSERT INTO a VALUES (1, 1); UPDATE a SET v = 2 WHERE id = 1",
            READ,
            "INSERT INTO a VALUES (9, 1); UPDATE a SET v = 2 WHERE id = 9; DELETE FROM a WHERE id = 9",
            READ,
        ),
    ),
    "BEFORE UPDATE returns OLD": Case((*PLAIN, *trigger("RETURN OLD;")), USUAL),
    "BEFORE UPDATE returns OLD now and then": Case(
        (*PLAIN, *trigger("IF NEW.v % 3 = 0 THEN RETURN OLD; END IF; RETURN NEW;")),
        (*USUAL, *USUAL, "UPDATE a SET v = v + 1", READ, "UPDATE a SET v = v + 1 WHERE id IN (2, 3, 4)", READ),
    ),
    "BEFORE UPDATE returns OLD, by COALESCE": Case((*PLAIN, *trigger("RETURN COALESCE(OLD, NEW);")), USUAL),
    "BEFORE UPDATE changes OLD and returns it": Case((*PLAIN, *trigger("OLD.v := NEW.v; RETURN OLD;")), USUAL),
    "BEFORE UPDATE returns NULL": Case((*PLAIN, *trigger("RETURN NULL;")), (*USUAL, *SUPPRESSED[:2])),
    "BEFORE DELETE returns NULL": Case(
        (*PLAIN, *trigger("IF OLD.v > 4 THEN RETURN NULL; END IF; RETURN OLD;", "BEFORE DELETE")), SUPPRESSED
    ),
    "BEFORE DELETE returns NEW": Case(
        (*PLAIN, *trigger("IF OLD.v > 4 THEN RETURN NEW; END IF; RETURN OLD;", "BEFORE DELETE")), SUPPRESSED
    ),
    "BEFORE DELETE updates": Case(
        (*PLAIN, *trigger("UPDATE a SET v = -1 WHERE id = OLD.id; RETURN NULL;", "BEFORE DELETE")), USUAL
    ),
    "BEFORE INSERT returns NULL": Case((*PLAIN, *trigger("RETURN NULL;", "BEFORE INSERT")), USUAL),
    "BEFORE INSERT changes the key": Case(
        (*PLAIN, *trigger("NEW.id := NEW.id + 100; RETURN NEW;", "BEFORE INSERT")),
        (*USUAL, "DELETE FROM a WHERE id > 100", UPSERT, READ, UPSERT, READ),
    ),
    "BEFORE UPDATE changes the key": Case(
        (*PLAIN, *trigger("NEW.id = (OLD.id + 1) % 150 + 50; RETURN NEW;")),
        (*USUAL, "UPDATE a SET v = v + 1", READ, "UPDATE a SET v = v - 1", READ),
        seen_since=18,
    ),
    "BEFORE UPDATE changes what the key is made of": Case(
        (*GENERATED, *trigger("SELECT OLD.x + 100 INTO NEW.x; RETURN NEW;")),
        (READ, "UPDATE a SET v = 9 WHERE id = 2", READ, "UPDATE a SET v = v + 1", READ, "UPDATE a SET v = v + 1", READ),
        seen_since=18,
    ),
    "BEFORE INSERT returns another row": Case(
        (
            *PLAIN,
            *trigger(
                "SELECT * INTO r FROM a WHERE id = 2; r.id := NEW.id; RETURN r;",
                "BEFORE INSERT",
                declared="DECLARE r a%ROWTYPE;",
            ),
        ),
        USUAL,
        NEVER,
    ),
    "BEFORE UPDATE returns what is there": Case(
        (
            *PLAIN,
            *trigger("SELECT * INTO r FROM a WHERE id = OLD.id; RETURN r;", declared="DECLARE r record;"),
        ),
        USUAL,
        NEVER,
    ),
    "a cascade into what the key is made of": Case(
        (
            "CREATE TABLE p (id int PRIMARY KEY)",
            "INSERT INTO p SELECT generate_series(1, 6)",
            "CREATE TABLE a (x int REFERENCES p ON UPDATE CASCADE, v int,"
            " id int GENERATED ALWAYS AS (x * 2) STORED PRIMARY KEY)",
            GENERATED[1],
        ),
        (
            READ,
            "UPDATE a SET v = 9 WHERE id = 2",
            "UPDATE p SET id = 11 WHERE id = 1",
            READ,
            "UPDATE p SET id = 1 WHERE id = 11",
            READ,
        ),
        NEVER,
    ),
    "a trigger that updates what another key is made of": Case(
        (*GENERATED, *trigger("UPDATE a SET x = x + 10; RETURN NULL;", "AFTER UPDATE", "other")),
        (READ, "UPDATE a SET v = 9 WHERE id = 2", "UPDATE other SET w = 3 WHERE id = 3", READ, READ),
        NEVER,
    ),
    "INSTEAD OF": Case(
        (
            *PLAIN,
            "CREATE VIEW shown AS SELECT * FROM a",
            *trigger("UPDATE a SET v = NEW.v WHERE id = OLD.id; RETURN NEW;", "INSTEAD OF UPDATE", "shown"),
        ),
        (READ, "UPDATE shown SET v = 9 WHERE id = 1", READ, CHANGE, READ),
        NEVER,
    ),
    "a rule": Case(
        (*PLAIN, "CREATE RULE r AS ON UPDATE TO a DO INSTEAD DELETE FROM a WHERE id = OLD.id"),
        (READ, CHANGE, READ, "INSERT INTO a VALUES (1, 1)", READ),
        NEVER,
    ),
    "rows that move between partitions": Case(
        PARTS,
        (
            READ,
            REPLACED,
            "UPDATE a SET id = id + 10 WHERE id = 1",
            READ,
            "UPDATE a SET id = id - 10 WHERE id = 11",
            READ,
            CHANGE,
            "SELECT * FROM low",
            "UPDATE low SET v = 6 WHERE id = 1",
            READ,
        ),
        seen_since=18,
    ),
    "rows that a trigger ends halfway between partitions": Case(
        (*PARTS, *trigger("RETURN NULL;", "BEFORE INSERT", "high")),
        (READ, CHANGE, "UPDATE a SET id = id + 10 WHERE id = 1", READ, "INSERT INTO a VALUES (1, 7)", READ),
        NEVER,
    ),
    "rows that a trigger keeps in their partition": Case(
        (*PARTS, *trigger("RETURN NULL;", "BEFORE DELETE", "low")),
        (READ, CHANGE, "UPDATE a SET id = id + 10 WHERE id = 1", READ, "DELETE FROM a WHERE id = 1", READ),
        seen_since=18,
    ),
}


def run(made: Recording, case: Case, level: psycopg.IsolationLevel) -> None:
    """Two connections take turns."""
    connections = [made.connect(prepare_threshold=1) for _ in range(2)]
    for turn, transaction in enumerate(case.transactions * 2):
        connection = connections[turn % 2]
        connection.isolation_level = level
        with suppress(psycopg.errors.UniqueViolation, psycopg.errors.FeatureNotSupported):
            for statement in transaction.split("; "):
                connection.execute(statement)
            connection.commit()
        connection.rollback()
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.SERIALIZABLE, psycopg.IsolationLevel.REPEATABLE_READ])
@pytest.mark.parametrize("name", CASES)
def test_they_accuse_nobody_and_what_can_be_seen_is(
    name: str, level: psycopg.IsolationLevel, database: Database, tmp_path: Path
) -> None:
    case = CASES[name]
    if "VIRTUAL" in case.tables[0] and database.major < 18:
        pytest.skip("there are none before PostgreSQL 18")
    adopt(database, *OTHER, *case.tables)
    with recording(database, tmp_path) as made:
        run(made, case, level)
        assert_accepted(made)
        unseen = [row for row in made.coverage if row.table == "a" and row.observed not in ("full", "partial")]
        assert bool(unseen) == (database.major < case.seen_since), unseen


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_a_violation_beside_them_is_found(name: str, database: Database, tmp_path: Path) -> None:
    adopt(database, *OTHER, *CASES[name].tables)
    with recording(database, tmp_path) as made:
        run(made, CASES[name], psycopg.IsolationLevel.SERIALIZABLE)
        plant(made, database, "other", "id")
        assert_rejected(made)


@pytest.mark.parametrize(
    "tables",
    [GENERATED, DEFERRED, (*PLAIN, *trigger("IF NEW.v = 77 THEN RETURN OLD; END IF; RETURN NEW;"))],
    ids=["generated", "deferrable", "keeps"],
)
@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_so_is_one_in_such_a_table(tables: tuple[str, ...], database: Database, tmp_path: Path) -> None:
    adopt(database, *(text.replace("v int", "v int, w int") for text in tables))
    with recording(database, tmp_path) as made:
        plant(made, database, "a", "id")
        assert_rejected(made)


def operations(made: Recording) -> list[list[str]]:
    return [[f"{kind} {key}" for kind, key, *_ in each] for each in made.operations()]


@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_an_update_that_a_trigger_took_back_is_a_read(database: Database, tmp_path: Path) -> None:
    adopt(database, *PLAIN, *trigger("IF NEW.v = 9 THEN RETURN OLD; END IF; RETURN NEW;"))
    with recording(database, tmp_path) as made:
        with made.connect(autocommit=True) as connection:
            for text in (
                "UPDATE a SET v = 9 WHERE id = 1",
                "UPDATE a SET v = id + 8 WHERE id < 3",
                "INSERT INTO a VALUES (3, 9), (7, 9) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
            ):
                connection.execute(text)
        assert operations(made) == [["read a/1"], ["read a/1", "write a/2"], ["read a/3", "write a/7"]]


@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_of_a_key_that_two_rows_had_only_the_outcome_is_told(database: Database, tmp_path: Path) -> None:
    adopt(database, *DEFERRED)
    with recording(database, tmp_path) as made:
        with made.connect() as connection:
            for text in (
                "SELECT * FROM a WHERE id < 3",
                "UPDATE a SET id = 2 WHERE id = 1",
                "SELECT * FROM a WHERE id < 4 ORDER BY id",
                "UPDATE a SET id = 1 WHERE id = 2 AND v = 2",
                "INSERT INTO a VALUES (3, 0)",
                "DELETE FROM a WHERE id = 3 AND v = 0",
            ):
                connection.execute(text)
        assert operations(made) == [["read a/1", "read a/2", "read a/3", "write a/2", "write a/1"]]


LATER = {
    "RETURN OLD": (trigger("RETURN OLD;"), (CHANGE, ONE, CHANGE)),
    "RETURN NULL": (trigger("RETURN NULL;", "BEFORE DELETE"), (*SUPPRESSED, *SUPPRESSED[2:])),
    "another key": (trigger("NEW.id := NEW.id + 10; RETURN NEW;"), (CHANGE, READ, "UPDATE a SET v = 3 WHERE id = 11")),
    "a cascade": (
        (
            "DELETE FROM other WHERE id > 1",
            "DELETE FROM a WHERE id > 1",
            "ALTER TABLE a ADD FOREIGN KEY (id) REFERENCES other ON DELETE CASCADE",
        ),
        (CHANGE, "DELETE FROM other WHERE id = 1", "INSERT INTO other VALUES (1, 1)", "INSERT INTO a VALUES (1, 1)"),
    ),
}


@pytest.mark.parametrize("violated", [False, True], ids=["kept", "violated"])
@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_what_others_add_while_caches_are_warm_accuses_nobody(
    name: str, violated: bool, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known when the catalog is read again, which is told, and takes back what was said meanwhile."""
    ddl, transactions = LATER[name]
    adopt(database, *OTHER, *APART, *PLAIN)
    with recording(database, tmp_path) as made:
        case = Case((), (READ, CHANGE, "SELECT * FROM other", *transactions, READ))
        run(made, replace(case, transactions=case.transactions[:3]), psycopg.IsolationLevel.SERIALIZABLE)
        database.run(*ddl)
        run(made, case, psycopg.IsolationLevel.SERIALIZABLE)
        monkeypatch.setattr("mussurana.collector.database._looked_seconds", -1.0)
        look_again()  # as after a minute
        with made.connect() as connection:
            connection.execute("SELECT 1")
        if violated:
            plant(made, database, "apart", "id")
            assert_rejected(made)
        else:
            assert_accepted(made)
            assert ("a", "not known yet") in {(row.table, row.shape) for row in made.coverage}


KINDS = (
    "id int PRIMARY KEY",
    "id int PRIMARY KEY DEFERRABLE",
    "id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED",
    "x int, id int GENERATED ALWAYS AS (x + 1) STORED PRIMARY KEY",
)
BODIES = (
    "RETURN NEW;",
    "IF NEW.v % 3 = 0 THEN RETURN OLD; END IF; RETURN NEW;",
    "IF NEW.v % 3 = 1 THEN RETURN NULL; END IF; RETURN NEW;",
    "IF NEW.v % 4 = 1 THEN NEW.{key} := NEW.{key} + 1; END IF; RETURN NEW;",
    "OLD.v := NEW.v; IF NEW.v % 2 = 0 THEN RETURN OLD; END IF; RETURN NEW;",
)
EVENTS = ("BEFORE UPDATE", "BEFORE INSERT OR UPDATE", "BEFORE INSERT")


def random_statement(rng: random.Random, key: str) -> str:
    one, two = rng.randrange(8), rng.randrange(8)
    return rng.choice(
        (
            READ,
            f"SELECT * FROM a WHERE id = {one}",
            f"UPDATE a SET v = v + 1 WHERE id = {one}",
            f"UPDATE a SET v = v + 1 WHERE id < {one}",
            f"UPDATE a SET {key} = {two} WHERE id = {one}",
            f"UPDATE a SET {key} = 5 - {key} WHERE id IN ({one}, {two})",
            f"DELETE FROM a WHERE id = {one}",
            f"DELETE FROM a WHERE id = {one} AND v % 2 = 0",
            f"INSERT INTO a ({key}, v) VALUES ({one}, {two})",
            f"INSERT INTO a ({key}, v) VALUES ({one}, {two}), ({two}, 1) ON CONFLICT DO NOTHING",
            f"INSERT INTO a ({key}, v) VALUES ({one}, {two}) ON CONFLICT (id) DO UPDATE SET v = a.v + 1",
            f"INSERT INTO a ({key}, v) VALUES ({one}, 2) ON CONFLICT (id) DO UPDATE SET {key} = excluded.{key} + 1",
        )
    )


def random_transactions(connections: list[Any], rng: random.Random, key: str, count: int) -> None:
    """Of several sessions at a time, on one thread: a statement that would have to wait is given up."""
    for connection in connections:
        connection.execute("SET lock_timeout = '10ms'")
        connection.commit()
    for _ in range(count):
        connection = rng.choice(connections)
        ends = connection.commit if rng.random() < 0.9 else connection.rollback
        try:
            if rng.random() < 0.35:
                ends()
            elif rng.random() < 0.2 and connection.info.transaction_status:
                with connection.transaction(force_rollback=rng.random() < 0.5):
                    connection.execute(random_statement(rng, key))
            else:
                connection.execute(random_statement(rng, key))
        except psycopg.Error:
            connection.rollback()
    for connection in connections:
        with suppress(psycopg.Error):
            connection.commit()


# More of them: MUSSURANA_SEEDS=1000.
@pytest.mark.parametrize("seed", range(int(os.environ.get("MUSSURANA_SEEDS", "6"))))
def test_random_transactions_accuse_nobody(seed: int, database: Database, tmp_path: Path) -> None:
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    key = "x" if kind.startswith("x") else "id"
    body = rng.choice(BODIES).format(key=key)
    partitioned = rng.random() < 0.25 and "x" not in kind
    tables = [f"CREATE TABLE a ({kind}, v int)" + " PARTITION BY RANGE (id)" * partitioned]
    if partitioned:
        tables += ["CREATE TABLE low PARTITION OF a FOR VALUES FROM (MINVALUE) TO (3)"]
        tables += ["CREATE TABLE high PARTITION OF a FOR VALUES FROM (3) TO (MAXVALUE)"]
    adopt(database, *tables, f"INSERT INTO a ({key}, v) SELECT n, n FROM generate_series(1, 6) n")
    database.run(*trigger(body, rng.choice(EVENTS)))
    with recording(database, tmp_path) as made:
        connections = [made.connect(prepare_threshold=1) for _ in range(3)]
        for connection in connections:
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        random_transactions(connections, rng, key, 150)
        for connection in connections:
            connection.close()
        assert_accepted(made)
