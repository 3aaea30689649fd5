"""A random workload of concurrent sessions on a few rows, where conflicts are the rule."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import psycopg
from psycopg import IsolationLevel

TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)",
    "CREATE TABLE orders (a int, b text, qty int, PRIMARY KEY (a, b))",
)
FILLED = ("INSERT INTO accounts SELECT n, 100 FROM generate_series(0, 7) n",)

SESSIONS = 8


class Session:
    """One thread with one connection, which it replaces when it is lost."""

    def __init__(
        self, connect: Callable[[], Any], level: IsolationLevel, seed: int, txn_count: int, fresh: Iterator[int]
    ) -> None:
        self.connect = connect
        self.fresh = fresh  # keys that nobody has used: a row that is deleted does not come back
        self.level = level
        self.rng = random.Random(seed)
        self.txn_count = txn_count
        self.committed = self.failed = self.lost = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            connection = self._connected()
            for _ in range(self.txn_count):
                try:
                    self.transaction(connection)
                    self.committed += 1
                except psycopg.OperationalError as error:
                    if not connection.closed and error.sqlstate in ("40001", "40P01"):
                        self.failed += 1
                        with suppress(psycopg.OperationalError):
                            connection.rollback()
                    if connection.closed:
                        self.lost += 1
                        connection.close()
                        connection = self._connected()
            connection.close()
        except BaseException as error:
            self.error = error

    def _connected(self) -> Any:
        while True:
            with suppress(psycopg.OperationalError):
                connection = self.connect()
                connection.isolation_level = self.level
                return connection

    def transaction(self, connection: Any) -> None:
        rng = self.rng
        with connection.cursor() as cursor:
            for _ in range(rng.randrange(1, 5)):
                self.operation(cursor)
            if rng.random() < 0.15:
                cursor.execute("SAVEPOINT s")
                self.operation(cursor)
                cursor.execute(rng.choice(["ROLLBACK TO s", "RELEASE s"]))
                self.operation(cursor)
        if rng.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()

    def operation(self, cursor: Any) -> None:
        rng = self.rng
        one, other = rng.randrange(8), rng.randrange(8)
        what = rng.randrange(10)
        if what < 3:
            cursor.execute("SELECT balance FROM accounts WHERE id = %s", (one,))
            cursor.fetchone()
        elif what < 5:
            # Reads one row and writes another: under snapshot isolation two of these can skew.
            cursor.execute("SELECT balance FROM accounts WHERE id = %s", (one,))
            cursor.fetchall()
            cursor.execute("UPDATE accounts SET balance = %s WHERE id = %s", (rng.randrange(100), other))
        elif what == 5:
            # A value read and written back: lost under read committed, if another wrote in between.
            cursor.execute("SELECT balance FROM accounts WHERE id = %s", (one,))
            row = cursor.fetchone()
            cursor.execute("UPDATE accounts SET balance = %s WHERE id = %s", ((row or (0,))[0] + 1, one))
        elif what == 6:
            cursor.execute(
                "INSERT INTO orders VALUES (%s, 'x', 1) ON CONFLICT (a, b) DO UPDATE SET qty = orders.qty + 1", (one,)
            )
        elif what == 7:
            if rng.random() < 0.5:
                cursor.execute("INSERT INTO orders VALUES (%s, 'y', 1)", (next(self.fresh),))
            else:
                cursor.execute("DELETE FROM orders WHERE a = %s AND b = 'y'", (rng.randrange(100, 140),))
        elif what == 8:
            cursor.execute("SELECT * FROM orders WHERE a = %s AND b = %s", rng.choice([(one, "x"), (100 + other, "y")]))
            cursor.fetchall()
        else:
            cursor.execute(
                "SELECT a.balance, o.qty FROM accounts a LEFT JOIN orders o ON o.a = a.id WHERE a.id IN (%s, %s)",
                (one, other),
            )
            cursor.fetchall()


def run(connect: Callable[[], Any], level: IsolationLevel, seed: int, txn_count: int) -> list[Session]:
    """Run all sessions to their end."""
    fresh = count(100)
    sessions = [Session(connect, level, 1000 * seed + number, txn_count, fresh) for number in range(SESSIONS)]
    threads = [threading.Thread(target=session.run) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in sessions:
        if session.error is not None:
            raise session.error
    return sessions
