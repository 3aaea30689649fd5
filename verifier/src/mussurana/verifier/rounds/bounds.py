"""What each field of a fragment may hold. A fragment with anything else is refused before it is acknowledged.

One table for all fields of all messages. A field without an entry is a mistake that a test finds, so nobody adds one
without saying what the verifier can bear. Columns are checked where they are decoded (`fragments.py`), and numbers are
bounded such that what is computed of them fits into 64 bits with a sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from mussurana.wire import COUNTER_BITS, EPOCH_BITS, TAG_MAX
from mussurana.wire.databases import IDENTITY_CHARACTERS_MAX
from mussurana.wire.history_pb2 import Fragment

COUNTER_END = 1 << COUNTER_BITS
SEQUENCE_MAX = (1 << 63) - 1
VERSION_MAX = (TAG_MAX << COUNTER_BITS) + COUNTER_END - 1

TXNS_MAX = 1 << 20
"""A collector sends about a thousand; what claims more than this is not one."""

EPOCH_MAX = (1 << 63) - (2 << EPOCH_BITS)
"""Fences that do not tell their epoch get the next ones, and there may be as many of them as an era can count."""

TIME_NS_MAX = 1 << 62
"""The year 2116. Differences of two such times fit as well."""

COUNT_MAX = 1 << 53
"""Of things that happened: at a million per second in 285 years. A float, as metrics are, still counts it exactly."""

TABLE_NAME_CHARACTERS_MAX = 4096
"""PostgreSQL allows 63 for each of its parts. The name of a tainted table is kept whole, because it is compared."""


@dataclass(frozen=True)
class Number:
    least: int
    most: int


@dataclass(frozen=True)
class Real:
    most: float  # at least 0


@dataclass(frozen=True)
class Text:
    characters_max: int


@dataclass(frozen=True)
class Known:
    """One of the values that the proto file names."""


@dataclass(frozen=True)
class Free:
    """Whatever its type can hold is harmless. Text that is kept is cut where it is kept."""


@dataclass(frozen=True)
class Column:
    """Checked entry by entry when it is decoded."""


Bound: TypeAlias = Number | Real | Text | Known | Free | Column

BOUNDS: dict[str, Bound] = {
    "Fragment.sequence": Number(1, SEQUENCE_MAX),
    "Fragment.sealed_ns": Number(0, TIME_NS_MAX),
    "Fragment.txn_count": Number(0, TXNS_MAX),
    "Fragment.txn_session": Column(),
    "Fragment.txn_status": Column(),
    "Fragment.txn_begin_ns": Column(),
    "Fragment.txn_begun_ns": Column(),
    "Fragment.txn_commit_ns": Column(),
    "Fragment.txn_committed_ns": Column(),
    "Fragment.txn_op_count": Column(),
    "Fragment.txn_isolation": Column(),
    "Fragment.op_kind": Column(),
    "Fragment.op_key": Column(),
    "Fragment.op_version": Column(),
    "Fragment.op_previous": Column(),
    "Fragment.op_statement": Column(),
    "Fragment.fence_epoch": Column(),
    "Fragment.collector_name": Free(),
    "Fragment.xid_horizon": Free(),
    "Database.identity": Text(IDENTITY_CHARACTERS_MAX),
    "Database.name": Text(IDENTITY_CHARACTERS_MAX),
    "SessionEvent.what": Known(),
    "SessionEvent.session": Free(),
    "SessionEvent.name": Free(),
    "SessionEvent.fenced": Free(),
    "WriteIds.tag": Number(1, TAG_MAX),
    "WriteIds.settled": Number(0, COUNTER_END),
    "WriteIds.drawn": Number(0, COUNTER_END),
    "KeyName.key": Free(),
    "KeyName.name": Free(),
    "Statement.number": Free(),
    "Statement.text": Free(),
    "Gap.reason": Free(),
    "Gap.txn_count": Number(0, COUNT_MAX),
    "Gap.session": Free(),
    "WriteIdRange.tag": Number(0, TAG_MAX),  # 0 where versions are transaction ids of the database
    "WriteIdRange.first": Number(0, COUNTER_END),
    "WriteIdRange.end": Number(0, COUNTER_END),
    "Beginning.table": Text(TABLE_NAME_CHARACTERS_MAX),
    "Coverage.table": Text(TABLE_NAME_CHARACTERS_MAX),
    "Coverage.shape": Free(),
    "Coverage.observed": Known(),
    "Coverage.statement_count": Number(0, COUNT_MAX),
    "Fences.issued": Number(0, COUNT_MAX),
    "Fences.failed": Number(0, COUNT_MAX),
    "Fences.seconds": Real(COUNT_MAX),
}

MOST: dict[str, int] = {
    # As many as one fragment may have. What costs time for each is bounded so that all of them take some hundred
    # milliseconds; a collector of ours sends a few of each, and splits what is more.
    "Fragment.session_event": 50_000,
    "Fragment.write_ids": 1_000,
    "Fragment.key_name": 1_000_000,
    "Fragment.statement": 50_000,
    "Fragment.gap": 10_000,
    "Fragment.coverage": 50_000,
    "Fragment.beginning": 10_000,
    "Gap.session": 100_000,
    "Gap.write_ids": 200_000,
}


class OutOfBounds(Exception):
    """A field holds what no verifier can bear. The message names it."""


def check_bounds(fragment: Fragment) -> None:
    """Raise OutOfBounds for the first field of a fragment that holds what it may not."""
    _check_fragment(fragment, f"fragment {fragment.sequence}")


Check: TypeAlias = Callable[[Any, str], None]


def _check_of(descriptor: Any) -> Check | None:
    """A function that checks a message of this kind, or None if there is nothing to check in it."""
    scalars: list[tuple[str, Callable[[Any], str]]] = []
    lists: list[tuple[str, int]] = []
    inner: list[tuple[str, bool, int, Check | None]] = []
    for field in descriptor.fields:
        name = f"{descriptor.name}.{field.name}"
        if field.message_type is not None:
            inner.append((field.name, field.is_repeated, MOST.get(name, 1), _check_of(field.message_type)))
        elif field.is_repeated:
            lists.append((field.name, MOST[name]))
        elif complaint := _complaint(BOUNDS[name], field):
            scalars.append((field.name, complaint))
    if not scalars and not lists and not inner:
        return None

    def check(message: Any, where: str) -> None:
        for name, complaint in scalars:
            wrong = complaint(getattr(message, name))
            if wrong:
                raise OutOfBounds(f"{where}: {name} {wrong}")
        for name, most in lists:
            _count(len(getattr(message, name)), most, f"{where}: {name}")
        for name, is_repeated, most, check_inner in inner:
            some = getattr(message, name) if is_repeated else [getattr(message, name)]
            _count(len(some), most, f"{where}: {name}")
            if check_inner:
                for one in some:
                    check_inner(one, f"{where}: {name}")

    return check


def _count(count: int, most: int, where: str) -> None:
    if count > most:
        raise OutOfBounds(f"{where} has {count:,} entries; at most {most:,} are taken")


def _complaint(bound: Bound, field: Any) -> Callable[[Any], str] | None:
    """Says what is wrong with a value; empty if nothing is. None if any value will do."""
    match bound:
        case Number(least, most):
            return lambda value: "" if least <= value <= most else f"is {value}; {least} to {most} are taken"
        case Real(most_real):
            return lambda value: "" if 0 <= value <= most_real else f"is {value}; 0 to {most_real:g} are taken"
        case Text(most_text):
            return lambda value: "" if len(value) <= most_text else f"has {len(value)} characters, not {most_text}"
        case Known():
            known = frozenset(value.number for value in field.enum_type.values)
            return lambda value: "" if value in known else f"is {value}, which is not known"
        case Free() | Column():
            return None


_check_fragment: Check = _check_of(Fragment.DESCRIPTOR) or (lambda message, where: None)
