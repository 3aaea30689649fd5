"""SQLite's catalog: `sqlite_schema` and the table-valued pragmas, as a `Catalog`.

SQLite keeps triggers and views as text, so what they write is read from that text, as `hidden_writes` does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from mussurana.collector.catalog import FENCE_TABLE, HIDDEN_COLUMNS, PREVIOUS_WID, WID, Catalog, Table, key_space
from mussurana.collector.hidden_writes import WRITES, effects
from mussurana.collector.row_triggers import DELETE, UPDATE, RowTriggers

# A number that changes with the schema; cheap enough to ask for before every transaction.
SCHEMA_VERSION_QUERY = "PRAGMA schema_version"

_RELATIONS = "SELECT type, name, tbl_name, coalesce(sql, '') FROM {schema}.sqlite_schema WHERE type <> 'index'"
_COLUMNS = """
SELECT m.name, c.name, c.type, c.pk FROM main.sqlite_schema m, pragma_table_xinfo(m.name) c
WHERE m.type = 'table' AND c.hidden <> 1 ORDER BY m.name, c.cid
"""
_FOREIGN_KEYS = """
SELECT m.name, k."table", k."from", k.on_update, k.on_delete
FROM main.sqlite_schema m, pragma_foreign_key_list(m.name) k WHERE m.type = 'table'
"""
_NUMBER = f"SELECT printf('%016x', epoch) FROM {FENCE_TABLE} WHERE id = 2"
_ACTIONS = ("CASCADE", "SET NULL", "SET DEFAULT")
_WORD = re.compile(r'"(?:[^"]|"")+"|\[[^]]+\]|`[^`]+`|\w+')
_CONFLICT_REPLACE = re.compile(r"\bon\s+conflict\s+replace\b", re.IGNORECASE)
_CONFLICT_IGNORE = re.compile(r"\bon\s+conflict\s+ignore\b", re.IGNORECASE)
_RAISE_IGNORE = re.compile(r"\braise\s*\(\s*ignore\b", re.IGNORECASE)
_VIRTUAL = re.compile(r"\s*create\s+virtual\b", re.IGNORECASE)

Query = Callable[[str], Iterable[tuple[Any, ...]]]  # runs a statement on the connection at hand


def sqlite_catalog(query: Query, every_table: bool = False) -> Catalog:
    """The catalog of the main database; with `every_table` of all tables that have a key, adopted or not."""
    schemas = [row[1] for row in query("PRAGMA database_list")]
    relations = {schema: list(query(_RELATIONS.format(schema=_quoted(schema)))) for schema in schemas}
    columns: defaultdict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for owner, name, kind, position in query(_COLUMNS):
        columns[owner.lower()].append((name, kind, position))

    # A virtual table keeps its data in tables whose names start with its own; nobody else is to touch those.
    virtual = tuple(f"{name.lower()}_" for _, name, _, definition in relations["main"] if _VIRTUAL.match(definition))

    def is_recorded(name: str, definition: str) -> bool:
        tagged = any(column == WID for column, _, _ in columns[name])
        keyed = any(position for _, _, position in columns[name])
        usual = not name.startswith(("sqlite_", *virtual)) and name != FENCE_TABLE and not _VIRTUAL.match(definition)
        return usual and (tagged or (every_table and keyed))

    recorded = {
        name.lower(): definition
        for kind, name, _, definition in relations["main"]
        if kind == "table" and is_recorded(name.lower(), definition)
    }
    tainted, weakened = _reasons(query, relations, recorded, columns)
    skipping = _skipping(relations, recorded)
    spelled = {name.lower(): name for kind, name, _, _ in relations["main"] if kind == "table"}

    def table(name: str) -> Table:
        keys = sorted((position, column, kind) for column, kind, position in columns[name] if position)
        return Table(
            name=spelled[name],
            schema="main",
            key_columns=tuple(column for _, column, _ in keys),
            columns=tuple(column for column, _, _ in columns[name] if column not in HIDDEN_COLUMNS),
            has_prev=any(column == PREVIOUS_WID for column, _, _ in columns[name]),
            tainted="; ".join(dict.fromkeys(tainted[name])),
            weakened="; ".join(dict.fromkeys(weakened[name])),
            key_types=tuple(kind.lower() for _, _, kind in keys),
            key_space=key_space("main", name),
            before=RowTriggers(frozenset({UPDATE, DELETE})) if name in skipping else RowTriggers(),
        )

    tables = {name: table(name) for name in sorted(recorded)}
    has_fence = any(column == WID for column, _, _ in columns[FENCE_TABLE])
    views = {}
    for schema, found in relations.items():
        for kind, name, _, definition in found:
            if kind == "view":
                views[schema.lower(), name.lower()] = tuple(
                    tables[base] for base in sorted(_words(definition) & recorded.keys())
                )
    return Catalog(
        tables={("main", name): found for name, found in tables.items()},
        search_path=("temp", *(schema.lower() for schema in schemas if schema != "temp")),
        version=0,
        fence=table(FENCE_TABLE) if has_fence else None,
        views={place: bases for place, bases in views.items() if bases},
        others=frozenset(
            (schema.lower(), name.lower())
            for schema, found in relations.items()
            for kind, name, _, _ in found
            if kind in ("table", "view")
            and not (schema == "main" and name.lower() in recorded)
            and not views.get((schema.lower(), name.lower()))
        ),
        database=(next((number for (number,) in (query(_NUMBER) if has_fence else ())), ""), ""),
    )


def _reasons(
    query: Query,
    relations: dict[str, list[tuple[Any, ...]]],
    recorded: dict[str, str],
    columns: dict[str, list[tuple[str, str, int]]],
) -> tuple[defaultdict[str, list[str]], defaultdict[str, list[str]]]:
    """Why tables are tainted, and why they are weakened."""
    tainted: defaultdict[str, list[str]] = defaultdict(list)
    weakened: defaultdict[str, list[str]] = defaultdict(list)
    keys = {name: {column.lower() for column, _, position in columns[name] if position} for name in recorded}
    for name, definition in recorded.items():
        if not keys[name]:
            tainted[name].append("it has no primary key")
        if _CONFLICT_REPLACE.search(definition):
            tainted[name].append("a constraint says ON CONFLICT REPLACE, which deletes rows")
    for child, parent, column, on_update, on_delete in query(_FOREIGN_KEYS):
        name = child.lower()
        for event, action in (("DELETE", on_delete), ("UPDATE", on_update)):
            if name in recorded and action in _ACTIONS:
                deletes = event == "DELETE" and action == "CASCADE"
                reasons = tainted if deletes or column.lower() in keys[name] else weakened
                reasons[name].append(f"foreign key on {column}: ON {event} {action} from {parent}")
    for kind, trigger, place, definition in (row for found in relations.values() for row in found):
        if kind != "trigger":
            continue
        for write in effects(definition, "sql").writes:
            target = write.name.lower()
            if target in recorded:
                harmless = (
                    write.assigned is not None and not {column.lower() for column in write.assigned} & keys[target]
                )
                (weakened if harmless else tainted)[target].append(f"trigger {trigger} on {place} {WRITES[write.verb]}")
    return tainted, weakened


def _skipping(relations: dict[str, list[tuple[Any, ...]]], recorded: dict[str, str]) -> set[str]:
    """Tables whose triggers or constraints may have a row left as it is without a word."""
    triggers = (row for found in relations.values() for row in found if row[0] == "trigger")
    return {name for name, definition in recorded.items() if _CONFLICT_IGNORE.search(definition)} | {
        place.lower() for _, _, place, definition in triggers if _RAISE_IGNORE.search(definition)
    }


def _words(text: str) -> set[str]:
    return {word.strip('"[]`').lower() for word in _WORD.findall(text)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
