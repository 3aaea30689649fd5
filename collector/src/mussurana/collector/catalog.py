"""What rewriting has to know of a database: its audited tables, and what could write to them unseen.

A catalog is a value, read at once and never changed. Reading is left to `catalog_postgres` and `catalog_sqlite`, which
turn answers of the database into one; asking is left to the adapters, since only they know when a connection is free.

A *tainted* table may get, lose or re-key rows without our seeing it (a cascade deletes, a trigger inserts). Nothing about
it may be recorded: an absent row that the history holds to be there would be a false alarm. A *weakened* one may only have
values changed unseen. Its rows keep their version meanwhile, so the history lacks a write, and is otherwise true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WID = "mussurana_wid"
PREVIOUS_WID = "mussurana_prev_wid"
FENCE_TABLE = "mussurana_fence"
HIDDEN_COLUMNS = (WID, PREVIOUS_WID)

# Migrations run elsewhere, and nothing tells us. Reading takes some milliseconds, so once a minute costs next to nothing;
# a trigger made a minute ago is the longest that one can go unnoticed.
REFRESH_SECONDS = 60.0

# From here on RETURNING OLD gives the version that was overwritten, so the row need not carry it.
RETURNING_OLD_SINCE = 18


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is recorded, or would be if it were not tainted."""

    name: str
    schema: str  # "main" in SQLite
    key_columns: tuple[str, ...]  # in the order of the primary key; never empty unless tainted
    columns: tuple[str, ...]  # what * stands for, without our own
    has_prev: bool
    tainted: str = ""  # why writes may go unseen; empty: they do not
    weakened: str = ""  # why values may change unseen
    key_types: tuple[str, ...] = ()  # of key_columns, as the database calls them: "integer", "uuid", "text"
    key_space: str = ""  # under which name its keys are known: its own, or for a partition that of the whole
    row_security: bool = False  # policies may hide rows, so one that is not returned need not be absent


@dataclass(frozen=True)
class Catalog:
    """One database as it was when read.

    `table()` finds only what is adopted; `tables_behind()` is for names of views; `written_by()` for names of functions.
    """

    tables: Mapping[tuple[str, str], Table]  # by (schema, name)
    search_path: tuple[str, ...]
    version: int  # of the server: 18; 0 for SQLite
    fence: Table | None = None  # None: not adopted, or by hand and without it
    views: Mapping[tuple[str, str], tuple[Table, ...]] = field(default_factory=dict)
    functions: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)  # user-defined ones that write
    others: frozenset[tuple[str, str]] = frozenset()  # relations that are not recorded
    fingerprint: str = ""  # differs if anything above does

    def table(self, name: str, schema: str | None = None) -> Table | None:
        """The adopted table of this name, or None. Names as the database stores them: fold the case of unquoted ones."""
        found = self._find(name, schema)
        return self.tables.get(found) if found else None

    def tables_behind(self, name: str, schema: str | None = None) -> tuple[Table, ...]:
        """The adopted tables that a view shows or, if it is written to, changes."""
        found = self._find(name, schema)
        return self.views.get(found, ()) if found else ()

    def written_by(self, function: str) -> tuple[Table, ...]:
        """The adopted tables that a function of the user's may write to; names are not told apart by schema."""
        return self.functions.get(function, ())

    @property
    def returning_old(self) -> bool:
        return self.version >= RETURNING_OLD_SINCE

    def _find(self, name: str, schema: str | None) -> tuple[str, str] | None:
        for candidate in (schema,) if schema is not None else self.search_path:
            place = (candidate, name)
            if place in self.tables or place in self.views or place in self.others:
                return place
        return None
