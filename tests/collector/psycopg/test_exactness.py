"""What is recorded of real, concurrent transactions is what happened: the checker agrees with the isolation level."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import IsolationLevel

from mussurana.verifier.verdict import Accepted, Rejected, Verdict
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording
from tests.collector.psycopg.workload import FILLED, TABLES, run

ROUNDS = 3
TXNS = 60  # per session


def record(database: Database, spool: Path, level: IsolationLevel, seed: int, txn_count: int = TXNS) -> Recording:
    with recording(database, spool / str(seed), fence_interval_seconds=0.05) as made:
        sessions = run(made.connect, level, seed, txn_count)
        assert sum(session.committed for session in sessions) > len(sessions) * txn_count / 4
        assert made.failures == 0
        assert made.recorder.metrics.fences_issued > 8
        made.finish()
    return made


def explained(verdict: Verdict) -> str:
    return verdict.counterexample.summary if isinstance(verdict, Rejected) else repr(verdict)


@pytest.fixture
def shop(database: Database) -> Database:
    adopt(database, *TABLES, *FILLED)
    return database


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_serializable_is_accepted_as_serializable(shop: Database, tmp_path: Path, seed: int) -> None:
    made = record(shop, tmp_path, IsolationLevel.SERIALIZABLE, seed)
    verdict = made.verdict("serializable")
    assert isinstance(verdict, Accepted), explained(verdict)


@NEWEST
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_repeatable_read_is_snapshot_isolated_and_shows_write_skew(shop: Database, tmp_path: Path, seed: int) -> None:
    made = record(shop, tmp_path, IsolationLevel.REPEATABLE_READ, seed)
    verdict = made.verdict("strong-session-si")
    assert isinstance(verdict, Accepted), explained(verdict)
    assert isinstance(made.verdict("serializable"), Rejected)


@NEWEST
def test_read_committed_loses_updates(shop: Database, tmp_path: Path) -> None:
    made = record(shop, tmp_path, IsolationLevel.READ_COMMITTED, 0)
    assert isinstance(made.verdict("strong-session-si"), Rejected)


ALONE = [
    *["SELECT v FROM cells WHERE k = %s"] * 4,
    *["UPDATE cells SET v = v + 1 WHERE k = %s"] * 3,
    "DELETE FROM cells WHERE k = %s",
    "INSERT INTO cells VALUES (%s, 1)",
    "SELECT k, v FROM cells WHERE k > %s",
]


@NEWEST
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_statements_that_are_transactions_of_their_own_are_serializable(
    database: Database, tmp_path: Path, seed: int
) -> None:
    adopt(database, "CREATE TABLE cells (k int PRIMARY KEY, v int)")
    with recording(database, tmp_path, fence_interval_seconds=0.05) as made:

        def work(number: int) -> None:
            rng = random.Random(8 * seed + number)
            with made.connect(autocommit=True) as connection:
                for _ in range(4 * TXNS):
                    with suppress(psycopg.errors.UniqueViolation):
                        connection.execute(rng.choice(ALONE), (rng.randrange(12),))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made.failures == 0
        verdict = made.verdict("serializable")
        assert isinstance(verdict, Accepted), explained(verdict)
        assert made.history().txn_count > 1000
