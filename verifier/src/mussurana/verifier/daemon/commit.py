"""Group commit: what all streams have sent meanwhile is appended and synced together, then each is told.

One thread. While it waits for the disk the next batch collects, so a slow disk makes batches larger, not
acknowledgements fewer. When the disk is full, or refuses for another reason, nothing is acknowledged: the batch is kept
and tried again, `trouble` says why, and everything else goes on. The disk is also asked at the start, and looked at
while nothing arrives, so that `trouble` is true before a collector finds out.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, perf_counter

from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.files import write_atomically
from mussurana.verifier.daemon.log import Entry, IngestLog
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.workers import Worker

BATCH_BYTES_MAX = 16 << 20
"""At once: larger ones do not make a sync cheaper, but keep the first of the batch waiting."""

RETRY_SECONDS = 0.5
"""Between attempts on a disk that refuses: quick enough for somebody who is making room and watches."""

IDLE_SECONDS = 1.0
"""Between looks at the disk while nothing arrives."""

TRIAL_BYTES = 4096
"""Written when nothing has arrived that could show whether the disk takes anything."""

TROUBLE_LOG_SECONDS = 30.0
"""Between two lines in the log about the same trouble."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submission:
    entry: Entry
    done: Callable[[], None]  # called from the committing thread, once the entry is durable


class Committer:
    def __init__(
        self,
        log: IngestLog,
        clock: Clock,
        metrics: Metrics,
        disk_reserve_bytes: int,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        """`committed` is called after each batch, once it is durable."""
        self.trouble = ""  # why nothing is being acknowledged; empty if all is well
        self.pending_bytes = 0
        self._log, self._clock, self._metrics, self._committed = log, clock, metrics, committed
        self._disk_reserve_bytes = disk_reserve_bytes
        self._queue: list[Submission] = []
        self._batch: deque[Submission] = (
            deque()
        )  # what is being committed: until each of it was told, also after a failure
        self._changed = threading.Condition()
        self._closing = False
        self._trouble_logged = -TROUBLE_LOG_SECONDS
        self.worker = Worker("commit", self._run)

    def start(self) -> None:
        self.worker.start()

    def submit(self, submission: Submission) -> None:
        """From any thread. Whoever submits bounds what it has under way."""
        with self._changed:
            self._queue.append(submission)
            self.pending_bytes += len(submission.entry.content)
            self._changed.notify()

    def close(self) -> None:
        """Commit what is there, if the disk takes it, and end."""
        self.worker.end()
        with self._changed:
            self._closing = True
            self._changed.notify()
        self.worker.join()

    def _run(self) -> None:
        self._try_disk()
        while self._batch or self._next_batch():
            while not self._commit(self._batch):
                with self._changed:
                    if self._closing:
                        return
                    self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
            while self._batch:
                self._batch[0].done()
                with self._changed:
                    self.pending_bytes -= len(self._batch.popleft().entry.content)
            self._committed()

    def _next_batch(self) -> bool:
        """Wait for what comes next. False when it is time to end."""
        while True:
            with self._changed:
                seconds = RETRY_SECONDS if self.trouble else IDLE_SECONDS
                self._changed.wait_for(lambda: self._queue or self._closing, seconds)
                if self._queue or self._closing:
                    size = count = 0
                    while count < len(self._queue) and size < BATCH_BYTES_MAX:
                        size += len(self._queue[count].entry.content)
                        count += 1
                    self._batch.extend(self._queue[:count])
                    del self._queue[:count]
                    return bool(self._batch)
            self._look_at_disk()

    def _try_disk(self) -> None:
        """Whether the disk takes anything, before somebody relies on it."""
        trial = self._log.directory / "trial"
        try:
            self._keep_reserve()
            write_atomically(trial, [bytes(TRIAL_BYTES)])
        except OSError as error:
            self._say_trouble(f"the log cannot be written: {error.strerror or error}")
        else:
            self._say_well()
        finally:
            with suppress(OSError):
                trial.unlink(missing_ok=True)

    def _look_at_disk(self) -> None:
        """While nothing arrives: whether what arrived now could be kept."""
        if self.trouble:
            self._try_disk()
            return
        try:
            self._keep_reserve()
        except OSError as error:
            self._say_trouble(f"the log cannot be written: {error.strerror or error}")

    def _commit(self, batch: Sequence[Submission]) -> bool:
        started = perf_counter()
        try:
            self._keep_reserve()
            self._log.resume(self._clock.now_ns())
            self._log.commit([submission.entry for submission in batch])
        except OSError as error:
            self._say_trouble(f"the log cannot be written: {error.strerror or error}")
            return False
        self._say_well()
        self._metrics.log_commit_seconds.observe(perf_counter() - started)
        return True

    def _keep_reserve(self) -> None:
        """Stop short of the last bytes: the journal and checkpoints need some to make room again."""
        free = shutil.disk_usage(self._log.directory).free
        if free < self._disk_reserve_bytes:
            raise OSError(None, f"only {free} bytes are free, and {self._disk_reserve_bytes} are kept in reserve")

    def _say_well(self) -> None:
        if self.trouble:
            logger.info("the log can be written again", extra={"event": "disk_recovered"})
            self.trouble = ""
            self._trouble_logged = -TROUBLE_LOG_SECONDS

    def _say_trouble(self, trouble: str) -> None:
        self.trouble = trouble
        self._log.interrupt()  # collectors are asked to wait
        self._metrics.log_failures.inc()
        if monotonic() - self._trouble_logged >= TROUBLE_LOG_SECONDS:
            self._trouble_logged = monotonic()
            logger.error("nothing is acknowledged: %s", trouble, extra={"event": "disk_trouble"})
