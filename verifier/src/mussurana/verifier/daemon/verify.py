"""The verifying thread: reads the log's tail, feeds the machine, takes steps, and makes known what they found.

What a step found is journaled first. After a start the steps in the journal that the checkpoint does not know are taken
again at their places in the log; they were made known before, so they are only compared. If they differ (the log was
damaged in between, or the program is another one) what was said stands, what is new is added, and it is counted.

A journal that cannot be written stops verification until it can; an error in the machine stops it for good, with the
reason where everybody looks. Fragments are taken in either way.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any, TypeVar

from mussurana.verifier.daemon.board import Board
from mussurana.verifier.daemon.checkpoint import Checkpoint, Checkpoints
from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.feed import Feeder
from mussurana.verifier.daemon.journal import Journal, Round, Step, difference, violation_json
from mussurana.verifier.daemon.log import START, Entry, IngestLog, Tail
from mussurana.verifier.daemon.machine import Machine, MachineFactory
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.sequences import Sequences
from mussurana.verifier.daemon.violations import Violations
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.wire.segments import Damage, Position, Record, segment_numbers

TICK_SECONDS = 0.02
"""Between looks at the clock when nothing arrives: small against the lag that is promised, and idle is still idle."""

GAUGES_SECONDS = 0.5
"""Between looks at the machine's gauges, unless a round was finished."""

RETRY_SECONDS = 0.5
"""Between attempts on a disk that refuses."""

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    checkpoint_interval_seconds: float = 60.0
    checkpoint_log_bytes: int = 512 << 20  # whichever comes first: this much of the log, or that much time
    log_retention_bytes: int = 0
    journal_retention_bytes: int = 256 << 20
    catching_up_bytes: int = 16 << 20  # this far behind the end of the log, verification says that it is catching up


class Stopped(Exception):
    """The daemon is ending, and what was being tried did not work yet."""


class Verification:
    def __init__(
        self,
        make_machine: MachineFactory,
        levels: list[str],
        log: IngestLog,
        journal: Journal,
        violations: Violations,
        checkpoints: Checkpoints,
        checkpoint: Checkpoint | None,
        board: Board,
        clock: Clock,
        metrics: Metrics,
        announce: Callable[[], None] = lambda: None,  # called when there are new violations
        refuse: Callable[[bytes, str], None] = lambda collector, message: None,  # as in `Feeder`
        limits: Limits = Limits(),  # noqa: B008, frozen
    ) -> None:
        self._make_machine, self._levels = make_machine, levels
        self._log, self._journal, self._violations, self._checkpoints = log, journal, violations, checkpoints
        self._board, self._clock, self._metrics, self._limits = board, clock, metrics, limits
        self._checkpoint, self._announce, self._refuse = checkpoint, announce, refuse
        self._tail = Tail(log.directory, checkpoint.log if checkpoint else START)
        self._fed_to = self._tail.position
        self._step = checkpoint.step if checkpoint else 0
        self._journal_start = checkpoint.journal if checkpoint else START
        self._known_ns = checkpoint.now_ns if checkpoint else 0  # quiet steps before are in the checkpoint
        self._quiet: list[tuple[Position, int]] = []
        self._fed_bytes = 0  # since the last checkpoint
        self._looked_at = 0.0
        self._unverified: deque[int] = deque()  # when each fragment without a verdict was received
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._drain_until = 0.0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._checkpointed_at = monotonic()
        self._thread = threading.Thread(target=self._run, name="verify", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is more in the log. From any thread."""
        self._wake.set()

    def close(self, drain_seconds: float) -> None:
        """Verify what is in the log, for this long at most, write a checkpoint and end."""
        self._drain_until = monotonic() + drain_seconds
        self._closing.set()
        self._wake.set()
        self._thread.join()
        self._writer.shutdown()

    def behind_bytes(self) -> int:
        """How much of the log has not been fed; whole segments in between count as far as they are there."""
        durable, fed_to = self._log.durable, self._fed_to
        if durable.segment == fed_to.segment:
            return durable.offset - fed_to.offset
        between = self._log.segment_sizes(fed_to.segment, durable.segment)
        return max(0, sum(between) - fed_to.offset) + durable.offset

    def _run(self) -> None:
        try:
            feeder = self._prepared()
            self._take_again(feeder)
            self._go_on(feeder)
            self._drain(feeder)
        except Stopped:
            logger.warning("stopped before everything could be written", extra={"event": "verification_stopped"})
        except Exception as error:
            logger.exception("verification has stopped", extra={"event": "verification_failed"})
            self._say(state="stopped", trouble=f"verification has stopped: {type(error).__name__}: {error}")
            return
        self._say(state="stopped")

    # Starting

    def _prepared(self) -> Feeder:
        checkpoint = self._checkpoint
        machine = self._make_machine(checkpoint.state if checkpoint else None)
        self._checkpoint = None  # its state may be large, and is in the machine now
        feeder = Feeder(machine, checkpoint.fed.copy() if checkpoint else Sequences(), self._metrics, self._refuse)
        first = next(iter(segment_numbers(self._log.directory)), 1)
        if checkpoint is None and first > 1:
            logger.error("the log begins at segment %d and no checkpoint is left", first, extra={"event": "log_cut"})
            feeder.lose_all_before(self._log.known_before(first))
        return feeder

    def _take_again(self, feeder: Feeder) -> None:
        """Feed the log up to the last step in the journal, and take the steps again where they were taken."""
        recorded = self._recorded()
        step = next(recorded, None)
        self._say(state="catching up")
        while step is not None:
            found = self._tail.read(self._log.durable)
            for item in found:
                while step is not None and step.log <= item.position:
                    self._again(feeder.machine, step)
                    step = next(recorded, None)
                self._take(feeder, item)
            if not found:
                # The log ends before the steps do: its tail was lost. They are taken with what there is.
                while step is not None:
                    self._again(feeder.machine, step)
                    step = next(recorded, None)
            self._look_at(feeder.machine)
            if self._closing.is_set() and monotonic() > self._drain_until:
                raise Stopped

    def _recorded(self) -> Iterator[Step]:
        """What the journal has beyond the checkpoint; a quiet step is one without rounds and with the number 0."""
        for found in self._journal.read_from(self._journal_start):
            if isinstance(found, Damage):
                logger.error("journal: %s", found, extra={"event": "journal_damaged"})
            elif found.number > self._step:
                for log, now_ns in found.quiet:
                    if now_ns > self._known_ns:
                        yield Step(0, log, now_ns, False, (), (), ())
                yield found

    def _again(self, machine: Machine, step: Step) -> None:
        if not step.number:
            machine.step(step.now_ns)
            return
        outcomes = machine.step(step.now_ns, step.force)
        again = self._step_of(step.number, step.log, step.now_ns, step.force, outcomes)
        different = difference(step, again)
        self._step = step.number
        self._unverified.clear()
        self._metrics.steps_rerun.inc()
        progress = self._board.progress
        if different:
            self._metrics.steps_different.inc()
            logger.error("step %d, taken again: %s", step.number, different, extra={"event": "step_different"})
        # The journal was durable first, so a crash may have come before these were stored.
        self._store([*step.violations, *again.violations])
        self._say(rerun_steps=progress.rerun_steps + 1, differences=progress.differences + bool(different))

    # Going on

    def _go_on(self, feeder: Feeder) -> None:
        self._checkpointed_at, checkpointed_to = monotonic(), self._fed_to
        while not self._closing.is_set():
            self._wake.clear()
            found = self._tail.read(self._log.durable)
            for item in found:
                self._take(feeder, item)
            self._advance(feeder.machine)
            is_behind = self.behind_bytes() >= self._limits.catching_up_bytes
            self._look_at(feeder.machine, state="catching up" if is_behind else "verifying")
            self._finish_writing()
            grown = self._fed_to != checkpointed_to and (
                monotonic() - self._checkpointed_at >= self._limits.checkpoint_interval_seconds
                or self._fed_bytes >= self._limits.checkpoint_log_bytes
            )
            if grown and self._writing is None:
                self._begin_checkpoint(feeder)
                checkpointed_to = self._fed_to
            if not found:
                self._wake.wait(TICK_SECONDS)

    def _drain(self, feeder: Feeder) -> None:
        while monotonic() < self._drain_until and (found := self._tail.read(self._log.durable)):
            for item in found:
                self._take(feeder, item)
            self._advance(feeder.machine)
        self._advance(feeder.machine, force=True)
        self._finish_writing(wait=True)
        self._begin_checkpoint(feeder)
        self._finish_writing(wait=True)

    def _take(self, feeder: Feeder, item: Record | Damage) -> None:
        if isinstance(item, Damage):
            self._metrics.log_damages.inc()
            logger.error("log: %s", item, extra={"event": "log_damaged"})
        else:
            fragment = feeder.feed(Entry.from_bytes(item.payload))
            if fragment is not None and fragment.txn_count:
                self._unverified.append(fragment.sealed_ns)
            self._fed_bytes += len(item.payload)
        self._fed_to = item.end

    def _advance(self, machine: Machine, force: bool = False) -> None:
        now_ns = self._clock.now_ns()
        outcomes = machine.step(now_ns, force)
        if not outcomes:
            if machine.last_round_ns == now_ns:
                self._quiet.append((self._fed_to, now_ns))
            return
        step = self._step_of(self._step + 1, self._fed_to, now_ns, force, outcomes)
        self._until_written(lambda: self._journal.append(step))
        self._step, self._quiet = step.number, []
        self._unverified.clear()
        self._looked_at = 0.0
        new = self._store(list(step.violations))
        for violation in new:
            self._metrics.count_rejection(violation["level"], violation["anomaly"])
            logger.warning(
                "rejected: %s, round %d: %s",
                violation["level"],
                violation["round"],
                violation["summary"],
                extra={"event": "rejected", "violation": violation["id"], "anomaly": violation["anomaly"]},
            )
        finished_ns = step.rounds[0].finished_ns
        for outcome in outcomes:
            self._metrics.count_round(outcome, finished_ns)
        self._board.publish(step.rounds)
        if new:
            self._announce()

    def _step_of(self, number: int, log: Position, now_ns: int, force: bool, outcomes: list[RoundOutcome]) -> Step:
        finished_ns = self._clock.now_ns()
        return Step(
            number=number,
            log=log,
            now_ns=now_ns,
            force=force,
            quiet=tuple(self._quiet),
            rounds=tuple(Round.of(outcome, finished_ns) for outcome in outcomes),
            violations=tuple(violation_json(found) for outcome in outcomes for found in outcome.violations),
        )

    def _store(self, violations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self._until_written(lambda: self._violations.add(violations)) if violations else []

    def _until_written(self, write: Callable[[], Result]) -> Result:
        while True:
            try:
                result = write()
            except OSError as error:
                self._metrics.journal_failures.inc()
                trouble = f"the journal cannot be written: {error.strerror or error}"
                if not self._board.progress.trouble:
                    logger.error("verification waits: %s", trouble, extra={"event": "disk_trouble"})
                self._say(trouble=trouble)
                if self._closing.wait(RETRY_SECONDS) and monotonic() > self._drain_until:
                    raise Stopped from error
            else:
                if self._board.progress.trouble:
                    logger.info("verification goes on", extra={"event": "disk_recovered"})
                    self._say(trouble="")
                return result

    # Checkpoints

    def _begin_checkpoint(self, feeder: Feeder) -> None:
        now_ns = self._clock.now_ns()
        feeder.fed.forget(now_ns)
        checkpoint = Checkpoint(
            log=self._fed_to,
            journal=self._journal.end,
            step=self._step,
            now_ns=now_ns,
            levels=self._levels,
            fed=feeder.fed.copy(),
            state=feeder.machine.state(),
        )
        self._checkpointed_at, self._fed_bytes = monotonic(), 0
        self._writing = self._writer.submit(self._write_checkpoint, checkpoint)

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        started = perf_counter()
        self._checkpoints.write(checkpoint)
        self._metrics.checkpoint_seconds.observe(perf_counter() - started)

    def _finish_writing(self, wait: bool = False) -> None:
        """Once a checkpoint is durable, let go of what only older ones needed."""
        if self._writing is None or not (wait or self._writing.done()):
            return
        try:
            self._writing.result()
            self._log.remove_before(self._checkpoints.log_needed, self._limits.log_retention_bytes)
            self._journal.remove_before(self._checkpoints.journal_needed, self._limits.journal_retention_bytes)
        except OSError as error:
            self._metrics.checkpoint_failures.inc()
            logger.error("no checkpoint: %s", error.strerror or error, extra={"event": "checkpoint_failed"})
        self._writing = None

    def _look_at(self, machine: Machine, **changes: Any) -> None:
        """Renew the gauges, now and then: they take the longer the more the machine holds."""
        if monotonic() - self._looked_at >= GAUGES_SECONDS:
            self._looked_at = monotonic()
            changes["gauges"] = machine.gauges()
        self._say(**changes)

    def _say(self, **changes: Any) -> None:
        """Where verification stands now, for everybody to see."""
        oldest_ns = self._unverified[0] if self._unverified else 0
        gauges = changes.get("gauges") or self._board.progress.gauges
        if gauges and gauges.waiting_since_ns:
            oldest_ns = min(oldest_ns or gauges.waiting_since_ns, gauges.waiting_since_ns)
        lag_seconds = max(0, self._clock.now_ns() - oldest_ns) / 1e9 if oldest_ns else 0.0
        self._board.progress = replace(
            self._board.progress, log_behind_bytes=self.behind_bytes(), lag_seconds=lag_seconds, **changes
        )
