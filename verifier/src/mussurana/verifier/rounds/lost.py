"""Versions whose writers are not there: in a gap, given up, or set aside after a rejection.

Whoever saw one of them saw something real that cannot be followed, so what they saw is left out of the check. That
makes the history weaker and never raises an alarm.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints
from mussurana.wire import COUNTER_BITS

RANGES_MAX = 100_000
"""About 1.6 MB. Beyond it neighbours are joined, which leaves a little more out of the check than necessary."""


class LostVersions:
    """Ranges of write ids, disjoint and sorted."""

    def __init__(self, start: Ints | None = None, end: Ints | None = None) -> None:
        self.start = np.zeros(0, np.int64) if start is None else start
        self.end = np.zeros(0, np.int64) if end is None else end

    def __len__(self) -> int:
        return len(self.start)

    def add(self, start: Ints, end: Ints) -> None:
        """Take in the versions start[i] .. end[i]; each range has one tag."""
        if not len(start):
            return
        start, end = np.concatenate([self.start, start]), np.concatenate([self.end, end])
        reach = 0
        while True:
            self.start, self.end = _joined(start, end, reach)
            if len(self.start) <= RANGES_MAX or reach >> COUNTER_BITS:  # there are as many tags
                return
            reach = 2 * reach + 1

    def without_tag(self, tag: int) -> LostVersions:
        others = self.start >> COUNTER_BITS != tag
        return LostVersions(self.start[others], self.end[others])

    def has(self, versions: Ints) -> npt.NDArray[np.bool_]:
        if not len(self.start):
            return np.zeros(len(versions), bool)
        at = np.searchsorted(self.start, versions, side="right") - 1
        return (at >= 0) & (versions < self.end[at])


def _joined(start: Ints, end: Ints, reach: int) -> tuple[Ints, Ints]:
    """The same ranges, sorted, with those of one tag joined that overlap or are at most `reach` apart."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    apart = (start[1:] > end[:-1] + reach) | (start[1:] >> COUNTER_BITS != start[:-1] >> COUNTER_BITS)
    first = np.flatnonzero(np.append(True, apart))
    return start[first], end[np.append(first[1:] - 1, len(end) - 1)]
