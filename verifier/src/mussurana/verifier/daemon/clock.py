"""The daemon's clock: wall time that never goes back.

What is received and each step of the machine carry this time, and the machine relies on it not to decrease: deadlines
and intervals count in it. It follows the wall clock; when that is set back it goes on at half speed until the wall
clock has caught up, so that time neither stands still nor stays wrong for ever. After a restart it starts no earlier
than the last time that is on disk (`not_before`).

The daemon asks for the time many times a second. Where more time went by between two answers than that explains (the
process was stopped, its machine slept, or the wall clock was set forward), nobody could be heard in between. Then
`leapt` is called before the new time is given to anybody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GAP_SECONDS = 5.0
"""Between two answers, by the monotonic clock. Workers ask each second at least; a process that could not for so long
did not hear anybody either. It is well below any sensible limit on silence."""

STEP_SECONDS = 1.0
"""By which the wall clock went further than the monotonic one. Adjusting a clock moves it by half a millisecond in a
second; more is a step, or a machine that slept while the monotonic clock stood still."""


class Clock:
    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.leapt: Callable[[float], None] = lambda seconds: None
        """Told by how many seconds. Must be quick, and must not ask for the time."""
        self._wall_ns, self._monotonic_ns = wall_ns, monotonic_ns
        self._lock = threading.Lock()
        self._last_ns = wall_ns()
        self._last_monotonic_ns = monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since 1970, each time more than before."""
        with self._lock:
            wall_ns, monotonic_ns = self._wall_ns(), self._monotonic_ns()
            elapsed_ns = max(0, monotonic_ns - self._last_monotonic_ns)
            before_ns = self._last_ns
            self._last_ns = max(wall_ns, before_ns + max(1, elapsed_ns // 2))
            self._last_monotonic_ns = monotonic_ns
            stepped_ns = self._last_ns - before_ns - elapsed_ns
            if elapsed_ns > GAP_SECONDS * 1e9 or stepped_ns > STEP_SECONDS * 1e9:
                self.leapt((self._last_ns - before_ns) / 1e9)
            return self._last_ns

    def not_before(self, time_ns: int) -> None:
        """Go on from this time, if it is later."""
        with self._lock:
            self._last_ns = max(self._last_ns, time_ns)

    def ahead_seconds(self) -> float:
        """How far the wall clock was set back and has not caught up yet."""
        return max(0, self.now_ns() - self._wall_ns()) / 1e9
