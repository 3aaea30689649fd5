"""Group commit: what all streams have sent meanwhile is appended and synced together, then each is told.

One thread. While it waits for the disk the next batch collects, so a slow disk makes batches larger, not
acknowledgements fewer. When the disk is full, or refuses for another reason, nothing is acknowledged: the batch is kept
and tried again, `trouble` says why, and everything else goes on.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, perf_counter

from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.log import Entry, IngestLog
from mussurana.verifier.daemon.metrics import Metrics

BATCH_BYTES_MAX = 16 << 20
"""At once: larger ones do not make a sync cheaper, but keep the first of the batch waiting."""

RETRY_SECONDS = 0.5
"""Between attempts on a disk that refuses: quick enough for somebody who is making room and watches."""

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
        self._changed = threading.Condition()
        self._closing = False
        self._trouble_logged = -TROUBLE_LOG_SECONDS
        self._thread = threading.Thread(target=self._run, name="commit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, submission: Submission) -> None:
        """From any thread. Whoever submits bounds what it has under way."""
        with self._changed:
            self._queue.append(submission)
            self.pending_bytes += len(submission.entry.content)
            self._changed.notify()

    def close(self) -> None:
        """Commit what is there, if the disk takes it, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            while not self._commit(batch):
                with self._changed:
                    if self._closing:
                        return
                    self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
            with self._changed:
                self.pending_bytes -= sum(len(submission.entry.content) for submission in batch)
            for submission in batch:
                submission.done()
            self._committed()

    def _next_batch(self) -> list[Submission]:
        """What has come since; empty when it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            size = count = 0
            while count < len(self._queue) and size < BATCH_BYTES_MAX:
                size += len(self._queue[count].entry.content)
                count += 1
            batch, self._queue = self._queue[:count], self._queue[count:]
            return batch

    def _commit(self, batch: list[Submission]) -> bool:
        started = perf_counter()
        try:
            self._keep_reserve()
            self._log.resume(self._clock.now_ns())
            self._log.commit([submission.entry for submission in batch])
        except OSError as error:
            self._log.is_interrupted = True
            self._say_trouble(f"the log cannot be written: {error.strerror or error}")
            return False
        if self.trouble:
            logger.info("the log can be written again", extra={"event": "disk_recovered"})
            self.trouble = ""
            self._trouble_logged = -TROUBLE_LOG_SECONDS
        self._metrics.log_commit_seconds.observe(perf_counter() - started)
        return True

    def _keep_reserve(self) -> None:
        """Stop short of the last bytes: the journal and checkpoints need some to make room again."""
        free = shutil.disk_usage(self._log.directory).free
        if free < self._disk_reserve_bytes:
            raise OSError(None, f"only {free} bytes are free, and {self._disk_reserve_bytes} are kept in reserve")

    def _say_trouble(self, trouble: str) -> None:
        self.trouble = trouble
        self._metrics.log_failures.inc()
        if monotonic() - self._trouble_logged >= TROUBLE_LOG_SECONDS:
            self._trouble_logged = monotonic()
            logger.error("nothing is acknowledged: %s", trouble, extra={"event": "disk_trouble"})
