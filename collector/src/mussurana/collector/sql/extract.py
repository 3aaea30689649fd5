"""What results say, read from them afterwards: keys, versions, and rows that are not there.

An observation is `(extract, plan, layout, rows, write_id, keys)`; `rows` is a PGresult, which nothing can change any
more, or a list of rows from SQLite, and `keys` are those asked for of which some were not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from mussurana.collector.catalog import Table
from mussurana.collector.columns import DELETE as DELETED
from mussurana.collector.columns import INSERT as INSERTED
from mussurana.collector.columns import READ, bind_driver
from mussurana.collector.columns import UPDATE as UPDATED
from mussurana.collector.coverage import UNOBSERVED_READ
from mussurana.collector.database import look_again
from mussurana.collector.extraction import Extract, Observation, Sink
from mussurana.collector.names import FENCE_NAME, Names
from mussurana.collector.recorder import Recorder
from mussurana.collector.sql.keys import column_namer, parameter_name, value_name
from mussurana.collector.sql.plan import DELETE, INSERT, UPDATE, Layout, Plan, Write

BINARY = 1
"""Of a column's format, as libpq says it."""

NAMES_MAX = 200_000
"""Names of keys that are remembered, of all tables together. Some 30 MB; when full it starts anew."""

Found = list[str | None]
"""Names of the rows of a result; None where an outer join found none."""

Versions = list[int | None]


class KeyNames(dict[Any, str | None]):
    """From what the database sends for the key of a row to the name of the key.

    An application comes back to its rows. To find a name takes a tenth of what it takes to make one, and since it is
    the same object each time, so does finding the number that goes with it (fragments.py).
    """

    count: ClassVar[int] = 0  # of all together, since they last started anew

    def __init__(self, kind: tuple[str, tuple[int, ...], bool, str]) -> None:
        super().__init__()
        self.kind = kind
        self._prefix, oids, is_binary, encoding = kind
        self._parts = [column_namer(oid, is_binary, encoding) for oid in oids]
        is_plain = all(part is bytes.decode for part in self._parts)
        self.plain_prefix = self._prefix if is_plain else None  # the values stand in the name as they are

    def name_of(self, value: Any) -> str | None:
        """`value` is what the key's column holds, or a tuple if it has several."""
        if value is None:
            return None
        if len(self._parts) == 1:
            return self._prefix + self._parts[0](value)
        if None in value:
            return None
        return self._prefix + ",".join([part(each) for part, each in zip(self._parts, value, strict=True)])

    def __missing__(self, value: Any) -> str | None:
        name = self.name_of(value)
        if name is None:
            return None
        if KeyNames.count >= NAMES_MAX:
            forget_names()
        KeyNames.count += 1
        self[value] = name
        return name


_key_names: WeakValueDictionary[tuple[Any, ...], KeyNames] = WeakValueDictionary()


def key_names(prefix: str, oids: tuple[int, ...], is_binary: bool, encoding: str) -> KeyNames:
    """One for all plans that name the same keys from the same bytes."""
    kind = (prefix, oids, is_binary, encoding)
    known = _key_names.get(kind)
    if known is None:
        known = _key_names[kind] = KeyNames(kind)
    return known


def forget_names() -> None:
    for known in list(_key_names.values()):
        known.clear()
    KeyNames.count = 0


def postgres_extractor(encoding: str, recorder: Recorder) -> Extract:
    """The extractor for results whose text is encoded so. It also counts the statement: here nobody waits for it."""

    coverage = recorder.coverage

    def extract(observation: Observation, sink: Sink) -> None:
        _, plan, layout, result, write_id, keys = observation
        if layout.column_count != result.nfields or not result.nfields:
            raise ValueError("the result is of another statement")
        if not _is_of_its_tables(plan, layout, result):
            if write_id:
                sink.lose(write_id)
            elif plan.write is not None:
                sink.miss(plan.write.table)
            for table in _tables(plan):
                coverage.count((_space(table), "altered by others meanwhile", UNOBSERVED_READ))
            look_again()
            return
        for key in plan.coverage:
            coverage.count(key)
        names, binary = sink.names, result.fformat(0)
        made = layout.extractors.get((binary, encoding))
        if made is None:
            made = layout.extractors[binary, encoding] = _postgres_reader(plan, layout, result, encoding)
        if binary != BINARY and encoding == "utf-8" and layout not in names.readers:
            _make_reader(plan, layout, result, encoding, recorder, names)
        made(result, write_id, keys, sink)

    return extract


def _is_of_its_tables(plan: Plan, layout: Layout, result: Any) -> bool:
    """Whether a result shows the tables that its plan was made for, by the keys that they had then.

    The server says with each result which columns it shows, and has looked up their names anew. Others may have renamed
    or swapped tables since the catalog was read.
    """
    if layout.altered:
        return False
    for table, columns, version, _ in _steps_of(plan, layout):
        oid = table.oid
        if not oid:
            return True
        for column, (number, kind) in zip(columns, table.key_places, strict=False):
            source = result.ftable(column)
            if source and (source != oid or result.ftablecol(column) != number or result.ftype(column) != kind):
                return False
        if version >= 0 and result.ftable(version) not in (0, oid):
            return False
    return True


def _tables(plan: Plan) -> Iterator[Table]:
    yield from (read.table for read in plan.reads)
    if plan.write is not None:
        yield plan.write.table


Read = Callable[[Any, int, Any, Sink], None]


def _postgres_reader(plan: Plan, layout: Layout, sample: Any, encoding: str) -> Read:
    """What reads the results of a plan. The types of its columns are looked up once, in a sample."""
    is_binary = sample.fformat(0) == BINARY
    number: Callable[[bytes], int] = _binary_number if is_binary else int

    def known_names(table: Table, columns: tuple[int, ...]) -> KeyNames:
        return key_names(_prefix(table), tuple(map(sample.ftype, columns)), is_binary, encoding)

    known = {(table.name, columns): known_names(table, columns) for table, columns in _key_places(plan, layout)}

    def read(result: Any, write_id: int, keys: Any, sink: Sink) -> None:
        rows = range(result.ntuples)

        def column(index: int) -> list[bytes | None]:
            return list(map(result.get_value, rows, repeat(index)))

        def names(table: Table, columns: tuple[int, ...]) -> Found:
            found = [column(index) for index in columns]
            values: Iterable[Any] = found[0] if len(found) == 1 else zip(*found, strict=True)
            return list(map(known[table.name, columns].__getitem__, values))

        def versions(index: int) -> Versions:
            return [None if value is None else number(value) for value in column(index)]

        sink.statement(plan.statement)
        _extract(plan, layout, names, versions, write_id, keys, sink)

    return read


def _make_reader(plan: Plan, layout: Layout, sample: Any, encoding: str, recorder: Recorder, names: Names) -> None:
    """Have the results of a plan read without Python from now on, where that is possible."""
    steps = _steps(plan, layout)
    if not steps or not bind_driver():
        return
    from mussurana.collector._columns import Reader

    given = []
    for table, columns, version_column, kind in steps:
        named = key_names(_prefix(table), tuple(map(sample.ftype, columns)), sample.fformat(0) == BINARY, encoding)
        numbers = names.raw_keys(named.kind, named.name_of, named.plain_prefix)
        shown = columns if version_column < 0 else (*columns, version_column)
        sources = tuple((at, sample.ftable(at), sample.ftablecol(at), sample.ftype(at)) for at in shown)
        given.append((numbers, columns, version_column, kind, kind == READ and len(layout.reads) > 1, sources))
    statement, coverage = names.statement(plan.statement), recorder.coverage
    places = tuple(map(coverage.place, plan.coverage))
    otherwise = postgres_extractor(encoding, recorder)
    names.keep_reader(layout, Reader(tuple(given), statement, coverage.counts, places, otherwise))


Step = tuple[Table, tuple[int, ...], int, int]
"""A table in a result: where its key stands, where a version (-1: nowhere), and the kind of operation of each row."""


def _steps(plan: Plan, layout: Layout) -> list[Step]:
    """What a `Reader` has to do; nothing where that would not be all."""
    write = plan.write
    if write is not None:
        if (
            write.table.deferrable
            or layout.old_keys
            or layout.version >= 0
            or (write.kind != INSERT and layout.previous < 0)
        ):
            return []
        if write.kind == INSERT and (layout.previous >= 0 or write.previous_tells):
            return []
    return _steps_of(plan, layout)


def _steps_of(plan: Plan, layout: Layout) -> list[Step]:
    """All tables in a result."""
    steps: list[Step] = [(table, columns, version, READ) for table, columns, version in layout.reads]
    if plan.write is not None:
        steps.append((plan.write.table, layout.keys, layout.previous, _KINDS[plan.write.kind]))
    return steps


_KINDS = {INSERT: INSERTED, UPDATE: UPDATED, DELETE: DELETED}


def _key_places(plan: Plan, layout: Layout) -> list[tuple[Table, tuple[int, ...]]]:
    places = [(table, columns) for table, columns, _ in layout.reads]
    if plan.write is not None:
        places += [(plan.write.table, layout.keys), (plan.write.table, layout.old_keys)]
    return places


def _space(table: Table) -> str:
    return table.key_space or table.name


def _prefix(table: Table) -> str:
    return _space(table) + "/"


def extract_sqlite(observation: Observation, sink: Sink) -> None:
    _, plan, layout, rows, write_id, keys = observation

    def names(table: Table, columns: tuple[int, ...]) -> Found:
        prefix = _prefix(table)
        found = ([row[column] for column in columns] for row in rows)
        return [None if None in values else prefix + ",".join(map(value_name, values)) for values in found]

    def versions(column: int) -> Versions:
        return [row[column] for row in rows]

    sink.statement(plan.statement)
    _extract(plan, layout, names, versions, write_id, keys, sink)


def extract_fence(observation: Observation, sink: Sink) -> None:
    """`(extract_fence, version, previous)`; a version of 0 if the fence only read."""
    _, version, previous = observation
    if version:
        sink.update(FENCE_NAME, version, previous)
    else:
        sink.read(FENCE_NAME, previous)


def extract_fetched(observation: Observation, sink: Sink) -> None:
    """`(extract_fetched, observations)`: what was fetched through a cursor, at the place of its DECLARE.

    Its rows are as they were when it was declared, whatever the transaction does before it fetches them.
    """
    for each in observation[1]:
        each[0](each, sink)


def extract_lost(observation: Observation, sink: Sink) -> None:
    """`(extract_lost, write_id)`: it may be in the database, but the answer that says where never came."""
    sink.lose(observation[1])


def extract_missed(observation: Observation, sink: Sink) -> None:
    """`(extract_missed, plan)`: the same of a write whose version is the database's own id, which nobody has seen.

    Without a plan it may have been of any table.
    """
    plan = observation[1]
    sink.miss(plan.write.table if plan is not None else None)


def unanswered(plan: Plan | None, write_id: int) -> Observation | None:
    """What there is to observe of a statement that may have run, and of whose answer nothing is known.

    None if it wrote nothing.
    """
    if write_id:
        return extract_lost, write_id
    if plan is not None and plan.write is not None and not plan.takes_id:
        return extract_missed, plan
    return None


def _binary_number(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _extract(
    plan: Plan,
    layout: Layout,
    names_of: Callable[[Table, tuple[int, ...]], Found],
    versions_of: Callable[[int], Versions],
    write_id: int,
    keys: Sequence[tuple[Any, ...]],
    sink: Sink,
) -> None:
    names: Found = []
    for table, key_columns, version_column in layout.reads:
        names = names_of(table, key_columns)
        _extract_reads(names, versions_of(version_column), len(layout.reads) > 1, sink)
    if plan.write is not None:
        names = names_of(plan.write.table, layout.keys)
        _extract_write(plan.write, layout, names, names_of, versions_of, write_id, sink)
    elif keys:
        names = names_of(layout.reads[0][0], layout.reads[0][1])
    if keys and plan.absence is not None:
        found = set(names)
        for name in _names(plan.absence.table, keys):
            if name not in found:
                sink.absent(name)


def _extract_reads(names: Found, versions: Versions, joined: bool, sink: Sink) -> None:
    seen = [(name, version or 0) for name, version in zip(names, versions, strict=True) if name is not None]
    for name, version in dict.fromkeys(seen) if joined else seen:  # a join shows a row once for each of its partners
        sink.read(name, version)


def _extract_write(
    write: Write,
    layout: Layout,
    names: Found,
    names_of: Callable[[Table, tuple[int, ...]], Found],
    versions_of: Callable[[int], Versions],
    write_id: int,
    sink: Sink,
) -> None:
    count = len(names)
    previous: Versions = versions_of(layout.previous) if layout.previous >= 0 else [None] * count
    wrote: Versions = versions_of(layout.version) if layout.version >= 0 else [write_id] * count
    old_names: Found = names_of(write.table, layout.old_keys) if layout.old_keys else [None] * count
    changes = list(zip(names, old_names, previous, wrote, strict=True))
    if write_id and layout.version >= 0:
        changes = _landed(changes, write_id, sink)
    if write.table.deferrable:
        sink.unsettled.update(sink.names.key(name) for name in (*names, *old_names) if name is not None)
        if layout.old_keys and layout.previous >= 0:
            _extract_moves_of_each(changes, sink)
            return
    elif layout.old_keys and layout.previous >= 0:
        _extract_moves(changes, sink)
        return
    for name, _, replaced, version in changes:
        if name is None:
            continue
        version = version or 0
        if write.kind == INSERT:
            if write.previous_tells and replaced is not None:
                sink.update(name, version, replaced)
            else:
                sink.insert(name, version)
        elif layout.previous < 0:
            if write.kind == UPDATE:
                sink.write(name, version)
        elif write.kind == DELETE:
            sink.delete(name, version, replaced or 0)
        else:
            sink.update(name, version, replaced or 0)


Change = tuple[str | None, str | None, int | None, int | None]
"""A row that was written: its name, the name that it had, the version that it had, and the one that it has."""


def _landed(changes: list[Change], write_id: int, sink: Sink) -> list[Change]:
    """Those rows that got our version. A trigger has left the others as they were."""
    for name, _, _, version in changes:
        if name is not None and version != write_id:
            sink.read(name, version or 0)
    return [change for change in changes if change[3] == write_id]


def _extract_moves(changes: list[Change], sink: Sink) -> None:
    """Rows that may have other keys than before. One row may have taken the key that another gave up.

    The version of the row under its new key also names its absence under the old one.
    """
    gone: dict[str, tuple[int, int]] = {}
    come: dict[str, int] = {}
    for new, old, replaced, version in changes:
        if new is not None:
            come[new] = version or 0
            if old is not None:
                gone[old] = replaced or 0, version or 0
    for name, (replaced, version) in gone.items():
        if name in come:
            sink.update(name, come[name], replaced)
        else:
            sink.delete(name, version, replaced)
    for name, version in come.items():
        if name not in gone:
            sink.insert(name, version)


def _extract_moves_of_each(changes: list[Change], sink: Sink) -> None:
    """The same where two rows may have one key for now: row for row, to be settled when all is known."""
    for new, old, replaced, version in changes:
        if new is None:
            continue
        if old is not None and old != new:
            sink.delete(old, version or 0, replaced or 0)
        if old is not None and old == new:
            sink.update(new, version or 0, replaced or 0)
        else:
            sink.insert(new, version or 0)


def _names(table: Table, keys: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    prefix = _prefix(table)
    for key in keys:
        try:
            parts = [parameter_name(value, kind) for value, kind in zip(key, table.key_types, strict=True)]
        except ValueError:  # no such number, no such UUID
            continue
        known = [part for part in parts if part is not None]
        if len(known) == len(table.key_types):
            yield prefix + ",".join(known)
