"""What the application sees with the collector is what it would have seen without."""

from __future__ import annotations

from pathlib import Path

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
                with other.connect() as connection:
                    plain = Script(connection, seed, steps, taints=seed % 4 == 3).run()
                with made.connect() as connection:
                    watched = Script(connection, seed, steps, taints=seed % 4 == 3).run()
                for index, (expected, found) in enumerate(zip(plain, watched, strict=False)):
                    assert found == expected, f"seed {seed}, after {plain[max(0, index - 4) : index]}"
                assert len(plain) == len(watched)
            assert made.failures == 0
    finally:
        drop_database(other)


@NEWEST
def test_random_scripts_see_the_same(database: Database, tmp_path: Path) -> None:
    compare(database, tmp_path, range(60), 60)
