"""When a checkpoint is made, writing it beside the verification that goes on, and what can be deleted afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic, perf_counter

from mussurana.verifier.daemon.checkpoint import Checkpoint, Checkpoints
from mussurana.verifier.daemon.journal import Journal
from mussurana.verifier.daemon.log import IngestLog
from mussurana.verifier.daemon.metrics import Metrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Intervals:
    """Whichever of the first two comes first makes a checkpoint; the others are what is kept beyond need."""

    seconds: float = 60.0
    log_bytes: int = 512 << 20
    log_retention_bytes: int = 0
    journal_retention_bytes: int = 256 << 20


class Checkpointing:
    """Used by the verifying thread; only the writing itself is done in another one."""

    def __init__(
        self, checkpoints: Checkpoints, log: IngestLog, journal: Journal, metrics: Metrics, intervals: Intervals
    ) -> None:
        self._checkpoints, self._log, self._journal, self._metrics = checkpoints, log, journal, metrics
        self._intervals = intervals
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._fed_bytes = 0  # since the last one
        self._last = monotonic()

    def before(self, why: str) -> Checkpoint | None:
        """The checkpoint before the one that was loaded, which is of no use."""
        return self._checkpoints.before(why)

    def note_fed(self, size: int) -> None:
        self._fed_bytes += size

    def is_due(self) -> bool:
        if self._writing is not None or not self._fed_bytes:
            return False
        is_late = monotonic() - self._last >= self._intervals.seconds
        return is_late or self._fed_bytes >= self._intervals.log_bytes

    def begin(self, make: Callable[[], Checkpoint]) -> None:
        """`make` is called in the other thread, since it takes its time as well."""
        self._last, self._fed_bytes = monotonic(), 0
        self._writing = self._writer.submit(self._write, make)

    def finish(self, wait: bool = False) -> bool:
        """If one has become durable, let go of what only older ones needed. Returns whether one has."""
        if self._writing is None or not (wait or self._writing.done()):
            return False
        is_durable = False
        try:
            self._writing.result()
            is_durable = True
            self._log.remove_before(self._checkpoints.log_needed, self._intervals.log_retention_bytes)
            self._journal.remove_before(self._checkpoints.journal_needed, self._intervals.journal_retention_bytes)
        except OSError as error:
            self._metrics.checkpoint_failures.inc()
            logger.error("no checkpoint: %s", error.strerror or error, extra={"event": "checkpoint_failed"})
        except Exception:  # verification goes on without; the next one may be better
            self._metrics.checkpoint_failures.inc()
            logger.exception("no checkpoint", extra={"event": "checkpoint_failed"})
        self._writing = None
        return is_durable

    def newest(self) -> Checkpoint | None:
        """The last one that is whole, read from the disk. Not while one is being written."""
        return self._checkpoints.load()

    def close(self) -> None:
        self._writer.shutdown()

    def _write(self, make: Callable[[], Checkpoint]) -> None:
        started = perf_counter()
        self._checkpoints.write(make())
        self._metrics.checkpoint_seconds.observe(perf_counter() - started)
