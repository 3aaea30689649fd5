"""Fills the last hour: looks at the board now and then, so that nobody who verifies has to think of charts.

Rounds that were finished between two looks are all still on the board. At the start it also holds those that the
journal remembers, so the charts do not begin empty after a restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mussurana.verifier.daemon.board import Board
from mussurana.verifier.daemon.web.hour import Hour
from mussurana.verifier.daemon.workers import Worker

LOOK_SECONDS = 1.0


class Sampler:
    def __init__(self, board: Board, hour: Hour, now_ns: Callable[[], int], lag_seconds: Callable[[], float]) -> None:
        """`lag_seconds` is how long the oldest of what has no verdict yet has waited."""
        self._board, self._hour, self._now_ns, self._lag_seconds = board, hour, now_ns, lag_seconds
        self._last_number: dict[str, int] = {}  # by level, of the rounds that were noted
        self._closing = threading.Event()
        self.worker = Worker("sampler", self._run)

    def start(self) -> None:
        self.worker.start()

    def close(self) -> None:
        self.worker.end()
        self._closing.set()
        self.worker.join()

    def look(self) -> None:
        for each in self._board.rounds():
            if each.number > self._last_number.get(each.level, 0):
                self._last_number[each.level] = each.number
                self._hour.note_round(each)
        if gauges := self._board.progress.gauges:
            self._hour.note_progress(self._now_ns(), self._lag_seconds(), gauges.retained, gauges.waiting)

    def _run(self) -> None:
        while True:
            self.look()
            if self._closing.wait(LOOK_SECONDS):
                return
