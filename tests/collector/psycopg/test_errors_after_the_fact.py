"""A statement that ran, and raised nevertheless: what it wrote is there, so it must not count as never written."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.verifier.verdict import Accepted, Rejected
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import adopt, online, recording
from tests.collector.psycopg.test_exactness import explained


def refuses(cursor: Any) -> Any:
    raise ValueError("a row factory that raises")


@pytest.mark.parametrize("prepare", [None, 0])
@pytest.mark.parametrize("autocommit", [False, True])
def test_a_row_factory_that_raises_is_no_alarm(
    database: Database, tmp_path: Path, autocommit: bool, prepare: int | None
) -> None:
    adopt(database, "CREATE TABLE seats (id int PRIMARY KEY, guests int)", "INSERT INTO seats VALUES (1, 0)")
    with recording(database, tmp_path) as made:
        with made.connect(autocommit=autocommit) as connection, made.connect() as another:
            connection.prepare_threshold = prepare
            for _ in range(3):
                cursor = connection.cursor(row_factory=refuses)
                with pytest.raises(ValueError, match="a row factory that raises"):
                    cursor.execute("UPDATE seats SET guests = guests + 1 WHERE id = %s RETURNING guests", (1,))
                connection.commit()
            assert another.execute("SELECT guests FROM seats WHERE id = 1").fetchall() == [(3,)]
            another.execute("UPDATE seats SET guests = 9 WHERE id = 1")
            another.commit()
        for level in ("serializable", "strong-session-si"):
            verdict = made.verdict(level)
            assert not isinstance(verdict, Rejected), explained(verdict)
            assert "rejected" not in {outcome.verdict for outcome in online(tmp_path, level)}


def test_a_pipeline_that_cannot_commit_is_rolled_back(database: Database, tmp_path: Path) -> None:
    """Without BEGIN a pipeline commits where it syncs, which the server may refuse when all was answered."""
    adopt(
        database,
        "CREATE TABLE seats (id int PRIMARY KEY, guests int)",
        "INSERT INTO seats VALUES (1, 0), (2, 0)",
        f"ALTER DATABASE {database.name} SET default_transaction_isolation = serializable",
    )
    with recording(database, tmp_path) as made:
        connection = made.connect(autocommit=True)
        with made.connect() as another:
            another.execute("SELECT guests FROM seats WHERE id = 1").fetchall()
            another.execute("UPDATE seats SET guests = 5 WHERE id = 2")
            with suppress(psycopg.Error, IndexError), connection.pipeline() as pipeline:
                read = connection.execute("SELECT guests FROM seats WHERE id = 2")
                write = connection.execute("UPDATE seats SET guests = 6 WHERE id = 1")
                assert (read.fetchall(), write.rowcount) == ([(0,)], 1)
                another.commit()
                pipeline.sync()  # psycopg 3.3 expects no error here, and then takes each answer for another one
            connection.close()
            with made.connect() as third:
                assert third.execute("SELECT guests FROM seats ORDER BY id").fetchall() == [(0,), (5,)]
                third.execute("UPDATE seats SET guests = 7 WHERE id = 1")
        verdict = made.verdict()
        assert isinstance(verdict, Accepted), explained(verdict)
        assert {outcome.verdict for outcome in online(tmp_path, "serializable")} == {"accepted"}
