"""What psycopg finds out about the types of an application's tables: without the fields that are ours.

`CompositeInfo.fetch` asks the catalog for the fields of a type, through a cursor that is not made by the connection. So
the question itself is changed, and only for connections that are recorded.
"""

from __future__ import annotations

from typing import Any

from psycopg.sql import Composable
from psycopg.types.composite import CompositeInfo

from mussurana.collector.catalog import HIDDEN_COLUMNS
from mussurana.collector.sql.plan import PREFIX

_CONDITION = "NOT a.attisdropped"
_OURS = ", ".join(f"'{name}'" for name in HIDDEN_COLUMNS)

_ask = CompositeInfo.__dict__["_get_info_query"].__func__


def _ask_for_the_rest(cls: Any, conn: Any) -> Any:
    query = _ask(cls, conn)
    if getattr(conn, "_mussurana", None) is None:
        return query
    text = query.as_string(conn) if isinstance(query, Composable) else query
    return text.replace(_CONDITION, f"{_CONDITION} AND a.attname NOT IN ({_OURS})")


def hide_fields() -> None:
    """From now on, for all connections that are recorded."""
    changed: Any = classmethod(_ask_for_the_rest)
    CompositeInfo._get_info_query = changed  # type: ignore[method-assign]


def show_fields() -> None:
    """Take that back."""
    asked: Any = classmethod(_ask)
    CompositeInfo._get_info_query = asked  # type: ignore[method-assign]


def knows_ours(types: Any, oid: int) -> bool:
    """Whether the application was told of our fields after all, by a connection that is not recorded."""
    return any(name.startswith(PREFIX) for name in getattr(types.get(oid), "field_names", ()))
