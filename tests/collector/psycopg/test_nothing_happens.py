"""A day in which nothing happens costs nothing, and one of pings costs a fence per ping at most."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import ConnectionPool

from mussurana.collector import background, psycopg_watch, recorder, transactions
from mussurana.collector.psycopg_adapter import Connection
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, plain, recording

CONNECTIONS = 4
HOUR = 3600.0
LEAP_SECONDS = 0.25  # between leaps; a background that has nothing to do looks around once a second


class Clock:
    """Time goes on as it does, and by leaps as the test wants."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0
        self._monotonic, self._time_ns = time.monotonic, time.time_ns

    def monotonic(self) -> float:
        return self._monotonic() + self.ahead_seconds

    def time_ns(self) -> int:
        return self._time_ns() + int(self.ahead_seconds * 1e9)

    def leap(self, seconds: float) -> None:
        self.ahead_seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(background, "monotonic", made.monotonic)
    for module in (background, psycopg_watch, recorder, transactions):
        monkeypatch.setattr(module, "time_ns", made.time_ns)
    return made


@pytest.fixture
def made(database: Database, tmp_path: Path, clock: Clock) -> Iterator[Recording]:
    adopt(database, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with recording(database, tmp_path) as made:
        yield made


def pool_of(made: Recording) -> Any:
    options = {"mussurana": made.settings}
    return ConnectionPool(
        made.database.conninfo, connection_class=Connection, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs=options
    )


def epoch(made: Recording) -> Any:
    return plain(made.database, "SELECT epoch FROM mussurana_fence")


def use_all(pool: Any) -> None:
    connections = [pool.getconn() for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.execute("SELECT id FROM t WHERE id = 1").fetchall()
        connection.commit()
        pool.putconn(connection)


@NEWEST
def test_an_idle_pool_costs_nothing_for_a_day(made: Recording, clock: Clock) -> None:
    metrics = made.recorder.metrics
    with pool_of(made) as pool:
        use_all(pool)
        assert metrics.fences_issued == CONNECTIONS
        assert made.recorder.flush(10)
        clock.leap(10)  # now all sessions are idle, and say so
        time.sleep(2.5)
        before = epoch(made), metrics.fences_issued, metrics.fragments_spooled, metrics.bytes_spooled
        for _ in range(24):
            clock.leap(HOUR)
            time.sleep(LEAP_SECONDS)
        assert (epoch(made), metrics.fences_issued, metrics.fragments_spooled, metrics.bytes_spooled) == before
        use_all(pool)  # the first transaction of a session that was idle comes after a write fence
        assert metrics.fences_issued == 2 * CONNECTIONS
        assert metrics.fences_failed == 0


@NEWEST
def test_a_ping_costs_one_fence_per_interval_and_session_at_most(made: Recording, clock: Clock) -> None:
    metrics, interval = made.recorder.metrics, made.settings.fence_interval_seconds
    with pool_of(made) as pool:
        use_all(pool)
        for pause in (0.0, interval / 4, interval / 4, interval / 2 + 0.01, 60.0, 60.0, 0.0):
            fences = metrics.fences_issued
            clock.leap(pause)
            use_all(pool)
            assert metrics.fences_issued - fences <= CONNECTIONS
        minutes, fences = 120, metrics.fences_issued
        for _ in range(minutes):
            clock.leap(60)
            use_all(pool)
        assert metrics.fences_issued - fences == minutes * CONNECTIONS
        fences = metrics.fences_issued
        for _ in range(20):  # within one interval
            use_all(pool)
        assert metrics.fences_issued - fences <= CONNECTIONS
