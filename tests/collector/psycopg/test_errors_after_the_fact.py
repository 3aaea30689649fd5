"""A statement that ran, and raised nevertheless: what it wrote is there, so it must not count as never written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.verdict import Rejected
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
