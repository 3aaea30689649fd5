"""Making known what was found: first durable, then visible, and a violation only once.

A disk that refuses holds this up, and with it verification, until it takes things again: nothing is shown that a crash
could take back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from mussurana.verifier.daemon.board import Board
from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.journal import Journal, Step
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.violations import Summary, Violations
from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.outcome import RoundOutcome

RETRY_SECONDS = 0.5
"""Between attempts on a disk that refuses."""

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Stopped(Exception):
    """The daemon is ending, and what was being tried did not work yet."""


class Teller:
    def __init__(
        self,
        journal: Journal,
        violations: Violations,
        board: Board,
        clock: Clock,
        metrics: Metrics,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        """`announce` is called when violations were told or withdrawn."""
        self._journal, self._violations, self._board = journal, violations, board
        self._clock, self._metrics, self._announce = clock, metrics, announce
        self._give_up = threading.Event()
        self._give_up_at = 0.0

    def give_up_after(self, seconds: float) -> None:
        """From any thread: the daemon is ending, and a disk that still refuses then will not be waited for."""
        self._give_up_at = monotonic() + seconds
        self._give_up.set()

    def step(self, step: Step, outcomes: list[RoundOutcome]) -> None:
        """A step that was taken for the first time."""
        self._until_written(lambda: self._journal.append(step))
        self.violations(list(step.violations))
        self.alarms(list(step.alarms))
        for outcome, shown in zip(outcomes, step.rounds, strict=True):
            self._metrics.count_round(outcome, shown.finished_ns)
        self._board.publish(step.rounds)

    def violations(self, found: list[dict[str, Any]]) -> None:
        """Store those that are not known yet. They wait until they are told."""
        if found:
            self._until_written(lambda: self._violations.add(found))

    def alarms(self, changes: list[AlarmChange]) -> None:
        """Tell what is to be told, and take back what is to be taken back, each once."""
        changed = self._until_written(lambda: self._violations.change(changes)) if changes else []
        for each in changed:
            self._tell(each)
        if changed:
            self._announce()

    def _tell(self, violation: Summary) -> None:
        extra = {"event": "rejected", "violation": violation.id, "anomaly": violation.anomaly}
        if violation.state == "told":
            self._metrics.count_rejection(violation.level, violation.anomaly)
            logger.warning(
                "rejected: %s, round %d: %s", violation.level, violation.round, violation.summary, extra=extra
            )
        else:
            self._metrics.withdrawals.labels(violation.level, "yes" if violation.was_told else "no").inc()
            extra["event"] = "withdrawn"
            logger.warning("withdrawn: %s: %s", violation.summary, violation.withdrawn, extra=extra)

    def _until_written(self, write: Callable[[], Result]) -> Result:
        while True:
            try:
                result = write()
            except OSError as error:
                self._metrics.journal_failures.inc()
                trouble = f"the journal cannot be written: {error.strerror or error}"
                if not self._board.progress.trouble:
                    logger.error("verification waits: %s", trouble, extra={"event": "disk_trouble"})
                self._board.say(self._clock.now_ns(), trouble=trouble)
                if self._give_up.wait(RETRY_SECONDS) and monotonic() > self._give_up_at:
                    raise Stopped from error
            else:
                if self._board.progress.trouble:
                    logger.info("verification goes on", extra={"event": "disk_recovered"})
                    self._board.say(self._clock.now_ns(), trouble="")
                return result
