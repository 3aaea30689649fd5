"""Gaps in what is verified, for people: the latest ones with their reasons, and how many there were.

Since the daemon started. How many transactions were lost in all is kept by the round machine and survives restarts.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass

GAPS_KEPT_MAX = 50
"""Enough to see what is going on. Whoever has more of them finds them all in the daemon's log."""

REASON_CHARACTERS_MAX = 300


@dataclass(frozen=True)
class Gap:
    received_ns: int
    collector: bytes
    cause: str  # one of metrics.GAP_CAUSES
    reason: str  # in the words of whoever noticed
    fragments: int = 0  # that are missing
    txns: int = 0  # that are missing, as far as known


class Gaps:
    """The verifying thread notes; any may read."""

    def __init__(self) -> None:
        self._latest: deque[Gap] = deque(maxlen=GAPS_KEPT_MAX)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, gap: Gap) -> None:
        with self._lock:
            self._latest.append(gap)
            self._counts[gap.cause] += 1

    def latest(self) -> list[Gap]:
        """Newest first."""
        with self._lock:
            return list(reversed(self._latest))

    def counts(self) -> dict[str, int]:
        """By cause."""
        with self._lock:
            return dict(self._counts)
