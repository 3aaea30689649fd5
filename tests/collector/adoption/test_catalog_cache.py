"""Catalogs are kept until they are stale."""

from mussurana.collector.catalog import REFRESH_SECONDS, Catalog, CatalogCache

EMPTY = Catalog({}, (), 18)


def test_a_catalog_is_kept_for_a_while_and_forgotten_when_the_schema_changes() -> None:
    cache = CatalogCache()
    assert cache.get("db", 1000.0) is None
    cache.put("db", EMPTY, 1000.0)
    assert cache.get("db", 1000.0 + REFRESH_SECONDS / 2) is EMPTY
    assert cache.get("db", 1000.0 + REFRESH_SECONDS) is None
    cache.put("db", EMPTY, 1000.0)
    cache.forget("db")
    assert cache.get("db", 1000.0) is None


def test_the_number_of_catalogs_is_bounded() -> None:
    cache = CatalogCache()
    for number in range(2 * CatalogCache.DATABASES_MAX):
        cache.put(number, EMPTY, 0.0)
    assert sum(cache.get(number, 1.0) is not None for number in range(1000)) == CatalogCache.DATABASES_MAX
