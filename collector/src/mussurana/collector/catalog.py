"""What rewriting has to know of a database: its audited tables, and what could write to them unseen.

A catalog is a value, read at once and never changed. Reading is left to `catalog_postgres` and `catalog_sqlite`, which
turn answers of the database into one; asking is left to the adapters, since only they know when a connection is free.

A *tainted* table may get, lose or re-key rows without our seeing it (a cascade deletes, a trigger inserts), or cannot
be tagged without the application noticing. Its statements stay as they are and nothing about it is recorded: an absent
row that the history holds to be there would be a false alarm. A *weakened* table may only have values changed unseen.
Its rows keep their version meanwhile, so the history lacks a write and is otherwise true.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mussurana.collector.identities import is_numbered
from mussurana.collector.row_triggers import RowTriggers

WID = "mussurana_wid"
PREVIOUS_WID = "mussurana_prev_wid"
FENCE_TABLE = "mussurana_fence"
HIDDEN_COLUMNS = (WID, PREVIOUS_WID)

# Migrations run elsewhere, and nothing tells us. Reading takes some milliseconds, so once a minute costs next to
# nothing; a minute is then the longest that a new trigger can go unnoticed.
REFRESH_SECONDS = 60.0

# From this version on RETURNING OLD gives the version that was overwritten, so that the row need not carry it.
RETURNING_OLD_SINCE = 18


@dataclass(frozen=True, slots=True)
class RowType:
    """The type that a table's rows have as values, or of arrays of them, with our columns among its fields."""

    field_count: int
    hidden: frozenset[int]  # the numbers of ours, from 0 on
    is_array: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is recorded, or would be if it were not tainted."""

    name: str
    schema: str  # "main" in SQLite
    key_columns: tuple[str, ...]  # in the order of the primary key; empty only if tainted
    columns: tuple[str, ...]  # what * stands for, without our own
    has_prev: bool
    tainted: str = ""  # why writes may go unseen; empty: they do not
    weakened: str = ""  # why values may change unseen
    key_types: tuple[str, ...] = ()  # of key_columns, as the database calls them: "integer", "uuid", "text"
    key_space: str = ""  # the name that its keys go by: its own, or for a partition that of the whole
    columns_after: int = 0  # how many were added after ours
    row_security: bool = False  # it has policies; where they apply to the user at hand it is tainted as well
    generated: tuple[str, ...] = ()  # columns that are computed from others
    row_type: RowType | None = None
    row_oids: tuple[int, int] = (0, 0)  # of that type, and of its arrays
    is_part: bool = False  # of a partitioned table
    oid: int = 0  # 0 in SQLite, which has none
    key_places: tuple[tuple[int, int], ...] = ()  # of key_columns: the column's number in the table, and its type
    identity: str = ""  # what makes it this table, as `identities` writes it down; empty in SQLite
    is_identified: bool = False  # `adopt` has written that down
    key_from: frozenset[str] = frozenset()  # columns that generated ones of the key are computed from
    deferrable: bool = False  # two rows may have one key until the transaction is committed
    before: RowTriggers = field(default_factory=RowTriggers)  # what its triggers do to rows before they are written
    is_whole: bool = False  # it has partitions

    @property
    def key_sources(self) -> frozenset[str]:
        """The columns that decide what its rows are called."""
        return self.key_from.union(self.key_columns)


@dataclass(frozen=True)
class Catalog:
    """One database as it was when read, and as one user sees it. Equal catalogs mean that nothing has changed.

    Names are as the database stores them: the caller folds the case of those without quotes.
    """

    tables: Mapping[tuple[str, str], Table]  # by (schema, name)
    search_path: tuple[str, ...]
    version: int  # of the server: 18; 0 for SQLite
    fence: Table | None = None  # None: not adopted
    views: Mapping[tuple[str, str], tuple[Table, ...]] = field(default_factory=dict)
    functions: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)  # the user's own that write
    others: frozenset[tuple[str, str]] = frozenset()  # relations that are not recorded
    database: tuple[str, str] = ("", "")  # which one it is: its server, as far as known, and its number there
    server_tells: bool = False  # the user may ask which server it is

    def table(self, name: str, schema: str | None = None) -> Table | None:
        """The adopted table of this name, or None."""
        found = self._find(name, schema)
        return self.tables.get(found) if found else None

    def has(self, name: str, schema: str | None = None) -> bool:
        """Whether there is a relation of this name at all."""
        return self._find(name, schema) is not None

    def tables_behind(self, name: str, schema: str | None = None) -> tuple[Table, ...]:
        """The adopted tables that a view shows or, if it is written to, changes."""
        found = self._find(name, schema)
        return self.views.get(found, ()) if found else ()

    def written_by(self, function: str) -> tuple[Table, ...]:
        """The adopted tables that a function of the user's may write to. Schemas of functions are not told apart."""
        return self.functions.get(function, ())

    @property
    def fence_in_force(self) -> Table | None:
        """The fence, unless it is a copy or was restored: then its row says nothing until it is adopted again."""
        return None if self.fence is None or is_numbered(self.fence.key_space) else self.fence

    @cached_property
    def began_anew(self) -> frozenset[str]:
        """What tables are called whose rows may have been written under other names."""
        return frozenset(table.key_space for table in self.tables.values() if is_numbered(table.key_space))

    @cached_property
    def row_types(self) -> Mapping[int, RowType]:
        """The types of rows that have our columns in them, by oid."""
        found: dict[int, RowType] = {}
        for table in self.tables.values():
            if table.row_type is not None:
                row, array = table.row_oids
                found[row] = table.row_type
                found[array] = replace(table.row_type, is_array=True)
        found.pop(0, None)
        return found

    @property
    def returning_old(self) -> bool:
        return self.version >= RETURNING_OLD_SINCE

    def _find(self, name: str, schema: str | None) -> tuple[str, str] | None:
        if self.version == 0:  # SQLite keeps the case of names, but does not look at it
            name, schema = name.lower(), schema.lower() if schema is not None else None
        for candidate in (schema,) if schema is not None else self.search_path:
            place = (candidate, name)
            if place in self.tables or place in self.views or place in self.others:
                return place
        return None


class CatalogCache:
    """The catalogs of a process, by database. Whoever gets None reads one, when the connection is free, and puts it."""

    DATABASES_MAX = 64  # an application has a few; one that makes a database per tenant reads catalogs more often

    def __init__(self) -> None:
        self._read: dict[Hashable, tuple[Catalog, float]] = {}

    def get(self, database: Hashable, now_seconds: float) -> Catalog | None:
        catalog, read_seconds = self._read.get(database, (None, 0.0))
        return catalog if now_seconds - read_seconds < REFRESH_SECONDS else None

    def put(self, database: Hashable, catalog: Catalog, now_seconds: float) -> None:
        while len(self._read) >= self.DATABASES_MAX and database not in self._read:
            self._read.pop(next(iter(self._read)), None)
        self._read[database] = (catalog, now_seconds)

    def forget(self, database: Hashable) -> None:
        """After a statement that may have changed the schema."""
        self._read.pop(database, None)


def key_space(schema: str, name: str) -> str:
    """The same in every process, whatever its search path."""
    return name if schema in ("public", "main") else f"{schema}.{name}"
