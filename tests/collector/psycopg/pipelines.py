"""Random pipelines with psycopg, without the collector and through it: what the application sees has to be the same.

    python -m tests.collector.psycopg.pipelines                     100,000 of them
    python -m tests.collector.psycopg.pipelines --pipelines 2000 --seed 7000

When an answer comes up depends on how fast the server is, so here it depends on the seed: after each statement either
nothing is read, or all that is still to come (`paced`). Some leave it to the server, and nothing is compared. Whatever
was recorded is of one session after the other, so it has to be accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg import pq
from psycopg._pipeline_base import BasePipeline
from psycopg.generators import fetch_many, send
from psycopg.rows import dict_row, namedtuple_row, scalar_row, tuple_row

from mussurana.collector.database import forget_all
from mussurana.verifier.embedded_postgres import EmbeddedPostgres, installations
from mussurana.verifier.verdict import Accepted
from tests.collector.postgres import Database, create_database, drop_database
from tests.collector.psycopg.recording import Recording, adopt, recording
from tests.collector.psycopg.script import normal, seen

PIPELINES_DEFAULT = 100_000
PIPELINES_PER_CONNECTION = 20
CONNECTIONS_PER_DATABASE = 25  # then the verdict is asked for, and the next ones begin with empty tables

SETTLING_SECONDS = 0.05
"""After which the server has read what it was sent. What it has not, when a connection is closed, it may never."""

TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance int NOT NULL DEFAULT 0)",
    "CREATE TABLE events (id serial PRIMARY KEY, name text NOT NULL)",
    "CREATE TABLE checked (id int PRIMARY KEY, of int REFERENCES accounts DEFERRABLE INITIALLY DEFERRED)",
)
FILLED = ("INSERT INTO accounts SELECT n, 'owner ' || n, n * 10 FROM generate_series(1, 8) n",)
CONTENT = "SELECT (SELECT array_agg((id, owner, balance) ORDER BY id) FROM accounts), (SELECT count(*) FROM events)"

FACTORIES = (tuple_row, tuple_row, dict_row, namedtuple_row, scalar_row)


def statement(rng: random.Random) -> tuple[str, Any]:
    one, other = rng.randrange(1, 12), rng.randrange(1, 12)
    return rng.choice(
        [
            ("SELECT * FROM accounts WHERE id = %s", (one,)),
            ("SELECT * FROM accounts ORDER BY id", None),
            ("SELECT a FROM accounts a WHERE id = %s", (one,)),
            ("SELECT a.*, c.of FROM accounts a LEFT JOIN checked c ON c.of = a.id ORDER BY a.id, c.id", None),
            ("SELECT %s::int AS x, 'two' AS y", (one,)),
            ("SELECT count(*) FROM accounts", None),
            ("SELECT", None),
            ("", None),
            ("SET LOCAL lock_timeout = '1s'", None),
            ("SHOW lock_timeout", None),
            ("INSERT INTO accounts (id, owner) VALUES (%s, 'new')", (one,)),
            ("INSERT INTO accounts (id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING *", (one,)),
            ("INSERT INTO events (name) VALUES ('a'), ('b') RETURNING name", None),
            ("INSERT INTO checked VALUES (%s, %s) ON CONFLICT DO NOTHING", (one, other)),
            ("UPDATE accounts SET balance = balance + 1 WHERE id = %s", (one,)),
            ("UPDATE accounts SET balance = balance + 1 WHERE id = %s RETURNING id, balance", (one,)),
            ("UPDATE accounts SET id = id + 1 WHERE id = %s", (one,)),
            ("DELETE FROM accounts WHERE id = %s", (one,)),
            ("DELETE FROM accounts WHERE id = %s RETURNING *", (one,)),
            ("SELECT 1 / 0", None),
            ("SELECT nonsense FROM accounts", None),
            ("UPDATE accounts SET balance = %s, nonsense = 2", (1,)),
            ("UPDATE accounts SET balance = %s WHERE id = %s", (1,)),
            ("SAVEPOINT s", None),
            ("ROLLBACK TO s", None),
            ("BEGIN", None),
            ("COMMIT", None),
            ("ROLLBACK", None),
        ]
    )


def many(rng: random.Random) -> tuple[str, list[tuple[Any, ...]], bool]:
    """A statement, parameters for each time, and whether the rows are asked for."""
    returning = rng.random() < 0.6
    text, width = rng.choice(
        [
            ("INSERT INTO events (name) VALUES (%s)" + " RETURNING id, name" * returning, 1),
            ("INSERT INTO accounts (id) VALUES (%s)" + " RETURNING *" * returning, 1),
            ("UPDATE accounts SET balance = balance + %s WHERE id = %s" + " RETURNING balance" * returning, 2),
            ("DELETE FROM accounts WHERE id = %s", 1),
            ("SELECT owner FROM accounts WHERE id = %s", 1),
        ]
    )
    given = [tuple(rng.randrange(1, 12) for _ in range(width)) for _ in range(rng.randrange(4))]
    if given and rng.random() < 0.1:
        given[-1] = (*given[-1], 5)  # which is one too many
    return text, given, returning


class LostWay(Exception):
    """psycopg takes answers for those to other statements."""


async def finished(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Pipelines:
    """What an application does on one connection, sync or async."""

    def __init__(self, connection: Any, seed: int, is_paced: bool = True) -> None:
        self.connection = connection
        self.rng = random.Random(seed)
        self.is_paced = is_paced
        if is_paced:
            connection.pace = random.Random(seed)
        connection.prepare_threshold = (5, 0, None, 1)[self.rng.randrange(4)]
        self.cursors: list[Any] = []
        self.log: list[Any] = []

    async def run(self) -> list[Any]:
        connection = self.connection
        self.cursors = [self.cursor() for _ in range(3)]
        try:
            await self.all()
        except LostWay:
            self.log.append("lost")
        if self.connection.info.transaction_status:
            time.sleep(SETTLING_SECONDS)
        await finished(connection.close())
        return self.log

    async def all(self) -> None:
        connection = self.connection
        for _ in range(PIPELINES_PER_CONNECTION):
            autocommit = self.rng.random() < 0.5
            await self.attempt(lambda: connection.set_autocommit(autocommit))  # noqa: B023
            await self.attempt(self.pipeline)
            await self.attempt(connection.commit if self.rng.random() < 0.7 else connection.rollback)
            status = int(connection.info.transaction_status)
            self.look("after", status)
            if status:
                break

    def look(self, *what: Any) -> None:
        self.log.append((*what, [normal(seen(each)) for each in self.cursors]))

    async def attempt(self, action: Callable[[], Any]) -> None:
        try:
            await finished(action())
        except (psycopg.Error, TypeError, ValueError, IndexError, AttributeError) as error:
            if self.is_paced and hasattr(self.connection, "lost_way"):
                raise LostWay from None
            message = re.sub(r"database=\w+|0x\w+", "", str(error))
            sqlstate, diag = getattr(error, "sqlstate", None), getattr(error, "diag", None)
            self.log.append((type(error).__name__, sqlstate, message, diag and diag.statement_position))

    def cursor(self) -> Any:
        return self.connection.cursor(row_factory=self.rng.choice(FACTORIES), binary=self.rng.random() < 0.2)

    async def pipeline(self) -> None:
        manager = self.connection.pipeline()
        async with manager if hasattr(manager, "__aenter__") else _Awaited(manager) as pipeline:
            for _ in range(self.rng.randrange(1, 9)):
                await self.step(pipeline)

    async def step(self, pipeline: Any) -> None:
        rng = self.rng
        steps: list[Callable[[Any], Any]] = [self.execute] * 8 + [self.execute_many] * 3 + [self.fetch] * 4
        steps += [self.next_set, self.next_set, self.replace, self.sync, self.sync, self.inner, self.block, self.end]
        action = rng.choice(steps)
        await self.attempt(lambda: action(pipeline))
        self.look(action.__name__)

    async def execute(self, _: Any) -> None:
        text, params = statement(self.rng)
        cursor, prepare = self.rng.choice(self.cursors), self.rng.choice([None, None, True, False])
        self.log.append((text, params))
        await finished(cursor.execute(text, params, prepare=prepare))

    async def execute_many(self, _: Any) -> None:
        text, params, returning = many(self.rng)
        self.log.append((text, params, returning))
        await finished(self.rng.choice(self.cursors).executemany(text, params, returning=returning))

    async def fetch(self, _: Any) -> None:
        cursor, how = self.rng.choice(self.cursors), self.rng.randrange(3)
        rows = await finished((cursor.fetchone, cursor.fetchall, lambda: cursor.fetchmany(2))[how]())
        self.log.append(normal(rows))

    async def next_set(self, _: Any) -> None:
        self.log.append(self.rng.choice(self.cursors).nextset())

    async def replace(self, _: Any) -> None:
        self.cursors[self.rng.randrange(3)] = self.cursor()

    async def sync(self, pipeline: Any) -> None:
        await finished(pipeline.sync())

    async def inner(self, _: Any) -> None:
        await self.pipeline()

    async def block(self, pipeline: Any) -> None:
        manager = self.connection.transaction()
        async with manager if hasattr(manager, "__aenter__") else _Awaited(manager):
            for _ in range(self.rng.randrange(3)):
                await self.step(pipeline)
            if self.rng.random() < 0.2:
                raise psycopg.Rollback

    async def end(self, _: Any) -> None:
        await finished(self.rng.choice([self.connection.commit, self.connection.rollback])())


class _Awaited:
    """A context manager of the sync kind, for `async with`."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    async def __aenter__(self) -> Any:
        return self.manager.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self.manager.__exit__(*error)


@contextmanager
def paced() -> Iterator[None]:
    """Let connections that have a `pace` read all answers, or none, after a statement was sent."""
    original = BasePipeline._communicate_gen

    def communicate(self: Any) -> Any:
        pipeline = self
        pace: random.Random | None = getattr(pipeline._conn, "pace", None)
        if pace is None:
            return (yield from original(pipeline))
        while pipeline.command_queue:
            pipeline.command_queue.popleft()()
        yield from send(pipeline.pgconn)
        if pace.random() < 0.5:
            return None
        pipeline.pgconn.send_flush_request()
        yield from send(pipeline.pgconn)
        failed: psycopg.Error | None = None
        while pipeline.result_queue and (results := (yield from fetch_many(pipeline.pgconn))):
            try:
                pipeline._process_results(pipeline.result_queue.popleft(), results)
            except psycopg.Error as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return None

    with patch.object(BasePipeline, "_communicate_gen", communicate), noticing_lost_ways():
        yield


@contextmanager
def noticing_lost_ways() -> Iterator[None]:
    """Notice when a COMMIT at a sync fails. psycopg does not expect the answer to the sync itself that follows, and
    takes each answer after it for that to another statement, so there is nothing left to compare."""
    enqueue, process = BasePipeline._enqueue_sync, BasePipeline._process_results

    def enqueue_sync(self: Any) -> None:
        enqueue(self)
        processed, syncs = self.__dict__.setdefault("places", [0, set()])
        syncs.add(processed + len(self.result_queue))

    def process_results(self: Any, queued: Any, results: list[Any]) -> None:
        places = self.__dict__.setdefault("places", [0, set()])
        places[0] += 1
        if places[0] in places[1] and results[0].status == pq.ExecStatus.FATAL_ERROR:
            self._conn.lost_way = True
        process(self, queued, results)

    with patch.multiple(BasePipeline, _enqueue_sync=enqueue_sync, _process_results=process_results):
        yield


def run_sync(connection: Any, seed: int, is_paced: bool = True) -> list[Any]:
    try:
        Pipelines(connection, seed, is_paced).run().send(None)
    except StopIteration as stop:
        return list(stop.value)
    raise AssertionError("nothing here waits")


async def run_async(connecting: Any, seed: int) -> list[Any]:
    return await Pipelines(await connecting, seed).run()


OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)


def content_of(database: Database) -> Any:
    """What is in the tables, when the server has done all that it was sent."""
    with database.connect(autocommit=True) as connection:
        while connection.execute(OTHERS).fetchone() != (0,):
            time.sleep(0.001)
        return connection.execute(CONTENT).fetchone()


def compare(database: Database, other: Database, made: Recording, seed: int) -> None:
    """One connection's pipelines, on both sides."""
    if seed % 3:
        plain, watched = run_sync(other.connect(), seed), run_sync(made.connect(), seed)
    else:
        plain = asyncio.run(run_async(psycopg.AsyncConnection.connect(other.conninfo), seed))
        watched = asyncio.run(run_async(made.connect_async(), seed))
    plain.append(content_of(other))
    watched.append(content_of(database))
    for index, (expected, found) in enumerate(zip(plain, watched, strict=False)):
        assert found == expected, (
            f"seed {seed}:\n{found}\nexpected {expected}\nafter {plain[max(0, index - 6) : index]}"
        )
    assert len(plain) == len(watched)


def compare_many(database: Database, spool: Path, seeds: range, by_xmin: bool) -> None:
    """Many connections' pipelines; what was recorded of them is accepted, and none of our hooks failed."""
    database.run(*TABLES, *FILLED)
    other = create_database(database.server, template=database.name)
    settings: dict[str, Any] = {}
    if by_xmin:
        settings["versions"] = "xmin"
    else:
        adopt(database)
    try:
        with paced(), recording(database, spool, **settings) as made:
            for seed in seeds:
                forget_all()
                compare(database, other, made, seed)
            for seed in seeds:  # what is recorded when answers come as they like
                run_sync(made.connect(), seed, is_paced=False)
            assert made.failures == 0
            verdict = made.verdict()
            assert isinstance(verdict, Accepted), f"seeds {seeds}: {verdict}"
    finally:
        drop_database(other)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.collector.psycopg.pipelines", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=PIPELINES_DEFAULT, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9), help="of the first connection")
    options = parser.parse_args(arguments)
    connections = -(-options.pipelines // PIPELINES_PER_CONNECTION)
    seeds = range(options.seed, options.seed + connections)
    with EmbeddedPostgres(installations()[0]) as server:
        for start in range(0, connections, CONNECTIONS_PER_DATABASE):
            part = seeds[start : start + CONNECTIONS_PER_DATABASE]
            database = create_database(server)
            with tempfile.TemporaryDirectory() as spool:
                compare_many(database, Path(spool), part, by_xmin=start // CONNECTIONS_PER_DATABASE % 3 == 2)
            drop_database(database)
            print(f"{(start + len(part)) * PIPELINES_PER_CONNECTION} pipelines, up to seed {part[-1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
