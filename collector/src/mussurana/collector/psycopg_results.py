"""Results of psycopg without the columns that are ours.

libpq's results cannot be changed, and psycopg's own code loads rows from them in C; so the real result stays where
psycopg uses it, each row is cut as it is made, and whoever looks at `cursor.pgresult` sees a `VisibleResult`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import pq

from mussurana.collector.sql.plan import Layout, Plan

COMMAND_OK = pq.ExecStatus.COMMAND_OK
TUPLES_OK = pq.ExecStatus.TUPLES_OK


class VisibleResult:
    """A PGresult as it would have been: fewer columns, or no rows where only our RETURNING made them."""

    __slots__ = ("_columns", "_result", "nfields", "ntuples", "status")

    def __init__(self, result: Any, columns: Sequence[int], quiet: bool) -> None:
        self._result = result
        self._columns = columns
        self.nfields = len(columns)
        self.status = COMMAND_OK if quiet else result.status
        self.ntuples = 0 if quiet else result.ntuples

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    def _at(self, column: int) -> int:
        return self._columns[column] if 0 <= column < self.nfields else self._result.nfields

    def fname(self, column: int) -> Any:
        return self._result.fname(self._at(column))

    def ftable(self, column: int) -> Any:
        return self._result.ftable(self._at(column))

    def ftablecol(self, column: int) -> Any:
        return self._result.ftablecol(self._at(column))

    def fformat(self, column: int) -> Any:
        return self._result.fformat(self._at(column))

    def ftype(self, column: int) -> Any:
        return self._result.ftype(self._at(column))

    def fmod(self, column: int) -> Any:
        return self._result.fmod(self._at(column))

    def fsize(self, column: int) -> Any:
        return self._result.fsize(self._at(column))

    def get_value(self, row: int, column: int) -> Any:
        return self._result.get_value(row, self._at(column))


def layout_of(plan: Plan, result: Any) -> Layout:
    """Where the columns of a plan are in a result. Mostly known from the last one."""
    layout = plan.layout
    if layout is not None and layout.column_count == result.nfields:
        for index, name in layout.hidden:
            if result.fname(index) != name:
                break
        else:
            return layout
    names = [(result.fname(index) or b"").decode("utf-8", "replace") for index in range(result.nfields)]
    layout = plan.layout = plan.layout_for(names)
    return layout
