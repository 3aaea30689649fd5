"""The last hour in a ring of intervals: how long verdicts took, how many transactions got one, what rounds found.

Values go in with their time, in any order; what is older than the ring is passed over. An interval that nothing was
said about is not there, so that a chart can tell "nothing" from "not known".
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from mussurana.verifier.daemon.journal import Round

INTERVAL_SECONDS = 5
"""A chart a thousand pixels wide shows no more."""

INTERVALS_MAX = 720
"""An hour."""


@dataclass
class Interval:
    start_seconds: int  # since 1970, a multiple of the interval
    lag_longest_seconds: float | None = None  # that a transaction waited for its verdict, or has waited so far
    lag_medians: float = 0.0  # of rounds, each times its transactions
    lag_transactions: int = 0
    transactions: dict[str, int] = field(default_factory=dict)  # by level: that got a verdict
    rounds: dict[str, int] = field(default_factory=dict)  # by verdict
    retained: dict[str, int] = field(default_factory=dict)  # by level, at the end of the interval
    waiting: int | None = None

    def note_lag(self, seconds: float) -> None:
        self.lag_longest_seconds = max(seconds, self.lag_longest_seconds or 0.0)

    @property
    def lag_typical_seconds(self) -> float | None:
        """The median of a round, on average over its rounds. None without rounds whose commit times are known."""
        return self.lag_medians / self.lag_transactions if self.lag_transactions else None


class Hour:
    """One thread notes; any may read."""

    def __init__(self, interval_seconds: int = INTERVAL_SECONDS, intervals_max: int = INTERVALS_MAX) -> None:
        self.interval_seconds = interval_seconds
        self._ring: list[Interval | None] = [None] * intervals_max
        self._lock = threading.Lock()

    def note_round(self, each: Round) -> None:
        with self._lock:
            interval = self._at(each.finished_ns)
            if interval is None:
                return
            level, verdict = each.level, each.verdict
            interval.rounds[verdict] = interval.rounds.get(verdict, 0) + 1
            interval.transactions[level] = interval.transactions.get(level, 0) + each.txn_count
            interval.retained[level] = each.retained
            if each.lag_seconds:
                median, _, longest = each.lag_seconds
                interval.note_lag(longest)
                interval.lag_medians += median * each.txn_count
                interval.lag_transactions += each.txn_count

    def note_progress(self, now_ns: int, lag_seconds: float, retained: dict[str, int], waiting: int) -> None:
        """What holds at a moment: the lag of what has no verdict yet, and what is kept."""
        with self._lock:
            interval = self._at(now_ns)
            if interval is None:
                return
            interval.note_lag(lag_seconds)
            interval.retained.update(retained)
            interval.waiting = waiting

    def intervals(self, now_ns: int, since_seconds: int = 0) -> list[Interval]:
        """Those of the last hour that start at this time or later, oldest first."""
        first = now_ns // 10**9 // self.interval_seconds * self.interval_seconds
        oldest = first - (len(self._ring) - 1) * self.interval_seconds
        with self._lock:
            found = [each for each in self._ring if each and each.start_seconds >= max(oldest, since_seconds)]
        return sorted(found, key=lambda interval: interval.start_seconds)

    def columns(self, now_ns: int, since_seconds: int = 0) -> dict[str, list[Any]]:
        """The same, a list for each quantity; null where nothing is known."""
        found = self.intervals(now_ns, since_seconds)
        return {
            "start_seconds": [each.start_seconds for each in found],
            "lag_longest_seconds": [_rounded(each.lag_longest_seconds) for each in found],
            "lag_typical_seconds": [_rounded(each.lag_typical_seconds) for each in found],
            # Every level looks at the same transactions; the one that is furthest has seen them all.
            "transactions": [max(each.transactions.values(), default=0) for each in found],
            "accepted": [each.rounds.get("accepted", 0) for each in found],
            "rejected": [each.rounds.get("rejected", 0) for each in found],
            "unknown": [each.rounds.get("unknown", 0) for each in found],
            "retained": [sum(each.retained.values()) if each.retained else None for each in found],
            "waiting": [each.waiting for each in found],
        }

    def _at(self, time_ns: int) -> Interval | None:
        """The interval of a time, made if it is new; None if it has left the ring."""
        number = time_ns // 10**9 // self.interval_seconds
        place, start_seconds = number % len(self._ring), number * self.interval_seconds
        there = self._ring[place]
        if there is not None and there.start_seconds > start_seconds:
            return None
        if there is None or there.start_seconds < start_seconds:
            there = self._ring[place] = Interval(start_seconds)
        return there


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
