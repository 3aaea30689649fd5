"""SQLAlchemy in one line: `create_engine("postgresql+psycopg://...?plugin=mussurana")`, or `plugins=["mussurana"]`.

The engine gets connections of our adapters, which are connections of its own driver, and stays an engine like any
other: sync or async, pooled or not, Core or ORM. Reflection does not show the hidden columns and the fence table.

Settings stand in the URL's query (`mussurana_spool=/var/spool/app`), in arguments of create_engine of the same names,
or in the environment; see settings.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, CreateEnginePlugin, Dialect, Engine
from sqlalchemy.exc import ArgumentError

from mussurana.collector.adopt import is_ours
from mussurana.collector.settings import QUERY_PREFIX, Settings

DRIVERS = ("psycopg", "pysqlite", "aiosqlite")


class MussuranaPlugin(CreateEnginePlugin):
    """What SQLAlchemy finds under the name `mussurana`; one instance per engine."""

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        arguments = {name: kwargs.pop(name) for name in list(kwargs) if name.startswith(QUERY_PREFIX)}
        arguments.setdefault(QUERY_PREFIX + "database", str(url.query.get(QUERY_PREFIX + "database", described(url))))
        self.settings = Settings.load(
            url.query, **{name.removeprefix(QUERY_PREFIX): value for name, value in arguments.items()}
        )

    def update_url(self, url: URL) -> URL:
        return url.difference_update_query([name for name in url.query if name.startswith(QUERY_PREFIX)])

    def engine_created(self, engine: Engine) -> None:
        if not self.settings.enabled:
            return
        driver = engine.dialect.driver
        if driver not in DRIVERS:
            raise ArgumentError(
                f"mussurana cannot record {engine.dialect.name} through {driver}; "
                "use postgresql+psycopg:// (version 3), sqlite:// or sqlite+aiosqlite://"
            )
        event.listen(engine, "do_connect", self.connect)
        event.listen(engine.pool, "connect", self.connected)
        hide_from_reflection(engine.dialect)

    def connect(self, dialect: Dialect, record: object, arguments: list[Any], parameters: dict[str, Any]) -> Any:
        """Instead of the driver's own connect, or on its way there: None lets the dialect go on."""
        if dialect.driver == "psycopg":
            from mussurana.collector.psycopg_adapter import AsyncConnection, Connection

            if not dialect.is_async:
                return Connection.connect(*arguments, mussurana=self.settings, **parameters)

            def create(*positional: Any, **named: Any) -> Any:
                return AsyncConnection.connect(*positional, mussurana=self.settings, **named)

            parameters.setdefault("async_creator_fn", create)
        else:
            from mussurana.collector.sqlite_adapter import connection_factory

            parameters["factory"] = connection_factory(self.settings, parameters.get("factory"))
        return None

    def connected(self, connection: Any, record: object) -> None:
        """`creator=`, `async_creator=` and `pool=` make connections past us: adopt those, or say that we cannot.

        A connection that is not recorded is no harm to the application, but silence about it would be one to its owner.
        """
        from mussurana.collector.instrument import adopt_connection

        made = getattr(connection, "driver_connection", connection)
        made = getattr(made, "_conn", made) if type(made).__module__.startswith("aiosqlite") else made
        if not adopt_connection(made, self.settings):
            warnings.warn(
                f"mussurana does not record this {type(made).__module__} connection: it was not made by the engine. "
                "Let creator= or pool= make it with mussurana.collector.connect(), or leave them out",
                RuntimeWarning,
                stacklevel=2,
            )


def described(url: URL) -> str:
    """The database in a line, for people: no user, no password, no parameters."""
    place = f"{url.host or ''}:{url.port}" if url.port else url.host or ""
    return f"{url.get_backend_name()}://{place}/{url.database or ''}"


def hide_from_reflection(dialect: Dialect) -> None:
    """Without this, Alembic would drop our columns, and models made by reflection would have them."""
    for name in dir(dialect):
        if name in ("get_table_names", "get_columns") or name.startswith("get_multi_"):
            setattr(dialect, name, hiding(name, getattr(dialect, name)))


def hiding(name: str, reflect: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a dialect that tells nothing of ours. Those for many tables tell ((schema, table), what)."""

    @wraps(reflect)
    def reflect_the_rest(*arguments: Any, **options: Any) -> Any:
        found = reflect(*arguments, **options)
        if name == "get_table_names":
            return [table for table in found if not is_ours(table)]
        if name == "get_columns":
            return visible(found)
        others = [(place, what) for place, what in found if not is_ours(place[1])]
        return [(place, visible(what)) for place, what in others] if name == "get_multi_columns" else others

    return reflect_the_rest


def visible(columns: Iterable[Any]) -> list[Any]:
    return [column for column in columns if not is_ours(column["name"])]
