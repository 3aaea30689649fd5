"""One process, or several with one spool, and two databases: a recording is of one, and each is checked on its own."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text

from mussurana.collector import recorder as recorder_module
from mussurana.collector.__main__ import main
from mussurana.collector.database import forget_all
from mussurana.collector.kv import KeyValueRecorder
from mussurana.collector.psycopg_adapter import Connection
from mussurana.collector.recorder import close_all, recorder_for
from mussurana.collector.settings import Settings
from mussurana.collector.sqlite_adapter import connect as connect_sqlite
from mussurana.collector.which_database import RecordedDatabase
from mussurana.verifier import cli
from mussurana.verifier.formats import load, recordings
from mussurana.verifier.history import HistoryError
from tests.attack.collectors import real
from tests.collector.postgres import Database, create_database, drop_database
from tests.collector.psycopg.recording import NEWEST, adopt
from tests.daemon.watching import is_verified, until

TABLE = "CREATE TABLE users (id int PRIMARY KEY, n int); INSERT INTO users VALUES (1, 0)"
COUNT = "UPDATE users SET n = n + 1 WHERE id = 1"

PROGRAM = """
import sys
from mussurana.collector import connect
for _ in range(3):
    connection = connect(sys.argv[1], mussurana_spool=sys.argv[2])
    connection.execute("UPDATE users SET n = n + 1 WHERE id = 1")
    connection.commit()
    connection.close()
"""


@pytest.fixture
def other(database: Database) -> Iterator[Database]:
    made = create_database(database.server)
    yield made
    drop_database(made)


@pytest.fixture
def both(database: Database, other: Database) -> tuple[Database, Database]:
    """A row each, of the same name and with the same first version."""
    for each in (database, other):
        adopt(each, TABLE)
    return database, other


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "spool"
    close_all()
    forget_all()


def count_up(conninfo: str, settings: Settings) -> None:
    with Connection.connect(conninfo, mussurana=settings) as connection:
        for _ in range(3):
            connection.execute(COUNT)
            connection.commit()


def verdicts(spool: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, list[str]]:
    """The exit code of `check`, and the lines that say a verdict."""
    close_all()
    capsys.readouterr()
    code = cli.main(["check", str(spool), *flags])
    words = ("ACCEPTED", "REJECTED", "UNKNOWN")
    return code, [line for line in capsys.readouterr().out.splitlines() if line.startswith(words)]


def assert_each_is_accepted(
    spool: Path, databases: tuple[Database, Database], capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = verdicts(spool, capsys)
    assert code == 0
    assert sorted(line.split()[0] for line in said) == ["ACCEPTED", "ACCEPTED"]
    for each in databases:
        assert sum(f"/{each.name}: " in line for line in said) == 1


@NEWEST
def test_two_databases_of_one_process_are_checked_each_on_its_own(
    both: tuple[Database, Database], spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.load(spool=str(spool))
    for each in both:
        count_up(each.conninfo, settings)
    assert_each_is_accepted(spool, both, capsys)
    folders = {each.name.rpartition("/")[2]: each.folders for each in recordings(spool)}
    assert {name: len(found) for name, found in folders.items()} == {each.name: 1 for each in both}


@NEWEST
def test_two_engines_of_sqlalchemy_too(
    both: tuple[Database, Database], spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in both:
        engine = create_engine(each.url(), plugins=["mussurana"], mussurana_spool=str(spool))
        for _ in range(3):
            with engine.begin() as connection:
                connection.execute(text(COUNT))
        engine.dispose()
    assert_each_is_accepted(spool, both, capsys)


@NEWEST
def test_two_processes_that_share_a_spool_too(
    both: tuple[Database, Database], spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in (*both, both[0]):
        subprocess.run([sys.executable, "-c", PROGRAM, each.conninfo, str(spool)], check=True, timeout=60)
    assert_each_is_accepted(spool, both, capsys)
    assert sorted(len(each.folders) for each in recordings(spool)) == [1, 2]


@NEWEST
def test_a_forked_child_keeps_them_apart_as_well(
    both: tuple[Database, Database], spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        PROGRAM
        + """
from mussurana.collector.recorder import close_all
import os
if len(sys.argv) > 3:
    child = os.fork()
    sys.argv[1], sys.argv[3] = sys.argv[3], sys.argv[1]
    for url in (sys.argv[1], sys.argv[3]):
        connection = connect(url, mussurana_spool=sys.argv[2])
        connection.execute("UPDATE users SET n = n + 1 WHERE id = 1")
        connection.commit()
        connection.close()
    if not child:
        close_all()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    )
    first, second = both
    subprocess.run([sys.executable, "-c", program, first.conninfo, str(spool), second.conninfo], check=True, timeout=60)
    assert_each_is_accepted(spool, both, capsys)
    assert [len(each.folders) for each in recordings(spool)] == [2, 2]


@NEWEST
def test_what_is_wrong_in_one_of_them_is_found_and_said_of_it(
    both: tuple[Database, Database], spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.load(spool=str(spool))
    for each in both:
        count_up(each.conninfo, settings)
    wrong = both[1]
    with (
        Connection.connect(wrong.conninfo, mussurana=settings, autocommit=True) as connection,
        wrong.connect(autocommit=True) as unseen,
    ):
        connection.execute(COUNT)
        found = unseen.execute("SELECT mussurana_wid FROM users").fetchone()
        connection.execute(COUNT)
        unseen.execute("UPDATE users SET mussurana_wid = %s", found)  # the session sees again what it had replaced
        connection.execute("SELECT * FROM users WHERE id = 1").fetchall()
    code, said = verdicts(spool, capsys)
    assert code == 1
    assert {line.split()[0] for line in said if f"/{wrong.name}: " in line} == {"REJECTED"}
    assert {line.split()[0] for line in said if f"/{both[0].name}: " in line} == {"ACCEPTED"}
    assert cli.main(["check", str(spool), "--json"]) == 1
    found_json = json.loads(capsys.readouterr().out)
    assert found_json["verdict"] == "rejected"
    told = {each["database"]["name"].rpartition("/")[2]: each["verdict"] for each in found_json["databases"]}
    assert told == {both[0].name: "accepted", wrong.name: "rejected"}
    assert verdicts(spool, capsys, "--database", both[0].name)[0] == 0
    assert verdicts(spool, capsys, "--database", wrong.name)[0] == 1


@NEWEST
def test_whoever_needs_one_history_is_told_to_choose(
    both: tuple[Database, Database], spool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.load(spool=str(spool))
    for each in both:
        count_up(each.conninfo, settings)
    close_all()
    with pytest.raises(HistoryError, match="2 databases were recorded here"):
        load(spool)
    target = tmp_path / "history.mus"
    for command in (["convert", str(spool), str(target)], ["check", str(spool), "--report", str(tmp_path / "a.html")]):
        assert cli.main(command) == 3
        said = capsys.readouterr().err
        assert all(part in said for part in ("--database", *(each.name for each in both)))
    assert cli.main(["convert", str(spool), str(target), "--database", both[1].name]) == 0
    assert cli.main(["check", str(target)]) == 0
    assert cli.main(["check", str(spool), "--database", "nowhere"]) == 3
    assert "nothing was recorded of a database 'nowhere'" in capsys.readouterr().err


@NEWEST
def test_who_may_not_ask_for_the_server_gets_it_from_adopt(
    both: tuple[Database, Database], spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = both[0]
    count_up(database.conninfo, Settings.load(spool=str(spool)))
    close_all()
    (certain,) = [each.identity for each in recordings(spool)]
    database.run(
        "CREATE ROLE clerk LOGIN",
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        "GRANT SELECT, UPDATE ON users, mussurana_fence TO clerk",
    )
    try:
        with psycopg.connect(database.conninfo, user="clerk") as clerk, pytest.raises(psycopg.Error):
            clerk.execute("SELECT * FROM pg_control_system()")
        forget_all()
        settings = Settings.load(spool=str(spool))
        with Connection.connect(database.conninfo, user="clerk", mussurana=settings) as connection:
            connection.execute(COUNT)
        assert recorder_for(settings).database.identity == certain
        # Adopted by an earlier version, there is no such comment: then it is where the server was reached.
        close_all()
        database.run(
            "COMMENT ON COLUMN users.mussurana_wid IS NULL", "COMMENT ON COLUMN mussurana_fence.mussurana_wid IS NULL"
        )
        forget_all()
        with Connection.connect(database.conninfo, user="clerk", mussurana=settings) as connection:
            connection.execute(COUNT)
        place = recorder_for(settings).database.identity
        assert place.startswith("postgresql:@")
        assert place.rpartition("/")[2] == certain.rpartition("/")[2]
    finally:
        close_all()
        database.run("DROP OWNED BY clerk", "DROP ROLE clerk")
    code, said = verdicts(spool, capsys)
    assert (code, len(said)) == (0, 1)
    assert [each.identity for each in recordings(spool)] == [certain]  # which it is taken for, since it may be


def shop(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(TABLE)
    connection.close()
    assert main(["adopt", str(path)]) == 0
    return path


def count_up_in_file(path: Path, settings: Settings) -> RecordedDatabase:
    connection = connect_sqlite(path, mussurana=settings)
    for _ in range(3):
        connection.execute(COUNT)
        connection.commit()
    database: RecordedDatabase = connection._mussurana.recorder.database
    connection.close()
    return database


def test_files_of_sqlite_are_told_apart_also_from_their_copies(
    tmp_path: Path, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.load(spool=str(spool))
    first = shop(tmp_path / "first.db")
    copy = Path(shutil.copy(first, tmp_path / "copy.db"))
    link = tmp_path / "link.db"
    link.hardlink_to(first)
    found = [count_up_in_file(path, settings).identity for path in (first, copy, shop(tmp_path / "other.db"), link)]
    assert len(set(found)) == 3
    assert found[0] == found[3]
    code, said = verdicts(spool, capsys)
    assert (code, [line.split()[0] for line in said]) == (0, ["ACCEPTED"] * 3)


def test_a_file_without_a_number_is_told_by_its_place(tmp_path: Path, spool: Path) -> None:
    settings = Settings.load(spool=str(spool))
    found = []
    for path in (shop(tmp_path / "first.db"), shop(tmp_path / "other.db")):
        with sqlite3.connect(path) as plain:
            plain.execute("DELETE FROM mussurana_fence WHERE id = 2")  # as an earlier version left it
        found.append(count_up_in_file(path, settings).identity)
        assert main(["adopt", str(path)]) == 0
        number = count_up_in_file(path, settings).identity
        assert "@" not in number
        assert number.rpartition("/")[2] == found[-1].rpartition("/")[2]
    assert len(set(found)) == 2
    close_all()
    assert len(recordings(spool)) == 2


def test_databases_in_memory_are_one_each(spool: Path) -> None:
    settings = Settings.load(spool=str(spool))
    found = set()
    for _ in range(2):
        connection = connect_sqlite(":memory:", mussurana=settings)
        connection.executescript(
            "CREATE TABLE users (id int PRIMARY KEY, n int, mussurana_wid bigint, mussurana_prev_wid bigint)"
        )
        connection.execute("INSERT INTO users VALUES (1, 0, NULL, NULL)")
        connection.commit()
        connection.execute(COUNT)
        connection.commit()
        found.add(connection._mussurana.recorder.database.identity)
        connection.close()
    assert len(found) == 2


def test_key_value_stores_go_by_the_names_that_they_are_given(spool: Path) -> None:
    recorders = [
        KeyValueRecorder(Settings.load(spool=str(spool), database=name)) for name in ("redis/0", "redis/1", "redis/0")
    ]
    for each in recorders:
        session = each.session("worker")
        with session.transaction() as txn:
            txn.write("a")
        session.close()
    close_all()
    assert [(each.name, len(each.folders)) for each in recordings(spool)] == [("redis/0", 1), ("redis/1", 1)]


def test_beyond_a_number_of_databases_nothing_is_recorded_and_it_is_said_once(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "DATABASES_MAX", 2)
    settings = Settings.load(spool=str(spool))
    made = [recorder_for(settings, RecordedDatabase(f"key-value:/{n}", str(n))) for n in range(5)]
    assert [each.is_closed for each in made] == [False, False, True, True, True]
    for each in made:
        session = each.open_session("conn")
        session.end(session.begin(), 0)
        session.close()
    assert recorder_for(settings, RecordedDatabase("key-value:/1", "1")) is made[1]
    assert len([each for each in caplog.records if "does not record" in each.getMessage()]) == 1
    close_all()
    assert len(list(spool.glob("*-*"))) == 2


@NEWEST
def test_a_database_that_takes_the_place_of_another_begins_anew_also_while_caches_are_warm(
    both: tuple[Database, Database], spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy, whose tables have the same oids, under the same name and address, with what the first one had before."""
    database = both[0]
    settings = Settings.load(spool=str(spool))
    count_up(database.conninfo, settings)
    name, copy = database.name, f"{database.name}_copy"
    with psycopg.connect(database.server.conninfo(), autocommit=True) as administrator:
        administrator.execute(f"CREATE DATABASE {copy} TEMPLATE {name}".encode())
        count_up(database.conninfo, settings)
        administrator.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        administrator.execute(f"ALTER DATABASE {copy} RENAME TO {name}".encode())
    count_up(database.conninfo, settings)
    code, said = verdicts(spool, capsys)
    assert (code, len(said)) == (0, 2)
    recorded = {each.identity: each.read().txn_count for each in recordings(spool)}
    assert sorted(recorded.values()) == [3, 10]  # of the new one without fences, until it is adopted again


def said_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "the verifier takes nothing" in each]


def folder_of(spool: Path, number: int) -> Any:
    return recorder_for(Settings.load(spool=str(spool)), RecordedDatabase(f"key-value:/{number}", str(number)))


def test_what_nobody_takes_of_one_database_leaves_the_others_their_room(spool: Path) -> None:
    for number, size in ((0, 5_000_000), (1, 7)):
        recorder = folder_of(spool, number)
        recorder.start()
        (recorder.background.spool.folder / "00000001.seg").write_bytes(bytes(size))
    sizes = []
    for number in (0, 1):
        spooled = folder_of(spool, number).background.spool
        spooled.measure()
        sizes.append(spooled.size)
    assert sizes == [5_000_000, 7]


@NEWEST
def test_a_daemon_verifies_the_first_and_refuses_the_second_in_words(
    both: tuple[Database, Database], spool: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with real(tmp_path / "data", rounds_interval_seconds="0.05") as daemon:
        settings = Settings.load(spool=str(spool), verifier=daemon.address)
        count_up(both[0].conninfo, settings)
        first = recorder_for(settings)
        assert first.flush(30)
        with caplog.at_level(logging.WARNING, "mussurana"):
            count_up(both[1].conninfo, settings)
            until(lambda: any(both[1].name in each for each in daemon.service.troubles()), 30)
            until(lambda: said_of(caplog), 30)
            count_up(both[0].conninfo, settings)
            assert first.flush(30)
            time.sleep(2)  # it is asked again, and not said again
        assert len(said_of(caplog)) == 1
        assert both[0].name in said_of(caplog)[0]
        assert "run a second `mussurana serve`" in said_of(caplog)[0]
        assert 1 <= daemon.service.metrics.fragments_refused.labels("database")._value.get() < 20
        until(lambda: is_verified(daemon), 60)
        rounds = daemon.service.board.rounds()
        assert {each.verdict for each in rounds} == {"accepted"}
        assert sum(each.txn_count for each in rounds) >= 6
        assert both[0].name in daemon.service.query.status_now().database
