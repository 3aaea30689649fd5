"""What the connections of a process to one database share: its catalog and the plans made from it."""

from __future__ import annotations

from collections.abc import Hashable
from time import monotonic

from mussurana.collector.catalog import WID, Catalog, CatalogCache
from mussurana.collector.sql.plans import Plans

_catalogs = CatalogCache()
_plans: dict[Hashable, Plans] = {}


def current_plans(database: Hashable) -> Plans | None:
    """The plans of a database, if its catalog was read not long ago."""
    if _catalogs.get(database, monotonic()) is None:
        return None
    return _plans.get(database)


def plans_from(database: Hashable, catalog: Catalog, dialect: str, version_column: str = WID) -> Plans:
    """The plans of a database whose catalog was just read."""
    _catalogs.put(database, catalog, monotonic())
    plans = _plans.get(database)
    if plans is None:
        if len(_plans) >= CatalogCache.DATABASES_MAX:
            _plans.pop(next(iter(_plans)), None)
        # Without a lock, as in `Plans`: two may make them at the same time, and both get those that come first.
        plans = _plans.setdefault(database, Plans(catalog, dialect, version_column))
    plans.renew(catalog)
    return plans


def schema_changed(database: Hashable) -> None:
    """Read the catalog again before the next transaction."""
    _catalogs.forget(database)


def forget_all() -> None:
    """As if nothing had been read: for uninstrument, and for tests."""
    for database in list(_plans):
        _catalogs.forget(database)
    _plans.clear()
