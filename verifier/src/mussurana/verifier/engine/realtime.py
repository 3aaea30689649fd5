"""Real-time order with a linear number of edges.

"Every event that ended before another began precedes it" has quadratically many pairs. Orochi's frontier algorithm
(dissertation 3.3) keeps only those that others do not imply. Here a line of *ticks* does it: an event points to the
first tick after its latest possible time, a tick points to the events that cannot be earlier, and ticks follow one
another. That is at most three edges per event whatever the concurrency, and since the line is a single chain of nodes
it costs the vector clocks one column.

What a client knows of a begin or a commit is an interval (see `history.py`), and clocks of two machines differ by up
to `drift_ns`. One event is before another only if that holds for all points of the intervals and all such
differences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mussurana.verifier.history import UNKNOWN_TIME, History, Ints, SmallInts, Status

NEVER = int(np.iinfo(np.int64).max)  # no latest time is known


@dataclass(frozen=True)
class Times:
    """The interval in which each transaction began and committed; UNKNOWN_TIME and NEVER where there is no bound."""

    begin_low: Ints
    begin_high: Ints
    commit_low: Ints
    commit_high: Ints

    def low(self, event: str) -> Ints:
        return self.begin_low if event == "begin" else self.commit_low

    def high(self, event: str) -> Ints:
        return self.begin_high if event == "begin" else self.commit_high


def event_times(history: History, txns: Ints) -> Times:
    begin, begun = history.begin_ns[txns], history.begun_ns[txns]
    commit, committed = history.commit_ns[txns], history.committed_ns[txns]
    ended = (committed != UNKNOWN_TIME) & (history.status[txns] != Status.IN_DOUBT)
    commit_high = np.where(ended, committed, NEVER)
    return Times(
        begin_low=begin,
        begin_high=np.where(begun != UNKNOWN_TIME, begun, commit_high),
        commit_low=np.where(commit != UNKNOWN_TIME, commit, begin),
        commit_high=commit_high,
    )


def tick_edges(
    source: SmallInts, source_high: Ints, target: SmallInts, target_low: Ints, drift_ns: int, first_tick: int
) -> tuple[SmallInts, SmallInts, int]:
    """Edges through ticks numbered from `first_tick`, such that a path leads from source i to target j exactly when
    source_high[i] + drift_ns < target_low[j]. Returns (from, to, number of ticks).
    """
    bounded = source_high < NEVER - drift_ns
    source, ends = source[bounded], source_high[bounded] + drift_ns
    known = target_low != UNKNOWN_TIME
    target, starts = target[known], target_low[known]
    by_end = np.argsort(ends, kind="stable")
    source, ends = source[by_end], ends[by_end]
    ended_before = np.searchsorted(ends, starts, side="left")  # how many sources ended before each target
    moments = np.unique(ended_before[ended_before > 0])
    if not len(moments):
        return np.zeros(0, np.int32), np.zeros(0, np.int32), 0
    tick_of_source = np.searchsorted(moments, np.arange(len(source)), side="right")
    has_tick = tick_of_source < len(moments)
    late = ended_before > 0
    ticks = np.arange(first_tick, first_tick + len(moments), dtype=np.int32)
    edge_from = [source[has_tick], ticks[:-1], ticks[np.searchsorted(moments, ended_before[late])]]
    edge_to = [ticks[tick_of_source[has_tick]], ticks[1:], target[late]]
    return np.concatenate(edge_from).astype(np.int32), np.concatenate(edge_to).astype(np.int32), len(moments)
