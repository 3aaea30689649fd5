"""A flag that threads wait for, and that a finalizer or signal handler may raise wherever it interrupts them.

`threading.Event` runs Python while it holds its lock. The garbage collector can run in the middle of that, in the same
thread, and close a connection that nobody has any more; if that raises the same event, the thread waits for itself for
ever. Here each step is one call of C, which nothing interrupts.
"""

from __future__ import annotations

import threading


class Flag:
    """Like threading.Event, for one thread that waits and any number that raise it."""

    __slots__ = ("_door", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._door = threading.Lock()  # open while the flag is up
        self._door.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        try:
            self._door.release()
        except RuntimeError:  # it is open
            return

    def clear(self) -> None:
        self._is_set = False
        self._door.acquire(blocking=False)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the flag was up, or came up in time."""
        if self._is_set:
            return True
        if not self._door.acquire(timeout=timeout_seconds):
            return False
        if self._is_set:  # else somebody took it down meanwhile, and the door was left open
            self.set()
        return True
