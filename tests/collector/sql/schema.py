"""A catalog for tests of the rewriting: no database is asked."""

from __future__ import annotations

from mussurana.collector.catalog import Catalog, Table
from mussurana.collector.sql.plan import Plan
from mussurana.collector.sql.plans import Plans
from mussurana.collector.sql.tokens import FORMAT, POSTGRES, SQLITE


def catalog(version: int = 18) -> Catalog:
    has_prev = version < 18
    schema = "public" if version else "main"
    tables = [
        Table("accounts", schema, ("id",), ("id", "owner", "balance"), has_prev, key_types=("integer",)),
        Table("orders", schema, ("a", "b"), ("a", "b", "qty"), has_prev, key_types=("integer", "text")),
        Table("days", schema, ("day",), ("day", "total"), has_prev, key_types=("date",)),
        Table("spread", schema, ("id",), ("id",), has_prev, tainted="a trigger", key_types=("integer",)),
    ]
    places = {(table.schema, table.name): table for table in tables}
    return Catalog(
        places,
        (schema,),
        version,
        views={(schema, "rich"): (tables[0],)},
        functions={"pay": (tables[0],)},
        others=frozenset({(schema, "notes")}),
    )


def plans(version: int = 18) -> Plans:
    return Plans(catalog(version), POSTGRES if version else SQLITE)


def plan(text: str, style: str = FORMAT, version: int = 18) -> Plan:
    return plans(version).find(text, style)
