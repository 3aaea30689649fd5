"""A pytest plugin for SQLAlchemy's suite: in SQLite its `test_schema` is another file, attached to each connection.

The suite does so itself, though only for its first engine. So this looks when a connection is taken from a pool.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

FILE = "pysqlite_test_schema.db"  # as the suite calls it


@event.listens_for(Pool, "checkout")
def attach(connection: Any, record: object, proxy: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        attached = {row[1] for row in connection.execute("PRAGMA database_list").fetchall()}
        if "test_schema" not in attached:
            connection.execute(f"ATTACH DATABASE '{FILE}' AS test_schema")
