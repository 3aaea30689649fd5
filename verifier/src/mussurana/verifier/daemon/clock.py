"""The daemon's clock: wall time that never goes back.

What is received and each step of the machine carry this time, and the machine relies on it not to decrease: deadlines
and intervals count in it. It follows the wall clock; when that is set back it goes on at half speed until the wall
clock has caught up, so that time neither stands still nor stays wrong for ever. After a restart it starts no earlier
than the last time that is on disk (`not_before`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns, self._monotonic_ns = wall_ns, monotonic_ns
        self._lock = threading.Lock()
        self._last_ns = wall_ns()
        self._last_monotonic_ns = monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since 1970, each time more than before."""
        with self._lock:
            wall_ns, monotonic_ns = self._wall_ns(), self._monotonic_ns()
            elapsed_ns = max(0, monotonic_ns - self._last_monotonic_ns)
            self._last_ns = max(wall_ns, self._last_ns + max(1, elapsed_ns // 2))
            self._last_monotonic_ns = monotonic_ns
            return self._last_ns

    def not_before(self, time_ns: int) -> None:
        """Go on from this time, if it is later."""
        with self._lock:
            self._last_ns = max(self._last_ns, time_ns)

    def ahead_seconds(self) -> float:
        """How far the wall clock was set back and has not caught up yet."""
        return max(0, self.now_ns() - self._wall_ns()) / 1e9
