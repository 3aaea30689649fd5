"""Backends that are killed in the middle of a run leave transactions in doubt, and never a false alarm."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import psycopg
import pytest
from psycopg import IsolationLevel

from mussurana.verifier.verdict import Accepted
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, adopt, recording
from tests.collector.psycopg.test_exactness import explained
from tests.collector.psycopg.workload import FILLED, TABLES, run


class Killer(threading.Thread):
    """Ends backends of one database, one after the other, at random."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__()
        self.database = database
        self.rng = random.Random(seed)
        self.stopped = threading.Event()
        self.killed = 0

    def run(self) -> None:
        with psycopg.connect(self.database.conninfo, autocommit=True) as connection:
            while not self.stopped.wait(self.rng.uniform(0.005, 0.05)):
                found = connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
                )
                self.killed += len(found.fetchall())


@NEWEST
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("level", [IsolationLevel.SERIALIZABLE, IsolationLevel.REPEATABLE_READ])
def test_killed_backends_cause_no_alarm(database: Database, tmp_path: Path, seed: int, level: IsolationLevel) -> None:
    adopt(database, *TABLES, *FILLED)
    with recording(database, tmp_path, fence_interval_seconds=0.05) as made:
        killer = Killer(database, seed)
        killer.start()
        try:
            sessions = run(made.connect, level, seed, 60)
        finally:
            killer.stopped.set()
            killer.join()
        assert killer.killed > 3
        assert sum(session.lost for session in sessions) > 0
        assert made.failures == 0
        verdict = made.verdict("serializable" if level == IsolationLevel.SERIALIZABLE else "strong-session-si")
        assert isinstance(verdict, Accepted), explained(verdict)
