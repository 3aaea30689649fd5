"""What an application sees of a pipeline is what it would have seen without us. See also pipelines.py."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.verifier.verdict import Accepted
from tests.collector.postgres import Database
from tests.collector.psycopg.pipelines import compare_many
from tests.collector.psycopg.recording import NEWEST, adopt, recording

pytestmark = NEWEST

TABLE = ("CREATE TABLE events (id int PRIMARY KEY, n bigserial)",)


@pytest.mark.parametrize("by_xmin", [False, True])
def test_random_pipelines_see_the_same(database: Database, tmp_path: Path, by_xmin: bool) -> None:
    compare_many(database, tmp_path, range(1, 13), by_xmin)


@pytest.mark.parametrize("first", [(), ("SET LOCAL lock_timeout = '1s'",), ("SELECT 1",), ("SAVEPOINT s", "SELECT")])
@pytest.mark.parametrize("returning", [True, False])
def test_executemany_after_other_statements_of_its_cursor(
    database: Database, tmp_path: Path, first: tuple[str, ...], returning: bool
) -> None:
    def run(connection: Any) -> list[Any]:
        seen: list[Any] = []
        with connection.pipeline() as pipeline, connection.transaction():
            cursor = connection.cursor()
            for query in first:
                cursor.execute(query)
            query = "INSERT INTO events (id) VALUES (%s)" + " RETURNING n" * returning
            cursor.executemany(query, [(1,), (2,), (3,)], returning=returning)
            pipeline.sync()
            while True:
                seen.append((cursor.statusmessage, cursor.fetchall() if cursor.description else None))
                if not cursor.nextset():
                    break
        return seen

    database.run(*TABLE)
    with database.connect() as connection:
        expected = run(connection)
        connection.rollback()
    database.run("TRUNCATE events", "ALTER SEQUENCE events_n_seq RESTART")
    with recording(database, tmp_path, versions="xmin") as made, made.connect() as connection:
        assert run(connection) == expected
        connection.commit()
        assert made.failures == 0


def test_what_a_pipeline_wrote_before_its_begin_can_be_rolled_back(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLE)
    with recording(database, tmp_path) as made, made.connect(autocommit=True) as connection:
        with connection.pipeline():
            connection.execute("INSERT INTO events VALUES (1)")
            connection.execute("BEGIN")
        connection.rollback()
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)


def test_a_pipeline_that_goes_on_after_wrong_parameters_is_committed(database: Database, tmp_path: Path) -> None:
    """What was sent before them is; once it was recorded as aborted, and whoever read it accused."""
    adopt(database, *TABLE)
    with recording(database, tmp_path) as made, made.connect(autocommit=True) as connection:
        with connection.pipeline() as pipeline:
            assert connection.execute("INSERT INTO events VALUES (1, 1) RETURNING id").fetchone() == (1,)
            with pytest.raises(psycopg.ProgrammingError):
                connection.execute("UPDATE events SET n = %s WHERE id = %s", (1,))
            with pytest.raises(psycopg.ProgrammingError):
                connection.cursor().executemany("UPDATE events SET n = %s WHERE id = %s", [(1, 1), (1,)])
            pipeline.sync()
        assert connection.execute("SELECT id, n FROM events").fetchone() == (1, 1)
        connection.close()
        assert isinstance(made.verdict(), Accepted)


def test_a_begin_that_never_ran_goes_on_with_nothing(database: Database, tmp_path: Path) -> None:
    """It was sent before it was known that what it should go on with had failed. A later COMMIT is of nothing."""
    adopt(database, *TABLE, "INSERT INTO events VALUES (1, 1)")
    with recording(database, tmp_path) as made, made.connect(autocommit=True) as connection:
        pipeline = connection.pipeline()
        pipeline.__enter__()
        connection.execute("UPDATE events SET n = 2")
        connection.execute("SAVEPOINT s")  # refused: there is no transaction block yet
        with suppress(psycopg.Error):  # it may be known already
            connection.execute("BEGIN")
        with suppress(psycopg.Error):
            pipeline.__exit__(None, None, None)
        connection.execute("COMMIT")
        connection.execute("UPDATE events SET n = n + 1")
        assert connection.execute("SELECT n FROM events").fetchone() == (2,)
        connection.close()
        assert isinstance(made.verdict(), Accepted)


def test_a_commit_that_is_answered_together_with_an_earlier_sync_is_one(database: Database, tmp_path: Path) -> None:
    """When the sync's answer is looked at the server is idle already, and what the COMMIT did comes next."""
    adopt(database, *TABLE, "INSERT INTO events VALUES (1, 1)")
    with recording(database, tmp_path) as made, made.connect(autocommit=True) as connection:
        with connection.pipeline() as pipeline:
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1 / 0").fetchone()
            pipeline.sync()
            connection.execute("BEGIN")
            connection.execute("INSERT INTO events VALUES (2, 2)")
            connection.execute("SELECT pg_sleep(0.2)")
            for query in ("", "COMMIT"):
                if query:
                    connection.execute(query)
                pipeline._enqueue_sync()
                while pipeline.command_queue:
                    pipeline.command_queue.popleft()()
                connection.pgconn.flush()
            time.sleep(0.5)  # now there are all the answers
        assert connection.execute("SELECT id, n FROM events ORDER BY id").fetchall() == [(1, 1), (2, 2)]
        connection.close()
        assert isinstance(made.verdict(), Accepted)


@pytest.mark.parametrize("commit", ["COMMIT", "PREPARE TRANSACTION 'p'"])
def test_what_comes_after_a_commit_that_was_refused_is_another_transaction(
    database: Database, tmp_path: Path, commit: str
) -> None:
    later = "CREATE TABLE later (id int PRIMARY KEY, of int REFERENCES events DEFERRABLE INITIALLY DEFERRED)"
    adopt(database, *TABLE, later, "INSERT INTO events VALUES (1, 1)", "INSERT INTO later VALUES (1, 1)")
    with recording(database, tmp_path) as made, made.connect(autocommit=True) as connection:
        with connection.pipeline() as pipeline:
            connection.execute("BEGIN")
            connection.execute("DELETE FROM events WHERE id = 1")
            connection.execute(commit)
            with pytest.raises(psycopg.Error):
                pipeline.sync()
            connection.execute("UPDATE events SET n = n + 1 WHERE id = 1")
            pipeline.sync()
            assert connection.execute("SELECT n FROM events").fetchone() == (2,)
        connection.close()
        assert isinstance(made.verdict(), Accepted)


@pytest.mark.parametrize("begin", [False, True])
def test_a_statement_after_an_unanswered_sync_is_no_part_of_what_failed_before(
    database: Database, tmp_path: Path, begin: bool
) -> None:
    """An error is raised before the answer to a sync is read, and the application goes on."""
    adopt(database, *TABLE, "INSERT INTO events VALUES (1, 1)")
    with recording(database, tmp_path) as made, made.connect(autocommit=True) as connection:
        with connection.pipeline():
            connection.execute("UPDATE events SET n = 5")
            connection.execute("SELECT 1 / 0")
            connection.pgconn.send_flush_request()
            connection.pgconn.flush()
            time.sleep(0.1)  # the answer is there
            with pytest.raises(psycopg.Error), connection.pipeline():
                pass  # its end is a sync
            if begin:
                connection.execute("BEGIN")
            connection.execute("INSERT INTO events VALUES (2, 2)")
        connection.execute("COMMIT")
        assert connection.execute("SELECT id, n FROM events ORDER BY id").fetchall() == [(1, 1), (2, 2)]
        connection.close()
        assert isinstance(made.verdict(), Accepted)


def test_a_commit_in_the_middle_of_an_executemany_loses_no_write_ids(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLE)
    with recording(database, tmp_path) as made, made.connect() as connection:
        with connection.pipeline() as pipeline:
            connection.execute("SELECT * FROM events")
            pipeline.sync()
            connection.execute("COMMIT")
            connection.cursor().executemany("INSERT INTO events VALUES (%s)", [(each,) for each in range(200)])
        connection.rollback()
        connection.execute("SELECT * FROM events ORDER BY id").fetchall()
        connection.commit()
        connection.close()
        assert isinstance(made.verdict(), Accepted)


def test_nothing_is_asked_of_a_result_that_it_does_not_have(database: Database, tmp_path: Path) -> None:
    """libpq would tell the result's connection, and there may be another object where that was."""
    adopt(database, *TABLE)
    notices: list[Any] = []
    with recording(database, tmp_path) as made, made.connect() as connection:
        connection.pgconn.notice_handler = notices.append
        cursor = connection.execute("SELECT * FROM events")
        result = cursor.pgresult
        asked = [result.fname, result.ftype, result.fmod, result.fsize, result.fformat, result.ftable, result.ftablecol]
        for column in (-1, result.nfields, 99):
            assert [ask(column) for ask in asked] == [None, 0, 0, 0, 0, 0, 0]
            assert result.get_value(0, column) is None
    assert notices == []
