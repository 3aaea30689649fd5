"""Transactions that ended but will never be sent, kept until a fragment declares them as a gap.

A gap names the write ids that may have been lost with them, so that a read of one of those is known to be unknown and
not taken for a version that nobody wrote. More ids than necessary only weaken the history, so a list that becomes long
is made shorter by closing the spaces in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mussurana.collector.write_ids import COUNTER_END
from mussurana.wire import counter_of, tag_of, write_id

if TYPE_CHECKING:
    from mussurana.collector.recorder import SessionInfo

Range: TypeAlias = tuple[int, int]
"""First write id and the one after the last, both of one tag."""

PLACE_NOT_KNOWN = "place not known"
"""The reason for a gap of write ids that were sent, and of which no answer says where they are."""

RANGES_MAX = 1000
"""Of a gap. A list of this length is a few kilobytes on the wire; beyond, the whole span is declared."""

SESSIONS_MAX = 1000
"""Of a gap; beyond, it names none, which stands for all."""


ADDED_MAX = 100_000
"""Before they are gathered, which happens several times a second: some 30 MB."""


@dataclass
class Loss:
    reason: str
    txn_count: int = 0
    sessions: set[SessionInfo] = field(default_factory=set)
    sessions_known: bool = True
    ranges: list[Range] = field(default_factory=list)

    def shorten(self) -> None:
        self.ranges = joined(self.ranges)


class Losses:
    """What has been lost since it was last declared. Any thread may add, also a finalizer in the middle of anything.

    So there is no lock here: what is added waits in a deque, until whoever declares it takes it from there.
    """

    def __init__(self) -> None:
        self._added: deque[tuple[str, int, tuple[Range, ...], tuple[SessionInfo, ...]]] = deque()
        self._by_reason: dict[str, Loss] = {}  # what could not be declared; of whoever takes

    def add(self, reason: str, ranges: Iterable[Range], sessions: Iterable[SessionInfo], txn_count: int = 1) -> None:
        """OverflowError: nobody has taken anything for long, and there is no room."""
        if len(self._added) >= ADDED_MAX:
            raise OverflowError("too much was lost")
        self._added.append((reason, txn_count, tuple(ranges), tuple(sessions)))

    def take(self) -> list[Loss]:
        """All of it. Pre: nobody else takes or puts back at the same time."""
        self.gather()
        taken, self._by_reason = list(self._by_reason.values()), {}
        for loss in taken:
            loss.shorten()
        return taken

    def gather(self) -> None:
        """Make room for what will be added. Pre: as of `take`."""
        while self._added:
            reason, txn_count, ranges, sessions = self._added.popleft()
            loss = self._by_reason.setdefault(reason, Loss(reason))
            loss.txn_count += txn_count
            loss.ranges.extend(ranges)
            if len(loss.ranges) > 2 * RANGES_MAX:
                loss.shorten()
            loss.sessions.update(sessions)
            if len(loss.sessions) > SESSIONS_MAX:
                loss.sessions_known = False
                loss.sessions.clear()

    def put_back(self, losses: Iterable[Loss]) -> None:
        """They could not be declared after all. Pre: as of `take`."""
        for loss in losses:
            other = self._by_reason.setdefault(loss.reason, Loss(loss.reason))
            other.txn_count += loss.txn_count
            other.ranges = joined([*other.ranges, *loss.ranges])
            other.sessions |= loss.sessions
            other.sessions_known &= loss.sessions_known

    def __bool__(self) -> bool:
        return bool(self._added or self._by_reason)


def between(floor: int, upper: int) -> list[Range]:
    """All write ids that a transaction may have drawn after `floor` and before `upper`."""
    if tag_of(floor) == tag_of(upper):
        return [(floor, upper)]
    return [(floor, write_id(tag_of(floor), 0) + COUNTER_END), (write_id(tag_of(upper), 1), upper)]


def single(versions: Iterable[int]) -> list[Range]:
    return [(version, version + 1) for version in versions if counter_of(version)]


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same ids in as few ranges as possible; more ids in one range per tag where that is still too long."""
    result: list[Range] = []
    for first, end in sorted(ranges):
        if result and first <= result[-1][1] and tag_of(first) == tag_of(result[-1][0]):
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    if len(result) <= RANGES_MAX:
        return result
    spans: dict[int, Range] = {}
    for first, end in result:
        least, most = spans.get(tag_of(first), (first, end))
        spans[tag_of(first)] = (min(least, first), max(most, end))
    return sorted(spans.values())
