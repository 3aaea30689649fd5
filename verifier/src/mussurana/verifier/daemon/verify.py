"""The verifying thread: reads the log's tail, feeds the machine, takes steps, and makes known what they found.

What a step found is journaled first. After a start the steps in the journal that the checkpoint does not know are taken
again at their places in the log; they were made known before, so they are only compared. If they differ (the log was
damaged in between, or the program is another one) what was said stands, what is new is added, and it is counted.

An error in the machine costs what it was about: a fragment is a gap, a round is unknown (`rounds/machine.py`). Of any
other, verification begins again from the last checkpoint, as after a restart of the daemon. If that comes to an error,
too, it begins anew behind that place, with a new machine, and all before is a gap. Fragments are taken in either way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any

from mussurana.verifier.daemon.board import Board
from mussurana.verifier.daemon.checkpoint import Checkpoint
from mussurana.verifier.daemon.checkpointing import Checkpointing
from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.feed import Feeder
from mussurana.verifier.daemon.gaps import REASON_CHARACTERS_MAX, Gap, Gaps
from mussurana.verifier.daemon.journal import Journal, Round, Step, difference, violation_json
from mussurana.verifier.daemon.log import START, Entry, IngestLog, Tail
from mussurana.verifier.daemon.machine import Machine, MachineFactory
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.sequences import Sequences
from mussurana.verifier.daemon.tell import Stopped, Teller
from mussurana.verifier.daemon.workers import Worker
from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.failure import described
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.wire.segments import LATER, Damage, Position, Record, segment_numbers

TICK_SECONDS = 0.02
"""Between looks at the clock when nothing arrives: small against the lag that is promised, and idle is still idle."""

GAUGES_SECONDS = 0.5
"""Between looks at the machine's gauges, unless a round was finished."""

ERRORS_MAX = 2
"""In a row: one may be for want of memory, and does not come back when all is done again from the checkpoint."""

END_SECONDS = 15.0
"""Beyond the time for draining, for a round to finish and a checkpoint to be written."""

CATCHING_UP_BYTES = 16 << 20
"""This far behind the end of the log, some seconds of load, verification says that it is catching up."""

logger = logging.getLogger(__name__)


class Verification:
    def __init__(
        self,
        make_machine: MachineFactory,
        levels: list[str],
        log: IngestLog,
        journal: Journal,
        checkpoint: Checkpoint | None,
        checkpointing: Checkpointing,
        teller: Teller,
        board: Board,
        clock: Clock,
        metrics: Metrics,
        refuse: Callable[[bytes, str], None],
    ) -> None:
        """Starts from the checkpoint, if there is one. `refuse` is as in `Feeder`."""
        self._make_machine, self._levels, self._log, self._journal = make_machine, levels, log, journal
        self._checkpointing, self._teller = checkpointing, teller
        self._board, self._clock, self._metrics, self._refuse = board, clock, metrics, refuse
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._drain_until = 0.0
        self._unverified: list[int] = []  # when each fragment without a verdict was closed; replaced, never emptied
        self._place(checkpoint)
        self._is_begun = False
        self._feeder: Feeder | None = None
        self._errors = 0  # one after the other, without a checkpoint in between
        self.worker = Worker("verify", self._run)

    def _place(self, checkpoint: Checkpoint | None) -> None:
        """Where verification goes on from."""
        log = self._log
        self._checkpoint = checkpoint
        self._tail = Tail(log.directory, checkpoint.log if checkpoint else START)
        self._fed_to = self._tail.position
        self._taking: Record | Damage | None = None  # from the log
        self._step = checkpoint.step if checkpoint else 0
        self._journal_start = checkpoint.journal if checkpoint else START
        self._machine_ns = checkpoint.machine_ns if checkpoint else 0  # the last that the machine was told
        self._known_ns = self._machine_ns  # quiet steps up to then are in the checkpoint
        self._received_ns = 0
        self._quiet: list[tuple[Position, int]] = []
        self._looked_at = 0.0
        self._unverified = []

    def start(self) -> None:
        self.worker.start()

    def wake(self) -> None:
        """There is more in the log. From any thread."""
        self._wake.set()

    def close(self, drain_seconds: float) -> bool:
        """Verify what is in the log, for this long at most, write a checkpoint and end.

        Returns whether it has ended. A machine that is being compiled, or a long search, is not waited for; whatever is
        not in the last checkpoint will be verified again.
        """
        self.worker.end()
        self._drain_until = monotonic() + drain_seconds
        self._teller.give_up_after(drain_seconds)
        self._closing.set()
        self._wake.set()
        if not self.worker.join(drain_seconds + END_SECONDS):
            logger.warning("ended in the middle of a round", extra={"event": "verification_abandoned"})
            return False
        self._checkpointing.close()
        return True

    def behind_bytes(self) -> int:
        """How much of the log has not been fed; whole segments in between count as far as they are there."""
        durable, fed_to = self._log.durable, self._fed_to
        if durable.segment == fed_to.segment:
            return max(0, durable.offset - fed_to.offset)
        between = self._log.segment_sizes(fed_to.segment, durable.segment)
        return max(0, sum(between) - fed_to.offset) + durable.offset

    def lag_seconds(self) -> float:
        """Age of the oldest fragment without a verdict, or of the oldest transaction that waits; 0 for neither.

        What has not even been read from the log is younger; if nothing else is there, its age is not known but small.
        """
        oldest_ns = self._unverified[:1]
        gauges = self._board.progress.gauges
        if gauges and gauges.waiting_since_ns:
            oldest_ns.append(gauges.waiting_since_ns)
        return max(0, self._clock.now_ns() - min(oldest_ns)) / 1e9 if oldest_ns else 0.0

    def _run(self) -> None:
        try:
            if self._errors >= ERRORS_MAX:
                self._feeder = feeder = self._begun_anew()
            else:
                if self._is_begun:
                    self._begin_again()
                self._is_begun = True
                self._feeder = feeder = self._prepared()
            self._take_again(feeder)
            self._go_on(feeder)
            self._drain(feeder)
        except Stopped:
            logger.warning("stopped before everything could be written", extra={"event": "verification_stopped"})
        except BaseException as error:  # whatever it is, it is said, and the worker begins again
            self._errors += 1
            logger.exception("an error has ended verification", extra={"event": "verification_failed"})
            self._board.tell(self._clock.now_ns(), f"verification came upon an error: {described(error)}")
            self._say(state="stopped", trouble=f"verification has stopped: {type(error).__name__}: {error}")
            raise
        self._say(state="stopped")

    def _begun_anew(self) -> Feeder:
        """With a new machine, behind what was being fed when the error came. All before that is a gap."""
        before, fed = self._feeder, Sequences()
        if before is not None:
            fed = before.fed
        if self._taking is not None:
            self._fed_to = self._taking.end
            if isinstance(self._taking, Record):
                Entry.from_bytes(self._taking.payload).note_in(fed)
        machine = self._make_machine(None)
        self._checkpointing.finish(wait=True)
        self._metrics.verification_failures.inc()
        self._tail.close()
        self._tail.position = self._fed_to
        self._step = max([self._step, *(step.number for step in self._journal.newest())])
        self._journal_start, self._quiet, self._unverified, self._taking = self._journal.end, [], [], None
        self._board.tell(self._clock.now_ns(), "verification began anew, with an empty memory, after an error")
        self._say(trouble="")
        feeder = Feeder(machine, Sequences(), self._metrics, self._refuse, self._board.gaps)
        feeder.lose_all_before(fed, "before verification began anew after an error")
        self._checkpointing.begin(self._checkpoint_now(feeder))
        return feeder

    # Starting

    def _begin_again(self) -> None:
        """After an error. What has been told since the checkpoint is in the journal, and is compared."""
        self._checkpointing.finish(wait=True)
        self._board.gaps = Gaps()  # those since the checkpoint are found again
        self._tail.close()
        self._place(self._checkpointing.newest())
        self._say(trouble="")

    def _prepared(self) -> Feeder:
        machine = self._restored()
        checkpoint = self._checkpoint
        fed = checkpoint.fed.copy() if checkpoint else Sequences()
        self._checkpoint = None  # its state may be large, and is in the machine now
        feeder = Feeder(machine, fed, self._metrics, self._refuse, self._board.gaps)
        self._board.collector_names.update(machine.collector_names())
        first = next(iter(segment_numbers(self._log.directory)), 1)
        if checkpoint is None and first > 1:
            logger.error("the log begins at segment %d and no checkpoint is left", first, extra={"event": "log_cut"})
            feeder.lose_all_before(self._log.known_before(first))
        if self._log.cut_at is not None:
            self._note_cut(self._log.cut_at)
        return feeder

    def _restored(self) -> Machine:
        """The machine of the newest checkpoint that can be understood, or a new one, which the whole log is fed to."""
        while self._checkpoint is not None:
            try:
                return self._make_machine(self._checkpoint.state)
            except Exception as error:
                older = self._checkpointing.before(f"its state cannot be understood: {error}")
                is_same = older is not None and older.levels == self._levels
                self._place(older if is_same else None)
        return self._make_machine(None)

    def _note_cut(self, cut_at: Position) -> None:
        """The log ends before a place that it had reached. Whose fragments stood there shows when they come back."""
        reason = (
            f"the log ends at byte {cut_at.offset:,} of segment {cut_at.segment} and had been longer: "
            "what was there and had not been verified is lost"
        )
        now_ns = self._clock.now_ns()
        self._metrics.log_damages.inc()
        self._note_damage(now_ns, reason)
        self._board.tell(now_ns, reason)
        logger.error("log: %s", reason, extra={"event": "log_cut"})

    def _note_damage(self, now_ns: int, reason: str) -> None:
        self._metrics.gaps.labels("damaged").inc()
        self._board.gaps.note(Gap(now_ns, b"", "damaged", reason[:REASON_CHARACTERS_MAX]))

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
        self._machine_ns = step.now_ns
        if not step.number:
            machine.step(step.now_ns)
            return
        outcomes = machine.step(step.now_ns, step.force)
        alarms = machine.decide_alarms(step.now_ns)
        again = self._step_of(step.number, step.log, step.now_ns, step.force, outcomes, alarms)
        different = difference(step, again)
        self._step = step.number
        self._unverified = []
        self._metrics.steps_rerun.inc()
        progress = self._board.progress
        if different:
            self._metrics.steps_different.inc()
            logger.error("step %d, taken again: %s", step.number, different, extra={"event": "step_different"})
        # The journal was durable first, so a crash may have come before these were stored.
        self._teller.violations([*step.violations, *again.violations])
        self._teller.alarms([*step.alarms, *again.alarms])
        self._say(rerun_steps=progress.rerun_steps + 1, differences=progress.differences + bool(different))

    # Going on

    def _go_on(self, feeder: Feeder) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            found = self._tail.read(self._log.durable)
            for item in found:
                self._take(feeder, item)
            self._advance(feeder.machine)
            is_behind = self.behind_bytes() >= CATCHING_UP_BYTES
            self._look_at(feeder.machine, state="catching up" if is_behind else "verifying")
            if self._checkpointing.finish():
                self._errors = 0
            if self._checkpointing.is_due():
                self._checkpointing.begin(self._checkpoint_now(feeder))
            if not found:
                self._wake.wait(TICK_SECONDS)

    def _drain(self, feeder: Feeder) -> None:
        while monotonic() < self._drain_until and (found := self._tail.read(self._log.durable)):
            for item in found:
                self._take(feeder, item)
            self._advance(feeder.machine)
        if self._unverified:
            self._advance(feeder.machine, force=True)
        self._checkpointing.finish(wait=True)
        self._checkpointing.begin(self._checkpoint_now(feeder))
        self._checkpointing.finish(wait=True)

    def _take(self, feeder: Feeder, item: Record | Damage) -> None:
        self._taking = item
        if isinstance(item, Damage):
            self._metrics.log_damages.inc()
            if item.what == LATER:  # of other damage the numbers of fragments tell
                self._note_damage(self._clock.now_ns(), f"segment {item.position.segment} of the log was {LATER}")
            logger.error("log: %s", item, extra={"event": "log_damaged"})
        else:
            entry = Entry.from_bytes(item.payload)
            self._received_ns = entry.received_ns
            fragment = feeder.feed(entry)
            if fragment is not None and fragment.collector_name:
                self._board.collector_names[entry.collector] = fragment.collector_name
            if fragment is not None and fragment.txn_count:
                self._unverified.append(fragment.sealed_ns)
            self._checkpointing.note_fed(len(item.payload))
        self._fed_to, self._taking = item.end, None

    def _machine_time_ns(self) -> int:
        """Now; but while there is more in the log, or nothing can be added to it, the time of the last thing fed.

        Who is silent, and who has waited for too long, is a matter of when things were received. A machine that is
        minutes behind and goes by the clock would take every session for silent, and leave out what it did.
        """
        now_ns = self._clock.now_ns()  # before it is asked whether the log is interrupted: the clock may find out
        if self._log.is_interrupted or self._fed_to < self._log.durable:
            now_ns = self._received_ns
        self._machine_ns = max(self._machine_ns + 1, now_ns)
        return self._machine_ns

    def _advance(self, machine: Machine, force: bool = False) -> None:
        now_ns = self._machine_time_ns()
        outcomes = machine.step(now_ns, force)
        alarms = machine.decide_alarms(now_ns)
        if not outcomes and not alarms:
            if machine.last_round_ns == now_ns:
                self._quiet.append((self._fed_to, now_ns))
            return
        for outcome in outcomes:
            if outcome.failure:
                self._metrics.round_failures.labels(outcome.level).inc()
                self._board.tell(now_ns, f"round {outcome.number} of {outcome.level}: {outcome.reason}")
                logger.error(
                    "round %d of %s: %s", outcome.number, outcome.level, outcome.reason, extra={"event": "round_failed"}
                )
        step = self._step_of(self._step + 1, self._fed_to, now_ns, force, outcomes, alarms)
        self._teller.step(step, outcomes)
        self._step, self._quiet, self._looked_at = step.number, [], 0.0
        if outcomes:
            self._unverified = []

    def _step_of(
        self,
        number: int,
        log: Position,
        now_ns: int,
        force: bool,
        outcomes: list[RoundOutcome],
        alarms: list[AlarmChange],
    ) -> Step:
        finished_ns = self._clock.now_ns()
        return Step(
            number=number,
            log=log,
            now_ns=now_ns,
            force=force,
            quiet=tuple(self._quiet),
            rounds=tuple(Round.of(outcome, finished_ns) for outcome in outcomes),
            violations=tuple(violation_json(found) for outcome in outcomes for found in outcome.violations),
            alarms=tuple(alarms),
        )

    def _checkpoint_now(self, feeder: Feeder) -> Callable[[], Checkpoint]:
        """What is to be written, taken now; the rest of it can be done while verification goes on."""
        now_ns = self._clock.now_ns()
        feeder.fed.forget(now_ns)
        to_bytes = feeder.machine.snapshot()
        make = partial(
            Checkpoint,
            log=self._fed_to,
            journal=self._journal.end,
            step=self._step,
            now_ns=now_ns,
            machine_ns=self._machine_ns,
            levels=self._levels,
            fed=feeder.fed.copy(),
        )
        return lambda: make(state=to_bytes())

    def _look_at(self, machine: Machine, **changes: Any) -> None:
        """Renew the gauges, now and then: they take the longer the more the machine holds."""
        if monotonic() - self._looked_at >= GAUGES_SECONDS:
            self._looked_at = monotonic()
            changes["gauges"] = machine.gauges()
        self._say(**changes)

    def _say(self, **changes: Any) -> None:
        """Where verification stands now, for everybody to see."""
        self._board.say(self._clock.now_ns(), **changes)
