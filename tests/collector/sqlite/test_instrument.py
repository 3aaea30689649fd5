"""instrument() and uninstrument(): everything is recorded in between, and nothing is left behind after."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import psycopg
import pytest

from mussurana.collector.__main__ import main
from mussurana.collector.instrument import connect, instrument, uninstrument
from mussurana.collector.recorder import recorder_for
from mussurana.collector.settings import Settings
from mussurana.verifier.formats.spool import read
from tests.collector.postgres import Database


def names() -> dict[str, object]:
    """All that instrument may touch."""
    return {
        **{name: value for name, value in vars(psycopg).items() if not name.startswith("__")},
        "sqlite3.connect": sqlite3.connect,
        "dbapi2.connect": sqlite3.dbapi2.connect,
        "Connection.connect": vars(psycopg.Connection)["connect"],
        "AsyncConnection.connect": vars(psycopg.AsyncConnection)["connect"],
    }


@pytest.mark.parametrize("postgres", [18], indirect=True)
def test_it_records_and_leaves_no_trace(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert main(["adopt", database.url()]) == 0
    path = tmp_path / "file.db"
    plain = sqlite3.connect(path)
    plain.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    plain.close()
    assert main(["adopt", f"sqlite:///{path}"]) == 0
    before, threads = names(), threading.active_count()
    settings = Settings.load(spool=str(tmp_path / "spool"), database="test")
    instrument(settings)
    instrument(settings)
    try:
        left_open = psycopg.connect(database.conninfo)
        left_open.execute("INSERT INTO t VALUES (1)")
        left_open.commit()
        with sqlite3.connect(path) as connection:
            connection.execute("INSERT INTO t VALUES (2)")
        assert psycopg.ClientCursor(left_open).execute("SELECT * FROM t").fetchall() == [(1,)]
        left_open.commit()
        assert (left_open.cursor_factory, left_open.server_cursor_factory) == (psycopg.Cursor, psycopg.ServerCursor)
        assert recorder_for(settings).flush(10)
    finally:
        uninstrument()
    assert names() == before
    assert threading.active_count() == threads
    assert type(left_open) is psycopg.Connection
    assert (left_open.cursor_factory, left_open.server_cursor_factory) == (psycopg.Cursor, psycopg.ServerCursor)
    assert left_open.execute("SELECT id FROM t").fetchall() == [(1,)]
    left_open.close()
    history = read(tmp_path / "spool")
    assert {"t/1", "t/2"} <= set(history.key_names)


def test_connect_takes_settings_by_their_names(tmp_path: Path) -> None:
    connection = connect(f"sqlite:///{tmp_path}/new.db", mussurana_spool=str(tmp_path / "spool"))
    assert isinstance(connection, sqlite3.Connection)
    assert connection.execute("SELECT 1").fetchall() == [(1,)]
    connection.close()
    uninstrument()
