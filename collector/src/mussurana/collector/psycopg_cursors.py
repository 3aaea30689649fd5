"""Cursors that share what they know of types with their connection, until somebody asks for a copy.

psycopg gives each cursor a copy of its connection's adapters, in case that somebody changes it. Hardly anybody does,
and it takes longer than anything else about a new cursor; `Connection.execute` makes one for each statement. Here all
cursors have the same copy, as long as the connection's own has not changed, and one of their own when it is asked for.
That repeats what psycopg does, so it is only done with a psycopg that does just that (`psycopg_lane.is_open`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import psycopg
from psycopg import pq
from psycopg._column import Column
from psycopg.adapt import AdaptersMap, Transformer

if TYPE_CHECKING:
    from mussurana.collector._columns import Answer

TEXT = pq.Format.TEXT
WITH_COLUMNS = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.SINGLE_TUPLE, pq.ExecStatus.TUPLES_CHUNK)


STATEMENTS_MAX = 200
"""Whose columns are remembered, for each connection: twice as many as psycopg has prepared at a time."""


class SharedAdapters:
    """A copy of a connection's adapters, for all of its cursors. Nobody changes it."""

    __slots__ = ("adapters", "columns", "connection")

    def __init__(self, connection: Any) -> None:
        self.adapters = AdaptersMap(connection.adapters)
        self.connection: Any = None  # else it would keep the connection alive
        self.columns: dict[bytes, list[Column]] = {}  # of what prepared statements return

    def is_like(self, adapters: AdaptersMap) -> bool:
        """Whether these are still the connection's. What was not changed since they were copied is one and the same."""
        ours = self.adapters
        return (
            adapters._loaders == ours._loaders
            and adapters._dumpers == ours._dumpers
            and adapters._dumpers_by_oid == ours._dumpers_by_oid
            and adapters.types._registry is ours.types._registry
        )

    def transformer(self, connection: Any) -> Any:
        """What a cursor converts with. Pre: the connection's lock is held."""
        self.connection = connection
        try:
            return Transformer(self)
        finally:
            self.connection = None


class _Described:
    """All that psycopg wants to know of a cursor for a description."""

    __slots__ = ("_encoding", "adapters", "pgresult")

    def __init__(self, pgresult: Any, encoding: str, adapters: AdaptersMap) -> None:
        self.pgresult = pgresult
        self._encoding = encoding
        self.adapters = adapters


class SharingCursor:
    """In front of psycopg's cursors."""

    _mussurana_shared: SharedAdapters | None = None
    _mussurana_answer: Answer | None = None  # to what it executed last, if that is what `pgresult` shows

    @property
    def adapters(self: Any) -> AdaptersMap:
        if self._mussurana_shared is not None:
            self._mussurana_shared = None
            self._adapters = AdaptersMap(self._adapters)
            self._adapters._register_loader_callback = partial(self._loaders_changed, ref(self))
        return self._adapters  # type: ignore[no-any-return]

    @property
    def description(self: Any) -> list[Column] | None:
        shared = self._mussurana_shared
        if shared is None:
            return super().description  # type: ignore[misc, no-any-return]
        result = self.pgresult
        if not result or not (result.nfields or result.status in WITH_COLUMNS):
            return None
        # The columns of a prepared statement are always the same: it fails if they are not what they were.
        answer = self._mussurana_answer
        statement = answer.statement if answer is not None and answer.result is result else None
        columns = shared.columns.get(statement) if statement is not None else None
        if columns is None:
            described: Any = _Described(result, self._pgconn._encoding, shared.adapters)
            columns = [Column(described, index) for index in range(result.nfields)]
            if statement is not None:
                if len(shared.columns) >= STATEMENTS_MAX:
                    shared.columns.clear()
                shared.columns[statement] = columns
        return columns.copy()


def can_share(cursor_class: Any) -> bool:
    """Whether cursors of a class are made as psycopg makes its own. Pre: they convert as psycopg's do."""
    return cursor_class.__init__ in (psycopg.Cursor.__init__, psycopg.AsyncCursor.__init__)


def make_sharing(cursor_class: Any, connection: Any, row_factory: Any, shared: SharedAdapters) -> Any:
    """A new cursor. Pre: `can_share`."""
    cursor = cursor_class.__new__(cursor_class)
    cursor._conn = connection
    cursor.format = TEXT
    cursor._pgconn = connection.pgconn
    cursor._adapters = shared.adapters
    cursor._mussurana_shared = shared
    cursor.arraysize = 1
    cursor._closed = False
    cursor._tx = None  # until it executes something
    cursor._last_query = None
    cursor._reset()
    cursor._row_factory = row_factory
    return cursor
