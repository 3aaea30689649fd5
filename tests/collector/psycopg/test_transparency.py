"""What the application sees with the collector is what it would have seen without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg._queries import PostgresQuery

from mussurana.collector import psycopg_lane
from mussurana.collector.database import forget_all
from tests.collector.postgres import Database, create_database, drop_database
from tests.collector.psycopg.recording import NEWEST, adopt, recording
from tests.collector.psycopg.script import FILLED, TABLES, Script


def compare(database: Database, spool: Path, seeds: range, steps: int) -> None:
    other = create_database(database.server)
    other.run(*TABLES, *FILLED)
    adopt(database, *TABLES, *FILLED)
    try:
        with recording(database, spool) as made:
            for seed in seeds:
                forget_all()  # what a seed tainted
                plain = Script(other.connect(), seed, steps, taints=seed % 4 == 3).run()
                watched = Script(made.connect(), seed, steps, taints=seed % 4 == 3).run()
                for index, (expected, found) in enumerate(zip(plain, watched, strict=False)):
                    assert found == expected, f"seed {seed}, after {plain[max(0, index - 4) : index]}"
                assert len(plain) == len(watched)
            assert made.failures == 0
    finally:
        drop_database(other)


@NEWEST
def test_random_scripts_see_the_same(database: Database, tmp_path: Path) -> None:
    compare(database, tmp_path, range(40), 60)


def test_the_pinned_psycopg_is_one_whose_ways_are_known() -> None:
    assert psycopg_lane.is_open(), f"psycopg has changed what is repeated here; its digest is {psycopg_lane.digest()}"


@NEWEST
def test_most_statements_take_the_short_way(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, sent = psycopg_lane._send, []

    def send(*arguments: Any) -> Any:
        sent.append(original(*arguments))
        return sent[-1]

    monkeypatch.setattr(psycopg_lane, "_send", send)
    adopt(database, *TABLES, *FILLED)
    with recording(database, tmp_path) as made, made.connect() as connection:
        for number in range(20):
            assert connection.execute("SELECT balance FROM accounts WHERE id = %s", (3,)).fetchall() == [(30 + number,)]
            connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id = %s", (3,))
            connection.commit()
    assert sum(each is not None for each in sent) >= 28  # psycopg prepares what it is asked for the sixth time


@pytest.mark.parametrize("change", ["_query_cls", "_check_results", "_execute_gen"])
def test_cursors_that_do_it_in_their_own_way_go_on_doing_so(change: str) -> None:
    class Own(psycopg.Cursor[Any]):
        pass

    class OwnQuery(PostgresQuery):
        pass

    def own(self: Any, *arguments: Any, **options: Any) -> Any:
        return getattr(psycopg.Cursor, change)(self, *arguments, **options)

    setattr(Own, change, OwnQuery if change == "_query_cls" else own)
    assert psycopg_lane.fits(psycopg.Cursor)
    assert not psycopg_lane.fits(Own)
