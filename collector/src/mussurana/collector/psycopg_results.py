"""Results of psycopg without the columns that are ours.

libpq's results cannot be changed, and psycopg's own code loads rows from them in C; so the real result stays where
psycopg uses it, each row is cut as it is made, and whoever looks at `cursor.pgresult` sees a `VisibleResult`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from psycopg import pq

from mussurana.collector.sql.plan import Layout, Plan

COMMAND_OK = pq.ExecStatus.COMMAND_OK


_ASK_FOR_COLUMNS = frozenset({"fname", "ftype", "fmod", "fsize", "fformat", "ftable", "ftablecol"})


class VisibleResult:
    """A PGresult as it would have been: fewer columns, or no rows where only our RETURNING made them.

    The columns of ours are mostly the last ones, so that the others keep their numbers; then whoever asks for a column
    by its number asks the real result. That is what psycopg does for a description, and it shall not take longer.
    """

    __slots__ = ("columns", "fmod", "fname", "fsize", "ftype", "nfields", "ntuples", "result", "status")

    def __init__(self, result: Any, columns: tuple[int, ...], quiet: bool) -> None:
        self.result = result
        self.columns = columns
        self.nfields = count = len(columns)
        if quiet:
            self.status, self.ntuples = COMMAND_OK, 0
        else:
            self.status, self.ntuples = result.status, result.ntuples
        if count and columns[-1] == count - 1:
            self.fname, self.ftype, self.fmod, self.fsize = result.fname, result.ftype, result.fmod, result.fsize

    def __getattr__(self, name: str) -> Any:
        """All that is not set above."""
        found = getattr(self.result, name)
        return partial(self._ask, found) if name in _ASK_FOR_COLUMNS else found

    def _ask(self, method: Callable[[int], Any], column: int) -> Any:
        return method(self._at(column))

    def _at(self, column: int) -> int:
        return self.columns[column] if 0 <= column < self.nfields else self.result.nfields

    def get_value(self, row: int, column: int) -> Any:
        return self.result.get_value(row, self._at(column))


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
