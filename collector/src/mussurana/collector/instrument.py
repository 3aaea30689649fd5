"""Recording for code that one cannot touch: `instrument()` puts our classes where drivers keep theirs.

The drivers' functions that connect are replaced, and `uninstrument()` puts back what was there. Code that fetched
`sqlite3.connect` or `psycopg.connect` before keeps the original. Doing it twice is harmless.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from functools import wraps
from types import ModuleType
from typing import Any

from mussurana.collector.recorder import close_all
from mussurana.collector.settings import QUERY_PREFIX, Settings, split_url

_lock = threading.Lock()
_replaced: list[tuple[ModuleType | type, str, Any]] = []

_CURSORS = (
    "Cursor",
    "AsyncCursor",
    "ServerCursor",
    "AsyncServerCursor",
    "ClientCursor",
    "AsyncClientCursor",
    "RawCursor",
    "AsyncRawCursor",
    "RawServerCursor",
    "AsyncRawServerCursor",
)


def instrument(settings: Settings | None = None, **arguments: Any) -> None:
    """Record all connections that psycopg and sqlite3 make from now on. Settings as for `connect`."""
    settings = Settings.load(**_without_prefix(arguments)) if settings is None else settings
    if not settings.enabled:
        return
    with _lock:
        if _replaced:
            return
        _instrument_sqlite(settings)
        try:
            import psycopg
        except ImportError:
            return
        _instrument_psycopg(psycopg, settings)


def uninstrument() -> None:
    """Put everything back, and end what runs in the background. Open connections go on as if we had never been."""
    with _lock:
        for owner, name, original in reversed(_replaced):
            setattr(owner, name, original)
        _replaced.clear()
    for adapter in ("psycopg_adapter", "sqlite_adapter"):
        if (module := sys.modules.get(f"mussurana.collector.{adapter}")) is not None:
            module.stop_watching()
    close_all()
    if (database := sys.modules.get("mussurana.collector.database")) is not None:
        database.forget_all()


def adopt_connection(connection: Any, settings: Settings | None = None) -> bool:
    """Record a connection that was made without us; returns whether that is possible."""
    if isinstance(connection, sqlite3.Connection):
        from mussurana.collector.sqlite_adapter import watch_connection as watch_sqlite

        return watch_sqlite(connection, settings)
    if "psycopg" in sys.modules:
        from mussurana.collector.psycopg_adapter import watch_connection as watch_psycopg

        return watch_psycopg(connection, settings)
    return False


def connect(conninfo: str = "", **options: Any) -> Any:
    """A recorded connection: psycopg's for a conninfo or a PostgreSQL URL, sqlite3's for `sqlite:///path`.

    Settings may be given in the URL or as options, with the prefix `mussurana_`; all other options are the driver's.
    """
    own = {name: options.pop(name) for name in list(options) if name.startswith(QUERY_PREFIX)}
    conninfo, query = split_url(conninfo)
    settings = Settings.load(query, **_without_prefix(own))
    if conninfo.startswith("sqlite:"):
        from mussurana.collector.sqlite_adapter import connect as connect_sqlite

        path = conninfo.removeprefix("sqlite:").removeprefix("//").removeprefix("/")
        return connect_sqlite(path or ":memory:", mussurana=settings, **options)
    from mussurana.collector.psycopg_adapter import Connection

    return Connection.connect(conninfo, mussurana=settings, **options)


def _without_prefix(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(QUERY_PREFIX): value for name, value in arguments.items()}


def _replace(owner: ModuleType | type, name: str, value: Any) -> None:
    _replaced.append((owner, name, vars(owner)[name]))
    setattr(owner, name, value)


def _instrument_sqlite(settings: Settings) -> None:
    from mussurana.collector.sqlite_adapter import connection_factory

    original = sqlite3.connect

    @wraps(original)
    def connect(*arguments: Any, **options: Any) -> Any:
        options["factory"] = connection_factory(settings, options.get("factory"))
        return original(*arguments, **options)

    _replace(sqlite3, "connect", connect)
    _replace(sqlite3.dbapi2, "connect", connect)


def _instrument_psycopg(psycopg: ModuleType, settings: Settings) -> None:
    from mussurana.collector.psycopg_adapter import recorded, show_recorded_factories, watch_connection

    original = vars(psycopg.Connection)["connect"].__func__
    original_async = vars(psycopg.AsyncConnection)["connect"].__func__

    @wraps(original)
    def connect(cls: Any, *arguments: Any, **options: Any) -> Any:
        connection = original(cls, *arguments, **options)
        if watch_connection(connection, settings):
            show_recorded_factories(connection)
        return connection

    @wraps(original_async)
    async def connect_async(cls: Any, *arguments: Any, **options: Any) -> Any:
        connection = await original_async(cls, *arguments, **options)
        if watch_connection(connection, settings):
            show_recorded_factories(connection)
        return connection

    _replace(psycopg.Connection, "connect", classmethod(connect))
    _replace(psycopg.AsyncConnection, "connect", classmethod(connect_async))
    _replace(psycopg, "connect", psycopg.Connection.connect)
    for name in _CURSORS:  # for those who make cursors past the connection: ClientCursor(connection)
        _replace(psycopg, name, recorded(getattr(psycopg, name)))
