"""A pytest plugin for SQLAlchemy's suite: every table that a test creates in SQLite is adopted at once.

Without it the collector would find nothing to record, and would have nothing to get wrong. For PostgreSQL a trigger in
the database does this.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, event

from mussurana.collector.catalog import HIDDEN_COLUMNS


@event.listens_for(Table, "after_create")
def adopt(table: Table, connection: Connection, **options: Any) -> None:
    if connection.dialect.name == "sqlite" and table.primary_key.columns and table.schema is None:
        if "TEMPORARY" in (prefix.upper() for prefix in table._prefixes):
            return
        name = connection.dialect.identifier_preparer.format_table(table)
        for column in HIDDEN_COLUMNS:
            connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {column} bigint")
