"""instrument() and uninstrument(): everything is recorded in between, and nothing is left behind after."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from mussurana.collector.__main__ import main
from mussurana.collector.instrument import connect, instrument, uninstrument
from mussurana.collector.psycopg_adapter import Connection
from mussurana.collector.recorder import recorder_for
from mussurana.collector.settings import Settings
from mussurana.verifier.formats import recordings
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST


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
    found = {each.identity.partition(":")[0]: each.read() for each in recordings(tmp_path / "spool")}
    assert "t/1" in found["postgresql"].key_names
    assert "t/2" in found["sqlite"].key_names


def spool_of(connection: Any) -> str:
    return str(connection._mussurana.recorder.settings.spool)


def test_connect_takes_settings_by_their_names(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    for connection in (
        connect(url, mussurana_spool=str(tmp_path / "the spool")),
        connect(f"{url}?mussurana_spool={tmp_path}/the%20spool"),
    ):
        assert isinstance(connection, sqlite3.Connection)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        assert spool_of(connection) == str(tmp_path / "the spool")
        connection.close()
    assert [path.name for path in tmp_path.glob("*.db*")] == ["new.db"]
    uninstrument()


def test_instrument_takes_settings_by_the_same_names(tmp_path: Path) -> None:
    instrument(mussurana_spool=str(tmp_path / "spool"))
    try:
        connection = sqlite3.connect(tmp_path / "new.db")
        assert spool_of(connection) == str(tmp_path / "spool")
        connection.close()
    finally:
        uninstrument()


@NEWEST
def test_settings_in_a_url_do_not_reach_the_driver(database: Database, tmp_path: Path) -> None:
    url = f"{database.url('postgresql')}&mussurana_spool={quote(str(tmp_path / 'the spool'))}"
    for connect_to in (connect, Connection.connect):
        with connect_to(url) as connection:
            assert spool_of(connection) == str(tmp_path / "the spool")
    uninstrument()
