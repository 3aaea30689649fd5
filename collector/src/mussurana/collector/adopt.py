"""Adopting a database: the statements that let its rows carry versions, and those that take it back.

Pure planning, from a catalog of all tables to a `Migration`; `adopt_command` reads the one and runs the other. Each
statement stands on its own, outside a transaction: adding a column without a default takes an exclusive lock, though
only for an instant, and nobody wants that lock on all tables at once. After each of them the collector can work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mussurana.collector.catalog import FENCE_TABLE, HIDDEN_COLUMNS, WID, Catalog, Table, key_space
from mussurana.collector.identities import SAME_NAMES
from mussurana.wire import EPOCH_BITS, ERA_BEGIN_SECONDS

FENCE_ROW = f"INSERT INTO {{fence}} (id, epoch, {WID}) VALUES (1, {{epoch}}, NULL) ON CONFLICT DO NOTHING"

FIRST_EPOCH = f"(extract(epoch FROM now())::bigint - {ERA_BEGIN_SECONDS}) << {EPOCH_BITS}"
FIRST_EPOCH_SQLITE = f"(strftime('%s', 'now') - {ERA_BEGIN_SECONDS}) << {EPOCH_BITS}"
"""Later than all epochs of a row that was there before, so that a verifier sees that this is another one."""


IDENTIFY = """DO $$BEGIN EXECUTE (
  SELECT format('COMMENT ON COLUMN %s.{column} IS %L', '{place}', 'mussurana ' || json_build_object(
    'keys', '{name}', 'table', s.system_identifier || '/' || d.oid || '/' || k.conrelid || '(' || string_agg(
      a.attnum || ' ' || {kind} || CASE WHEN a.attgenerated = '' THEN '' ELSE ' ' || (SELECT md5(e.adbin::text)
        FROM pg_attrdef e WHERE e.adrelid = a.attrelid AND e.adnum = a.attnum) END, ',' ORDER BY n.place) || ')'))
  FROM pg_control_system() s, pg_database d, pg_constraint k, unnest(k.conkey) WITH ORDINALITY n (number, place),
    pg_attribute a, LATERAL format_type(a.atttypid, NULL) f (kind)
  WHERE d.datname = current_database() AND k.conrelid = CAST('{place}' AS regclass) AND k.contype = 'p'
    AND a.attrelid = k.conrelid AND a.attnum = n.number
  GROUP BY s.system_identifier, d.oid, k.conrelid); END$$"""
"""The comment that `identities` reads, made where it is run: a script may be run on another database than it was made
for. Without a colon, which Alembic takes for the beginning of a parameter."""

NUMBER_SQLITE = (
    f"INSERT INTO {FENCE_TABLE} (id, epoch, {WID}) VALUES (2, random() & {(1 << 63) - 1}, NULL) ON CONFLICT DO NOTHING"
)
"""This number tells an SQLite file from all others. PostgreSQL has such a number by itself."""

ALEMBIC_TABLE = "alembic_version"


class AdoptError(Exception):
    """A database cannot be adopted, or not like this. The message says what to do about it."""


@dataclass(frozen=True)
class Note:
    """Something about a table that its owner should know."""

    table: str
    text: str


@dataclass(frozen=True)
class Migration:
    statements: tuple[str, ...]
    undo: tuple[str, ...]  # takes back just these
    left_out: tuple[Note, ...] = ()  # tables that are not recorded, and why
    notes: tuple[Note, ...] = ()  # tables that are recorded with a reservation

    def __bool__(self) -> bool:
        return bool(self.statements)


@dataclass(frozen=True)
class Grants:
    """Who has rights to what, beside the owners: so that they can go on using it."""

    users: frozenset[str] = frozenset()  # of the tables that are to be adopted, quoted
    columns: tuple[tuple[str, str, str, str], ...] = ()  # (schema, table, role, privilege) granted on single columns


def plan(
    everything: Catalog,
    adopted: Catalog,
    *,
    tables: Iterable[str] = (),
    keyless: Sequence[str] = (),
    grants: Grants | None = None,
    schema: str = "main",
    anew: bool = False,
) -> Migration:
    """What it takes to adopt `tables`, or all that can be recorded; `anew`, with a new era for a fence that is there.

    `everything` holds all tables with a key and `adopted` those that have our columns already. A table that would be
    tainted is left out, since nothing of it would be recorded, unless it was asked for by name.
    """
    wanted = frozenset(tables)
    chosen = [table for table in everything.tables.values() if not wanted or named(table) & wanted]
    known = frozenset().union(*map(named, everything.tables.values()), keyless)
    if unknown := sorted(wanted - known):
        raise AdoptError(f"there is no table {', '.join(unknown)}; write it as in the database, with schema if need be")
    if without := sorted(wanted.intersection(keyless)):
        raise AdoptError(f"{', '.join(without)}: a table needs a primary key to be recorded; add one, then try again")
    statements: list[str] = []
    undo: list[str] = []
    left_out = [] if wanted else [Note(name, "it has no primary key") for name in keyless]
    notes = []
    for table in chosen:
        place, title = quoted_place(everything, table), key_space(table.schema, table.name)
        if table.name == ALEMBIC_TABLE and not wanted:
            left_out.append(Note(title, "Alembic changes its key, without the collector"))
            continue
        if table.tainted and not wanted:
            left_out.append(Note(title, table.tainted))
            continue
        if table.tainted:
            notes.append(Note(title, f"nothing of it will be recorded: {table.tainted}"))
        if table.weakened:
            notes.append(Note(title, f"values may change unseen: {table.weakened}"))
        if table.row_security:
            notes.append(Note(title, "it has row security; users it applies to will not be recorded"))
        missing = [column for column in hidden_columns(everything) if not has_column(adopted, table, column)]
        if missing and not table.is_part:
            statements += add_columns(everything, place, missing)
            undo += drop_columns(everything, place, missing)
            statements += column_grants(grants, table, place, missing)
        if needs_identity(everything, table):
            statements.append(identify(place, table.key_space))
            undo += [] if missing else [f"COMMENT ON COLUMN {place}.{WID} IS NULL"]
    fence = fence_place(everything, schema if adopted.fence is None else adopted.fence.schema)
    if adopted.fence is None:
        statements += create_fence(everything, schema, grants)
        undo.append(f"DROP TABLE {fence}")
    elif anew or adopted.fence_in_force is None:
        statements.append(renew_fence(adopted))
    if everything.version == 0 and not adopted.database[0]:
        statements.append(NUMBER_SQLITE)
        undo += [f"DELETE FROM {FENCE_TABLE} WHERE id = 2"] if adopted.fence else []
    if everything.version and not (adopted.fence and adopted.fence.is_identified):
        for table in adopted.tables.values():  # also those that were not asked for: they keep their names
            place = quoted_place(everything, table)
            statement = identify(place, table.key_space)
            if needs_identity(everything, table) and statement not in statements:
                statements.append(statement)
                undo.append(f"COMMENT ON COLUMN {place}.{WID} IS NULL")
        statements.append(identify(fence, FENCE_TABLE))  # last: from now on a table without is a new one
        undo += [f"COMMENT ON COLUMN {fence}.{WID} IS NULL"] if adopted.fence else []
    return Migration(tuple(statements), tuple(reversed(undo)), tuple(left_out), tuple(notes))


def plan_back(adopted: Catalog, tables: Iterable[str] = ()) -> Migration:
    """What it takes to give the hidden columns up, and the fence unless only some tables are meant."""
    wanted = frozenset(tables)
    known = frozenset().union(*map(named, adopted.tables.values()))
    if unknown := sorted(wanted - known):
        raise AdoptError(f"{', '.join(unknown)}: not adopted, so there is nothing to take back")
    statements: list[str] = []
    undo: list[str] = []
    for table in adopted.tables.values():
        if (not wanted or named(table) & wanted) and not table.is_part:
            place = quoted_place(adopted, table)
            present = [column for column in HIDDEN_COLUMNS if has_column(adopted, table, column)]
            statements += drop_columns(adopted, place, present)
            undo += add_columns(adopted, place, present)
    if adopted.fence is not None and not wanted:
        statements.append(f"DROP TABLE {fence_place(adopted, adopted.fence.schema)}")
        undo += create_fence(adopted, adopted.fence.schema, None)
    return Migration(tuple(statements), tuple(undo))


def named(table: Table) -> frozenset[str]:
    return frozenset({table.name, f"{table.schema}.{table.name}"})


def hidden_columns(catalog: Catalog) -> tuple[str, ...]:
    return (WID,) if catalog.returning_old else HIDDEN_COLUMNS


def has_column(adopted: Catalog, table: Table, column: str) -> bool:
    found = adopted.table(table.name, table.schema)
    return found is not None and (column == WID or found.has_prev)


def add_columns(catalog: Catalog, place: str, columns: Sequence[str]) -> list[str]:
    """SQLite adds one at a time and cannot be asked to look first."""
    if catalog.version == 0:
        return [f"ALTER TABLE {place} ADD COLUMN {column} bigint" for column in columns]
    return [f"ALTER TABLE {place} " + ", ".join(f"ADD COLUMN IF NOT EXISTS {column} bigint" for column in columns)]


def drop_columns(catalog: Catalog, place: str, columns: Sequence[str]) -> list[str]:
    if catalog.version == 0:
        return [f"ALTER TABLE {place} DROP COLUMN {column}" for column in columns]
    return [f"ALTER TABLE {place} " + ", ".join(f"DROP COLUMN IF EXISTS {column}" for column in columns)]


def column_grants(grants: Grants | None, table: Table, place: str, columns: Sequence[str]) -> list[str]:
    """Who may use only some columns has to be allowed ours too. To read them is part of every RETURNING."""
    rights: dict[str, set[str]] = {}
    for schema, name, role, privilege in grants.columns if grants else ():
        if (schema, name) == (table.schema, table.name) and privilege in ("SELECT", "INSERT", "UPDATE"):
            rights.setdefault(role, {"SELECT"}).add(privilege)
    of_columns = f"({', '.join(columns)})"
    return [
        f"GRANT {', '.join(f'{privilege} {of_columns}' for privilege in sorted(privileges))} ON {place} TO {role}"
        for role, privileges in sorted(rights.items())
    ]


def needs_identity(catalog: Catalog, table: Table) -> bool:
    return catalog.version > 0 and not table.is_identified and not table.is_part and bool(table.key_columns)


def identify(place: str, name: str) -> str:
    """Write down on a table which one it is, and what its keys are called from now on; see `identities`."""
    same = " ".join(f"WHEN '{kind}' THEN '{other}'" for kind, other in SAME_NAMES.items())
    kind = f"CASE f.kind {same} ELSE f.kind END"
    return IDENTIFY.format(column=WID, place=literal(place), name=literal(name), kind=kind)


def literal(text: str) -> str:
    """For between quotes."""
    return text.replace("'", "''")


def create_fence(catalog: Catalog, schema: str, grants: Grants | None) -> list[str]:
    fence = fence_place(catalog, schema)
    columns = f"id int PRIMARY KEY, epoch bigint NOT NULL, {WID} bigint"
    first = FIRST_EPOCH_SQLITE if catalog.version == 0 else FIRST_EPOCH
    statements = [f"CREATE TABLE IF NOT EXISTS {fence} ({columns})", FENCE_ROW.format(fence=fence, epoch=first)]
    if grants and grants.users:
        statements.append(f"GRANT SELECT, UPDATE ON {fence} TO {', '.join(sorted(grants.users))}")
    return statements


def renew_fence(adopted: Catalog) -> str:
    """Make the fence row as it would be in a table made now: whoever verifies lets go of all that was before.

    The era is a later one also where the last one began in the same second, as after a dump was restored at once.
    """
    assert adopted.fence is not None
    first = FIRST_EPOCH_SQLITE if adopted.version == 0 else FIRST_EPOCH
    later = "max" if adopted.version == 0 else "greatest"
    epoch = f"{later}({first}, ((epoch >> {EPOCH_BITS}) + 1) << {EPOCH_BITS})"
    return f"UPDATE {fence_place(adopted, adopted.fence.schema)} SET epoch = {epoch}, {WID} = NULL WHERE id = 1"


def fence_place(catalog: Catalog, schema: str) -> str:
    return FENCE_TABLE if catalog.version == 0 else f"{quoted(schema)}.{FENCE_TABLE}"


def quoted_place(catalog: Catalog, table: Table) -> str:
    return quoted(table.name) if catalog.version == 0 else f"{quoted(table.schema)}.{quoted(table.name)}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def is_ours(name: str) -> bool:
    """Whether a table or column is there only for us."""
    return name in HIDDEN_COLUMNS or name == FENCE_TABLE
