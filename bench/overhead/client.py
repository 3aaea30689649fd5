"""A client process: one connection, transactions one after the other, and what they cost.

It waits for orders on a pipe: run for so many seconds, as fast as possible or at a given rate. Between two orders it
sleeps, so that clients of all modes can be there at once and take turns.
"""

from __future__ import annotations

import signal
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import sqlalchemy

from bench.workloads import Client, Statement, Transaction, workloads

PLAIN, SPOOL, CONTROL, STREAM = "plain", "spool", "control", "stream"
MODES = (PLAIN, SPOOL, CONTROL, STREAM)
BASELINE = (PLAIN, CONTROL)
"""Both without the collector. How much they differ is what the machine does by itself."""

RECORDED = (SPOOL, STREAM)
DRIVERS = ("psycopg", "sqlalchemy")

FLUSH_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class Setup:
    workload: str
    driver: str
    mode: str
    number: int
    url: str  # as for SQLAlchemy
    isolation: str
    spool: Path
    sink: str  # host:port, for STREAM


@dataclass(frozen=True)
class Order:
    seconds: float
    txns_per_second: float | None = None  # None: as many as possible
    round: int = 0
    """Of a round all modes have the same arrivals, so that none has more of them at once than another."""


@dataclass
class Slice:
    """What came of one order."""

    txns: int = 0
    aborted: int = 0
    statements: int = 0
    wall_seconds: float = 0.0
    thread_seconds: float = 0.0  # CPU of the application's thread
    process_seconds: float = 0.0  # of all threads, so with what the collector does in the background
    latencies: array[float] = field(default_factory=lambda: array("d"))
    counters: dict[str, float] = field(default_factory=dict)  # the collector's own


Execute = Callable[[Statement, Any], list[Any]]
Run = Callable[[Transaction], tuple[bool, int]]
"""Runs a transaction to its end: whether it committed, and how many statements it had."""


def steps(transaction: Transaction, execute: Execute) -> int:
    """Drive a transaction to its end. Returns the number of statements."""
    count = 0
    try:
        statement, parameters = next(transaction)
        while True:
            count += 1
            statement, parameters = transaction.send(execute(statement, parameters))
    except StopIteration:
        return count


def psycopg_run(setup: Setup) -> Run:
    conninfo = setup.url.replace("+psycopg", "")
    if setup.mode not in RECORDED:
        connection = psycopg.connect(conninfo)
    else:
        from mussurana.collector.instrument import connect

        connection = connect(conninfo, **settings(setup))
    connection.isolation_level = psycopg.IsolationLevel[setup.isolation.upper().replace(" ", "_")]

    def execute(statement: Statement, parameters: Any) -> list[Any]:
        if statement.constants:
            parameters = {**statement.constants, **parameters}
        cursor = connection.execute(statement.text, parameters)
        return cursor.fetchall() if cursor.description else []

    def run(transaction: Transaction) -> tuple[bool, int]:
        try:
            count = steps(transaction, execute)
            connection.commit()
            return True, count
        except psycopg.OperationalError:  # could not serialize, or a deadlock
            connection.rollback()
            return False, 0

    return run


def sqlalchemy_run(setup: Setup) -> Run:
    extra: dict[str, Any] = {}
    if setup.mode in RECORDED:
        extra = {"plugins": ["mussurana"], **settings(setup)}
    engine = sqlalchemy.create_engine(setup.url, isolation_level=setup.isolation.upper(), pool_size=1, **extra)

    def run(transaction: Transaction) -> tuple[bool, int]:
        try:
            with engine.begin() as connection:

                def execute(statement: Statement, parameters: Any) -> list[Any]:
                    result = connection.execute(statement.core, parameters)  # type: ignore[call-overload]
                    return result.fetchall() if result.returns_rows else []

                count = steps(transaction, execute)
            return True, count
        except sqlalchemy.exc.OperationalError:
            return False, 0

    return run


def settings(setup: Setup) -> dict[str, Any]:
    found: dict[str, Any] = {"mussurana_spool": str(setup.spool), "mussurana_spool_bytes_max": 1 << 30}
    if setup.mode == STREAM:
        found["mussurana_verifier"] = setup.sink
    return found


def counters() -> dict[str, float]:
    """All that the collector has counted in this process; nothing without one."""
    from mussurana.collector import recorder

    totals: dict[str, float] = {}
    for found in list(recorder._recorders):
        if not found.is_closed:  # a closed one records nothing any more, and its verifier may be gone
            found.flush(FLUSH_SECONDS_MAX)
        for name, value in found.metrics.values().items():
            totals[name] = totals.get(name, 0) + value
    return totals


def obey(order: Order, setup: Setup, client: Client, run: Run) -> Slice:
    workload = workloads()[setup.workload]
    before = counters() if setup.mode in RECORDED else {}
    done = Slice()
    now = time.perf_counter
    thread, process, started = time.thread_time(), time.process_time(), now()
    end = started + order.seconds
    # At a given rate there is one transaction in each period, at a random moment of it: not all clients at once, nor
    # always the same ones.
    period = 1 / order.txns_per_second if order.txns_per_second else 0.0
    arrivals = Random(f"{order.round} {setup.number}")
    periods = count()
    due = started + period * (next(periods) + arrivals.random())
    while (begun := now()) < end:
        if due > begun:
            time.sleep(min(due, end) - begun)
            begun = now()
            if begun >= end:
                break
        due = started + period * (next(periods) + arrivals.random())
        committed, statements = run(workload.transaction(client))
        done.latencies.append(now() - begun)
        done.txns += committed
        done.aborted += not committed
        done.statements += statements
    done.wall_seconds = now() - started
    done.thread_seconds = time.thread_time() - thread
    if setup.mode in RECORDED:
        after = counters()
        done.counters = {name: value - before.get(name, 0) for name, value in after.items()}
    # Only now: what the collector still had to do about this slice is part of its cost.
    done.process_seconds = time.process_time() - process
    return done


def work(setup: Setup, orders: Connection) -> None:
    """The process: takes orders until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever started us
    run = psycopg_run(setup) if setup.driver == "psycopg" else sqlalchemy_run(setup)
    client = Client(setup.number, seed=MODES.index(setup.mode))
    with suppress(EOFError):
        while True:
            orders.send(obey(orders.recv(), setup, client, run))
