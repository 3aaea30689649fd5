"""Transactions are recorded as they really were, whatever the application called them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg import errors as e

from mussurana.verifier.verdict import Accepted
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, plain, recording
from tests.collector.recording.observed import fragments

pytestmark = NEWEST

TABLES = ("CREATE TABLE accounts (id int PRIMARY KEY, balance int)", "INSERT INTO accounts VALUES (1, 10), (2, 20)")

READ, WRITE = "SELECT balance FROM accounts WHERE id = %s", "UPDATE accounts SET balance = balance + 1 WHERE id = %s"


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made:
        yield made
        assert made.failures == 0


def summary(made: Recording) -> list[tuple[str, list[str]]]:
    """Status and operations of each transaction that is no fence: "r1" is a read of row 1, "w2" a write of row 2."""
    found = []
    for operations in made.operations():
        status = operations[0][2]
        found.append((status, [f"{kind[0]}{key.rpartition('/')[2]}" for kind, key, _, _ in operations]))
    return found


def test_an_implicit_begin_lasts_until_commit(made: Recording) -> None:
    with made.connect() as connection:
        connection.execute(READ, (1,))
        connection.execute(WRITE, (2,))
        connection.commit()
        connection.execute(WRITE, (1,))
    assert summary(made) == [("committed", ["r1", "w2"]), ("committed", ["w1"])]


def test_with_autocommit_each_statement_is_its_own(made: Recording) -> None:
    with made.connect(autocommit=True) as connection:
        connection.execute(READ, (1,))
        connection.execute(WRITE, (2,))
        with pytest.raises(e.DivisionByZero):
            connection.execute("UPDATE accounts SET balance = 1 / 0 WHERE id = %s", (1,))
        connection.execute("BEGIN")
        connection.execute(WRITE, (1,))
        connection.execute(READ, (1,))
        connection.execute("COMMIT")
    assert summary(made) == [("committed", ["r1"]), ("committed", ["w2"]), ("committed", ["w1", "r1"])]


def test_reads_that_end_in_a_rollback_stay_checkable(made: Recording) -> None:
    with made.connect() as connection:
        connection.execute(READ, (1,))
        connection.rollback()
        connection.execute(WRITE, (1,))
        connection.rollback()
        connection.execute(READ, (2,))
        connection.execute("SET LOCAL lock_timeout = 5000")
        connection.rollback()
    assert plain(made.database, "SELECT balance FROM accounts WHERE id = 1") == [(10,)]
    assert summary(made) == [("committed", ["r1"]), ("aborted", ["w1"]), ("aborted", ["r2"])]


def test_blocks_and_savepoints(made: Recording) -> None:
    with made.connect() as connection:
        with connection.transaction():
            connection.execute(WRITE, (1,))
            with connection.transaction() as inner:
                connection.execute(WRITE, (2,))
                raise psycopg.Rollback(inner)
            with connection.transaction():
                connection.execute(READ, (2,))
        connection.execute("SAVEPOINT a")
        connection.execute(WRITE, (2,))
        connection.execute("SAVEPOINT b")
        connection.execute(WRITE, (1,))
        connection.execute("ROLLBACK TO a")
        connection.execute(READ, (1,))
        connection.commit()
    assert summary(made) == [
        ("aborted", ["w2"]),
        ("committed", ["w1", "r2"]),
        ("aborted", ["w2", "w1"]),
        ("committed", ["r1"]),
    ]


def test_commit_after_an_error_rolls_back_and_is_believed(made: Recording) -> None:
    with made.connect() as connection:
        connection.execute(WRITE, (1,))
        with pytest.raises(e.UndefinedColumn):
            connection.execute("SELECT nonsense FROM accounts")
        connection.commit()
        connection.execute(READ, (1,))
    assert summary(made) == [("aborted", ["w1"]), ("committed", ["r1"])]


def test_parameters_that_psycopg_refuses_end_nothing(made: Recording) -> None:
    with made.connect() as connection:
        connection.execute(WRITE, (1,))
        with pytest.raises(psycopg.ProgrammingError):
            connection.execute(WRITE, (1, 2))
        with pytest.raises(TypeError):
            connection.execute(WRITE, {"a": 1})
        connection.execute(WRITE, (2,))
    assert summary(made) == [("committed", ["w1", "w2"])]


def test_a_serialization_failure_is_an_abort(made: Recording) -> None:
    with made.connect() as first, made.connect() as second:
        for connection in (first, second):
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.execute(READ, (1,))
        first.execute(WRITE, (1,))
        first.commit()
        with pytest.raises(e.SerializationFailure):
            second.execute(WRITE, (1,))
        second.rollback()
    statuses = [status for status, _ in summary(made)]
    assert statuses == ["committed", "aborted"]


def test_chained_transactions(made: Recording) -> None:
    with made.connect(autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        connection.execute(WRITE, (1,))
        connection.execute("COMMIT AND CHAIN")
        connection.execute(WRITE, (2,))
        connection.execute("ROLLBACK")
    assert summary(made) == [("committed", ["w1"]), ("aborted", ["w2"])]


def test_several_statements_in_one_text(made: Recording) -> None:
    with made.connect(autocommit=True) as connection:
        connection.execute("BEGIN; SELECT 1")
        connection.execute(READ, (1,))
        connection.execute("SELECT 1; COMMIT; BEGIN")
        connection.execute(READ, (2,))
        connection.execute("ROLLBACK; SELECT 1")
    assert summary(made) == [("committed", ["r1"]), ("aborted", ["r2"])]


def test_pipelines(made: Recording) -> None:
    with made.connect() as connection:
        with connection.pipeline():
            connection.execute(WRITE, (1,))
            connection.execute(READ, (2,))
        connection.commit()
        with connection.pipeline(), connection.transaction():
            connection.execute(WRITE, (2,))
            connection.execute(READ, (1,))
    with made.connect(autocommit=True) as connection, connection.pipeline() as pipeline:
        connection.execute(WRITE, (1,))
        connection.execute(READ, (1,))
        pipeline.sync()
        connection.execute(WRITE, (2,))
    assert summary(made) == [
        ("committed", ["w1", "r2"]),
        ("committed", ["w2", "r1"]),
        ("committed", ["w1", "r1"]),
        ("committed", ["w2"]),
    ]


def test_a_failed_pipeline_is_an_abort(made: Recording) -> None:
    with made.connect(autocommit=True) as connection:
        with pytest.raises(e.DivisionByZero), connection.pipeline():  # noqa: PT012, it may come up at any of these
            connection.execute(WRITE, (1,))
            connection.execute("SELECT 1 / 0")
        connection.execute(READ, (1,))
    assert summary(made) == [("aborted", ["w1"]), ("committed", ["r1"])]


def test_executemany(made: Recording) -> None:
    with made.connect(autocommit=True) as connection:
        connection.cursor().executemany(WRITE, [(1,), (2,)])
    with made.connect() as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO accounts VALUES (%s, 0) RETURNING id", [(5,), (6,)], returning=True)
    assert summary(made) == [("committed", ["w1", "w2"]), ("committed", ["w5", "w6"])]


def test_an_executemany_that_fails_and_is_rolled_back_has_lost_nothing(made: Recording) -> None:
    with made.connect() as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute(READ, (1,))
        with made.connect(autocommit=True) as other:
            other.execute(WRITE, (1,))
        with pytest.raises(e.SerializationFailure):
            connection.cursor().executemany(WRITE, [(1,), (2,)])
        connection.rollback()
    assert summary(made) == [("committed", ["w1"]), ("aborted", ["r1"])]
    assert [gap.reason for fragment in fragments(made.spool) for gap in fragment.gap] == []


def test_server_side_cursors_and_streams(made: Recording) -> None:
    with made.connect() as connection:
        with connection.cursor("c") as cursor:
            cursor.execute("SELECT balance FROM accounts ORDER BY id")
            assert cursor.fetchone() == (10,)
        assert list(connection.cursor().stream("SELECT id FROM accounts ORDER BY id")) == [(1,), (2,)]
    assert summary(made) == [("committed", ["r1", "r1", "r2"])]


def test_two_phases(made: Recording) -> None:
    server = made.database
    if plain(server, "SHOW max_prepared_transactions") == [("0",)]:
        pytest.skip("this server prepares no transactions")
    connection = made.connect()
    for finish in (connection.tpc_commit, connection.tpc_rollback):
        connection.tpc_begin(connection.xid(1, f"gtrid {finish.__name__}", "b"))
        connection.execute(WRITE, (1,))
        connection.tpc_prepare()
        finish()
    connection.tpc_begin(connection.xid(1, "left", "b"))
    connection.execute(WRITE, (2,))
    connection.tpc_prepare()
    connection.close()
    assert summary(made) == [("committed", ["w1"]), ("aborted", ["w1"]), ("in doubt", ["w2"])]


def test_copy_and_dml_in_a_cte_taint_what_they_write(made: Recording) -> None:
    with made.connect() as connection:
        connection.execute(READ, (1,))
        connection.commit()
        connection.execute("WITH w AS (UPDATE accounts SET balance = 0 RETURNING id) SELECT count(*) FROM w")
        connection.commit()
        connection.execute(READ, (1,))
        connection.execute(WRITE, (1,))
    assert ("accounts", "DML in a CTE", "tainted by unobserved write") in [
        (row.table, row.shape, row.observed) for row in made.coverage
    ]
    assert summary(made) == []  # also what was recorded before counts no more


def test_a_lost_connection_is_an_abort_before_commit_and_in_doubt_at_it(made: Recording) -> None:
    killer = made.database.connect(autocommit=True)
    connection = made.connect()
    connection.execute(WRITE, (1,))
    terminate(killer, connection)
    with pytest.raises(psycopg.OperationalError):
        connection.execute(READ, (2,))
    connection.close()

    connection = made.connect()
    connection.execute(WRITE, (2,))
    terminate(killer, connection)
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    connection.close()

    connection = made.connect(autocommit=True)
    connection.execute(READ, (1,))  # after this the fence is not due
    blocker = made.database.connect()
    blocker.execute("SELECT * FROM accounts WHERE id = 1 FOR UPDATE")
    pid = connection.info.backend_pid
    waiting = threading.Thread(target=refused, args=(connection, WRITE, (1,)))
    waiting.start()
    while not killer.execute(
        "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", (pid,)
    ).fetchall():
        time.sleep(0.01)
    killer.execute("SELECT pg_terminate_backend(%s)", (pid,))
    waiting.join()
    blocker.close()
    connection.close()
    killer.close()
    # The last one is in doubt too; it wrote to rows that it never named, so nothing of it can be seen.
    assert summary(made) == [("aborted", ["w1"]), ("in doubt", ["w2"]), ("committed", ["r1"])]


def terminate(killer: Any, connection: Any) -> None:
    pid = connection.info.backend_pid
    killer.execute("SELECT pg_terminate_backend(%s)", (pid,))
    while killer.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall():
        time.sleep(0.01)


def refused(connection: Any, text: str, params: Any) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute(text, params)


def test_the_level_of_each_transaction_is_recorded(made: Recording) -> None:
    seen = []
    take = made.recorder.take
    made.recorder.take = lambda txn: (seen.append(txn.isolation), take(txn))  # type: ignore[assignment, func-returns-value]
    with made.connect() as connection:
        connection.execute(READ, (1,))
        connection.commit()
        connection.isolation_level = IsolationLevel.SERIALIZABLE
        connection.execute(READ, (1,))
        connection.commit()
        connection.isolation_level = None
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute(READ, (1,))
    made.recorder.take = take  # type: ignore[method-assign]
    assert seen[1:-1] == [2, 4, 3]  # between the first fence and the last


def test_an_idle_session_is_fenced_by_a_write_when_it_comes_back(database: Database, tmp_path: Path) -> None:
    adopt(database, *TABLES)
    with recording(database, tmp_path, fence_interval_seconds=0.05, idle_after_seconds=0.1) as made:
        with made.connect() as connection:
            connection.execute(READ, (1,))
            connection.commit()
            issued = made.recorder.metrics.fences_issued
            assert plain(database, "SELECT epoch & 4294967295 FROM mussurana_fence") == [(1,)]
            time.sleep(0.5)
            assert made.recorder.metrics.fences_issued == issued  # nothing happens while nothing happens
            connection.execute(READ, (1,))
            assert plain(database, "SELECT epoch & 4294967295 FROM mussurana_fence") == [(2,)]
        assert made.recorder.metrics.fences_failed == 0


@pytest.mark.parametrize(
    "between",
    [
        ("ROLLBACK",),
        ("ROLLBACK AND CHAIN",),
        ("COMMIT",),
        ("COMMIT AND CHAIN",),
        ("SAVEPOINT s", WRITE, "ROLLBACK TO s"),
        ("SAVEPOINT s", WRITE, "ROLLBACK TO s", WRITE, "ROLLBACK TO s"),
    ],
)
@pytest.mark.parametrize(
    "last", [WRITE, "DELETE FROM accounts WHERE id = %s", "INSERT INTO accounts VALUES (%s + 1, 0)"]
)
def test_what_a_pipeline_sent_before_it_knew_where_is_lost_rather_than_wrong(
    made: Recording, between: tuple[str, ...], last: str
) -> None:
    with made.connect() as connection:
        with connection.pipeline():
            connection.execute(WRITE, (1,))
            for text in between:
                connection.execute(text, (1,) if text == WRITE else None)
            connection.execute(last, (2,))
        connection.commit()
    with made.connect() as connection:
        for number in (1, 2, 3):
            connection.execute(READ, (number,))
    assert isinstance(made.verdict(), Accepted)


@pytest.mark.parametrize("pipelined", ["SAVEPOINT s", "ROLLBACK TO s"])
def test_savepoints_half_in_a_pipeline(made: Recording, pipelined: str) -> None:
    with made.connect() as connection:
        for text in ("SAVEPOINT s", "ROLLBACK TO s"):
            if text == pipelined:
                with connection.pipeline():
                    connection.execute(text)
                    connection.execute(WRITE, (1,))
            else:
                connection.execute(text)
                connection.execute(WRITE, (2,))
    with made.connect() as connection:
        for number in (1, 2):
            connection.execute(READ, (number,))
    assert isinstance(made.verdict(), Accepted)
