"""All the way: an application, the collector, its shipper, gRPC, a daemon in a process of its own, and its verdicts."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.online.ports import free_port
from mussurana.verifier.daemon import client
from mussurana.verifier.daemon.client import Target
from mussurana.wire import query_pb2 as wire
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, Recording, adopt, recording
from tests.collector.psycopg.test_tampering import READ, WRITE, LyingCursor, Memory, connect
from tests.daemon.crash import Daemon

pytestmark = NEWEST

VERDICT_SECONDS_MAX = 30


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    program = "from mussurana.verifier.cli import main; main()"
    flags = ["--data", str(tmp_path / "data"), "--ingest-listen", address, "--http-listen", ""]
    daemon = Daemon([sys.executable, "-c", program, "serve", *flags, "--verify-levels", "serializable"])
    daemon.wait_ready()
    yield address
    assert [line for line in daemon.end(signal.SIGTERM) if line.get("level") == "error"] == []


@pytest.fixture(params=["columns", "xmin"])
def made(request: pytest.FixtureRequest, database: Database, tmp_path: Path, address: str) -> Iterator[Recording]:
    tables = ("CREATE TABLE accounts (id int PRIMARY KEY, balance int)",)
    if request.param == "xmin":
        database.run(*tables)
    else:
        adopt(database, *tables)
    with recording(database, tmp_path / "spool", versions=request.param, verifier=address) as made:
        with made.connect() as connection:
            connection.execute("INSERT INTO accounts VALUES (1, 10), (2, 20)")
        yield made
    LyingCursor.lie = None


def until_known(made: Recording, address: str, txn_count: int) -> set[str]:
    """The verdicts of all rounds, when so many transactions have been verified."""
    made.finish()
    deadline = time.monotonic() + VERDICT_SECONDS_MAX
    rounds: list[Any] = []
    while time.monotonic() < deadline and sum(each.txn_count for each in rounds) < txn_count:
        time.sleep(0.1)
        rounds = list(client.verdicts(Target(address), wire.VerdictsRequest()).round)
    assert sum(each.txn_count for each in rounds) >= txn_count
    return {each.verdict for each in rounds}


def test_honest_answers_are_accepted(made: Recording, address: str) -> None:
    with connect(made) as connection:
        for _ in range(20):
            connection.execute(WRITE, (1,))
            connection.execute(READ, (2,))
            connection.commit()
    assert until_known(made, address, 21) == {"accepted"}


def test_a_row_that_is_stale_is_found(made: Recording, address: str) -> None:
    memory = LyingCursor.lie = Memory()
    with connect(made) as connection:
        for lies in (False, True):
            connection.execute(WRITE, (1,))
            connection.commit()
            memory.lies = lies
            connection.execute(READ, (1,))
            connection.commit()
    assert "rejected" in until_known(made, address, 5)
