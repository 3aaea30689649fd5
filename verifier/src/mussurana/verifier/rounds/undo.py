"""What a fragment may change in the machine, as it was before: so that one that fails half-way leaves nothing behind.

Only what is small is copied: a machine may know a hundred thousand tags and sessions, and a fragment touches a few.
Names of keys and statements are learned after everything else and are only for people, so they are not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.taints import Taints, tainted_tables
from mussurana.wire import COUNTER_BITS
from mussurana.wire.history_pb2 import Fragment

if TYPE_CHECKING:
    from mussurana.verifier.rounds.machine import Verifier

LARGE = (
    *("collectors", "sessions", "owners", "taints", "alarms", "moved", "key_names", "admission", "lost", "levels"),
    "limits",
)
"""Attributes of a machine that are kept in a way of their own, by what the fragment touches, or not at all."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Before:
    def __init__(self, machine: Verifier, collector: bytes, fragment: Fragment, batch: Batch) -> None:
        self._machine, self._id = machine, collector
        self._small = {name: _copied(value) for name, value in vars(machine).items() if name not in LARGE}
        known = self._known = machine.collectors.get(collector)
        if known is not None:
            self._fields = {
                name: _copied(value) for name, value in vars(known).items() if name not in ("sessions", "statements")
            }
            touched = {event.session for event in fragment.session_event}
            touched.update(np.unique(batch.session).tolist())
            numbers = {number: known.sessions.get(number) for number in touched}
            self._numbers = numbers
            self._sessions = {at: replace(machine.sessions[at]) for at in numbers.values() if at is not None}
        self._tags = {progress.tag for progress in fragment.write_ids}
        self._tags |= {some.tag for gap in fragment.gap for some in gap.write_ids}
        self._tags.update(np.unique(batch.written >> COUNTER_BITS).tolist())
        admission, progress, owners = machine.admission, machine.admission.progress, machine.owners
        self._settled, self._drawn = _some(progress.settled, self._tags), _some(progress.drawn, self._tags)
        self._ahead = _some(progress._ahead, self._tags)
        self._horizons, self._again = progress.horizons, admission.again
        self._ended = progress.ended.first, progress.ended.owner
        self._owners = _some(owners.of, self._tags)
        self._proved, self._disputed = owners.proved & self._tags, owners.disputed & self._tags
        self._contested = dict(owners.contester), owners.pair_key, owners.pair_version
        self._new = len(admission._new)
        self._lost = machine.lost, machine.lost.start, machine.lost.end
        self._retained = [level.retained for level in machine.levels]
        self._alarms = {id: alarm.withdrawn for id, alarm in machine.alarms.by_id.items()}
        self._begun = {beginning.table for beginning in fragment.beginning} - machine.moved.tables
        taints = machine.taints
        self._taints = Taints(dict(taints.told_ns), dict(taints._first)) if tainted_tables(fragment) else taints

    def restore(self) -> None:
        machine, known = self._machine, self._known
        for at in range(self._small["sessions_made"], machine.sessions_made):
            machine.sessions.pop(at, None)
        vars(machine).update(self._small)
        if known is None:
            machine.collectors.pop(self._id, None)
        else:
            vars(known).update(self._fields)
            _put_back(known.sessions, self._numbers)
            machine.sessions.update(self._sessions)
        admission, progress, owners = machine.admission, machine.admission.progress, machine.owners
        _put_back(progress.settled, self._settled)
        _put_back(progress.drawn, self._drawn)
        _put_back(progress._ahead, self._ahead)
        progress.horizons, admission.again = self._horizons, self._again
        progress.ended.first, progress.ended.owner = self._ended
        _put_back(owners.of, self._owners)
        owners.proved = (owners.proved - self._tags) | self._proved
        owners.disputed = (owners.disputed - self._tags) | self._disputed
        owners.contester, owners.pair_key, owners.pair_version = self._contested
        del admission._new[self._new :]
        machine.lost, machine.lost.start, machine.lost.end = self._lost
        machine.taints = self._taints
        for id, withdrawn in self._alarms.items():
            machine.alarms.by_id[id].withdrawn = withdrawn
        machine.moved.tables -= self._begun
        for level, retained in zip(machine.levels, self._retained, strict=True):
            level.retained = retained


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | set | list) else value


def _some(known: dict[Key, Value], keys: Iterable[Key]) -> dict[Key, Value | None]:
    return {key: known.get(key) for key in keys}


def _put_back(known: dict[Key, Value], before: dict[Key, Value | None]) -> None:
    for key, value in before.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value
