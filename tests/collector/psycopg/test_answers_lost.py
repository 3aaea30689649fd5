"""A write that the server did and whose answer nobody got: it accuses nobody, whatever stands for versions.

With `versions=xmin` no write id says which version that is. The table counts as written to unseen, unless it is certain
that nothing was written.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.collector.psycopg_watch import Watch
from mussurana.collector.transactions import Transactions
from mussurana.verifier.verdict import Accepted, Rejected
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, online, recording
from tests.collector.psycopg.test_exactness import explained

SEATS = ("CREATE TABLE seats (id int PRIMARY KEY, guests int)", "INSERT INTO seats VALUES (1, 0), (2, 0)")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SECONDS_MAX = 20.0

UPDATE_1 = "UPDATE seats SET guests = 7 WHERE id = 1"
UPDATE_2 = "UPDATE seats SET guests = 8 WHERE id = 2 RETURNING guests"


class Injected(Exception):
    pass


def refuses(cursor: Any) -> Any:
    raise Injected


def fail(*arguments: Any, **options: Any) -> Any:
    raise Injected


def wait_for(database: Database, query: str, expected: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    with database.connect(autocommit=True) as connection:
        while connection.execute(query.encode()).fetchall() != [expected]:
            assert time.monotonic() < deadline, query
            time.sleep(0.005)


def shut_down(connection: Any) -> None:
    """The network goes away."""
    with socket.socket(fileno=os.dup(connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)


def lose_answer(database: Database, connection: Any, statement: str, end: Callable[[Any], Any]) -> None:
    """The server executes a statement on row 1, and the connection ends while it is about to."""
    raised: list[BaseException] = []

    def execute() -> None:
        try:
            connection.execute(statement)
        except BaseException as error:
            raised.append(error)

    backend = connection.info.backend_pid
    with database.connect() as before:
        before.execute("SELECT FROM seats WHERE id = 1 FOR UPDATE")
        thread = threading.Thread(target=execute)
        thread.start()
        wait_for(database, WAITING, (1,))
        end(connection)
        thread.join(SECONDS_MAX)
    assert [type(error) for error in raised] == [psycopg.OperationalError]
    wait_for(database, f"SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}", (0,))


def tainted(made: Recording) -> dict[str, str]:
    """The tables that count as written to unseen, and by which shape of statement."""
    return {row.table: row.shape for row in made.coverage if row.observed == "tainted by unobserved write"}


def assert_no_alarm(made: Recording) -> None:
    for level in ("serializable", "strict-serializable", "strong-session-si"):
        verdict = made.verdict(level)
        assert not isinstance(verdict, Rejected), explained(verdict)
        assert "rejected" not in {outcome.verdict for outcome in online(made.spool, level)}


@NEWEST
@pytest.mark.parametrize("statement", [UPDATE_1, "DELETE FROM seats WHERE id = 1"])
@pytest.mark.parametrize("end", [shut_down, lambda connection: connection.close()], ids=["network", "close"])
@pytest.mark.parametrize("versions", ["columns", "xmin"])
def test_a_connection_that_ends_during_a_statement_is_no_alarm(
    database: Database, tmp_path: Path, statement: str, end: Callable[[Any], Any], versions: str
) -> None:
    database.run(SEATS[0])
    if versions == "columns":
        adopt(database)
    with recording(database, tmp_path, versions=versions) as made:
        with made.connect(autocommit=True) as reader:
            reader.execute("INSERT INTO seats VALUES (1, 0)")
            lose_answer(database, made.connect(autocommit=True), statement, end)
            found = reader.execute("SELECT guests FROM seats WHERE id = 1").fetchall()
            assert found == ([(7,)] if statement == UPDATE_1 else [])
        assert_no_alarm(made)
        assert tainted(made) == ({"seats": "answer lost"} if versions == "xmin" else {})


@NEWEST
def test_a_pipeline_whose_last_answers_are_lost_is_no_alarm(database: Database, tmp_path: Path) -> None:
    """What was answered tells the id of the transaction, under which there is more than that."""
    database.run(*SEATS)
    with recording(database, tmp_path, versions="xmin") as made:
        connection = made.connect(autocommit=True)
        with suppress(psycopg.Error), connection.pipeline():
            assert connection.execute(UPDATE_2).fetchone() == (8,)
            connection.execute(UPDATE_1)
            connection.pgconn.pipeline_sync()
            connection.pgconn.flush()
            wait_for(database, "SELECT guests FROM seats WHERE id = 1", (7,))
            connection.close()
        with made.connect() as reader:
            reader.execute("SELECT guests FROM seats").fetchall()
        assert_no_alarm(made)
        assert tainted(made) == {"seats": "answer lost"}


@NEWEST
@pytest.mark.parametrize("prepare", [None, 0])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_row_factory_that_raises_taints_only_if_its_transaction_is_committed(
    database: Database, tmp_path: Path, prepare: int | None, is_committed: bool
) -> None:
    database.run(*SEATS)
    with recording(database, tmp_path, versions="xmin") as made:
        with made.connect() as connection:
            connection.prepare_threshold = prepare
            for _ in range(3):
                connection.execute(UPDATE_1)
                with suppress(Injected):
                    connection.cursor(row_factory=refuses).execute(UPDATE_2)
                (connection.commit if is_committed else connection.rollback)()
        with made.connect() as reader:
            reader.execute("SELECT guests FROM seats").fetchall()
        assert_no_alarm(made)
        assert tainted(made) == ({"seats": "answer lost"} if is_committed else {})


def refused_by_server(connection: Any) -> None:
    with suppress(psycopg.errors.CheckViolation):
        connection.execute("UPDATE seats SET guests = -1 WHERE id = 1")


def refused_by_psycopg(connection: Any) -> None:
    with suppress(psycopg.ProgrammingError):
        connection.execute("UPDATE seats SET guests = %s WHERE id = 1", (object(),))


def refused_in_pipeline(connection: Any) -> None:
    with suppress(psycopg.errors.CheckViolation), connection.pipeline():
        refused_by_psycopg(connection)
        connection.execute(UPDATE_2)
        connection.execute("UPDATE seats SET guests = -1 WHERE id = 1")


def refused_among_many(connection: Any) -> None:
    with suppress(psycopg.ProgrammingError):
        connection.cursor().executemany("UPDATE seats SET guests = %s WHERE id = 1", [(1,), (object(),)])


@NEWEST
@pytest.mark.parametrize("refused", [refused_by_server, refused_by_psycopg, refused_in_pipeline, refused_among_many])
@pytest.mark.parametrize("autocommit", [True, False])
def test_what_was_refused_taints_nothing(
    database: Database, tmp_path: Path, refused: Callable[[Any], None], autocommit: bool
) -> None:
    database.run(*SEATS, "ALTER TABLE seats ADD CHECK (guests >= 0)")
    with recording(database, tmp_path, versions="xmin") as made:
        with made.connect(autocommit=autocommit) as connection:
            connection.execute(UPDATE_2)
            connection.commit()
            refused(connection)
            connection.rollback()
            connection.execute("SELECT guests FROM seats").fetchall()
        assert made.failures == 0
        assert isinstance(made.verdict(), Accepted)
        assert tainted(made) == {}


@NEWEST
@pytest.mark.parametrize(
    ("owner", "name", "tables"),
    [(Transactions, "savepoint", {"seats": "answer lost"}), (Transactions, "committed", {"": "answer lost"})],
)
def test_an_abandoned_transaction_is_no_alarm(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, tables: dict[str, str]
) -> None:
    """Once its results were read at the COMMIT, nobody knows any more which tables it wrote to."""
    database.run(SEATS[0])
    with recording(database, tmp_path, versions="xmin") as made, made.connect(autocommit=True) as reader:
        reader.execute("INSERT INTO seats VALUES (1, 0)")
        with made.connect() as connection:
            connection.execute("DELETE FROM seats WHERE id = 1")
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, fail)
                connection.execute("SAVEPOINT here")
                connection.commit()
        assert reader.execute("SELECT guests FROM seats WHERE id = 1").fetchall() == []
        assert_no_alarm(made)
        assert tainted(made) == tables


@NEWEST
@pytest.mark.parametrize("is_committed", [True, False])
def test_an_answer_that_no_hook_could_keep_taints(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    database.run(*SEATS)
    with recording(database, tmp_path, versions="xmin") as made:
        with made.connect() as connection:
            connection.execute(UPDATE_2)
            with monkeypatch.context() as patch:
                patch.setattr(Watch, "observation", fail)
                patch.setattr(Watch, "extract_for", fail)
                connection.execute(UPDATE_1)
            (connection.commit if is_committed else connection.rollback)()
        with made.connect() as reader:
            reader.execute("SELECT guests FROM seats").fetchall()
        assert_no_alarm(made)
        assert tainted(made) == ({"seats": "answer lost"} if is_committed else {})


@NEWEST
@pytest.mark.parametrize("is_committed", [True, False])
def test_an_answer_that_cannot_be_read_taints(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    database.run(*SEATS)
    with recording(database, tmp_path, versions="xmin") as made:
        with made.connect() as connection:
            connection.execute(UPDATE_2)
            with monkeypatch.context() as patch:
                patch.setattr(Watch, "extract_for", lambda *_: fail)
                connection.execute(UPDATE_1)
            (connection.commit if is_committed else connection.rollback)()
        with made.connect() as reader:
            reader.execute("SELECT guests FROM seats").fetchall()
        assert_no_alarm(made)
        assert tainted(made) == ({"seats": "answer lost"} if is_committed else {})


@NEWEST
def test_what_follows_a_rollback_in_a_pipeline_is_no_alarm(database: Database, tmp_path: Path) -> None:
    """It is sent before the answer to the ROLLBACK comes, and is in a transaction of its own."""
    database.run(SEATS[0])
    with recording(database, tmp_path, versions="xmin") as made, made.connect(autocommit=True) as reader:
        reader.execute("INSERT INTO seats VALUES (1, 0), (2, 0)")
        with made.connect() as connection, connection.pipeline():
            connection.execute(UPDATE_2)
            connection.execute("ROLLBACK")
            connection.execute("DELETE FROM seats WHERE id = 1")
        assert reader.execute("SELECT id FROM seats WHERE id = 1").fetchall() == []
        assert_no_alarm(made)
        assert tainted(made) == {"seats": "answer lost"}


@NEWEST
def test_a_write_after_its_transaction_was_abandoned_is_no_alarm(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(SEATS[0])
    with recording(database, tmp_path, versions="xmin") as made, made.connect(autocommit=True) as reader:
        reader.execute("INSERT INTO seats VALUES (1, 0)")
        with made.connect() as connection:
            connection.execute("SELECT guests FROM seats WHERE id = 1").fetchall()
            with monkeypatch.context() as patch:
                patch.setattr(Transactions, "savepoint", fail)
                connection.execute("SAVEPOINT here")
            connection.execute("DELETE FROM seats WHERE id = 1")
        assert reader.execute("SELECT guests FROM seats WHERE id = 1").fetchall() == []
        assert_no_alarm(made)
        assert set(tainted(made)) == {"seats"}
