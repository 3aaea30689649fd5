"""What the connections of a process to one database share: its catalog and the plans made from it."""

from __future__ import annotations

from collections.abc import Hashable
from time import monotonic
from typing import Protocol
from weakref import WeakSet

from mussurana.collector.catalog import WID, Catalog, CatalogCache
from mussurana.collector.coverage import Coverage
from mussurana.collector.sql.draft import unobserved_write_keys
from mussurana.collector.sql.plans import Plans
from mussurana.wire import NOT_KNOWN_YET

_catalogs = CatalogCache()
_plans: dict[Hashable, Plans] = {}
_connections: WeakSet[CatalogReader] = WeakSet()
_looked_seconds = 0.0

LOOK_AGAIN_SECONDS = 1.0
"""A catalog takes milliseconds to read, and for some migrations tables change their names many times."""


def current_plans(database: Hashable) -> Plans | None:
    """The plans of a database, if its catalog was read not long ago."""
    if _catalogs.get(database, monotonic()) is None:
        return None
    return _plans.get(database)


def plans_from(
    database: Hashable, catalog: Catalog, dialect: str, coverage: Coverage, version_column: str = WID
) -> Plans:
    """The plans of a database whose catalog was just read. What was written unseen is counted."""
    _catalogs.put(database, catalog, monotonic())
    plans = _plans.get(database)
    if plans is None:
        if len(_plans) >= CatalogCache.DATABASES_MAX:
            _plans.pop(next(iter(_plans)), None)
        # Without a lock, as in `Plans`: two may make them at the same time, and both get those that come first.
        plans = _plans.setdefault(database, Plans(catalog, dialect, version_column))
    for key in unobserved_write_keys(plans.renew(catalog), NOT_KNOWN_YET):
        coverage.count(key)
    return plans


class CatalogReader(Protocol):
    """What reads a catalog when it is between two transactions, and not before this time."""

    renew_ns: int


def watch_schema(connection: CatalogReader) -> None:
    """Have `look_again` reach a connection, for as long as it is there."""
    _connections.add(connection)


def look_again() -> None:
    """A result was not of the table that it should have been of: read all catalogs anew.

    Not more often than once a second. What comes until then is found out as well. No lock is taken, since this may run
    wherever results are read.
    """
    global _looked_seconds
    now = monotonic()
    if now - _looked_seconds < LOOK_AGAIN_SECONDS:
        return
    _looked_seconds = now
    try:
        for database in list(_plans):
            _catalogs.forget(database)
        for connection in list(_connections):
            connection.renew_ns = 0
    except RuntimeError:  # another thread has added one meanwhile
        _looked_seconds = 0.0


def schema_changed(database: Hashable) -> None:
    """Read the catalog again before the next transaction."""
    _catalogs.forget(database)


def forget_all() -> None:
    """As if nothing had been read: for uninstrument, and for tests."""
    for database in list(_plans):
        _catalogs.forget(database)
    _plans.clear()
