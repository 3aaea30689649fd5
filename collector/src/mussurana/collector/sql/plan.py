"""A plan: all that has to be known of one SQL text, worked out once.

On the hot path an adapter takes the plan's text, lets it add a write id to the parameters, and appends the result to
the transaction. What the result says is read later, by `extract`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from mussurana.collector.catalog import RowType, Table
from mussurana.collector.coverage import UNOBSERVED_READ, Key
from mussurana.collector.sql.absence import Absence
from mussurana.collector.sql.control import Control
from mussurana.collector.sql.splice import Injection

PREFIX = "mussurana_"
"""Of the names of all that is ours in a result. No column of an application may start with it."""

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"

Place = int | str
"""Of a column in a result: its index, from the end if negative; or its name, where a star hides the index."""


@dataclass(frozen=True, slots=True)
class Read:
    """One table in a SELECT: where its keys and versions stand in each row."""

    table: Table
    keys: tuple[Place, ...]
    version: Place


@dataclass(frozen=True, slots=True)
class Write:
    """What a statement wrote: where RETURNING says which rows, and which versions were overwritten."""

    kind: str
    table: Table
    keys: tuple[Place, ...]
    previous: Place | None = None  # the version overwritten
    old_keys: tuple[Place, ...] = ()  # where an UPDATE may have changed the key, or an INSERT have become an UPDATE
    previous_tells: bool = (
        False  # an INSERT became an UPDATE where `previous` is not null; else, where old_keys are not
    )
    version: Place | None = None  # the row's afterwards: with xmin, and where a trigger may keep the one that it had


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A plan's columns in a result of one shape."""

    column_count: int
    visible: tuple[int, ...] | None  # None: all of them
    hidden: tuple[tuple[int, bytes], ...]  # columns of ours inside a star: they move when a table is altered; and rows
    reads: tuple[tuple[Table, tuple[int, ...], int], ...]
    keys: tuple[int, ...] = ()
    old_keys: tuple[int, ...] = ()
    previous: int = -1
    version: int = -1
    cut: Callable[[Sequence[Any]], Any] | None = None  # makes a tuple of the visible columns of a row
    extractors: dict[Any, Any] = field(default_factory=dict)  # what reads results of this shape, made when needed
    rows: Mapping[int, RowType] = field(default_factory=dict)  # columns that are rows of tables, with ours in them
    narrow_to: int = -1  # how many columns are visible, if they are the first ones and always will be
    altered: bool = False  # it has not the columns that it should have, so nothing can be recorded of it


@dataclass(slots=True, eq=False)
class Plan:
    text: str  # to send
    original: str
    statement: str = ""  # the text for people, without values
    injection: Injection | None = None
    takes_id: bool = False  # it writes; each execution needs a write id
    reads: tuple[Read, ...] = ()
    write: Write | None = None
    absence: Absence | None = None
    rows_expected: int = 0  # with fewer rows, keys that were asked for are absent
    control: Control | None = None
    quiet: bool = False  # the application asked for no rows, and shall see none
    visible_count: int = -1  # how many columns are the application's; -1: not known, look at their names
    strips: bool = False  # whether a result can have columns of ours
    looks_once: bool = False  # it strips until it is known that there is nothing to strip
    varies: bool = False  # the text does not tell which columns a result has
    row_types: Mapping[int, RowType] | None = field(default=None, repr=False)
    coverage: tuple[Key, ...] = (("", "other", UNOBSERVED_READ),)
    taints: tuple[Table, ...] = ()  # tables that it may write to unseen
    passes: frozenset[tuple[str | None, str]] = frozenset()  # what it writes to that is not adopted: schema and name
    tables: frozenset[tuple[str, str]] = frozenset()  # that it records; see Plans.taint
    unqualified: bool = False  # it found tables through the search path
    names_columns: bool = False  # as it was written, a value too many would get into our column
    controls: tuple[Control | None, ...] = ()  # of each statement, where a text holds several
    locks: bool = False  # rows, and then shows the last version of each, whatever its snapshot is
    pure: bool = False  # a ROLLBACK after it would have nothing to undo
    live: bool = True  # False: one of its tables was tainted; nothing that it saw may be recorded
    quick: bool = False  # it is recorded, and nothing else has to be done about it
    used: bool = False  # since the cache was last cleared out
    layout: Layout | None = field(default=None, repr=False)
    converted: Any = field(default=None, repr=False)  # what the driver makes of the text

    def notice_absence(self, absence: Absence | None) -> None:
        if absence is not None:
            self.absence = absence
            self.rows_expected = absence.expected

    @property
    def observes(self) -> bool:
        return bool(self.reads) or self.write is not None

    def _places(self) -> Iterator[tuple[Place, ...]]:
        """Where a result has what is recorded."""
        for read in self.reads:
            yield (*read.keys, read.version)
        if self.write is not None:
            yield (*self.write.keys, *self.write.old_keys)

    def layout_for(self, names: Sequence[str], rows: Mapping[int, RowType] | None = None) -> Layout:
        """Where the columns are in a result whose columns have these names; `rows` are those that are rows.

        Raises if one of them is not there.
        """
        count = len(names)
        rows = rows or {}
        if self.quiet:
            visible: tuple[int, ...] | None = ()
            hidden: tuple[tuple[int, bytes], ...] = ()
        elif self.visible_count >= 0:
            if self.visible_count > count:
                raise IndexError(f"{self.visible_count} columns of {count}")
            visible, hidden = tuple(range(self.visible_count)), ()
        else:
            visible = tuple(index for index, name in enumerate(names) if not name.startswith(PREFIX))
            hidden = tuple((index, name.encode()) for index, name in enumerate(names) if name.startswith(PREFIX))
        if visible is not None and len(visible) == count:
            visible = None
        hidden += tuple((index, names[index].encode()) for index in rows)

        def at(place: Place) -> int:
            if isinstance(place, str):
                return names.index(place)
            index = place if place >= 0 else count + place
            if not 0 <= index < count:
                raise IndexError(f"column {place} of {count}")
            return index

        if {place for each in self._places() for place in each if isinstance(place, str)}.difference(names):
            cut = None if visible is None else cutter(visible)
            return Layout(count, visible, hidden, (), cut=cut, rows=rows, altered=True)
        reads = tuple((read.table, tuple(map(at, read.keys)), at(read.version)) for read in self.reads)
        cut = None if visible is None else cutter(visible)
        narrow_to = -1
        if visible is not None and visible == tuple(range(len(visible))) and not hidden:
            narrow_to = len(visible)
        write = self.write
        if write is None:
            return Layout(count, visible, hidden, reads, cut=cut, rows=rows, narrow_to=narrow_to)
        return Layout(
            count,
            visible,
            hidden,
            reads,
            tuple(map(at, write.keys)),
            tuple(map(at, write.old_keys)),
            -1 if write.previous is None else at(write.previous),
            -1 if write.version is None else at(write.version),
            cut,
            rows=rows,
            narrow_to=narrow_to,
        )


def cutter(visible: tuple[int, ...]) -> Callable[[Sequence[Any]], Any]:
    """Takes some columns out of a row. An itemgetter runs in C, which a lambda does not."""
    if visible == tuple(range(len(visible))):
        return itemgetter(slice(len(visible)))
    if len(visible) > 1:
        return itemgetter(*visible)
    return lambda row: tuple(row[index] for index in visible)
