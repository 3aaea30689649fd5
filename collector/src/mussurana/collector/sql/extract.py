"""What results say, read from them afterwards: keys, versions, and rows that are not there.

An observation is `(extract, plan, layout, rows, write_id, keys)`; `rows` is a PGresult, which nothing can change any
more, or a list of rows from SQLite, and `keys` are those asked for of which some were not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mussurana.collector.catalog import Table
from mussurana.collector.extraction import Extract, Observation, Sink
from mussurana.collector.recorder import FENCE_NAME, Recorder
from mussurana.collector.sql.absence import Absence
from mussurana.collector.sql.keys import column_namer, parameter_name, value_name
from mussurana.collector.sql.plan import DELETE, INSERT, UPDATE, Layout, Plan, Write

BINARY = 1
"""Of a column's format, as libpq says it."""

Namer = Callable[[int], str | None]
Version = Callable[[int], int | None]


def postgres_extractor(encoding: str, recorder: Recorder) -> Extract:
    """The extractor for results whose text is encoded so. It also counts the statement: here nobody waits for it."""

    def extract(observation: Observation, sink: Sink) -> None:
        _, plan, layout, result, write_id, keys = observation
        count = recorder.coverage.count
        for key in plan.coverage:
            count(key)
        binary = result.fformat(0)
        made = layout.extractors.get((binary, encoding))
        if made is None:
            made = layout.extractors[binary, encoding] = _postgres_reader(plan, layout, result, encoding)
        sink.statement(plan.statement)
        made(result, write_id, keys, sink)

    return extract


Reader = Callable[[Any, int, Any, Sink], None]


def _postgres_reader(plan: Plan, layout: Layout, sample: Any, encoding: str) -> Reader:
    """What reads the results of a plan. The types of its columns are looked up once, in a sample."""
    is_binary = sample.fformat(0) == BINARY
    version_from = _from_binary if is_binary else _from_text

    def namer(table: Table, columns: Sequence[int]) -> Callable[[Any], Namer]:
        prefix = (table.key_space or table.name) + "/"
        parts = [(column, column_namer(sample.ftype(column), is_binary, encoding)) for column in columns]
        if len(parts) == 1:
            ((only, part),) = parts

            def one(result: Any) -> Namer:
                get_value = result.get_value

                def name(row: int) -> str | None:
                    value = get_value(row, only)
                    return None if value is None else prefix + part(value)

                return name

            return one

        def several(result: Any) -> Namer:
            get_value = result.get_value

            def name(row: int) -> str | None:
                values = [get_value(row, column) for column, _ in parts]
                if None in values:
                    return None
                return prefix + ",".join(part(value) for value, (_, part) in zip(values, parts, strict=True))

            return name

        return several

    if plan.write is None and len(layout.reads) == 1 and len(layout.reads[0][1]) == 1:
        return _single_reader(plan, layout, namer, sample, is_binary, encoding)
    is_special = bool(layout.reads or layout.old_keys) or layout.version >= 0 or layout.previous < 0
    if plan.write is not None and plan.write.kind == UPDATE and not is_special:
        return _update_reader(plan, layout, namer, version_from)
    namers = {(table.name, columns): namer(table, columns) for table, columns in _key_places(plan, layout)}

    def read(result: Any, write_id: int, keys: Any, sink: Sink) -> None:
        get_value = result.get_value

        def version(column: int) -> Version:
            return lambda row: version_from(get_value(row, column))

        def named(table: Table, columns: Sequence[int]) -> Namer:
            return namers[table.name, tuple(columns)](result)

        _extract(plan, layout, range(result.ntuples), named, version, write_id, keys, sink)

    return read


def _key_places(plan: Plan, layout: Layout) -> list[tuple[Table, tuple[int, ...]]]:
    places = [(table, columns) for table, columns, _ in layout.reads]
    if plan.write is not None:
        places += [(plan.write.table, layout.keys), (plan.write.table, layout.old_keys)]
    return places


def _single_reader(
    plan: Plan,
    layout: Layout,
    namer: Callable[..., Callable[[Any], Namer]],
    sample: Any,
    is_binary: bool,
    encoding: str,
) -> Reader:
    """The most frequent case: rows of one table, by a key of one column."""
    ((table, (key_column,), version_column),) = layout.reads
    prefix = (table.key_space or table.name) + "/"
    part = column_namer(sample.ftype(key_column), is_binary, encoding)
    version_from = _from_binary if is_binary else _from_text
    named = namer(table, (key_column,))

    def read(result: Any, write_id: int, keys: Any, sink: Sink) -> None:
        get_value, saw = result.get_value, sink.read
        for row in range(result.ntuples):
            key = get_value(row, key_column)
            if key is not None:
                saw(prefix + part(key), version_from(get_value(row, version_column)) or 0)
        if keys and plan.absence is not None:
            _extract_absent(plan.absence, keys, set(map(named(result), range(result.ntuples))), sink)

    return read


def _update_reader(
    plan: Plan,
    layout: Layout,
    namer: Callable[..., Callable[[Any], Namer]],
    version_from: Callable[[bytes | None], int | None],
) -> Reader:
    """The second most frequent one: an UPDATE that leaves keys alone."""
    assert plan.write is not None
    named = namer(plan.write.table, layout.keys)
    previous_column = layout.previous

    def read(result: Any, write_id: int, keys: Any, sink: Sink) -> None:
        get_value, name_of = result.get_value, named(result)
        for row in range(result.ntuples):
            name = name_of(row)
            if name is not None:
                sink.update(name, write_id, version_from(get_value(row, previous_column)) or 0)
        if keys and plan.absence is not None:
            _extract_absent(plan.absence, keys, set(map(name_of, range(result.ntuples))), sink)

    return read


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

    sink.statement(plan.statement)
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
        _extract_absent(plan.absence, keys, found, sink)


def _extract_absent(absence: Absence, keys: Sequence[tuple[Any, ...]], found: set[str | None], sink: Sink) -> None:
    for name in _names(absence.table, keys):
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
                sink.insert(name, wrote)
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
            sink.insert(name, wrote)


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
