"""Whether a machine that was made from a file holds together: what kernels index, and what refers to what.

A state may be damaged where no checksum tells, or be made by somebody else. Kernels look at no bounds, so an offset
that points beyond its column would end the process, and a session that nobody knows would end each round. What is only
untrue, such as a version that nobody wrote, is no concern here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mussurana.verifier.history import NO_ROW, NO_VALUE, UNKNOWN_TIME, Isolation, Kind, Status
from mussurana.verifier.rounds.alarms import Alarm
from mussurana.verifier.rounds.batch import OP_COLUMNS, PAST_VERSION, TXN_COLUMNS, Batch
from mussurana.verifier.rounds.bounds import EPOCH_MAX, SEQUENCE_MAX, TIME_NS_MAX, VERSION_MAX
from mussurana.verifier.rounds.fences import Border
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.stored import conforms
from mussurana.verifier.rounds.table import VersionTable
from mussurana.verifier.rounds.xids import SEVERAL
from mussurana.wire import COUNTER_BITS, FENCE_KEY, TAG_MAX

if TYPE_CHECKING:
    from mussurana.verifier.rounds.level import LevelRounds
    from mussurana.verifier.rounds.machine import Verifier

TIMES = ("begin_ns", "begun_ns", "commit_ns", "committed_ns")
COUNT_MAX = (1 << 63) - 1


def complaints(machine: Verifier) -> Iterator[str]:
    """What does not hold together, in words; nothing if all does."""
    yield from _about_collectors(machine)
    yield from _about_claims(machine)
    yield from (f"{name} is no count" for name, count in _counts(machine) if not _is_count(count))
    if not conforms(machine.key_names, dict[int, str]) or not conforms(machine.collisions.told_by, dict[int, bytes]):
        yield "names of keys"
    if not conforms(machine.moved.tables, set[str]):
        yield "names of tables"
    if not all(conforms(alarm, Alarm) and alarm.id == id for id, alarm in machine.alarms.by_id.items()):
        yield "alarms"
    yield from _about_batch("the pool", machine.admission.pool, machine)
    yield from _about_ranges("lost versions", machine.lost)
    yield from _about_table("the initial transaction ids", machine.initial_xids.table, SEVERAL)
    for level in machine.levels:
        yield from _about_level(level, machine)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= COUNT_MAX


def _counts(machine: Verifier) -> Iterator[tuple[str, object]]:
    names = ("collectors_made", "sessions_made", "lost_txns", "lost_fragments", "rounds", "fenced_epoch", "begun_anew")
    yield from ((name, getattr(machine, name)) for name in (*names, "epoch", "ignored_claims", "clocks_set_back"))
    yield from machine.unchecked.items()
    yield "given_up_txns", machine.admission.given_up_txns
    yield from ((f"reads of {taint.table}", reads) for taint, reads in machine.blamed.items())


def _about_collectors(machine: Verifier) -> Iterator[str]:
    from mussurana.verifier.rounds.machine import Collector, Session

    for known in machine.collectors.values():
        if not conforms(known, Collector) or not 0 <= known.sequence <= SEQUENCE_MAX:
            yield "a collector"
            return
        for number, at in known.sessions.items():
            session = machine.sessions.get(at)
            if session is None or session.collector != known.id or session.number != number:
                yield f"session {number} of a collector is not there"
    for at, session in machine.sessions.items():
        if not conforms(at, int) or not conforms(session, Session) or not 0 <= session.admitted <= session.delivered:
            yield "a session"
            return
        known_as = machine.collectors.get(session.collector)
        if not 0 <= at < machine.sessions_made or known_as is None or known_as.sessions.get(session.number) != at:
            yield f"session {at} is not one of its collector"
    if set(machine.collectors) != {known.id for known in machine.collectors.values()}:
        yield "a collector by another's id"


def _about_claims(machine: Verifier) -> Iterator[str]:
    owners, progress = machine.owners, machine.admission.progress
    tags = {*owners.of, *owners.contester, *owners.disputed, *progress.settled, *progress.drawn}
    tags |= {tag for known in machine.collectors.values() for tag in (*known.tags, *known.lost_from)}
    if not conforms(tags, set[int]) or not all(0 <= tag <= TAG_MAX for tag in tags):
        yield "a tag"
    elif not all(_is_of_tag(tag, first) for told in (progress.settled, progress.drawn) for tag, first in told.items()):
        yield "a write id of another tag"
    if not conforms(progress.horizons, tuple[int, ...]) or not all(
        0 <= each >> COUNTER_BITS < 1 for each in progress.horizons
    ):
        yield "a horizon"
    if len(owners.pair_key) != len(owners.pair_version):
        yield "versions of contested tags"
    if len(progress.ended.first) != len(progress.ended.owner) or (np.diff(progress.ended.first) <= 0).any():
        yield "tags that ended"
    if not _within(progress.ahead(), 0, VERSION_MAX) or not _within(progress.ended.first, 0, VERSION_MAX + 1):
        yield "versions that arrived"
    if not all(type(taint.table) is str and _is_time(told_ns) for taint, told_ns in machine.taints.told_ns.items()):
        yield "taints"
    times = (machine.last_round_ns, machine.resumed_ns, machine.proven_ns, machine.epoch_reached_ns)
    if not all(map(_is_time, times)):
        yield "the time of a round"


def _is_of_tag(tag: int, first: object) -> bool:
    return _is_count(first) and tag << COUNTER_BITS <= int(first) <= (tag + 1) << COUNTER_BITS  # type: ignore[call-overload]


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value <= 2 * TIME_NS_MAX


def _about_level(level: LevelRounds, machine: Verifier) -> Iterator[str]:
    counts = (level.past, level.unchecked_reads, level.contested_reads, level.repeated_reads, level.budget)
    if not all(map(_is_count, (*counts, level.left_out_txns, level.failures))) or level.past > len(level.retained):
        yield "a count of a level"
    if type(level.forgot_anything) is not bool or not conforms(level.memory_ns, int):
        yield "the memory of a level"
    if not conforms(level.real_key, dict[int, int]) or not conforms(level.border, Border):
        yield "the border of a level"
    elif level.border.last_version != level.table.get(np.array([FENCE_KEY]))[0]:
        yield "a border that is not where the past ends"
    yield from _about_batch("what is retained", level.retained, machine)
    yield from _about_ranges("lost versions of a level", level.lost)
    yield from _about_ranges("repeated versions", level.repeated)
    yield from _about_table("the table of versions", level.table)


def _about_batch(name: str, batch: Batch, machine: Verifier) -> Iterator[str]:
    expected = dict(Batch.empty().columns())
    if any(column.ndim != 1 or column.dtype != expected[field].dtype for field, column in batch.columns()):
        yield f"{name}: the type of a column"
        return
    txns, ops = len(batch.session), len(batch.kind)
    start = batch.op_start
    fits = all(len(getattr(batch, field)) == txns for field in TXN_COLUMNS)
    fits &= all(len(getattr(batch, field)) == ops for field in OP_COLUMNS)
    if not fits or len(start) != txns + 1 or start[0] != 0 or start[-1] != ops or (np.diff(start) < 0).any():
        yield f"{name}: the length of a column"
        return
    if not set(np.unique(batch.session).tolist()) <= machine.sessions.keys():
        yield f"{name}: a session that is not there"
    fits = _within(batch.status, 0, max(Status)) and _within(batch.kind, 0, Kind.WRITE)
    fits &= _within(batch.isolation, 0, max(Isolation)) and _within(batch.epoch, 0, EPOCH_MAX + (1 << 32))
    fits &= _within(batch.position, 0, COUNT_MAX) and _within(batch.received_ns, 0, 2 * TIME_NS_MAX)
    fits &= _within(batch.version, PAST_VERSION, VERSION_MAX, NO_ROW)
    fits &= _within(batch.previous, PAST_VERSION, VERSION_MAX, NO_ROW, NO_VALUE)
    if not fits or not all(_within(getattr(batch, field), 0, TIME_NS_MAX, UNKNOWN_TIME) for field in TIMES):
        yield f"{name}: a number"


def _within(column: np.ndarray, least: int, most: int, *others: int) -> bool:
    return bool((((column >= least) & (column <= most)) | np.isin(column, others)).all())


def _about_ranges(name: str, lost: LostVersions) -> Iterator[str]:
    start, end = lost.start, lost.end
    if len(start) != len(end) or (start > end).any() or (start[1:] < end[:-1]).any():
        yield name


def _about_table(name: str, table: VersionTable, *others: int) -> Iterator[str]:
    keys, versions = table.entries()
    if (
        len(keys) != table.count
        or len(np.unique(keys)) != len(keys)
        or not _within(versions, PAST_VERSION, VERSION_MAX, *others)
    ):
        yield name
