"""sqlite3 with the collector: the application sees the same, and what it did is recorded."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mussurana.collector.__main__ import main
from mussurana.collector.database import forget_all
from mussurana.collector.recorder import recorder_for
from mussurana.collector.settings import Settings
from mussurana.collector.sqlite_adapter import connect
from mussurana.verifier.engine.check import check
from mussurana.verifier.formats.spool import read
from mussurana.verifier.history import History, Isolation
from mussurana.verifier.verdict import Accepted, Rejected
from mussurana.verifier.verdict import Settings as CheckSettings
from mussurana.wire import EPOCH_BITS, history_pb2
from tests.collector.recording.observed import fragments

TABLES = """
CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance INT NOT NULL DEFAULT 0);
CREATE TABLE orders (a INT, b TEXT, qty INT, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE notes (text TEXT);
INSERT INTO accounts VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30);
INSERT INTO orders VALUES (1, 'x', 5);
"""


class Recording:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "recorded.db"
        self.spool = folder / "spool"
        with sqlite3.connect(self.path) as plain:
            plain.executescript(TABLES)
        plain.close()
        assert main(["adopt", f"sqlite:///{self.path}"]) == 0
        self.settings = Settings.load(spool=str(self.spool), database="test", fence_interval_seconds=0.05)
        self.recorder = recorder_for(self.settings)

    def connect(self, **options: Any) -> Any:
        return connect(self.path, mussurana=self.settings, **options)

    def history(self) -> History:
        assert self.recorder.flush(10)
        self.recorder.close()
        return read(self.spool)

    def transactions(self) -> list[tuple[str, list[str]]]:
        history = self.history()
        found = []
        for txn in range(history.txn_count):
            first, last = int(history.op_start[txn]), int(history.op_start[txn + 1])
            own = [
                f"{'rw'[int(history.kind[op])]} {history.key_names[int(history.key[op])]}" for op in range(first, last)
            ]
            if own and "fence" not in own[0]:
                found.append((("committed", "aborted", "in doubt")[int(history.status[txn])], own))
        return found


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path)
    yield made
    failures = made.recorder.metrics.hook_failures + made.recorder.metrics.extraction_failures
    made.recorder.close()
    forget_all()
    assert failures == 0


STATEMENTS: list[tuple[str, Any]] = [
    ("SELECT * FROM accounts WHERE id = ?", (1,)),
    ("SELECT owner, balance AS b FROM accounts WHERE id = :id", {"id": 2}),
    ("SELECT a.owner, o.* FROM accounts a LEFT JOIN orders o ON o.a = a.id ORDER BY a.id", ()),
    ("SELECT count(*) FROM accounts", ()),
    ("SELECT DISTINCT * FROM orders", ()),
    ("SELECT * FROM notes", ()),
    ("SELECT 1 WHERE 0", ()),
    ("INSERT INTO accounts (owner) VALUES (?)", ("new",)),
    ("INSERT INTO accounts VALUES (NULL, ?2, ?1)", (5, "numbered")),
    ("INSERT INTO accounts (id, owner) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET owner = excluded.owner", ()),
    ("INSERT INTO accounts (owner) VALUES (?), (?) RETURNING id, owner", ("p", "q")),
    ("INSERT INTO orders SELECT id + 100, 'y', balance FROM accounts WHERE id = ?", (1,)),
    ("INSERT INTO accounts (id) VALUES (1)", ()),
    ("INSERT INTO notes VALUES (?)", ("n",)),
    ("UPDATE accounts SET balance = balance + ? WHERE id = ?", (1, 1)),
    ("UPDATE accounts AS t SET balance = 7 WHERE t.id IN (1, 2) RETURNING *", ()),
    ("UPDATE accounts SET balance = NULL WHERE id = 1", ()),
    ("DELETE FROM accounts WHERE id = ?", (3,)),
    ("DELETE FROM orders WHERE a > 100 RETURNING qty", ()),
    ("SELECT nonsense FROM accounts", ()),
    ("SELECT owner FROM accounts WHERE id = ?", ()),
    ("UPDATE accounts SET balance = 1", (1,)),
    ("BEGIN", ()),
    ("COMMIT", ()),
    ("ROLLBACK", ()),
    ("SAVEPOINT s", ()),
    ("ROLLBACK TO s", ()),
    ("RELEASE s", ()),
]


def script(connection: Any, seed: int) -> list[Any]:
    """Random statements, and all that can be seen of them."""
    rng = random.Random(seed)
    log: list[Any] = []
    connection.execute("PRAGMA synchronous = OFF")  # nobody will miss this file
    connection.row_factory = rng.choice([None, None, sqlite3.Row, lambda cursor, row: [cursor.description and 1, *row]])
    for _ in range(60):
        text, params = rng.choice(STATEMENTS)
        how, fetch = rng.random(), rng.random()
        log.append((text, params))
        cursor = connection.cursor()
        try:
            if how < 0.7:
                cursor.execute(text, params)
            elif how < 0.8:
                cursor = connection.execute(text, params)
            elif how < 0.9:
                many = [(rng.randrange(5), rng.randrange(5)) for _ in range(3)]
                cursor.executemany("UPDATE accounts SET balance = balance + ? WHERE id = ?", many)
            elif how < 0.95:
                connection.commit()
            else:
                connection.rollback()
            log.append((cursor.description, cursor.rowcount, cursor.lastrowid))
            rows = cursor.fetchone() if fetch < 0.3 else cursor.fetchall() if fetch < 0.8 else list(cursor)
            if connection.row_factory is sqlite3.Row:
                rows = [(row.keys(), tuple(row)) for row in ([rows] if isinstance(rows, sqlite3.Row) else rows or [])]
            log.append((rows, cursor.rowcount))
        except sqlite3.Error as error:
            log.append((type(error).__name__, str(error)))
        log.append(connection.in_transaction)
    connection.close()
    return log


@pytest.mark.parametrize("isolation_level", ["", None, "IMMEDIATE"])
def test_random_scripts_see_the_same(made: Recording, tmp_path: Path, isolation_level: Any) -> None:
    other = tmp_path / "plain.db"
    plain = sqlite3.connect(other)
    plain.executescript(TABLES)
    plain.close()
    for seed in range(20):
        expected = script(sqlite3.connect(other, isolation_level=isolation_level), seed)
        found = script(made.connect(isolation_level=isolation_level), seed)
        for index, (one, another) in enumerate(zip(expected, found, strict=True)):
            assert another == one, f"seed {seed}, after {expected[max(0, index - 3) : index]}"


def test_transactions_are_what_they_were(made: Recording) -> None:
    connection = made.connect()
    connection.execute("SELECT owner FROM accounts WHERE id = 1").fetchall()
    connection.execute("UPDATE accounts SET balance = 0 WHERE id = 2")
    connection.execute("SELECT owner FROM accounts WHERE id = 2").fetchall()
    connection.commit()
    connection.execute("DELETE FROM accounts WHERE id = 3")
    connection.rollback()
    with connection:
        connection.executemany("INSERT INTO orders VALUES (?, 'z', 1)", [(7,), (8,)])
    with pytest.raises(sqlite3.IntegrityError), connection:
        connection.execute("INSERT INTO accounts (id) VALUES (1)")
    connection.execute("SELECT owner FROM accounts WHERE id = 99").fetchall()
    connection.close()
    assert made.transactions() == [
        ("committed", ["r accounts/1"]),
        ("committed", ["w accounts/2", "r accounts/2"]),
        ("aborted", ["w accounts/3"]),
        ("committed", ["w orders/7,'z'", "w orders/8,'z'"]),
        ("committed", ["r accounts/99"]),
    ]


def test_concurrent_connections_are_serializable(made: Recording) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = random.Random(seed)
            connection = made.connect(isolation_level="IMMEDIATE", timeout=30)
            for _ in range(15):
                with connection:
                    connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id = ?", (rng.randrange(1, 4),))
                    connection.execute("SELECT balance FROM accounts WHERE id = ?", (rng.randrange(1, 4),)).fetchall()
            connection.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert isinstance(check(made.history(), CheckSettings("serializable")).verdict, Accepted)


def test_a_snapshot_is_as_old_as_the_first_statement_not_as_begin(made: Recording) -> None:
    """BEGIN takes none, and what others commit then is seen: that inverts nothing. Nor does a statement that failed."""
    with sqlite3.connect(made.path) as plain:
        plain.execute("PRAGMA journal_mode = DELETE")
    plain.close()
    reader, writer = (made.connect(isolation_level=None, timeout=0) for _ in range(2))
    query = "SELECT balance FROM accounts WHERE id = 1"
    assert reader.execute(query).fetchall() == [(10,)]
    reader.execute("BEGIN")
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        reader.execute(query).fetchall()
    time.sleep(0.25)
    writer.execute("UPDATE accounts SET balance = 11 WHERE id = 1")
    writer.execute("COMMIT")
    time.sleep(0.25)
    assert reader.execute(query).fetchall() == [(11,)]
    reader.execute("COMMIT")
    reader.close()
    writer.close()
    history = made.history()
    for level in ("generalized-si", "strong-session-si", "strong-si"):
        assert isinstance(check(history, CheckSettings(level)).verdict, Accepted), level


def test_a_file_that_was_put_back_is_found_out(made: Recording) -> None:
    connection = made.connect()
    connection.execute("UPDATE accounts SET balance = 1 WHERE id = 1")
    connection.commit()
    kept = made.path.read_bytes()
    connection.execute("UPDATE accounts SET balance = 2 WHERE id = 1")
    connection.commit()
    connection.close()
    made.path.write_bytes(kept)
    connection = made.connect()
    connection.execute("UPDATE accounts SET balance = 3 WHERE id = 1")
    connection.commit()
    connection.close()
    assert isinstance(check(made.history(), CheckSettings("serializable")).verdict, Rejected)


def test_a_statement_that_is_refused_with_our_columns_runs_without_them(made: Recording) -> None:
    update = "UPDATE accounts SET balance = balance + 1 WHERE id = ?"
    connection = made.connect()
    connection.execute(update, (1,))
    connection.commit()
    with sqlite3.connect(made.path) as plain:
        plain.execute("ALTER TABLE accounts DROP COLUMN mussurana_prev_wid")
    plain.close()
    connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (7, 'y', 1)")
    made_by_another = connection.execute("SELECT balance FROM accounts WHERE id = 1").fetchall()
    assert made_by_another == [(11,)]
    connection.execute(update, (1,))
    connection.commit()
    for _ in range(2):
        connection.execute(update, (1,))
    connection.commit()
    assert connection.execute("SELECT * FROM accounts WHERE id = 1").fetchall() == [(1, "one", 14)]
    connection.close()
    assert isinstance(check(made.history(), CheckSettings("serializable")).verdict, Accepted)


def test_an_error_of_the_application_is_its_own(made: Recording) -> None:
    connection = made.connect()
    with pytest.raises(sqlite3.OperationalError, match=r"^no such column: missing$"):
        connection.execute("SELECT missing FROM accounts")
    connection.execute("UPDATE accounts SET balance = 0 WHERE id = 1")
    connection.commit()
    connection.close()
    assert ("committed", ["w accounts/1"]) in made.transactions()


@pytest.mark.parametrize("isolation_level", ["", None])
def test_of_many_rows_those_that_are_fetched_in_time_are_recorded(made: Recording, isolation_level: Any) -> None:
    connection = made.connect(isolation_level=isolation_level)
    connection.executemany("INSERT INTO accounts VALUES (?, NULL, 0)", [(n,) for n in range(10, 2510)])
    connection.commit()
    if isolation_level is not None:
        connection.execute("UPDATE accounts SET balance = 1 WHERE id = 1")  # so that a transaction is open
    assert len(connection.execute("SELECT id FROM accounts").fetchall()) == 2503
    connection.commit()
    rows = made.recorder.coverage.rows()
    connection.close()
    history = made.history()
    reads = int((history.kind == 0).sum())
    assert reads >= (2503 if isolation_level is not None else 1000)
    assert [(row.table, row.shape, row.statement_count) for row in rows if "many rows" in row.shape] == [
        ("accounts", "SELECT of many rows", 1)
    ]
    assert isinstance(check(history, CheckSettings("serializable")).verdict, Accepted)


def fences(made: Recording) -> list[str]:
    """The fences of all sessions in the order in which they were recorded, by kind and epoch."""
    assert made.recorder.flush(10)
    made.recorder.close()
    return [
        f"{'rw'[kind != history_pb2.READ]}{epoch & (1 << EPOCH_BITS) - 1}"
        for fragment in fragments(made.spool)
        for kind, epoch in zip(
            [
                kind
                for kind, key in zip(fragment.op_kind, memoryview(fragment.op_key).cast("Q"), strict=True)
                if not key
            ],
            memoryview(fragment.fence_epoch).cast("Q"),
            strict=True,
        )
    ]


def test_before_a_connection_is_closed_its_session_reads_the_fence(made: Recording) -> None:
    for _ in range(2):
        connection = made.connect()
        connection.execute("UPDATE accounts SET balance = 0 WHERE id = 1")
        connection.commit()
        connection.close()
    assert fences(made) == ["w1", "r1", "w2", "r2"]


def test_what_is_open_locked_or_of_another_thread_is_closed_as_ever(made: Recording) -> None:
    read = "SELECT * FROM accounts WHERE id = 1"
    connection = made.connect()
    connection.execute("UPDATE accounts SET balance = 0 WHERE id = 1")
    connection.close()  # and so it is rolled back
    connection = made.connect(timeout=30)
    connection.execute(read).fetchall()
    other = sqlite3.connect(made.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    started = time.monotonic()
    connection.close()
    assert time.monotonic() - started < 1
    other.close()
    connection = made.connect()
    connection.execute(read).fetchall()
    refused: list[sqlite3.Error] = []

    def close() -> None:
        try:
            connection.close()
        except sqlite3.ProgrammingError as error:
            refused.append(error)

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert refused
    assert connection.execute(read).fetchall()
    connection.close()
    connection.close()
    assert fences(made) == ["w1", "w2", "w3", "r3"]
    assert made.recorder.metrics.fences_failed == 1


@pytest.mark.parametrize("violated", [False, True], ids=["kept", "violated"])
@pytest.mark.parametrize("ddl", [
    "ALTER TABLE accounts RENAME TO persons",
    "ALTER TABLE accounts RENAME COLUMN id TO number; ALTER TABLE accounts RENAME TO persons",
    "CREATE TABLE persons AS SELECT * FROM accounts WHERE 0; DROP TABLE persons;"
    "CREATE TABLE persons (id INTEGER PRIMARY KEY, owner TEXT, balance INT, mussurana_wid bigint, "
    "mussurana_prev_wid bigint); INSERT INTO persons SELECT * FROM accounts",
    "ALTER TABLE accounts RENAME TO t; ALTER TABLE savings RENAME TO accounts; ALTER TABLE t RENAME TO persons",
])  # fmt: skip
def test_a_table_that_was_renamed_swapped_or_copied_accuses_nobody(made: Recording, ddl: str, violated: bool) -> None:
    key = "number" if "number" in ddl else "id"
    with sqlite3.connect(made.path) as plain:
        plain.execute("CREATE TABLE savings (id INTEGER PRIMARY KEY, owner TEXT, balance INT)")
        plain.execute("INSERT INTO savings VALUES (1, 'one', 10)")
    plain.close()
    assert main(["adopt", f"sqlite:///{made.path}"]) == 0
    connections = [made.connect(isolation_level=None) for _ in range(2)]
    for connection in connections:
        connection.execute("UPDATE accounts SET balance = balance + 1")
        connection.execute("UPDATE savings SET balance = balance + 1")
    plain = sqlite3.connect(made.path)
    plain.executescript(ddl)
    for connection in connections:
        connection.execute("SELECT * FROM persons").fetchall()
        connection.execute("UPDATE persons SET balance = balance + 1")
        connection.execute("SELECT * FROM persons").fetchall()
    if violated:
        (version,) = plain.execute(f"SELECT mussurana_wid FROM persons WHERE {key} = 1").fetchone()
        connections[0].execute("UPDATE persons SET balance = 5")
        plain.execute(f"UPDATE persons SET mussurana_wid = {version} WHERE {key} = 1")
        plain.commit()
        connections[0].execute("SELECT * FROM persons").fetchall()
    plain.close()
    for connection in connections:
        connection.close()
    verdict = check(made.history(), CheckSettings("serializable")).verdict
    assert isinstance(verdict, Rejected if violated else Accepted)


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE a (id INTEGER PRIMARY KEY, v INT);"
        "CREATE TRIGGER t BEFORE UPDATE ON a WHEN NEW.v > 5 BEGIN SELECT RAISE(IGNORE); END;"
        "CREATE TRIGGER u BEFORE DELETE ON a BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TABLE a (id INTEGER PRIMARY KEY, v INT UNIQUE ON CONFLICT IGNORE)",
    ],
    ids=["trigger", "constraint"],
)
def test_a_row_that_is_left_as_it_is_without_a_word_is_not_absent(made: Recording, table: str) -> None:
    with sqlite3.connect(made.path) as plain:
        plain.executescript(f"{table}; INSERT INTO a VALUES (1, 6)")
    plain.close()
    assert main(["adopt", f"sqlite:///{made.path}"]) == 0
    with made.connect() as connection:
        connection.execute("INSERT INTO a VALUES (2, 2)")
        connection.execute("SELECT * FROM a WHERE id = 2").fetchall()
        connection.execute("UPDATE a SET v = 6 WHERE id = 2")
        connection.commit()
        if "TRIGGER" in table:
            connection.execute("DELETE FROM a WHERE id = 2")
            connection.commit()
        assert connection.execute("SELECT * FROM a WHERE id = 2").fetchall() == [(2, 2)]
    connection.close()
    history = made.history()
    assert isinstance(check(history, CheckSettings("serializable")).verdict, Accepted)
    assert "a/2" in history.key_names


def test_every_transaction_is_serializable(made: Recording) -> None:
    for level in (None, "", "EXCLUSIVE"):
        with made.connect(isolation_level=level) as connection:
            connection.execute("UPDATE accounts SET balance = 5")
            connection.execute("SELECT * FROM accounts").fetchall()
        connection.close()
    history = made.history()
    assert set(history.isolation.tolist()) == {Isolation.SERIALIZABLE}
