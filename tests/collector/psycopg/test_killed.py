"""A process that is killed has with `journal=commit` lost nothing that was committed, nor the names of it."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import psycopg
import pytest

from mussurana.collector.abandoned import complete
from mussurana.collector.recorder import COMMITTED
from mussurana.collector.spool import folders
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, adopt, recording
from tests.collector.recording.observed import column, fragments

READ = 0
START_SECONDS_MAX = 20.0


def commit_for_ever(database: Database, spool: Path, told: int) -> None:
    """Two inserts, then a transaction that only reads; says each that was committed."""
    with recording(database, spool, journal="commit") as made, made.connect() as connection:
        for number in range(1_000_000):
            for part in (2 * number, 2 * number + 1):
                connection.execute("INSERT INTO items VALUES (%s, %s)", (part, "x"))
            connection.commit()
            os.write(told, b"w")
            connection.execute("SELECT name FROM items WHERE id = %s", (2 * number,))
            connection.commit()
            os.write(told, b"r")


@NEWEST
@pytest.mark.parametrize("seconds", [0.03, 0.11, 0.3, 0.47])
def test_nothing_that_was_committed_is_lost(database: Database, tmp_path: Path, seconds: float) -> None:
    adopt(database, "CREATE TABLE items (id int PRIMARY KEY, name text)")
    hears, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            commit_for_ever(database, tmp_path, told)
        finally:
            os._exit(1)
    os.close(told)
    assert select.select([hears], [], [], START_SECONDS_MAX)[0]
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = b""
    while part := os.read(hears, 1 << 16):
        said += part
    os.close(hears)
    (folder,) = folders(tmp_path)
    complete(folder)
    found = fragments(tmp_path)
    with psycopg.connect(database.conninfo) as connection:
        rows: dict[str, int] = dict(connection.execute("SELECT 'items/' || id, mussurana_wid FROM items").fetchall())
    names = {told.key: told.name for fragment in found for told in fragment.key_name}
    written: dict[str, int] = {}
    reads = 0
    for fragment in found:
        kinds, keys, versions = fragment.op_kind, column(fragment.op_key, 8), column(fragment.op_version, 8)
        at = 0
        for count, status in zip(column(fragment.txn_op_count, 4), fragment.txn_status, strict=True):
            named = [names.get(key, "fence") for key in keys[at : at + count]]
            if all(kind == READ for kind in kinds[at : at + count]):
                reads += status == COMMITTED and named != ["fence"]
            else:
                for name, version in zip(named, versions[at : at + count], strict=True):
                    if name != "fence":
                        assert written.setdefault(name, version) == version
                        assert rows.get(name, version) == version
            at += count
    assert rows.keys() <= written.keys()
    assert len(rows) >= 2 * said.count(b"w") > 0
    assert said.count(b"r") <= reads <= said.count(b"r") + 1
