"""Places for connections: so many at most, each with a deadline for what the other side is to do next.

When all are taken and somebody comes, whoever has kept the daemon waiting for longest is cut off. So a crowd that
connects and says nothing, or a byte now and then, takes places from itself, and whoever sends a request and takes the
answer always finds one. While the daemon itself works on an answer nobody is cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from socket import SHUT_RDWR, socket
from time import monotonic


@dataclass
class _Place:
    since: float  # when the daemon began to wait for the other side
    deadline: float  # until when it does; infinite while it does not


class Places:
    def __init__(self, places_max: int, now: Callable[[], float] = monotonic) -> None:
        self._places_max, self._now = places_max, now
        self._places: dict[socket, _Place] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._places)

    def take(self, connection: socket, seconds: float) -> bool:
        """A place for a new connection, which has to act within this time. False if there is none."""
        with self._lock:
            if len(self._places) >= self._places_max and not self._cut_longest():
                return False
            self._places[connection] = _Place(self._now(), self._now() + seconds)
            return True

    def leave(self, connection: socket) -> None:
        with self._lock:
            self._places.pop(connection, None)

    def wait(self, connection: socket, seconds: float) -> None:
        """The other side has to act, within this time from now on."""
        if place := self._places.get(connection):
            now = self._now()
            if place.deadline == inf:  # until now the daemon had to
                place.since = now
            place.deadline = now + seconds

    def work(self, connection: socket) -> None:
        """The daemon has to act."""
        if place := self._places.get(connection):
            place.deadline = inf

    def cut_late(self) -> None:
        with self._lock:
            now = self._now()
            for connection in [each for each, place in self._places.items() if place.deadline <= now]:
                self._cut(connection)

    def cut_longest(self) -> bool:
        """Whether anybody could be cut off."""
        with self._lock:
            return self._cut_longest()

    def cut_all(self) -> None:
        with self._lock:
            for connection in list(self._places):
                self._cut(connection)

    def _cut_longest(self) -> bool:
        waiting = [(place.since, connection) for connection, place in self._places.items() if place.deadline < inf]
        if waiting:
            self._cut(min(waiting, key=lambda each: each[0])[1])
        return bool(waiting)

    def _cut(self, connection: socket) -> None:
        """Who reads from it or writes to it ends, and closes it."""
        del self._places[connection]
        with suppress(OSError):
            connection.shutdown(SHUT_RDWR)
