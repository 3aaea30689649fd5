"""Results of psycopg without the columns that are ours.

Where they are the last ones, and libpq's results are as they are expected to be, they are taken out of the result
itself (`narrow` in columns.py, used in psycopg_lane.py), and there is nothing left to do. Else the real result stays
where psycopg uses it, each row is cut as it is made, and whoever looks at `cursor.pgresult` sees a `VisibleResult`.

Where a value is itself a row of a table, our fields are cut out of its bytes before the loader sees them that the
application has for it. Loaders are found through a transformer, so the cursor is given another one for that result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from psycopg import pq
from psycopg.adapt import AdaptersMap, Transformer

from mussurana.collector.catalog import RowType
from mussurana.collector.composites import cutter_of
from mussurana.collector.psycopg_types import knows_ours
from mussurana.collector.sql.plan import Layout, Plan

COMMAND_OK = pq.ExecStatus.COMMAND_OK
TEXT = pq.Format.TEXT
BINARY = pq.Format.BINARY


_OF_NO_COLUMN = {"fname": None, "ftype": 0, "fmod": 0, "fsize": 0, "fformat": 0, "ftable": 0, "ftablecol": 0}
"""What libpq says of a column that a result does not have. It is not asked, since it would tell the connection as well,
which may be gone."""


class VisibleResult:
    """A PGresult as it would have been: fewer columns, or no rows where only our RETURNING made them."""

    __slots__ = ("columns", "nfields", "ntuples", "result", "status")

    def __init__(self, result: Any, columns: tuple[int, ...], quiet: bool) -> None:
        self.result = result
        self.columns = columns
        self.nfields = len(columns)
        if quiet:
            self.status, self.ntuples = COMMAND_OK, 0
        else:
            self.status, self.ntuples = result.status, result.ntuples

    def __getattr__(self, name: str) -> Any:
        """All that is not set above."""
        found = getattr(self.result, name)
        return partial(self._ask, found, _OF_NO_COLUMN[name]) if name in _OF_NO_COLUMN else found

    def _ask(self, method: Callable[[int], Any], otherwise: Any, column: int) -> Any:
        return method(self.columns[column]) if 0 <= column < self.nfields else otherwise

    def get_value(self, row: int, column: int) -> Any:
        return self.result.get_value(row, self.columns[column]) if 0 <= column < self.nfields else None


def layout_of(plan: Plan, result: Any) -> Layout:
    """Where the columns of a plan are in a result. Mostly known from the last one.

    Raises if the result has not all that the plan speaks of, so that nobody asks it for more than it has.
    """
    layout = plan.layout
    if layout is not None and layout.column_count == result.nfields:
        for index, name in layout.hidden:
            if result.fname(index) != name:
                break
        else:
            return layout
    names = [(result.fname(index) or b"").decode("utf-8", "replace") for index in range(result.nfields)]
    layout = plan.layout_for(names, _rows_in(plan.row_types, result) if plan.row_types else None)
    if not plan.varies:
        plan.layout = layout
    if plan.looks_once and names and layout.visible is None and not layout.rows:
        plan.strips = False
    return layout


def _rows_in(row_types: Mapping[int, RowType], result: Any) -> dict[int, RowType]:
    """The columns of a result that are rows of tables."""
    types = [result.ftype(index) for index in range(result.nfields)]
    return {index: row_types[oid] for index, oid in enumerate(types) if oid in row_types}


class RowsResult(VisibleResult):
    """The same where some values are rows of tables: they are without our fields as well."""

    __slots__ = ("rows",)

    def __init__(self, result: Any, layout: Layout, quiet: bool) -> None:
        super().__init__(result, layout.visible or tuple(range(result.nfields)), quiet)
        self.rows = layout.rows

    def get_value(self, row: int, column: int) -> Any:
        value = super().get_value(row, column)
        row_type = self.rows.get(self.columns[column]) if value is not None else None
        if row_type is None:
            return value
        return cutter_of(row_type, self.fformat(column) == BINARY)(value)


class _Cutting:
    """What psycopg takes for a class of loaders: cuts a value, then has it loaded as the application wants it."""

    def __init__(self, loader: Any, cut: Callable[[bytes], bytes], format: pq.Format) -> None:
        self.loader = loader
        self.cut = cut
        self.format = format

    def __call__(self, oid: int, context: Any) -> _Cutting:
        return self

    def load(self, data: Any) -> Any:
        return self.loader.load(self.cut(bytes(data)))


def show_rows(cursor: Any, layout: Layout, result: Any, quiet: bool, format: pq.Format | None) -> None:
    """Let the application see a result that has rows of tables among its values."""
    cursor.pgresult = RowsResult(result, layout, quiet)
    if cursor._mussurana_layout is layout and cursor._tx is cursor._mussurana_tx:
        return  # more rows of a stream or a server-side cursor, or the same statement again
    adapters = AdaptersMap(cursor.adapters)
    loads = Transformer(cursor)  # arrays of rows and the like find the loaders of what is in them through this one
    for index, row_type in layout.rows.items():
        oid = result.ftype(index)
        if knows_ours(cursor.adapters.types, oid):
            continue
        for each in (TEXT, BINARY):
            cutting: Any = _Cutting(loads.get_loader(oid, each), cutter_of(row_type, each == BINARY), each)
            adapters.register_loader(oid, cutting)
    transformer = Transformer(SimpleNamespace(adapters=adapters, connection=cursor.connection))
    transformer.set_pgresult(result, format=format)
    cursor._tx = cursor._mussurana_tx = transformer
