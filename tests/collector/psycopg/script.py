"""Random sequences of what an application does with psycopg, and all that it can observe of it.

The same seed gives the same script, so it can be run with and without the collector and compared.
"""

from __future__ import annotations

import random
import re
import uuid
from typing import Any

import psycopg
from psycopg import errors as e
from psycopg.rows import args_row, dict_row, namedtuple_row, scalar_row, tuple_row
from psycopg.types.string import TextLoader

TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance int NOT NULL DEFAULT 0, note varchar(20))",
    "CREATE TABLE orders (a int, b text, qty int, PRIMARY KEY (a, b))",
    "CREATE TABLE things (id uuid PRIMARY KEY, data bytea, at timestamptz DEFAULT '2020-01-01')",
    "CREATE TABLE counters (id serial PRIMARY KEY, n bigint)",
    'CREATE TABLE "Odd Names" ("Key" bytea PRIMARY KEY, "select" text)',
    "CREATE VIEW rich AS SELECT id, balance FROM accounts WHERE balance > 50",
)
FILLED = (
    "INSERT INTO accounts SELECT n, 'owner ' || n, n * 10 FROM generate_series(1, 12) n",
    "INSERT INTO orders SELECT n, 'b' || n % 3, n FROM generate_series(1, 9) n",
    "INSERT INTO counters (n) SELECT n FROM generate_series(1, 3) n",
)
"""Put in before the tables are adopted: rows without a version."""

IDS = [uuid.UUID(int=number) for number in range(1, 6)]


TAINTING = ("UPDATE rich", "WITH gone")


# Without being rewritten these would show our columns, compare them, or fail because of them.
SHOWING = (
    "SELECT DISTINCT *",
    "SELECT * FROM orders UNION",
    "SELECT * FROM accounts NATURAL",
    "SELECT s.q FROM (SELECT qty AS q, *",
    "CREATE TEMP TABLE",
    "INSERT INTO accounts (id, balance) VALUES (%s, NULL)",
)


def statement(rng: random.Random, taints: bool, stars: bool) -> tuple[str, Any]:
    one, other, amount = rng.randrange(1, 16), rng.randrange(1, 16), rng.randrange(-5, 50)
    key = rng.choice(IDS)
    choices: list[tuple[str, Any]] = [
        ("SELECT balance FROM accounts WHERE id = %s", (one,)),
        ("SELECT * FROM accounts WHERE id = %(id)s", {"id": one}),
        ("SELECT * FROM accounts ORDER BY id LIMIT %s OFFSET %s", (3, 2)),
        ("SELECT id, owner AS o, 1 + 1, '%%' || owner FROM accounts WHERE id IN (%s, %s) ORDER BY 1", (one, other)),
        ("SELECT a.*, o.qty, o.* FROM accounts a LEFT JOIN orders o ON o.a = a.id ORDER BY a.id, o.b", None),
        ("SELECT x.owner, y.owner FROM accounts x JOIN accounts y USING (balance) ORDER BY x.id, y.id", None),
        ("SELECT count(*), sum(balance) FROM accounts", None),
        ("SELECT DISTINCT * FROM orders ORDER BY a, b", None),
        ("SELECT * FROM orders UNION SELECT a, b, qty FROM orders ORDER BY 1, 2", None),
        ("SELECT owner, count(*) FROM accounts GROUP BY owner ORDER BY owner", None),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM accounts ORDER BY id", None),
        ("WITH c AS (SELECT * FROM accounts WHERE balance > %s) SELECT * FROM c ORDER BY id", (amount,)),
        ("SELECT s.q FROM (SELECT qty AS q, * FROM orders) s ORDER BY 1", None),
        ("SELECT * FROM rich ORDER BY id", None),
        ("SELECT * FROM accounts NATURAL JOIN rich ORDER BY id", None),
        ("SELECT * FROM accounts NATURAL JOIN counters ORDER BY id", None),
        ("TABLE orders ORDER BY a, b", None),
        ("VALUES (1, 'a'), (2, 'b')", None),
        ("SELECT 'x' WHERE false", None),
        ("SELECT", None),
        ("", None),
        ("SELECT 1; SELECT 'two', 2", None),
        ("SELECT id FROM accounts WHERE id = %s FOR UPDATE", (one,)),
        ("SELECT to_json(b.*) FROM (SELECT 1 AS x) b", None),
        (
            "SELECT EXISTS (SELECT * FROM accounts WHERE id = %s), (SELECT qty FROM orders WHERE a = %s LIMIT 1)",
            (one, other),
        ),
        ("SELECT id, data FROM things WHERE id = %s", (key,)),
        ('SELECT "select", "Key" FROM "Odd Names" ORDER BY "Key"', None),
        ("INSERT INTO accounts (id, owner) VALUES (%s, %s)", (one, "new")),
        ("INSERT INTO accounts VALUES (%s, 'x%%', 3)", (one,)),
        (
            "INSERT INTO accounts (id, owner) VALUES (%(a)s, 'n'), (%(b)s, %(c)s) RETURNING *",
            {"a": 20 + one, "b": 40 + one, "c": "z"},
        ),
        (
            "INSERT INTO accounts (id, balance) VALUES (%s, 1) "
            "ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + 1",
            (one,),
        ),
        ("INSERT INTO accounts (id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id", (one,)),
        ("INSERT INTO orders SELECT id, 'c', balance FROM accounts WHERE id = %s", (one,)),
        (
            "INSERT INTO orders SELECT 100 + a, b, qty FROM orders WHERE a = %s "
            "UNION SELECT 200 + a, b, qty FROM orders WHERE a = %s",
            (one, one),
        ),
        ("INSERT INTO counters DEFAULT VALUES RETURNING n", None),
        ("INSERT INTO counters (n) VALUES (1), (2)", None),
        (
            "INSERT INTO things (id, data) VALUES (%s, %s) "
            "ON CONFLICT (id) DO UPDATE SET data = EXCLUDED.data RETURNING id, data",
            (key, b"\x00x"),
        ),
        ('INSERT INTO "Odd Names" VALUES (%s, %s) ON CONFLICT DO NOTHING', (bytes([one]), "v")),
        ("UPDATE accounts SET balance = balance + %s WHERE id = %s", (amount, one)),
        ("UPDATE accounts SET balance = 0 WHERE id = 3 OR id = 4", None),
        (
            "UPDATE accounts AS t SET (balance, note) = (%s, 'n') WHERE t.id = %s RETURNING t.*, t.balance + 1",
            (amount, one),
        ),
        (
            "UPDATE accounts SET balance = o.qty FROM orders o WHERE o.a = accounts.id AND o.a = %s RETURNING o.*",
            (one,),
        ),
        ("UPDATE accounts SET id = id + 1000 WHERE id = %s", (one,)),
        ("UPDATE accounts SET note = 'this is much too long for it' WHERE id = %s", (one,)),
        ("DELETE FROM accounts WHERE id = %s", (one,)),
        (
            "DELETE FROM orders USING accounts WHERE accounts.id = orders.a AND accounts.id = %s RETURNING orders.qty",
            (one,),
        ),
        ("DELETE FROM things WHERE id = %s RETURNING *", (key,)),
        ("SELECT nonsense FROM accounts", None),
        ("SELECT id FROM accounts WHERE id = %s AND nonsense = 3", (one,)),
        ("UPDATE accounts SET nonsense = %s WHERE id = %s", (1, 2)),
        ("INSERT INTO accounts (id, owner) VALUES (1)", None),
        ("INSERT INTO accounts (id, balance) VALUES (%s, NULL)", (99,)),
        ("DELETE FROM accounts WHERE id = 'x'", None),
        ("SELEC 1", None),
        ("SELECT 1 / 0 FROM accounts", None),
        ("SELECT owner FROM accounts WHERE id = %s", ()),
        ("UPDATE accounts SET balance = %s WHERE id = %s", (1,)),
        ("UPDATE accounts SET balance = %(x)s", {"y": 1}),
        ("UPDATE accounts SET balance = %(x)s", (1,)),
        ("UPDATE accounts SET balance = 1", (1,)),
        ("SHOW transaction_isolation", None),
        ("SET LOCAL lock_timeout = 1000", None),
        ("CREATE TEMP TABLE IF NOT EXISTS scratch AS SELECT * FROM orders", None),
        ("EXPLAIN (COSTS OFF) SELECT 1", None),
        ("UPDATE rich SET balance = balance + 1 WHERE id = %s", (one,)),
        ("WITH gone AS (DELETE FROM orders WHERE a = %s RETURNING *) SELECT a, b FROM gone", (one,)),
        ("BEGIN", None),
        ("COMMIT", None),
        ("ROLLBACK", None),
        ("SAVEPOINT s", None),
        ("ROLLBACK TO SAVEPOINT s", None),
        ("RELEASE s", None),
    ]
    left_out = (() if taints else TAINTING) + (() if stars else SHOWING)
    return rng.choice([choice for choice in choices if not choice[0].startswith(left_out)])


def seen(cursor: Any) -> list[Any]:
    """What a cursor shows without fetching."""
    description = cursor.description
    return [
        None if description is None else [(tuple(column), repr(column), column.type_display) for column in description],
        cursor.rowcount,
        cursor.statusmessage,
        cursor.rownumber,
        cursor.pgresult and (int(cursor.pgresult.status), cursor.pgresult.nfields, cursor.pgresult.ntuples),
        cursor.pgresult and [cursor.pgresult.fname(column) for column in range(cursor.pgresult.nfields + 1)],
    ]


def fetched(cursor: Any, rng: random.Random) -> list[Any]:
    how = rng.randrange(5)
    if how == 0:
        return [cursor.fetchone(), cursor.fetchone()]
    if how == 1:
        return [cursor.fetchmany(2), cursor.rownumber, cursor.fetchall()]
    if how == 2:
        return list(cursor)
    if how == 3:
        rows = cursor.fetchall()
        cursor.scroll(0, "absolute") if rows else None
        return [rows, cursor.fetchone()]
    return [cursor.fetchall()]


FACTORIES = (tuple_row, tuple_row, dict_row, namedtuple_row, scalar_row, args_row(lambda *values: values[::-1]))


def normal(value: Any) -> Any:
    """Named tuples of equal fields are equal for us whoever made their class."""
    if isinstance(value, list | tuple):
        return [type(value).__name__ if not hasattr(value, "_fields") else value._fields, *map(normal, value)]
    return value


class Script:
    def __init__(self, connection: Any, seed: int, steps: int, taints: bool, stars: bool = True) -> None:
        self.taints = taints
        self.stars = stars
        self.connection = connection
        connection.prepare_threshold = (5, 0, None, 0)[seed % 4]
        self.rng = random.Random(seed)
        self.seed = seed
        self.steps = steps
        self.log: list[Any] = []

    def run(self) -> list[Any]:
        actions = [self.execute] * 12 + [
            self.again,
            self.again,
            self.again,
            self.executemany,
            self.server_cursor,
            self.stream,
            self.pipeline,
            self.block,
            self.commit,
            self.commit,
            self.rollback,
            self.autocommit,
            *([self.copy] if self.stars else []),
            self.many_results,
            self.other_cursor,
        ]
        for step in range(self.steps):
            self.rng = random.Random(f"{self.seed} {step}")  # whatever happens, the next step is the same
            action = self.rng.choice(actions)
            self.log.append(action.__name__)
            self.attempt(action)
            self.log.append(int(self.connection.info.transaction_status))
        if not self.connection.info.transaction_status:
            self.attempt(self.connection.commit)
        self.connection.close()
        return self.log

    def attempt(self, action: Any) -> None:
        try:
            action()
        except psycopg.Error as error:
            message = re.sub(r"database=\w+|0x\w+", "", str(error))  # of which each run has its own
            self.log.append(("error", type(error).__name__, error.sqlstate, message, error.diag.statement_position))
        except (TypeError, IndexError, ValueError, AttributeError) as error:
            self.log.append(("error", type(error).__name__, str(error)))

    def cursor(self) -> Any:
        return self.connection.cursor(row_factory=self.rng.choice(FACTORIES), binary=self.rng.random() < 0.2)

    def execute(self) -> None:
        text, params = statement(self.rng, self.taints, self.stars)
        prepare = self.rng.choice([None, None, True, False])
        cursor = self.cursor()
        self.log.append((text, params))
        fetch = self.rng.random() < 0.8
        query: Any = text.encode() if self.rng.random() < 0.1 else text
        cursor.execute(query, params, prepare=prepare)
        self.log.append(normal(seen(cursor)))
        if fetch:
            self.log.append(normal(fetched(cursor, self.rng)))
        if self.rng.random() < 0.1 and cursor.pgresult:
            cursor.row_factory = tuple_row

    def again(self) -> None:
        """The same statement several times, which is what most applications do most of the time."""
        cursor = self.cursor()
        text, _ = statement(self.rng, self.taints, self.stars)
        tries = 0
        while tries < 4:
            other, params = statement(self.rng, self.taints, self.stars)
            if other != text:
                continue
            tries += 1
            if self.rng.random() < 0.5:
                cursor = self.cursor()
            self.log.append((text, params))
            if self.rng.random() < 0.1:
                cursor.adapters.register_loader("int4", TextLoader)
            try:
                cursor.execute(text, params)
            finally:
                self.log.append(normal(seen(cursor)))
            if self.rng.random() < 0.8:
                self.log.append(normal(fetched(cursor, self.rng)))

    def other_cursor(self) -> None:
        kind: Any = self.rng.choice([psycopg.ClientCursor, psycopg.RawCursor])
        self.connection.cursor_factory = kind
        try:
            cursor = self.connection.cursor()
            assert isinstance(cursor, kind)
            one = self.rng.randrange(1, 16)
            if kind is psycopg.RawCursor:
                cursor.execute("UPDATE accounts SET balance = $1 WHERE id = $2", (5, one))
                self.log.append(normal(seen(cursor)))
                cursor.execute("SELECT * FROM accounts WHERE id = $1", (one,))
            else:
                cursor.execute("UPDATE accounts SET balance = %s WHERE id = %s", (6, one))
                self.log.append(normal(seen(cursor)))
                cursor.execute("SELECT * FROM accounts WHERE id = %s", (one,))
            self.log.append(normal([seen(cursor), cursor.fetchall()]))
        finally:
            self.connection.cursor_factory = psycopg.Cursor

    def executemany(self) -> None:
        cursor = self.cursor()
        ids = [self.rng.randrange(1, 30) for _ in range(4)]
        if self.rng.random() < 0.5:
            cursor.executemany("UPDATE accounts SET balance = balance + 1 WHERE id = %s", [(each,) for each in ids])
            self.log.append(normal(seen(cursor)))
        else:
            cursor.executemany(
                "INSERT INTO counters (n) VALUES (%s) RETURNING n", [(each,) for each in ids], returning=True
            )
            while True:
                self.log.append(normal([seen(cursor), cursor.fetchall()]))
                if not cursor.nextset():
                    break

    def many_results(self) -> None:
        cursor = self.cursor()
        cursor.execute(
            "SELECT 1; SELECT id, owner FROM accounts ORDER BY id LIMIT 2; SELECT * FROM orders ORDER BY a, b LIMIT 1"
        )
        for _ in cursor.results():
            self.log.append(normal([seen(cursor), cursor.fetchall()]))

    def server_cursor(self) -> None:
        with self.connection.cursor("named", row_factory=self.rng.choice(FACTORIES)) as cursor:
            text = self.rng.choice(["SELECT * FROM accounts ORDER BY id", "SELECT owner FROM accounts ORDER BY id"])
            cursor.execute(text)
            self.log.append(normal(seen(cursor)))
            self.log.append(normal([cursor.fetchone(), cursor.fetchmany(2), cursor.fetchall()]))
            self.log.append(normal(seen(cursor)))

    def stream(self) -> None:
        cursor = self.cursor()
        self.log.append(normal(list(cursor.stream("SELECT * FROM orders WHERE a > %s ORDER BY a, b", (2,)))))
        self.log.append(normal(seen(cursor)))

    def pipeline(self) -> None:
        fails, syncs = self.rng.random() < 0.3, self.rng.random() < 0.5
        ids = self.rng.randrange(1, 16), self.rng.randrange(1, 16)
        first, second, third = self.cursor(), self.cursor(), self.cursor()
        try:
            with self.connection.pipeline() as pipeline:
                first.execute("UPDATE accounts SET balance = balance + 1 WHERE id = %s", (ids[0],))
                second.execute("SELECT * FROM accounts WHERE id = %s", (ids[1],))
                if fails:
                    first.execute("SELECT 1 / 0")
                if syncs:
                    pipeline.sync()
                third.execute("INSERT INTO counters (n) VALUES (7) RETURNING n")
                self.log.append(normal([third.fetchone(), second.fetchall(), seen(second), seen(first)]))
        except psycopg.Error as error:
            self.last = error
            # At which call an error comes up depends on how fast the server is, also without us.
            self.log.append("pipeline failed")

    def block(self) -> None:
        with self.connection.transaction():
            self.execute()
            try:
                with self.connection.transaction():
                    self.execute()
                    if self.rng.random() < 0.5:
                        raise psycopg.Rollback
            except e.ProgrammingError:
                self.log.append("inner")
            self.execute()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def autocommit(self) -> None:
        self.connection.autocommit = self.rng.random() < 0.4

    def copy(self) -> None:
        cursor = self.cursor()
        with cursor.copy("COPY orders TO STDOUT") as copy:
            self.log.append([bytes(block) for block in copy])
        self.log.append(cursor.rowcount)
