"""What results say, read from them in the background: keys, versions, and rows that are not there.

An observation is `(extract, plan, layout, rows, write_id, keys)`; `rows` is a PGresult, which nothing can change any
more, or a list of rows from SQLite, and `keys` are those asked for of which some were not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from mussurana.collector.catalog import Table
from mussurana.collector.extraction import Extract, Observation, Sink
from mussurana.collector.recorder import FENCE_NAME
from mussurana.collector.sql.keys import column_namer, parameter_name, value_name
from mussurana.collector.sql.plan import DELETE, INSERT, Layout, Plan, Write

BINARY = 1
"""Of a column's format, as libpq says it."""

Namer = Callable[[int], str | None]
Version = Callable[[int], int | None]


@lru_cache(maxsize=16)  # encodings, of which an application uses one
def postgres_extractor(encoding: str) -> Extract:
    """The extractor for results whose text is encoded so."""

    def extract(observation: Observation, sink: Sink) -> None:
        _extract_postgres(observation, sink, encoding)

    return extract


def _extract_postgres(observation: Observation, sink: Sink, encoding: str) -> None:
    _, plan, layout, result, write_id, keys = observation
    get_value = result.get_value

    def namer(table: Table, columns: Sequence[int]) -> Namer:
        prefix = (table.key_space or table.name) + "/"
        if len(columns) == 1:
            (column,) = columns
            part = column_namer(result.ftype(column), result.fformat(column) == BINARY, encoding)

            def name_one(row: int) -> str | None:
                value = get_value(row, column)
                return None if value is None else prefix + part(value)

            return name_one
        parts = [
            (column, column_namer(result.ftype(column), result.fformat(column) == BINARY, encoding))
            for column in columns
        ]

        def name_several(row: int) -> str | None:
            values = [get_value(row, column) for column, _ in parts]
            if None in values:
                return None
            return prefix + ",".join(part(value) for value, (_, part) in zip(values, parts, strict=True))

        return name_several

    def version(column: int) -> Version:
        if result.fformat(column) == BINARY:
            return lambda row: _from_binary(get_value(row, column))
        return lambda row: _from_text(get_value(row, column))

    _extract(plan, layout, range(result.ntuples), namer, version, write_id, keys, sink)


def extract_sqlite(observation: Observation, sink: Sink) -> None:
    _, plan, layout, rows, write_id, keys = observation

    def namer(table: Table, columns: Sequence[int]) -> Namer:
        prefix = (table.key_space or table.name) + "/"

        def name(row: int) -> str | None:
            values = [rows[row][column] for column in columns]
            return None if None in values else prefix + ",".join(map(value_name, values))

        return name

    def version(column: int) -> Version:
        return lambda row: rows[row][column]

    _extract(plan, layout, range(len(rows)), namer, version, write_id, keys, sink)


def extract_fence(observation: Observation, sink: Sink) -> None:
    """`(extract_fence, version, previous)`; a version of 0 if the fence only read."""
    _, version, previous = observation
    if version:
        sink.update(FENCE_NAME, version, previous)
    else:
        sink.read(FENCE_NAME, previous)


def extract_lost(observation: Observation, sink: Sink) -> None:
    """`(extract_lost, write_id)`: it may be in the database, but the answer that says where never came."""
    sink.lose(observation[1])


def _from_text(value: bytes | None) -> int | None:
    return None if value is None else int(value)


def _from_binary(value: bytes | None) -> int | None:
    return None if value is None else int.from_bytes(value, "big", signed=True)


def _extract(
    plan: Plan,
    layout: Layout,
    rows: range,
    namer: Callable[[Table, Sequence[int]], Namer],
    version: Callable[[int], Version],
    write_id: int,
    keys: Sequence[tuple[Any, ...]],
    sink: Sink,
) -> None:
    sink.statement(plan.statement)
    for table, key_columns, version_column in layout.reads:
        name_of, version_of = namer(table, key_columns), version(version_column)
        if len(layout.reads) == 1:
            for row in rows:
                name = name_of(row)
                if name is not None:
                    sink.read(name, version_of(row) or 0)
        else:  # a join shows a row once for each of its partners
            pairs = dict.fromkeys((name_of(row), version_of(row)) for row in rows)
            for name, seen in pairs:
                if name is not None:
                    sink.read(name, seen or 0)
    found: set[str | None] = set()
    write = plan.write
    if write is not None:
        names = namer(write.table, layout.keys)
        found = set(map(names, rows)) if keys else found
        _extract_write(write, layout, rows, names, namer, version, write_id, sink)
    elif keys:
        table, key_columns, _ = layout.reads[0]
        found = set(map(namer(table, key_columns), rows))
    if keys and plan.absence is not None:
        for name in _names(plan.absence.table, keys):
            if name not in found:
                sink.absent(name)


def _extract_write(
    write: Write,
    layout: Layout,
    rows: range,
    name_of: Namer,
    namer: Callable[[Table, Sequence[int]], Namer],
    version: Callable[[int], Version],
    write_id: int,
    sink: Sink,
) -> None:
    previous_of = version(layout.previous) if layout.previous >= 0 else None
    version_of = version(layout.version) if layout.version >= 0 else None
    if write.kind == INSERT:
        old_name_of = namer(write.table, layout.old_keys) if layout.old_keys else None
        for row in rows:
            name = name_of(row)
            if name is None:
                continue
            wrote = write_id if version_of is None else version_of(row) or 0
            previous = previous_of(row) if previous_of is not None else None
            became_update = previous is not None if write.previous_tells else bool(old_name_of and old_name_of(row))
            if became_update:
                sink.update(name, wrote, previous or 0)
            else:
                sink.write(name, wrote)
    elif write.kind == DELETE:
        for row in rows:
            name = name_of(row)
            if name is not None and previous_of is not None:
                sink.delete(name, write_id if version_of is None else version_of(row) or 0, previous_of(row) or 0)
    elif layout.old_keys and previous_of is not None:
        _extract_moves(rows, name_of, namer(write.table, layout.old_keys), previous_of, version_of, write_id, sink)
    else:
        for row in rows:
            name = name_of(row)
            if name is None:
                continue
            wrote = write_id if version_of is None else version_of(row) or 0
            if previous_of is None:
                sink.write(name, wrote)
            else:
                sink.update(name, wrote, previous_of(row) or 0)


def _extract_moves(
    rows: range,
    new_name_of: Namer,
    old_name_of: Namer,
    previous_of: Version,
    version_of: Version | None,
    write_id: int,
    sink: Sink,
) -> None:
    """An UPDATE that gave rows other keys. One row may have taken the key that another gave up."""
    gone: dict[str, int] = {}
    come: dict[str, int] = {}
    for row in rows:
        old, new = old_name_of(row), new_name_of(row)
        if old is not None and new is not None:
            gone[old] = previous_of(row) or 0
            come[new] = write_id if version_of is None else version_of(row) or 0
    for name, previous in gone.items():
        if name in come:
            sink.update(name, come[name], previous)
        else:
            sink.delete(name, write_id, previous)
    for name, wrote in come.items():
        if name not in gone:
            sink.write(name, wrote)


def _names(table: Table, keys: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    prefix = (table.key_space or table.name) + "/"
    for key in keys:
        try:
            parts = [parameter_name(value, kind) for value, kind in zip(key, table.key_types, strict=True)]
        except ValueError:  # no such number, no such UUID
            continue
        known = [part for part in parts if part is not None]
        if len(known) == len(table.key_types):
            yield prefix + ",".join(known)
