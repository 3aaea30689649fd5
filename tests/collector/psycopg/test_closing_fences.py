"""Before a connection is closed its session reads the fence, so that all it did can be forgotten; nobody notices."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import NullPool, QueuePool, create_engine, text

from mussurana.collector.psycopg_adapter import AsyncConnection, Connection
from mussurana.collector.psycopg_watch import CLOSING_SECONDS_MAX, Watch
from mussurana.collector.recorder import Session, close_all
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.verdict import Settings as CheckSettings
from mussurana.wire import EPOCH_BITS, FENCE_KEY, history_pb2
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording
from tests.collector.recording.observed import fragments, uploads

pytestmark = NEWEST

TABLES = ("CREATE TABLE accounts (id int PRIMARY KEY, balance int)", "INSERT INTO accounts VALUES (1, 10), (2, 20)")
READ, WRITE = "SELECT * FROM accounts WHERE id = %s", "UPDATE accounts SET balance = balance + 1 WHERE id = %s"
COUNT = (1 << EPOCH_BITS) - 1  # of an epoch
SOON_SECONDS = 0.15  # beside what a fence may take


@pytest.fixture
def made(database: Database, tmp_path: Path) -> Iterator[Recording]:
    adopt(database, *TABLES)
    with recording(database, tmp_path) as made:
        yield made
        assert made.failures == 0


def stories(spool: Path) -> list[str]:
    """What each session did, in order: W and R for fences, with their epochs, x for anything else, ! for closed."""
    told: dict[int, str] = {}
    for fragment in fragments(spool):
        counts = memoryview(fragment.txn_op_count).cast("I").tolist()
        sessions = memoryview(fragment.txn_session).cast("I").tolist()
        keys, epochs = (list(memoryview(some).cast("Q")) for some in (fragment.op_key, fragment.fence_epoch))
        at = 0
        for session, count in zip(sessions, counts, strict=True):
            what = "x"
            if keys[at] == FENCE_KEY:
                what = ("R" if fragment.op_kind[at] == history_pb2.READ else "W") + str(epochs.pop(0) & COUNT)
            told[session] = told.get(session, "") + what
            at += count
        for event in fragment.session_event:
            if event.what == history_pb2.SessionEvent.CLOSE:
                told[event.session] += "!"
    return list(told.values())


def told_by(made: Recording) -> list[str]:
    made.finish()
    return stories(made.spool)


def test_the_record_of_a_short_session_ends_with_a_read_of_the_fence(made: Recording) -> None:
    for _ in range(2):
        with made.connect() as connection:
            connection.execute(WRITE, (1,))
            connection.commit()
            connection.execute(READ, (1,))
    assert told_by(made) == ["W1xxR1!", "W2xxR2!"]
    assert made.recorder.metrics.fences_issued == 4


def test_a_session_that_did_nothing_since_its_last_fence_reads_nothing(made: Recording) -> None:
    with made.connect(autocommit=True) as connection:
        connection.execute("SELECT 1")
    made.connect().close()
    assert made.recorder.metrics.fences_issued == 1  # before the SELECT
    assert told_by(made) == ["W1!"]


def test_async_connections_and_those_of_pools_do_so_as_well(made: Recording) -> None:
    async def main() -> None:
        async with await made.connect_async() as connection:
            await connection.execute(WRITE, (1,))
        options: dict[str, Any] = {"kwargs": {"mussurana": made.settings}, "min_size": 1, "max_size": 1}
        conninfo = made.database.conninfo
        async with AsyncConnectionPool(conninfo, connection_class=AsyncConnection, open=False, **options) as pool:
            for _ in range(3):
                async with pool.connection() as connection:
                    await connection.execute(WRITE, (1,))

    asyncio.run(main())
    options: dict[str, Any] = {"kwargs": {"mussurana": made.settings}, "min_size": 1, "max_size": 1}
    with ConnectionPool(made.database.conninfo, connection_class=Connection, **options) as pool:
        for _ in range(2):
            with pool.connection() as connection:
                connection.execute(WRITE, (1,))
    options["max_lifetime"] = 0.01
    pool = ConnectionPool(made.database.conninfo, connection_class=Connection, **options)
    with pool, pool.connection() as connection:
        connection.execute(WRITE, (1,))
        time.sleep(0.05)
    assert told_by(made) == ["W1xR1!", "W2xxxR2!", "W3xxR3!", "W4xR4!"]


def test_a_pool_to_which_closing_gives_back_gets_no_fence_by_that(made: Recording) -> None:
    options: dict[str, Any] = {"kwargs": {"mussurana": made.settings}, "min_size": 1, "max_size": 1}
    with ConnectionPool(made.database.conninfo, connection_class=Connection, close_returns=True, **options) as pool:
        for _ in range(3):
            connection = pool.getconn()
            connection.execute(WRITE, (1,))
            connection.commit()
            connection.close()
            assert not connection.closed
    assert told_by(made) == ["W1xxxR1!"]


@pytest.mark.parametrize("poolclass", [NullPool, QueuePool])
def test_engines_of_sqlalchemy(database: Database, tmp_path: Path, poolclass: Any) -> None:
    adopt(database, *TABLES)
    engine = create_engine(database.url(), plugins=["mussurana"], mussurana_spool=str(tmp_path), poolclass=poolclass)
    for _ in range(2):
        with engine.begin() as connection:
            connection.execute(text("UPDATE accounts SET balance = 0 WHERE id = 1"))
    engine.dispose()
    close_all()
    ends = [story[-3:-1] for story in stories(tmp_path) if "x" in story]
    assert {end[0] for end in ends} == {"R"}


@pytest.mark.parametrize("level", ["serializable", "strong-session-si"])
def test_a_connection_per_request_is_forgotten_online(made: Recording, level: str) -> None:
    for number in range(60):
        with made.connect() as connection:
            connection.execute(READ, (1 + number % 2,))
    made.finish()
    machine = Verifier([CheckSettings(level, clock_drift_ns=1_000_000)])
    for collector, upload in uploads(made.spool):
        if upload.WhichOneof("message") == "fragment":
            machine.feed(collector, upload.fragment, upload.fragment.sealed_ns)
    (told,) = machine.step(time.time_ns(), force=True)
    assert told.verdict == "accepted"
    assert told.txn_count > 170
    assert told.retained < 20


# When nothing is asked


def is_silent(made: Recording, close: Callable[[], None]) -> bool:
    issued = made.recorder.metrics.fences_issued
    close()
    return made.recorder.metrics.fences_issued == issued and made.recorder.metrics.fences_failed == 0


def test_a_transaction_or_pipeline_that_is_open_is_not_touched(made: Recording) -> None:
    connection = made.connect()
    connection.execute(WRITE, (1,))
    connection.commit()
    connection.execute(WRITE, (1,))
    assert is_silent(made, connection.close)
    connection = made.connect(autocommit=True)
    connection.execute(WRITE, (1,))
    with suppress(psycopg.OperationalError), connection.pipeline():
        assert is_silent(made, connection.close)
    assert connection.closed


def test_while_another_thread_runs_a_query_nothing_is_asked(made: Recording) -> None:
    connection = made.connect(autocommit=True)
    connection.execute(WRITE, (1,))
    errors: list[BaseException] = []

    def sleep() -> None:
        try:
            connection.execute("SELECT pg_sleep(5)")
        except psycopg.Error as error:
            errors.append(error)

    thread = threading.Thread(target=sleep)
    thread.start()
    while connection.info.transaction_status != pq.TransactionStatus.ACTIVE:
        time.sleep(0.01)
    started = time.monotonic()
    assert is_silent(made, connection.close)
    assert time.monotonic() - started < SOON_SECONDS
    thread.join()
    assert errors


def test_a_forked_child_does_not_talk_on_its_parents_connection(made: Recording) -> None:
    connection = made.connect(autocommit=True)
    connection.execute(WRITE, (1,))
    child = os.fork()
    if child == 0:
        try:
            os._exit(2 if connection._mussurana_may_fence() else 0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert connection._mussurana_may_fence()
    connection.close()


def test_after_recording_has_ended_nothing_is_asked(made: Recording) -> None:
    connection = made.connect(autocommit=True)
    connection.execute(WRITE, (1,))
    made.finish()
    assert is_silent(made, connection.close)


def test_a_backend_that_is_gone_is_no_trouble(made: Recording) -> None:
    connection = made.connect(autocommit=True)
    connection.execute(WRITE, (1,))
    made.database.run(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
    connection.close()
    assert connection.closed
    assert made.recorder.metrics.fences_failed == 1


def test_a_fence_that_cannot_be_read_is_no_trouble(made: Recording) -> None:
    connection = made.connect(autocommit=True)
    connection.execute(WRITE, (1,))
    made.database.run("DROP TABLE mussurana_fence")
    connection.close()
    assert connection.closed
    assert made.recorder.metrics.fences_failed == 1


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Watch, "closing_fence_due"),
        (Watch, "closing_fence"),
        (Watch, "_query"),
        (Watch, "closed"),
        (Session, "closing_fence_due"),
        (Session, "begin"),
        (Session, "fenced"),
    ],
)
def test_whatever_fails_in_it_the_connection_is_closed(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("not understood")

    async def close(connection: Any) -> None:
        await connection.close()

    adopt(database, *TABLES)
    with recording(database, tmp_path) as made, asyncio.Runner() as runner:
        connection = made.connect(autocommit=True)
        other = runner.run(made.connect_async(autocommit=True))
        connection.execute(WRITE, (1,))
        runner.run(other.execute(WRITE, (1,)))
        monkeypatch.setattr(owner, name, fail)
        connection.close()
        runner.run(close(other))
        assert connection.closed
        assert other.closed
        assert made.failures >= 2


# What the application sees


def test_the_application_sees_and_hears_nothing(made: Recording) -> None:
    heard: list[object] = []
    connection = made.connect()
    connection.add_notice_handler(heard.append)
    connection.add_notify_handler(heard.append)
    connection.execute("LISTEN news")
    connection.execute("SET default_transaction_isolation = 'serializable'")
    connection.execute(WRITE, (1,))
    connection.commit()
    settings = connection.autocommit, connection.isolation_level, connection.read_only, connection.deferrable
    made.database.run("NOTIFY news")
    connection.close()
    assert connection.closed
    assert not connection.broken
    assert not heard
    assert settings == (connection.autocommit, connection.isolation_level, connection.read_only, connection.deferrable)
    connection.close()
    assert made.recorder.metrics.fences_issued == 2


class Network:
    """Leads to the server, until it hangs: then nothing comes through any more, and nobody says so."""

    def __init__(self, database: Database) -> None:
        with psycopg.connect(database.conninfo) as connection:
            self.host, self.server_port = connection.info.host, connection.info.port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.hangs = threading.Event()
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.host.startswith("/"):
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self.host}/.s.PGSQL.{self.server_port}")
            else:
                server = socket.create_connection((self.host, self.server_port))
            self.sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while content := one.recv(1 << 16):
                while self.hangs.is_set():
                    time.sleep(0.05)
                other.sendall(content)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self.listener.close()
        for each in self.sockets:
            each.close()


@pytest.fixture
def network(database: Database) -> Iterator[Network]:
    made = Network(database)
    yield made
    made.hangs.clear()
    made.close()


def over(network: Network) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": network.port, "autocommit": True}


def test_when_the_network_hangs_closing_takes_hardly_longer_and_only_once(made: Recording, network: Network) -> None:
    connections = [made.connect(**over(network)) for _ in range(5)]
    for connection in connections:
        connection.execute(WRITE, (1,))
    network.hangs.set()
    took = []
    for connection in connections:
        started = time.monotonic()
        connection.close()
        took.append(time.monotonic() - started)
        assert connection.closed
    assert CLOSING_SECONDS_MAX <= took[0] < CLOSING_SECONDS_MAX + SOON_SECONDS
    assert max(took[1:]) < SOON_SECONDS
    assert made.recorder.metrics.fences_failed == 1
    assert made.recorder.metrics.fence_seconds >= CLOSING_SECONDS_MAX


def test_an_async_close_that_hangs_is_as_quick_and_holds_up_nobody_else(made: Recording, network: Network) -> None:
    async def main() -> int:
        connection = await made.connect_async(**over(network))
        await connection.execute(WRITE, (1,))
        network.hangs.set()
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        started = time.monotonic()
        await connection.close()
        assert time.monotonic() - started < CLOSING_SECONDS_MAX + SOON_SECONDS
        assert connection.closed
        ticking.cancel()
        return ticks

    assert asyncio.run(main()) > 5


def test_who_is_cancelled_while_it_closes_has_closed(made: Recording, network: Network) -> None:
    """psycopg's own close waits for nothing, so what stands after it runs, up to the next wait."""
    came_to: list[str] = []

    async def work(closing: asyncio.Event) -> None:
        connection = await made.connect_async(**over(network))
        await connection.execute(WRITE, (1,))
        network.hangs.set()
        closing.set()
        await connection.close()
        came_to.append(f"closed {connection.closed}")
        await asyncio.sleep(0)
        came_to.append("too far")

    async def main() -> None:
        closing = asyncio.Event()
        task = asyncio.create_task(work(closing))
        await closing.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    asyncio.run(main())
    assert came_to == ["closed True"]
