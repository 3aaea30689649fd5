"""A write that one process could not see makes reads of its table prove nothing, in all the others as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.state import restore, snapshot
from mussurana.verifier.verdict import Accepted
from mussurana.verifier.verdict import Settings as CheckSettings
from mussurana.wire.history_pb2 import Coverage, Fragment
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, adopt, online, recording
from tests.collector.psycopg.test_exactness import explained

ANOTHER = """
import sys
from mussurana.collector.psycopg_adapter import Connection
from mussurana.collector.recorder import recorder_for
from mussurana.collector.settings import Settings

settings = Settings.load(spool=sys.argv[2], database="test")
with Connection.connect(sys.argv[1], mussurana=settings) as connection:
    for text in sys.argv[3:]:
        connection.execute(text)
        connection.commit()
recorder_for(settings).close()
"""


@NEWEST
@pytest.mark.parametrize(
    "unseen",
    [
        (
            "TRUNCATE seats",
            "COPY (WITH new AS (INSERT INTO seats VALUES (1, 0) RETURNING id) TABLE new) TO '/dev/null'",
        ),
        ("WITH gone AS (DELETE FROM seats WHERE id = 1 RETURNING *) SELECT * FROM gone",),
        ("MERGE INTO seats USING (SELECT 1 AS x) s ON id = x WHEN MATCHED THEN DELETE",),
        ("COPY (DELETE FROM seats WHERE id = 1 RETURNING *) TO '/dev/null'",),
    ],
    ids=lambda texts: texts[0].split()[0],
)
def test_what_another_process_did_unseen_is_no_alarm(
    database: Database, tmp_path: Path, unseen: tuple[str, ...]
) -> None:
    adopt(database, "CREATE TABLE seats (id int PRIMARY KEY, guests int)", "INSERT INTO seats VALUES (1, 0)")
    with recording(database, tmp_path) as made:
        with made.connect() as connection:
            connection.execute("UPDATE seats SET guests = 1 WHERE id = 1")
            connection.commit()
            another = [sys.executable, "-c", ANOTHER, database.conninfo, str(tmp_path), *unseen]
            subprocess.run(another, check=True, timeout=60)
            for text in ("SELECT * FROM seats WHERE id = 1", "INSERT INTO seats VALUES (1, 5) ON CONFLICT DO NOTHING"):
                connection.execute(text)
                connection.commit()
            connection.execute("UPDATE seats SET guests = 6 WHERE id = 1")
        for level in ("serializable", "strong-session-si"):
            verdict = made.verdict(level)
            assert isinstance(verdict, Accepted), explained(verdict)
            assert {outcome.verdict for outcome in online(tmp_path, level)} == {"accepted"}


def test_a_verifier_knows_after_a_restart_which_tables_are_tainted() -> None:
    levels = [CheckSettings("serializable")]
    machine = Verifier(levels)
    seen = Coverage(table="seats", shape="COPY FROM", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
    machine.feed(b"collector", Fragment(sequence=1, coverage=[seen]), 1)
    restored = restore(levels, None, snapshot(machine)())
    assert [taint.table for taint in restored.taints.by_place()] == ["seats"]
