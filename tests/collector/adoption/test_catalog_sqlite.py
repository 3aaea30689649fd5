"""What SQLite's schema tells about tables, and about what writes to them behind our back."""

from __future__ import annotations

import sqlite3

from mussurana.collector.catalog import Catalog
from mussurana.collector.catalog_sqlite import sqlite_catalog

TWO_TABLES = """
CREATE TABLE Orders (id INTEGER PRIMARY KEY, total int, mussurana_wid bigint, mussurana_prev_wid bigint);
CREATE TABLE items (order_id int, line int, note text, mussurana_wid bigint, mussurana_prev_wid bigint,
  PRIMARY KEY (line, order_id)) WITHOUT ROWID;
"""


def read(script: str, every_table: bool = False) -> Catalog:
    connection = sqlite3.connect(":memory:")
    connection.executescript(script)
    return sqlite_catalog(connection.execute, every_table)


def reasons(catalog: Catalog, name: str) -> tuple[str, str]:
    table = catalog.table(name)
    assert table is not None
    return table.tainted, table.weakened


def test_tables_are_found_whatever_the_case_of_their_name() -> None:
    catalog = read(TWO_TABLES + "CREATE TABLE plain (id INTEGER PRIMARY KEY)")
    orders, items = catalog.table("ORDERS"), catalog.table("items", "MAIN")
    assert orders is not None
    assert items is not None
    assert (orders.name, orders.key_columns, orders.columns) == ("Orders", ("id",), ("id", "total"))
    assert (items.key_columns, items.has_prev, items.key_space) == (("line", "order_id"), True, "items")
    assert catalog.table("plain") is None
    assert (reasons(catalog, "orders"), reasons(catalog, "items")) == (("", ""), ("", ""))


def test_every_table_with_a_key_can_be_asked_for() -> None:
    catalog = read(
        "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (x); CREATE VIRTUAL TABLE f USING fts5(t)", True
    )
    assert [name for _, name in catalog.tables] == ["a"]


def test_a_temporary_table_shadows_one_of_the_same_name() -> None:
    assert read(TWO_TABLES + "CREATE TEMP TABLE items (x)").table("items") is None


def test_cascades_taint_or_weaken() -> None:
    catalog = read(
        TWO_TABLES
        + """
        CREATE TABLE a (id INTEGER PRIMARY KEY, o REFERENCES orders ON DELETE CASCADE, mussurana_wid bigint);
        CREATE TABLE b (id INTEGER PRIMARY KEY, o REFERENCES orders ON DELETE SET NULL, mussurana_wid bigint);
        """
    )
    assert reasons(catalog, "a") == ("foreign key on o: ON DELETE CASCADE from orders", "")
    assert reasons(catalog, "b") == ("", "foreign key on o: ON DELETE SET NULL from orders")


def test_triggers_taint_or_weaken_what_they_write() -> None:
    catalog = read(
        TWO_TABLES
        + """
        CREATE TRIGGER t AFTER UPDATE ON orders BEGIN INSERT OR IGNORE INTO [items] (order_id, line) VALUES (1, 2); END;
        CREATE TRIGGER u AFTER INSERT ON items BEGIN UPDATE "Orders" SET total = 1 WHERE id = NEW.order_id; END;
        """
    )
    assert reasons(catalog, "items") == ("trigger t on orders inserts into it", "")
    assert reasons(catalog, "orders") == ("", "trigger u on items updates it")


def test_replacing_on_conflict_is_a_hidden_delete() -> None:
    catalog = read("CREATE TABLE r (id INTEGER PRIMARY KEY, u UNIQUE ON CONFLICT REPLACE, mussurana_wid bigint)")
    assert "ON CONFLICT REPLACE" in reasons(catalog, "r")[0]


def test_views_lead_to_their_tables() -> None:
    catalog = read(TWO_TABLES + 'CREATE VIEW v AS SELECT "Orders".total FROM "Orders" JOIN items ON order_id = id')
    assert [table.name for table in catalog.tables_behind("v")] == ["items", "Orders"]


def test_equal_schemas_have_equal_catalogs() -> None:
    assert read(TWO_TABLES) == read(TWO_TABLES) != read(TWO_TABLES + "CREATE TABLE more (x)")
