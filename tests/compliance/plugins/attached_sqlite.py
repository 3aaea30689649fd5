"""A pytest plugin for SQLAlchemy's suite: in SQLite its `test_schema` is another file, attached to each connection."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from sqlalchemy import Engine, event


@event.listens_for(Engine, "connect")
def attach(connection: Any, record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("ATTACH DATABASE ? AS test_schema", (os.environ["COMPLIANCE_SCHEMA"],))
