"""From a violation to an alarm: it waits until whoever could take it back was heard, and can be withdrawn afterwards.

A collector that writes to a table unseen says so with its next fragment. What others read of that table meanwhile may
look like a violation. So an alarm waits until every collector with a session at work was heard up to the last commit
in it, by the collector's own clock or by ours if that is behind, and at most as long as the limit says. Sessions that
are idle, closed or silent are not waited for. A taint that comes later still withdraws it. Only where a
collector ships a backlog and its clock is ahead as well may such a taint come to nothing.

What takes an alarm back: a taint of a table that it read from, by a collector that had not been heard up to the alarm
before, or that found out about its unseen writes only afterwards; the loss of a version that it saw and that nobody in
it wrote; another owner for such a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mussurana.verifier.history import NO_VALUE, UNKNOWN_TIME, Ints, Kind
from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.owners import among
from mussurana.verifier.rounds.taints import EVERY
from mussurana.wire import COUNTER_BITS, FENCE_KEY

TAINT_SECONDS = 1.0
"""How much later than an alarm a collector has to have been heard, so that what it writes unseen from then on cannot
have been the reason. The clocks of those in the alarm may be behind, and a fragment takes its time to arrive."""

ALARMS_KEPT_MAX = 1_000
"""That can still be withdrawn, some kilobytes each. The oldest that were told go first."""

State = Literal["waiting", "told", "withdrawn"]


@dataclass(frozen=True)
class AlarmChange:
    """An alarm is told, or withdrawn."""

    id: str
    state: State
    reason: str  # why it was withdrawn
    at_ns: int


@dataclass
class Saw:
    """Something that a transaction of an alarm saw."""

    key: int
    name: str | None  # of the key, if it is known
    version: int
    is_missing: bool  # nobody in the alarm wrote it

    def is_of(self, table: str) -> bool:
        if self.key == FENCE_KEY:
            return False
        return table == EVERY or self.name is None or self.name.startswith(f"{table}/")


@dataclass
class Alarm:
    id: str
    found_ns: int
    time_ns: int  # of the last commit in it
    saw: list[Saw]
    state: State = "waiting"
    withdrawn: str = ""  # why it is to be withdrawn, until that is told


@dataclass
class Alarms:
    by_id: dict[str, Alarm] = field(default_factory=dict)

    @property
    def waiting(self) -> list[Alarm]:
        return [alarm for alarm in self.by_id.values() if alarm.state == "waiting"]

    def found(self, id: str, now_ns: int, txns: Batch, key: Ints, names: list[str | None]) -> None:
        """A violation of these transactions. `key` and `names` are the real ones of each operation."""
        if id in self.by_id:
            return
        is_write = txns.kind == Kind.WRITE
        missing = (txns.seen > 0) & ~among(txns.key, txns.seen, txns.key[is_write], txns.version[is_write])
        seen = np.flatnonzero(txns.seen != NO_VALUE).tolist()
        saw = [Saw(int(key[op]), names[op], int(txns.seen[op]), bool(missing[op])) for op in seen]
        self.by_id[id] = Alarm(id, now_ns, _time_of(txns), saw)

    def taint(self, tables: Iterable[str], heard_ns: int, who: str) -> None:
        """A collector wrote to these tables unseen, some time after it was heard up to `heard_ns`."""
        safe_ns = heard_ns - int(TAINT_SECONDS * 1e9)
        for table in tables:

            def is_hit(alarm: Alarm, saw: Saw, table: str = table) -> bool:
                return max(alarm.time_ns, alarm.found_ns) > safe_ns and saw.is_of(table)

            self._withdraw(f"{who} wrote to {table or 'some table'} unseen", is_hit)

    def lose(self, lost: LostVersions, who: str) -> None:
        """These versions are lost."""
        missing = [saw.version for alarm in self.by_id.values() for saw in alarm.saw if saw.is_missing]
        versions = np.array(missing, np.int64)
        hit = set(versions[lost.has(versions)].tolist())
        if hit:
            self._withdraw(f"{who} lost versions that it saw", lambda _, saw: saw.is_missing and saw.version in hit)

    def disown(self, tag: int, pairs: set[tuple[int, int]], who: str) -> None:
        """Versions of a tag may be this collector's, and these pairs of key and version are, as it says."""
        self._withdraw(
            f"{who} uses the same write ids as another collector",
            lambda _, saw: saw.version >> COUNTER_BITS == tag and (saw.is_missing or (saw.key, saw.version) in pairs),
        )

    def _withdraw(self, why: str, is_hit: Callable[[Alarm, Saw], bool]) -> None:
        for alarm in self.by_id.values():
            if not alarm.withdrawn and any(is_hit(alarm, saw) for saw in alarm.saw):
                alarm.withdrawn = why

    def decide(self, now_ns: int, overdue_ns: int, heard: dict[bytes, int]) -> list[AlarmChange]:
        """What is to be told now. `heard` is up to when each collector at work was heard, by its own clock; alarms that
        were found up to `overdue_ns` have waited for long enough. Without news this changes nothing.
        """
        heard_ns = min(heard.values(), default=None)
        changes = []
        for alarm in list(self.by_id.values()):
            if alarm.withdrawn:
                changes.append(AlarmChange(alarm.id, "withdrawn", alarm.withdrawn, now_ns))
                del self.by_id[alarm.id]
            elif alarm.state == "waiting" and (
                heard_ns is None or heard_ns >= alarm.time_ns or alarm.found_ns <= overdue_ns
            ):
                alarm.state = "told"
                changes.append(AlarmChange(alarm.id, "told", "", now_ns))
        for alarm in [alarm for alarm in self.by_id.values() if alarm.state == "told"][:-ALARMS_KEPT_MAX]:
            del self.by_id[alarm.id]
        return changes


def _time_of(txns: Batch) -> int:
    """When the last of these was over, as far as is known; when it was received, if no time is."""
    columns = (txns.begin_ns, txns.begun_ns, txns.commit_ns, txns.committed_ns)
    latest = max(int(column.max(initial=UNKNOWN_TIME)) for column in columns)
    return latest if latest != UNKNOWN_TIME else int(txns.received_ns.max(initial=0))
