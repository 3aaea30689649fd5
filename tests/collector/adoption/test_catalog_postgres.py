"""What PostgreSQL's catalog tells about tables, and about what writes to them behind our back."""

from __future__ import annotations

import pytest

from mussurana.collector.__main__ import main
from mussurana.collector.catalog import Catalog
from mussurana.collector.catalog_postgres import QUERY, QUERY_ALL, postgres_catalog, without_system
from tests.collector.postgres import Database

NEWEST = pytest.mark.parametrize("postgres", [18], indirect=True)

TWO_TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, total int, mussurana_wid bigint, mussurana_prev_wid bigint)",
    "CREATE TABLE items (order_id int, line int, note text, PRIMARY KEY (line, order_id), mussurana_wid bigint)",
)


def read(database: Database, *statements: str, every_table: bool = False) -> Catalog:
    database.run(*statements)
    with database.connect() as connection:
        answer = connection.execute((QUERY_ALL if every_table else QUERY).encode()).fetchone()
    assert answer is not None
    return postgres_catalog(answer[0], every_table)


def tainted(catalog: Catalog, name: str) -> str:
    table = catalog.table(name)
    assert table is not None
    return table.tainted


def test_an_empty_database_has_an_empty_catalog(database: Database) -> None:
    catalog = read(database)
    assert (catalog.tables, catalog.fence, catalog.version) == ({}, None, database.major)
    assert catalog.returning_old is (database.major >= 18)


def test_keys_are_in_the_order_of_the_primary_key_and_our_columns_do_not_count(database: Database) -> None:
    catalog = read(database, *TWO_TABLES, "CREATE TABLE plain (id int PRIMARY KEY)")
    orders, items = catalog.table("orders"), catalog.table("items")
    assert orders is not None
    assert items is not None
    assert (orders.key_columns, orders.columns, orders.has_prev) == (("id",), ("id", "total"), True)
    assert (items.key_columns, items.columns, items.has_prev) == (
        ("line", "order_id"),
        ("order_id", "line", "note"),
        False,
    )
    assert (items.key_types, items.key_space) == (("integer", "integer"), "items")
    assert (orders.tainted, items.tainted, orders.weakened, items.weakened) == ("", "", "", "")
    assert catalog.table("plain") is None
    assert catalog.table("nothing") is None


@NEWEST
def test_every_table_with_a_key_counts_where_versions_need_no_columns(database: Database) -> None:
    catalog = read(database, "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int)", every_table=True)
    assert [name for _, name in catalog.tables] == ["a"]


@NEWEST
def test_two_readings_are_equal_until_the_schema_changes(database: Database) -> None:
    first = read(database, *TWO_TABLES)
    assert read(database) == first
    assert read(database, "ALTER TABLE orders ADD COLUMN paid bool") != first


@NEWEST
def test_names_are_found_along_the_search_path_and_shadowed_by_it(database: Database) -> None:
    catalog = read(
        database,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.carts (id int PRIMARY KEY, mussurana_wid bigint)",
        f"ALTER DATABASE {database.name} SET search_path = shop, public",
        *TWO_TABLES,
        "CREATE TABLE shop.orders (id int)",
    )
    carts = catalog.table("carts")
    assert carts is not None
    assert carts.key_space == "shop.carts"
    assert catalog.table("carts", "public") is None
    assert catalog.table("orders") is None, "shop.orders comes first, and is not adopted"
    assert "both have a table of this name" in catalog.tables["public", "orders"].tainted


@pytest.mark.parametrize(
    ("action", "is_tainted"), [("DELETE CASCADE", True), ("DELETE SET NULL", False), ("UPDATE CASCADE", False)]
)
def test_a_cascade_that_deletes_taints_and_one_that_changes_values_weakens(
    database: Database, action: str, is_tainted: bool
) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "ALTER TABLE orders ADD COLUMN parent int",
        f"ALTER TABLE orders ADD CONSTRAINT tree FOREIGN KEY (parent) REFERENCES orders ON {action}",
    )
    orders = catalog.table("orders")
    assert orders is not None
    assert f"foreign key tree: ON {action} from orders" == (orders.tainted if is_tainted else orders.weakened)
    assert (orders.weakened if is_tainted else orders.tainted) == ""


@NEWEST
def test_a_cascade_into_the_key_taints(database: Database) -> None:
    catalog = read(
        database, *TWO_TABLES, "ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders ON UPDATE CASCADE"
    )
    assert "ON UPDATE CASCADE" in tainted(catalog, "items")


TRIGGERS = {
    "INSERT INTO items (order_id, line) VALUES (NEW.id, 1); RETURN NEW;": ("items", "inserts into it"),
    "DELETE FROM public.items WHERE order_id = NEW.id; RETURN NEW;": ("items", "deletes from it"),
    "UPDATE items SET line = 2; RETURN NEW;": ("items", "updates it"),
    "TRUNCATE items; RETURN NEW;": ("items", "truncates it"),
    "EXECUTE format('DELETE FROM %I', 'it' || 'ems'); RETURN NEW;": ("items", "executes dynamic SQL"),
    "PERFORM tidy(); RETURN NEW;": ("items", "deletes from it"),
    "IF NEW.* IS DISTINCT FROM OLD.* THEN NEW.total := 1; END IF; RETURN NEW;": ("orders", "uses whole rows"),
    "INSERT INTO log SELECT to_jsonb(NEW); RETURN NEW;": ("orders", "uses whole rows"),
    "-- DELETE FROM items\n NEW.total := length('DELETE FROM items'); RETURN NEW;": ("", ""),
    "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN COALESCE(NEW, OLD);": ("", ""),
    "PERFORM 1 FROM items FOR UPDATE; RETURN NEW;": ("", ""),
    "INSERT INTO log VALUES ('{}'); RETURN NEW;": ("", ""),
}


@NEWEST
@pytest.mark.parametrize("body", TRIGGERS)
def test_triggers_taint_what_they_write(database: Database, body: str) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "CREATE TABLE log (entry jsonb)",
        "CREATE FUNCTION tidy() RETURNS void LANGUAGE sql AS 'DELETE FROM items'",
        f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN {body} END $f$",
        "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION f()",
    )
    table, reason = TRIGGERS[body]
    found = {name: catalog.tables["public", name].tainted for name in ("orders", "items")}
    if table:
        assert "trigger t on orders" in found[table]
        assert reason in found[table]
    else:
        assert found == {"orders": "", "items": ""}


@NEWEST
def test_a_trigger_that_updates_other_columns_than_the_key_only_weakens(database: Database) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$f$ BEGIN UPDATE orders SET total = total + 1 WHERE id = NEW.order_id; RETURN NEW; END $f$",
        "CREATE TRIGGER t AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION f()",
    )
    orders = catalog.table("orders")
    assert orders is not None
    assert (orders.tainted, orders.weakened) == ("", "trigger t on items updates it")


@NEWEST
def test_triggers_whose_condition_compares_whole_rows_would_fire_for_a_new_version(database: Database) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RETURN NEW; END $f$",
        "CREATE TRIGGER t BEFORE UPDATE ON orders "
        "FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION f()",
        "CREATE TRIGGER z BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    )
    assert "trigger t on orders uses whole rows" in tainted(catalog, "orders")
    assert "trigger z on items suppresses updates" in tainted(catalog, "items")


@NEWEST
def test_a_disabled_trigger_does_nothing(database: Database) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN DELETE FROM items; RETURN NEW; END $f$",
        "CREATE TRIGGER t BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION f()",
        "ALTER TABLE orders DISABLE TRIGGER t",
    )
    assert tainted(catalog, "items") == ""


@NEWEST
def test_rules_taint_their_table_and_what_they_write(database: Database) -> None:
    catalog = read(
        database, *TWO_TABLES, "CREATE RULE r AS ON DELETE TO orders DO ALSO DELETE FROM items WHERE order_id = OLD.id"
    )
    assert tainted(catalog, "orders") == "rule r on orders replaces statements"
    assert tainted(catalog, "items") == "rule r on orders deletes from it"


@NEWEST
def test_views_lead_to_their_tables(database: Database) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "CREATE VIEW big AS SELECT * FROM orders WHERE total > 100",
        "CREATE VIEW bigger AS SELECT id, line FROM big JOIN items ON order_id = id",
        "CREATE VIEW nothing AS SELECT 1 AS one",
    )
    assert catalog.table("big") is None
    assert [table.name for table in catalog.tables_behind("big")] == ["orders"]
    assert {table.name for table in catalog.tables_behind("bigger")} == {"orders", "items"}
    assert catalog.tables_behind("nothing") == ()


def test_functions_are_known_by_what_they_write_also_through_others_and_views(database: Database) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "CREATE VIEW big AS SELECT id, total FROM orders",
        "CREATE FUNCTION inner_one() RETURNS void LANGUAGE sql BEGIN ATOMIC INSERT INTO big VALUES (1, 2); END",
        "CREATE FUNCTION outer_one() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN PERFORM inner_one(); END $f$",
        "CREATE FUNCTION reads() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders'",
        "CREATE FUNCTION stable_one() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT 1'",
    )
    assert [table.name for table in catalog.written_by("outer_one")] == ["orders"]
    assert [table.name for table in catalog.written_by("inner_one")] == ["orders"]
    assert catalog.written_by("reads") == ()
    assert tainted(catalog, "orders") == "", "a function that nobody calls hides nothing"


@NEWEST
def test_a_default_that_calls_a_writing_function_taints(database: Database) -> None:
    catalog = read(
        database,
        *TWO_TABLES,
        "CREATE FUNCTION next_one() RETURNS int LANGUAGE sql AS 'DELETE FROM items; SELECT 1'",
        "ALTER TABLE orders ALTER total SET DEFAULT next_one()",
    )
    assert (
        tainted(catalog, "items") == "function next_one, called by the default of a column of orders, deletes from it"
    )


@NEWEST
def test_partitions_share_the_keys_and_the_taint_of_the_whole(database: Database) -> None:
    catalog = read(
        database,
        "CREATE TABLE events (id int, day int, mussurana_wid bigint, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (2)",
        "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (2) TO (3)",
    )
    assert {table.key_space for table in catalog.tables.values()} == {"events"}
    assert {table.tainted for table in catalog.tables.values()} == {""}
    catalog = read(
        database,
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN DELETE FROM events_2; RETURN NEW; END $f$",
        "CREATE TRIGGER t AFTER INSERT ON events_1 FOR EACH ROW EXECUTE FUNCTION f()",
    )
    assert {table.tainted for table in catalog.tables.values()} == {"trigger t on events_1 deletes from it"}


@NEWEST
def test_partitions_without_a_common_key_are_tainted(database: Database) -> None:
    catalog = read(
        database,
        "CREATE TABLE events (id int, day int, mussurana_wid bigint) PARTITION BY RANGE (day)",
        "CREATE TABLE events_1 PARTITION OF events (PRIMARY KEY (id)) FOR VALUES FROM (1) TO (2)",
    )
    assert all(table.tainted for table in catalog.tables.values())


@NEWEST
def test_inheritance_taints_both_sides(database: Database) -> None:
    catalog = read(database, *TWO_TABLES, "CREATE TABLE old_orders (PRIMARY KEY (id)) INHERITS (orders)")
    assert tainted(catalog, "orders") == "old_orders inherits from it"
    assert tainted(catalog, "old_orders") == "it inherits from orders"


@NEWEST
def test_a_table_that_lost_its_key_is_tainted(database: Database) -> None:
    assert "no primary key" in tainted(read(database, "CREATE TABLE keyless (id int, mussurana_wid bigint)"), "keyless")


@NEWEST
def test_a_user_who_may_not_touch_the_hidden_column_or_all_rows_cannot_tag(database: Database) -> None:
    role = f"clerk_of_{database.name}"
    database.run(
        *TWO_TABLES,
        f"CREATE ROLE {role}",
        f"GRANT SELECT (id, total), UPDATE (total) ON orders TO {role}",
        f"GRANT ALL ON items TO {role}",
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
    )
    assert all(table.tainted == "" for table in read(database).tables.values()), "its owner may do everything"
    with database.connect() as connection:
        connection.execute(f"SET ROLE {role}".encode())
        answer = connection.execute(QUERY.encode()).fetchone()
        assert answer is not None
        catalog = postgres_catalog(answer[0])
    assert "but not mussurana_wid" in tainted(catalog, "orders")
    assert "row security" in tainted(catalog, "items")
    database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@NEWEST
def test_reading_is_quick_in_a_large_database(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            "DO $$ BEGIN FOR i IN 1..500 LOOP EXECUTE format("
            "'CREATE TABLE t%s (id int PRIMARY KEY, a text, b text, mussurana_wid bigint)', i); END LOOP; END $$"
        )
        answer = connection.execute(QUERY.encode()).fetchone()
        assert answer is not None
        assert len(postgres_catalog(answer[0]).tables) == 500


def adopted(database: Database, *statements: str) -> dict[str, str]:
    """What the keys of tables are called, by the names of the tables."""
    database.run(*statements)
    assert main(["adopt", database.url()]) == 0
    return {f"{schema}.{name}": table.key_space for (schema, name), table in read(database).tables.items()}


@NEWEST
def test_a_table_that_was_never_renamed_is_called_as_collectors_without_identities_call_it(database: Database) -> None:
    before = read(database, *TWO_TABLES, "CREATE SCHEMA s", "CREATE TABLE s.c (id int PRIMARY KEY, mussurana_wid int)")
    assert adopted(database, "CREATE TABLE fresh (id int PRIMARY KEY)") == {
        **{f"{schema}.{name}": table.key_space for (schema, name), table in before.tables.items()},
        "public.fresh": "fresh",
    }


@NEWEST
def test_a_name_stays_with_the_rows_and_no_other_table_ever_gets_it(database: Database) -> None:
    assert adopted(database, "CREATE TABLE a (id int PRIMARY KEY)") == {"public.a": "a"}
    assert adopted(database, "ALTER TABLE a RENAME TO b", "CREATE SCHEMA s", "ALTER TABLE b SET SCHEMA s") == {
        "s.b": "a"
    }
    database.run("CREATE TABLE a (LIKE s.b INCLUDING ALL)")
    copy = read(database).tables["public", "a"].key_space
    assert copy.startswith("a@")
    assert adopted(database) == {"s.b": "a", "public.a": copy}, "a copy keeps its name when it is adopted"
    made = adopted(database, "DROP TABLE s.b", "CREATE TABLE b (id int PRIMARY KEY)")
    assert made["public.b"].startswith("b@"), "its name may have been another's"
    other_key = adopted(database, "ALTER TABLE a DROP CONSTRAINT a_pkey, ADD v text, ADD PRIMARY KEY (v)")
    assert other_key["public.a"] not in (copy, "a")
    assert other_key["public.a"].startswith("a@")


@NEWEST
def test_a_wider_key_keeps_its_name_and_a_column_that_is_renamed(database: Database) -> None:
    assert adopted(database, "CREATE TABLE a (id int, name varchar(20), PRIMARY KEY (id, name))") == {"public.a": "a"}
    wider = "ALTER TABLE a ALTER id TYPE bigint, ALTER name TYPE text"
    assert adopted(database, wider, "ALTER TABLE a RENAME id TO number") == {"public.a": "a"}


@NEWEST
def test_who_may_not_ask_for_the_server_calls_tables_the_same(database: Database) -> None:
    names = adopted(database, "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    with database.connect() as connection:
        answer = connection.execute(without_system(QUERY).encode()).fetchone()
    assert answer is not None
    tables = postgres_catalog(answer[0]).tables
    assert names == {f"{schema}.{name}": table.key_space for (schema, name), table in tables.items()}
