"""A migration changes what a row is called, under an application that goes on: nobody is accused, nothing hidden."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.collector.catalog import Table
from mussurana.collector.catalog_postgres import QUERY, postgres_catalog
from mussurana.collector.database import forget_all
from mussurana.verifier.embedded_postgres import installations
from mussurana.verifier.engine.check import check
from mussurana.verifier.formats.spool import read, recordings
from mussurana.verifier.verdict import Accepted, Rejected
from mussurana.verifier.verdict import Settings as CheckSettings
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, alarms, online, recording

LEVELS = ("serializable", "strong-session-si")

TABLES = (
    "CREATE SCHEMA s",
    "CREATE TABLE a (id int PRIMARY KEY, v int UNIQUE, w int)",
    "CREATE TABLE b (id int PRIMARY KEY, v int UNIQUE, w int)",
    "CREATE TABLE s.c (id int PRIMARY KEY, v int UNIQUE, w int)",
    "CREATE TABLE whole (id int PRIMARY KEY, v int, w int) PARTITION BY RANGE (id)",
    "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE rest (id int PRIMARY KEY, v int, w int)",
    *(f"INSERT INTO {t} SELECT g, g + 50, 0 FROM generate_series(0, 7) g" for t in ("a", "b", "s.c", "whole")),
    "INSERT INTO rest SELECT g, g + 50, 0 FROM generate_series(10, 17) g",
)


@dataclass(frozen=True)
class Migration:
    ddl: str
    names: tuple[str, ...]  # of tables that are there afterwards
    key: str = "id"  # of these
    before: tuple[str, ...] = ("a", "b")
    taints: bool = False  # statements of old plans are refused, so that they go as they are


MIGRATIONS = {
    "a table": Migration("ALTER TABLE a RENAME TO z", ("z", "b")),
    "a table whose name is taken over": Migration(
        "ALTER TABLE a RENAME TO z; CREATE TABLE a (LIKE z INCLUDING ALL); "
        "INSERT INTO a (id, v, w) SELECT id, v, w FROM z",
        ("z", "a"),
    ),
    "two tables": Migration(
        "ALTER TABLE a RENAME TO t; ALTER TABLE b RENAME TO a; ALTER TABLE t RENAME TO b", ("a", "b")
    ),
    "a schema": Migration("ALTER SCHEMA s RENAME TO r", ("r.c",), before=("s.c",)),
    "to another schema": Migration("ALTER TABLE a SET SCHEMA s", ("s.a", "s.c"), before=("a", "s.c")),
    "a key column": Migration("ALTER TABLE a RENAME id TO k", ("a",), "k", before=("a",), taints=True),
    "two columns": Migration(
        "ALTER TABLE a RENAME id TO t; ALTER TABLE a RENAME v TO id; ALTER TABLE a RENAME t TO v",
        ("a",),
        "v",
        before=("a",),
    ),
    "another key": Migration(
        "DELETE FROM a WHERE v IS NULL; ALTER TABLE a DROP CONSTRAINT a_pkey; ALTER TABLE a ADD PRIMARY KEY (v)",
        ("a",),
        before=("a",),
    ),
    "another type": Migration("ALTER TABLE a ALTER id TYPE numeric", ("a", "b")),
    "a wider type": Migration("ALTER TABLE a ALTER id TYPE bigint", ("a", "b")),
    "a copy": Migration("CREATE TABLE z (LIKE a INCLUDING ALL); INSERT INTO z SELECT * FROM a", ("z", "a")),
    "a copy without comments": Migration(
        "CREATE TABLE z (LIKE a INCLUDING INDEXES); INSERT INTO z SELECT * FROM a", ("z", "a")
    ),
    "a copy in its place": Migration(
        "CREATE TABLE z (LIKE a INCLUDING ALL); INSERT INTO z SELECT * FROM a; DROP TABLE a; ALTER TABLE z RENAME TO a",
        ("a", "b"),
    ),
    "a copy into a table that is there": Migration(
        "TRUNCATE b; INSERT INTO b SELECT * FROM a",
        ("a",),  # b itself was cleared out unseen
    ),
    "an empty one in its place": Migration(
        "DROP TABLE a; CREATE TABLE a (LIKE b INCLUDING ALL); INSERT INTO a (id, v, w) SELECT id, v, w FROM b",
        ("a", "b"),
    ),
    "attached": Migration(
        "ALTER TABLE whole ATTACH PARTITION rest FOR VALUES FROM (10) TO (20)", ("whole",), before=("whole", "rest")
    ),
    "detached": Migration("ALTER TABLE whole DETACH PARTITION part", ("part", "rest"), before=("whole", "rest")),
}


class Process:
    """One process of the application, with connections that know their statements by heart."""

    def __init__(self, made: Recording, name: str, count: int) -> None:
        options = {"options": f"-c application_name={name}"}  # by which it has a catalog of its own
        self.connections = [made.connect(autocommit=True, prepare_threshold=1, **options) for _ in range(count)]
        for connection in self.connections:
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE

    def work(self, rng: random.Random, tables: tuple[str, ...], key: str, times: int, alone: bool) -> None:
        """Some transactions. Some fail: a table is not called so any more, or a plan is old.

        With `alone` no BEGIN is sent before it is known what is to be done.
        """
        for _ in range(times):
            connection = rng.choice(self.connections)
            with suppress(psycopg.Error), nullcontext() if alone else connection.transaction():
                for _ in range(1 if alone else rng.randrange(1, 3)):
                    self.step(connection, rng, rng.choice(tables), key)

    def step(self, connection: Any, rng: random.Random, table: str, key: str) -> None:
        row = (rng.randrange(5) + 10 * (table == "rest"),)
        match rng.randrange(4):
            case 0:
                connection.execute(f"UPDATE {table} SET w = w + 1 WHERE {key} = %s", row)
            case 1:
                connection.execute(f"SELECT * FROM {table} WHERE {key} = %s", row).fetchall()
            case 2:
                connection.execute(f"SELECT {key}, w FROM {table}").fetchall()
            case _:
                connection.execute(f"DELETE FROM {table} WHERE {key} = %s", (row[0] + 5,))
                connection.execute(
                    f"INSERT INTO {table} ({key}, w) VALUES (%s, 1) ON CONFLICT DO NOTHING", (row[0] + 5,)
                )

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    adopt(database, *TABLES)
    with recording(database, tmp_path / "spool") as made:
        yield made


def tables_of(database: Database) -> dict[str, Table]:
    with database.connect() as connection:
        answer = connection.execute(QUERY.encode()).fetchone()
    assert answer is not None
    return {f"{schema}.{name}": table for (schema, name), table in postgres_catalog(answer[0]).tables.items()}


def assert_accepted(made: Recording) -> None:
    made.finish()
    for level in LEVELS:
        for recorded in recordings(made.spool):
            assert isinstance(check(recorded.read(), CheckSettings(level)).verdict, Accepted), (level, recorded)
    assert {outcome.verdict for outcome in online(made.spool, *LEVELS)} == {"accepted"}
    assert made.failures == 0


def plant(made: Recording, database: Database, table: str, key: str) -> None:
    """A session sees again what it had replaced itself."""
    with made.connect(autocommit=True) as connection, database.connect(autocommit=True) as other:
        (row,) = connection.execute(f"SELECT {key} FROM {table} ORDER BY {key} LIMIT 1").fetchone()
        connection.execute(f"UPDATE {table} SET w = 7 WHERE {key} = %s", (row,))
        found = other.execute(f"SELECT mussurana_wid FROM {table} WHERE {key} = %s".encode(), (row,)).fetchone()
        assert found is not None
        connection.execute(f"UPDATE {table} SET w = 8 WHERE {key} = %s", (row,))
        other.execute(f"UPDATE {table} SET mussurana_wid = %s WHERE {key} = %s".encode(), (found[0], row))
        connection.execute(f"SELECT * FROM {table} WHERE {key} = %s", (row,)).fetchall()


def assert_rejected(made: Recording) -> None:
    made.finish()
    last = max(recordings(made.spool), key=lambda each: int(each.identity.rpartition("/")[2]))  # of what was restored
    for level in LEVELS:
        assert isinstance(check(last.read(), CheckSettings(level)).verdict, Rejected), level
    assert "rejected" in {outcome.verdict for outcome in online(made.spool, *LEVELS)}


@pytest.mark.parametrize("violated", [False, True], ids=["kept", "violated"])
@pytest.mark.parametrize("name", MIGRATIONS)
@NEWEST
def test_a_migration_accuses_nobody_and_hides_nothing_that_comes_after_it(
    name: str, violated: bool, made: Recording, database: Database
) -> None:
    migration, rng = MIGRATIONS[name], random.Random(name)
    if violated and migration.taints:
        pytest.skip("what follows is left out, until it is adopted again")
    processes = [Process(made, "one", 2), Process(made, "two", 1)]
    for process in processes * 2:
        process.work(rng, migration.before, "id", 6, alone=False)
    database.run(migration.ddl)  # as by psql
    later = Process(made, "three", 1)
    for process in (*processes, later) * 2:
        process.work(rng, migration.names, migration.key, 5, alone=violated)
    for process in (*processes, later):
        process.close()
    if violated:
        forget_all()
        plant(made, database, migration.names[0], migration.key)
        assert_rejected(made)
    else:
        assert_accepted(made)


# More of them: MUSSURANA_SEEDS=1000.
@pytest.mark.parametrize("seed", range(int(os.environ.get("MUSSURANA_SEEDS", "3"))))
@NEWEST
def test_migrations_under_traffic_accuse_nobody(seed: int, made: Recording, database: Database) -> None:
    """Two processes go on with warm caches while names, schemas, keys and partitions change under them."""
    rng = random.Random(seed)
    harmless = [each for each in MIGRATIONS.values() if "TRUNCATE" not in each.ddl and "DELETE" not in each.ddl]
    processes = [Process(made, "one", 2), Process(made, "two", 1)]
    tables = ("a", "b", "s.c", "z", "s.a", "whole", "part", "rest")
    for _ in range(12):
        for process in processes:
            process.work(rng, tables, "id", 4, alone=rng.random() < 0.5)
        with suppress(psycopg.Error):  # many cannot be done twice
            database.run(rng.choice(harmless).ddl)
        if rng.random() < 0.3:
            processes.append(Process(made, f"later{len(processes)}", 1))
    for process in processes:
        process.close()
    made.finish()
    for level in LEVELS:
        assert isinstance(check(read(made.spool), CheckSettings(level)).verdict, Accepted), level
    still_told = {change.id for change in alarms(made.spool, *LEVELS) if change.state == "told"}
    assert still_told <= {change.id for change in alarms(made.spool, *LEVELS) if change.state == "withdrawn"}


@pytest.mark.parametrize("violated", [False, True], ids=["kept", "violated"])
@NEWEST
def test_what_was_written_to_a_name_that_others_gave_away_is_told_at_the_latest_when_it_is_closed(
    violated: bool, made: Recording, database: Database
) -> None:
    """The process has looked for the name in vain, and does not look again within a transaction."""
    process = Process(made, "one", 1)
    (connection,) = process.connections
    connection.execute("UPDATE a SET w = w + 1 WHERE id = 1")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("UPDATE s.a SET w = 1")
    database.run("ALTER TABLE a SET SCHEMA s")
    with connection.transaction():
        connection.execute("SELECT 1")
        connection.execute("DELETE FROM s.a WHERE id = 1")
        connection.execute("INSERT INTO s.a (id, w) VALUES (1, 1)")
    process.close()
    later = Process(made, "two", 1)
    later.connections[0].execute("SELECT * FROM s.a").fetchall()
    later.close()
    if violated:
        plant(made, database, "b", "id")
        assert_rejected(made)
    else:
        assert_accepted(made)
        assert ("a", "not known yet") in {(row.table, row.shape) for row in made.coverage}


@pytest.mark.parametrize("violated", [False, True], ids=["kept", "violated"])
@NEWEST
def test_a_row_that_is_not_in_one_partition_may_be_in_another(
    violated: bool, made: Recording, database: Database
) -> None:
    process = Process(made, "one", 1)
    (connection,) = process.connections
    database.run("CREATE TABLE more PARTITION OF whole FOR VALUES FROM (20) TO (30)")
    connection.execute("INSERT INTO whole (id, w) VALUES (25, 1)")
    for table in ("part", "whole"):
        assert bool(connection.execute(f"SELECT * FROM {table} WHERE id = 25").fetchall()) == (table == "whole")
    database.run("ALTER TABLE whole DETACH PARTITION more")
    assert connection.execute("SELECT * FROM whole WHERE id = 25").fetchall() == []
    process.close()
    if violated:
        forget_all()
        plant(made, database, "whole", "id")
        assert_rejected(made)
    else:
        assert_accepted(made)


@pytest.mark.parametrize("kind", ["bigint", "numeric"])
@NEWEST
def test_a_prepared_statement_whose_key_has_another_type_by_now_is_recorded_all_the_same(
    kind: str, made: Recording, database: Database
) -> None:
    """The server refuses the one that it knows, since it returns something else; without us it returned nothing."""
    process = Process(made, "one", 1)
    (connection,) = process.connections
    for _ in range(3):
        connection.execute("UPDATE a SET w = w + 1 WHERE id = %s", (1,))
    database.run(f"ALTER TABLE a ALTER id TYPE {kind}")
    for _ in range(3):
        assert connection.execute("UPDATE a SET w = w + 1 WHERE id = %s", (1,)).rowcount == 1
    process.close()
    plant(made, database, "a", "id")
    assert_rejected(made)
    assert not [row for row in made.coverage if row.observed == "tainted by unobserved write"]


def as_administrator(database: Database, *statements: str) -> None:
    with psycopg.connect(database.server.conninfo(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def restore_dump(database: Database, script: Path) -> None:
    """The database is as it was when it was dumped, under the same name."""
    name = database.name
    as_administrator(database, f"ALTER DATABASE {name} RENAME TO {name}_old", f"CREATE DATABASE {name}")
    run_tool(database, "psql", "--quiet", "--file", str(script))
    as_administrator(database, f"DROP DATABASE {name}_old WITH (FORCE)")


def run_tool(database: Database, tool: str, *arguments: str) -> None:
    found = next(each for each in installations() if each.major == database.major)
    libraries = {"LD_LIBRARY_PATH": str(found.libraries)} if found.libraries else {}
    command = [str(found.binaries / tool), "--dbname", database.conninfo, *arguments]
    subprocess.run(command, check=True, env=os.environ | libraries, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("violated", [False, True], ids=["kept", "violated"])
@NEWEST
def test_a_restored_dump_begins_anew(violated: bool, made: Recording, database: Database, tmp_path: Path) -> None:
    script = tmp_path / "dump.sql"
    with made.connect(autocommit=True) as connection:
        connection.execute("UPDATE a SET w = 1")
        run_tool(database, "pg_dump", "--file", str(script))
        connection.execute("UPDATE a SET w = 2 WHERE id < 3")
    restore_dump(database, script)
    forget_all()
    names = {table.key_space for table in tables_of(database).values()}
    assert not names & {"a", "b", "s.c", "whole", "rest"}
    with made.connect(autocommit=True) as connection:  # before it is adopted again
        assert connection.execute("SELECT w FROM a WHERE id = 1").fetchone() == (1,)
        connection.execute("UPDATE a SET w = 3 WHERE id = 1")
    adopt(database)
    assert names == {table.key_space for table in tables_of(database).values()}
    forget_all()
    with made.connect(autocommit=True) as connection:
        assert connection.execute("SELECT w FROM a WHERE id = 1").fetchone() == (3,)
        connection.execute("UPDATE a SET w = 4 WHERE id = 1")
        connection.execute("SELECT w FROM b").fetchall()
    if violated:
        assert made.recorder.flush(10)  # what came with the first fence of the new era may be of the one before
        plant(made, database, "a", "id")
        assert_rejected(made)
    else:
        assert_accepted(made)
