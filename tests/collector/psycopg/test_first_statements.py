"""BEGIN goes out together with the first statement, and nobody can tell: what comes back is what always came back."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.pq import PipelineStatus, TransactionStatus

from mussurana.collector import psycopg_lane
from mussurana.verifier.history import UNKNOWN_TIME
from mussurana.verifier.verdict import Accepted
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording
from tests.collector.psycopg.test_exactness import explained

READ = "SELECT v FROM t WHERE k = %s"
WRITE = "UPDATE t SET v = %s WHERE k = %s"
PREPARE_AFTER = 6  # executions; psycopg prepares a statement then, and only those take BEGIN along


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    adopt(
        database,
        "CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL)",
        "INSERT INTO t SELECT g, 'v' FROM generate_series(1, 100) g",
    )
    with recording(database, tmp_path, fence_interval_seconds=60) as made:
        yield made


def warm(connection: Any, *statements: tuple[str, tuple[Any, ...]]) -> Any:
    for query, params in statements or ((READ, (1,)), (WRITE, ("v", 1))):
        for _ in range(PREPARE_AFTER):
            connection.execute(query, params)
            connection.commit()
    return connection


def both(made: Recording) -> Iterator[Any]:
    """The driver alone, then with the collector."""
    for connect in (lambda: psycopg.connect(made.database.conninfo), made.connect):
        with connect() as connection:
            yield warm(connection)


def state(connection: Any) -> tuple[Any, ...]:
    pgconn = connection.pgconn
    return pgconn.status, pgconn.transaction_status, pgconn.pipeline_status, connection.closed, connection.broken


def outcome(connection: Any, act: Callable[[Any], Any]) -> tuple[Any, ...]:
    """All that can be seen of something that is done first in a transaction, and whether the connection goes on."""
    seen: list[Any] = []
    try:
        seen.append(act(connection))
    except BaseException as error:
        message, _, _ = str(error).partition("DETAIL")  # in which there are whole rows
        seen += [type(error), getattr(error, "sqlstate", None), message]
    seen.append(state(connection))
    if not connection.closed:
        connection.rollback()
        seen += [state(connection), connection.execute(READ, (2,)).fetchall(), state(connection)]
        connection.rollback()
    return tuple(seen)


@pytest.fixture
def sent_along(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The BEGINs that went with a statement."""
    sent: list[bytes] = []
    original = psycopg_lane._answers_after_begin

    def noted(pgconn: Any, begin: bytes) -> Any:
        sent.append(begin)
        return original(pgconn, begin)

    monkeypatch.setattr(psycopg_lane, "_answers_after_begin", noted)
    return sent


def test_a_prepared_statement_takes_begin_along(made: Recording, sent_along: list[bytes]) -> None:
    with made.connect() as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        warm(connection)
        sent_along.clear()
        assert connection.execute(READ, (3,)).fetchall() == [("v",)]
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
        assert state(connection)[1:3] == (TransactionStatus.INTRANS, PipelineStatus.OFF)
        connection.commit()
    assert sent_along == [b"BEGIN ISOLATION LEVEL REPEATABLE READ"]
    assert made.failures == 0


def test_what_cannot_take_it_along_goes_after_it(made: Recording, sent_along: list[bytes]) -> None:
    with made.connect() as connection:
        warm(connection)
        sent_along.clear()
        for query, params in (("SELECT 1", None), ("SELECT v, k FROM t WHERE k = %s", (1,))):  # none of ours; new
            connection.execute(query, params)
            connection.commit()
        assert list(connection.cursor().stream(READ, (1,))) == [("v",)]
        connection.commit()
        assert connection.execute(WRITE, ("w", 1)).rowcount == 1  # libpq would go on row by row
        connection.commit()
        connection.autocommit = True
        assert connection.execute(READ, (1,)).fetchall() == [("w",)]
        assert sent_along == []
        connection.autocommit = False
        assert connection.execute(READ, (1,)).fetchall() == [("w",)]
        assert sent_along == [b"BEGIN"]
    assert made.failures == 0


ACTS: dict[str, Callable[[Any], Any]] = {
    "read": lambda connection: connection.execute(READ, (1,)).fetchall(),
    "nothing found": lambda connection: connection.execute(READ, (1000,)).fetchall(),
    "refused value": lambda connection: connection.execute(WRITE, (None, 1)),
    "refused type": lambda connection: connection.execute(READ, ("no number",)),
    "too few": lambda connection: connection.execute(WRITE, ("v",)),
    "a megabyte each way": lambda connection: _much(connection),
    "begin refused": lambda connection: _with_begin(connection, b"BEGIN ISOLATION LEVEL NONSENSE"),
}


def _much(connection: Any) -> Any:
    written = connection.execute(WRITE, ("x" * 1_000_000, 1)).rowcount
    return written, connection.execute(READ, (1,)).fetchall()


def _with_begin(connection: Any, begin: bytes) -> Any:
    was, connection._begin_statement = connection._begin_statement, begin
    try:
        return connection.execute(READ, (1,)).fetchall()
    finally:
        connection._begin_statement = was


@pytest.mark.parametrize("what", ACTS)
def test_what_comes_back_is_the_same(made: Recording, what: str) -> None:
    plain, recorded = [outcome(connection, ACTS[what]) for connection in both(made)]
    assert recorded == plain
    assert made.failures == 0


@NEWEST
def test_a_connection_that_the_server_closed_meanwhile(made: Recording) -> None:
    def act(connection: Any) -> Any:
        with psycopg.connect(made.database.conninfo, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 1000)", (connection.info.backend_pid,))
        return connection.execute(READ, (1,)).fetchall()

    plain, recorded = [outcome(connection, act) for connection in both(made)]
    assert plain[0] is psycopg.errors.AdminShutdown
    assert recorded == plain


@NEWEST
def test_a_backend_that_is_ended_at_work_and_a_statement_that_times_out(made: Recording) -> None:
    def die(connection: Any) -> Any:
        with psycopg.connect(made.database.conninfo, autocommit=True) as other:
            pid = connection.info.backend_pid
            killer = threading.Timer(0.3, lambda: other.execute("SELECT pg_terminate_backend(%s)", (pid,)))
            killer.start()
            try:
                return connection.execute(WRITE, ("w", 5))
            finally:
                killer.join()

    def time_out(connection: Any) -> Any:
        connection.execute("SET statement_timeout = '200ms'")
        connection.commit()
        return connection.execute(WRITE, ("w", 5))

    with psycopg.connect(made.database.conninfo) as holder:
        holder.execute(WRITE, ("held", 5))
        for act, expected in ((time_out, psycopg.errors.QueryCanceled), (die, psycopg.errors.AdminShutdown)):
            plain, recorded = [outcome(connection, act) for connection in both(made)]
            assert plain[0] is expected
            assert recorded == plain
    assert made.failures == 0


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also where the tests run behind a shell that has keyboard interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@NEWEST
@pytest.mark.usefixtures("interruptible")
def test_interrupted_from_the_keyboard(made: Recording) -> None:
    def act(connection: Any) -> Any:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        try:
            return connection.execute(WRITE, ("w", 5))
        finally:
            timer.join()

    with psycopg.connect(made.database.conninfo) as holder:
        holder.execute(WRITE, ("held", 5))
        plain, recorded = [outcome(connection, act) for connection in both(made)]
    assert plain[0] is KeyboardInterrupt
    assert recorded == plain


@NEWEST
def test_cancelled_tasks(made: Recording) -> None:
    async def act(connect: Callable[[], Any]) -> tuple[Any, ...]:
        async with await connect() as connection:
            for _ in range(PREPARE_AFTER):
                await connection.execute(WRITE, ("v", 1))
                await connection.commit()
            try:
                await asyncio.wait_for(connection.execute(WRITE, ("w", 5)), 0.3)
            except TimeoutError:
                seen = state(connection)
            await connection.rollback()
            found = await (await connection.execute(READ, (1,))).fetchall()
            return seen, state(connection), found

    with psycopg.connect(made.database.conninfo) as holder:
        holder.execute(WRITE, ("held", 5))
        plain = asyncio.run(act(lambda: psycopg.AsyncConnection.connect(made.database.conninfo)))
        assert asyncio.run(act(made.connect_async)) == plain


@NEWEST
def test_a_snapshot_is_as_old_as_the_first_statement_not_as_begin(made: Recording) -> None:
    """The server answers BEGIN at once, and what others commit then is seen: that inverts nothing."""
    with made.connect() as reader, made.connect() as writer:
        for connection in (reader, writer):
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            warm(connection)
        with reader.transaction():
            time.sleep(0.25)
            writer.execute(WRITE, ("new", 1))
            writer.commit()
            time.sleep(0.25)
            assert reader.execute(READ, (1,)).fetchall() == [("new",)]
    history = made.history()
    known = history.begun_ns != UNKNOWN_TIME
    assert (history.begun_ns - history.begin_ns)[known].max() > 400_000_000
    for level in ("generalized-si", "strong-session-si", "strong-si"):
        verdict = made.verdict(level)
        assert isinstance(verdict, Accepted), explained(verdict)
