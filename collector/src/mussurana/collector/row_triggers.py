"""What BEFORE triggers may do to the row at hand, from their text: drop it, keep it as it was, or give it another key.

A statement with such a trigger does not do what it says. An UPDATE whose trigger returns OLD writes the row as it was,
with the version that it had. One whose trigger returns NULL writes nothing, though the row is there. This errs on the
side of finding too much: then RETURNING has a column more, or a statement says nothing of rows that are not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mussurana.collector.hidden_writes import NAME, folded, without_noise

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"

_EVENTS = {4: INSERT, 8: DELETE, 16: UPDATE}  # bits of pg_trigger.tgtype
_ROW, _BEFORE = 1, 2

_RETURN = re.compile(r"\breturn\b([^;]*)", re.IGNORECASE)
_RETURNED = frozenset({"new", "old", "null", "coalesce(new,old)", "coalesce(old,new)"})
_FIELD = rf"\b(?:new|old)\s*\.\s*({NAME})"
# `NEW.a = 1` is an assignment only where a statement begins; else it compares.
_BEGINS = r"(?:^|;|>>|\b(?:begin|then|else|loop|declare|diagnostics)\b)\s*"
_ASSIGNED = re.compile(rf"(?:{_BEGINS}{_FIELD}\s*(?:\[[^;=]*\]\s*)*=|{_FIELD}\s*(?:\[[^;=]*\]\s*)*:=)", re.IGNORECASE)
_INTO = re.compile(
    r"(?<!\binsert )(?<!\bmerge )\binto\b(.*?)(?:;|\bfrom\b|\bwhere\b|\busing\b|$)", re.IGNORECASE | re.DOTALL
)
_PASSED = re.compile(r"\b(?:call|for)\b([^;]*?)(?:;|\bin\b|$)", re.IGNORECASE)
_ONE_FIELD = re.compile(_FIELD, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RowTriggers:
    """The ways in which the BEFORE triggers of a table may change or skip its rows."""

    skip: frozenset[str] = frozenset()  # INSERT, UPDATE, DELETE: the row is left out of it
    keep: bool = False  # an UPDATE may leave the row as it was, our columns and all
    move: bool = False  # an UPDATE may give the row another key

    def together_with(self, other: RowTriggers) -> RowTriggers:
        return RowTriggers(self.skip | other.skip, self.keep or other.keep, self.move or other.move)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What the text of a trigger's function may do to the row at hand."""

    returned: frozenset[str] = frozenset()
    assigned: frozenset[str] = field(default=frozenset())  # columns
    other: str = ""  # what it returns in place of NEW, OLD or NULL


def row_changes(source: str) -> RowChanges:
    text = re.sub(r"\s+", " ", without_noise(source))
    returned = {re.sub(r"\s", "", found).lower() for found in _RETURN.findall(text)}
    assigned = {folded(name) for pair in _ASSIGNED.findall(text) for name in pair if name}
    for clauses in (_INTO, _PASSED):
        for clause in clauses.findall(text):
            assigned.update(folded(name) for name in _ONE_FIELD.findall(clause))
    other = sorted(returned - _RETURNED)
    return RowChanges(frozenset(returned & _RETURNED), frozenset(assigned), other[0] if other else "")


def events_before(trigger_type: int) -> frozenset[str]:
    """When a trigger is called for each row before something is done to it; empty if it is not."""
    if not trigger_type & _ROW or not trigger_type & _BEFORE:
        return frozenset()
    return frozenset(name for bit, name in _EVENTS.items() if trigger_type & bit)


def row_triggers(changes: RowChanges, events: Iterable[str], key_sources: frozenset[str]) -> RowTriggers:
    """What a trigger that is called before these events may do. The key is made of `key_sources`."""
    returned, events = changes.returned, frozenset(events)
    nothing = {INSERT: {"null", "old", "coalesce(old,new)"}, UPDATE: {"null"}, DELETE: {"null", "new"}}
    return RowTriggers(
        skip=frozenset(event for event in events if returned & nothing[event]),
        keep=UPDATE in events and bool(returned & {"old", "coalesce(old,new)"}),
        move=UPDATE in events and bool(changes.assigned & key_sources),
    )
