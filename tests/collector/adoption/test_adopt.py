"""Adopting a database and taking it back: complete, repeatable, and clear about what it leaves out."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import psycopg
import pytest

from mussurana.collector import adopt_command
from mussurana.collector.__main__ import main
from mussurana.verifier import cli
from mussurana.wire import EPOCH_BITS, era_of
from tests.collector.postgres import Database

NEWEST = pytest.mark.parametrize("postgres", [18], indirect=True)

SHOP = (
    "CREATE TABLE orders (id int PRIMARY KEY, total int)",
    'CREATE TABLE "Order Lines" (id uuid PRIMARY KEY, "order" int REFERENCES orders)',
    "CREATE TABLE payments (id int PRIMARY KEY, order_id int REFERENCES orders ON DELETE CASCADE)",
    "CREATE TABLE visits (at timestamptz)",
)


def columns(database: Database, table: str) -> list[str]:
    with database.connect() as connection:
        found = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum",
            (table,),
        )
        return [name for (name,) in found.fetchall()]


def hidden(database: Database) -> list[str]:
    return ["mussurana_wid"] if database.major >= 18 else ["mussurana_wid", "mussurana_prev_wid"]


def test_it_adds_what_the_version_needs_and_says_what_it_leaves_out(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.run(*SHOP)
    assert main(["adopt", database.url()]) == 0
    printed = capsys.readouterr().out
    assert f"PostgreSQL {database.major}" in printed
    assert "--   visits: it has no primary key" in printed
    assert "--   payments: foreign key payments_order_id_fkey: ON DELETE CASCADE from orders" in printed
    assert columns(database, "orders") == ["id", "total", *hidden(database)]
    assert columns(database, '"Order Lines"') == ["id", "order", *hidden(database)]
    assert columns(database, "payments") == ["id", "order_id"]
    with database.connect() as connection:
        fence = connection.execute("SELECT id, epoch, mussurana_wid FROM mussurana_fence")
        ((number, epoch, version),) = fence.fetchall()
    assert (number, version) == (1, None)
    assert is_of_now(epoch)


def is_of_now(epoch: int) -> bool:
    """Whether nobody has fenced yet, and the row is known to be made just now, from one that was there before."""
    return epoch % (1 << EPOCH_BITS) == 0 and abs(era_of(epoch) - (time.time() - 1577836800)) < 60


def test_adopting_again_does_nothing_and_keeps_the_fence(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.run(*SHOP)
    assert main(["adopt", database.url()]) == 0
    database.run("UPDATE mussurana_fence SET epoch = 7")
    capsys.readouterr()
    assert main(["adopt", database.url()]) == 0
    assert "nothing to do" in capsys.readouterr().out
    database.run("CREATE TABLE new (id int PRIMARY KEY)")
    assert main(["adopt", database.url()]) == 0
    printed = capsys.readouterr().out
    assert printed.count("ALTER TABLE") == 1
    assert 'ALTER TABLE "public"."new"' in printed
    with database.connect() as connection:
        assert connection.execute("SELECT epoch FROM mussurana_fence").fetchall() == [(7,)]


def test_what_a_dry_run_prints_is_the_migration(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.run(*SHOP)
    assert main(["adopt", database.url(), "--dry-run"]) == 0
    script = capsys.readouterr().out
    assert columns(database, "orders") == ["id", "total"]
    database.run(script)
    assert columns(database, "orders") == ["id", "total", *hidden(database)]
    assert main(["adopt", database.url()]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_unadopt_leaves_the_database_as_it_was(database: Database) -> None:
    database.run(*SHOP)
    assert main(["adopt", database.url()]) == 0
    database.run(f"INSERT INTO orders VALUES (1, 2, {', '.join('3' for _ in hidden(database))})")
    assert main(["unadopt", database.url(), "--force"]) == 0
    assert columns(database, "orders") == ["id", "total"]
    with database.connect() as connection:
        assert connection.execute("SELECT * FROM orders").fetchall() == [(1, 2)]
        assert connection.execute("SELECT to_regclass('mussurana_fence')").fetchall() == [(None,)]
    assert main(["unadopt", database.url()]) == 0, "there is nothing left to take back"


@NEWEST
def test_only_some_tables(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.run(*SHOP)
    assert main(["adopt", database.url(), "--tables", "orders", "public.payments"]) == 0
    assert "nothing of it will be recorded: foreign key" in capsys.readouterr().out, "it was asked for, so it is done"
    assert columns(database, "payments") == ["id", "order_id", "mussurana_wid"]
    assert columns(database, '"Order Lines"') == ["id", "order"]
    assert main(["unadopt", database.url(), "--tables", "payments", "--force"]) == 0
    assert columns(database, "payments") == ["id", "order_id"]
    assert columns(database, "mussurana_fence") == ["id", "epoch", "mussurana_wid"]


@NEWEST
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["adopt", "{url}", "--tables", "nothing"], "there is no table nothing"),
        (["adopt", "{url}", "--tables", "visits"], "visits: a table needs a primary key"),
        (["unadopt", "{url}", "--tables", "orders"], "orders: not adopted"),
        (["adopt", "mysql://host/db"], "write postgresql://... or sqlite:///file"),
        (["adopt", "postgresql://nobody@127.0.0.1:1/x"], "cannot connect"),
        (["adopt", "sqlite:///nowhere.db"], "an absolute path takes four slashes"),
        (["adopt", "{url}", "--alembic", "/nowhere"], "the folder that holds env.py"),
    ],
)
def test_errors_say_what_to_do(
    database: Database, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    database.run(*SHOP)
    assert main([part.replace("{url}", database.url()) for part in arguments]) == 3
    assert message in capsys.readouterr().err


@NEWEST
def test_it_gives_way_to_a_transaction_that_holds_the_table(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt_command, "LOCK_SECONDS_MAX", 1)
    database.run(*SHOP)
    holder = database.connect()
    holder.execute("SELECT * FROM orders")
    threading.Timer(1.5, holder.commit).start()
    assert main(["adopt", database.url()]) == 0
    assert "-- busy" in capsys.readouterr().out
    assert columns(database, "orders") == ["id", "total", "mussurana_wid"]
    holder.close()


@NEWEST
def test_unadopt_refuses_while_somebody_is_recording(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt_command, "WATCH_SECONDS", 0.5)
    database.run(*SHOP)
    assert main(["adopt", database.url()]) == 0
    stop = threading.Event()

    def fence() -> None:
        with psycopg.connect(database.conninfo, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute("UPDATE mussurana_fence SET epoch = epoch + 1")
                time.sleep(0.05)

    thread = threading.Thread(target=fence)
    thread.start()
    try:
        assert main(["unadopt", database.url()]) == 3
    finally:
        stop.set()
        thread.join()
    assert "an application is recording right now" in capsys.readouterr().err
    assert main(["unadopt", database.url()]) == 0


@NEWEST
def test_partitions_get_their_columns_with_the_whole(database: Database) -> None:
    database.run(
        "CREATE TABLE events (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (2)",
    )
    assert main(["adopt", database.url()]) == 0
    assert columns(database, "events_1") == ["id", "mussurana_wid"]
    assert main(["unadopt", database.url(), "--force"]) == 0
    assert columns(database, "events_1") == ["id"]


@NEWEST
def test_those_who_could_use_the_tables_still_can(database: Database) -> None:
    reader, clerk = f"reader_of_{database.name}", f'"Clerk of {database.name}"'
    database.run(
        *SHOP,
        f"CREATE ROLE {reader}",
        f"CREATE ROLE {clerk}",
        f"GRANT SELECT ON orders TO {reader}",
        f"GRANT UPDATE (total) ON orders TO {clerk}",
    )
    assert main(["adopt", database.url()]) == 0
    with database.connect() as connection:
        connection.execute(f"SET ROLE {reader}".encode())
        connection.execute("UPDATE mussurana_fence SET epoch = epoch + 1 RETURNING mussurana_wid")
        connection.execute(f"SET ROLE {clerk}".encode())
        connection.execute("UPDATE orders SET total = 1, mussurana_wid = 2 RETURNING mussurana_wid")
    database.run(f"DROP OWNED BY {reader}, {clerk}", f"DROP ROLE {reader}", f"DROP ROLE {clerk}")


def test_sqlite_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY, total int); CREATE TABLE visits (at)")

    def schema() -> list[tuple[str]]:
        return connection.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()

    before = schema()
    assert main(["adopt", f"sqlite:///{path}", "--dry-run"]) == 0
    assert schema() == before
    assert main(["adopt", f"sqlite+aiosqlite:///{path}?plugin=mussurana"]) == 0
    assert "visits: it has no primary key" in capsys.readouterr().out
    assert connection.execute("SELECT mussurana_wid, mussurana_prev_wid FROM orders").fetchall() == []
    ((number, epoch, version),) = connection.execute("SELECT * FROM mussurana_fence").fetchall()
    assert (number, version) == (1, None)
    assert is_of_now(epoch)
    assert main(["adopt", str(path)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["unadopt", str(path), "--force"]) == 0
    assert schema() == before


def test_the_verifiers_command_line_has_the_same_commands(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "a.db").executescript("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    assert cli.main(["adopt", str(tmp_path / "a.db")]) == 0
    assert cli.main(["unadopt", str(tmp_path / "a.db"), "--force"]) == 0


def test_a_new_era_is_a_later_one_even_in_the_same_second(database: Database, tmp_path: Path) -> None:
    """As when a dump is restored at once: two fence rows of one era would be taken for one."""
    database.run(*SHOP)
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    made.close()

    def eras() -> tuple[int, int]:
        with database.connect() as connection, sqlite3.connect(path) as other:
            server, file = (one.execute("SELECT epoch FROM mussurana_fence").fetchone() for one in (connection, other))
        other.close()
        assert server is not None
        assert file is not None
        return era_of(server[0]), era_of(file[0])

    found = []
    for more in ([], ["--anew"], ["--anew"]):
        for url in (database.url(), f"sqlite:///{path}"):
            assert main(["adopt", url, *more]) == 0
        found.append(eras())
    for first, second, third in zip(*found, strict=True):
        assert first < second < third
