"""Threads and tasks that run for as long as the daemon does: each is watched, and started again if it ends.

    thread   commit      makes durable what collectors send         task   ingest     tells collectors to wait, to go on
             verify      feeds the machine                                 health     tells grpc.health.v1
             webhook     delivers violations                               systemd    feeds its watchdog
             sampler     fills the charts of the web page
             http        accepts connections

A worker may end only after it was asked to. One that ends before (an error in it, or in Python itself) is told in the
log, in `mussurana_worker_failures_total`, and as trouble wherever people look, and begins again after a pause. Each of
them finds out for itself where it has to go on. `Workers.watch` looks at all of them. It runs in the event loop, whose
own end is the end of the daemon; a loop that stands still is what systemd's watchdog notices.

Threads that do one thing and end (a connection over HTTP, a delivery, a checkpoint) are watched by who started them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any

NAMES = ("commit", "health", "http", "ingest", "sampler", "systemd", "verify", "webhook")

LOOK_SECONDS = 0.2
"""Between looks at all workers: soon enough that a stream notices no more than a slow disk."""

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.2, 60.0
"""Before a worker begins again, twice as long after each failure: one that fails at once must not use up a core."""

STEADY_SECONDS = 60.0
"""A worker that has run for so long is well again, and its failure is no trouble any more."""

logger = logging.getLogger(__name__)


class Worker:
    """A thread that runs until it is asked to end. Who owns it starts it, asks it to end, and joins it."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        assert name in NAMES
        self.name = name
        self.trouble = ""  # what it failed of; empty if it is well
        self._run = run
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()  # between who starts it again and who asks it to end
        self._is_wanted = self._is_told = False
        self._started = self._again_at = 0.0
        self._pause = PAUSE_SECONDS_MIN

    def start(self) -> None:
        self._is_wanted = True
        self._begin()

    def end(self) -> None:
        """From now on it may end, and is not started again. Its owner tells it to."""
        with self._lock:
            self._is_wanted = False

    def join(self, seconds: float | None = None) -> bool:
        """Whether it has ended."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return not self.is_running

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_down(self) -> bool:
        """Whether it should run and does not."""
        return self._is_wanted and not self.is_running

    def look(self) -> bool:
        """Start it again if it has ended. Returns whether a failure was found, once for each."""
        with self._lock:
            if not self._is_wanted:
                return False
            if self.is_running:
                if self.trouble and monotonic() - self._started >= STEADY_SECONDS:
                    self.trouble, self._pause = "", PAUSE_SECONDS_MIN
                return False
            if not self._is_told:
                self._tell()
                return True
            if monotonic() >= self._again_at:
                self._begin()
            return False

    def _tell(self) -> None:
        error = self._error
        what = f"{type(error).__name__}: {error}" if error is not None else "it came to an end"
        self.trouble = f"a part of the daemon failed and begins again ({self.name}): {what}"
        logger.error(
            "%s has ended, and begins again in %.1f s: %s",
            self.name,
            self._pause,
            what,
            exc_info=error,
            extra={"event": "worker_failed", "worker": self.name},
        )
        self._is_told = True
        self._again_at = monotonic() + self._pause
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)

    def _begin(self) -> None:
        self._error, self._is_told, self._started = None, False, monotonic()
        thread = threading.Thread(target=self._main, name=self.name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads; found with the next look
            self._error, thread = error, threading.Thread()
        self._thread = thread

    def _main(self) -> None:
        try:
            self._run()
        except BaseException as error:  # whatever it is, `look` tells it
            self._error = error


class TaskWorker(Worker):
    """The same for a task of the event loop. It is ended by cancelling it."""

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(name, lambda: None)
        self._make = run
        self._task: asyncio.Task[None] | None = None

    def end(self) -> None:
        super().end()
        if self._task is not None:
            self._task.cancel()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _begin(self) -> None:
        self._error, self._is_told, self._started = None, False, monotonic()
        self._task = asyncio.create_task(self._main_task(), name=self.name)

    async def _main_task(self) -> None:
        try:
            await self._make()
        except BaseException as error:
            self._error = error


class Workers:
    """All workers of a daemon."""

    def __init__(self, workers: Sequence[Worker], failed: Callable[[str], None]) -> None:
        """`failed` is told the name of each one that ended without being asked to."""
        self.all, self._failed = workers, failed

    async def watch(self) -> None:
        """For as long as the daemon runs. Nothing that goes wrong with one of them ends it."""
        while True:
            for worker in self.all:
                try:
                    if worker.look():
                        self._failed(worker.name)
                except Exception:
                    logger.exception("%s could not be looked at", worker.name, extra={"event": "worker_failed"})
            await asyncio.sleep(LOOK_SECONDS)

    def troubles(self) -> list[str]:
        return [worker.trouble for worker in self.all if worker.trouble]

    def down(self) -> list[str]:
        return [worker.name for worker in self.all if worker.is_down]
