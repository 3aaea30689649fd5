"""The journal: what each finished round found, durable before anybody can see it.

Records in segments, each one step of the machine as JSON: at which place in the log it was taken, at what time, and the
rounds that came of it with their violations in full. After a crash the machine takes the same steps again, at the same
places and times; it has to find the same, and what was told before is not told again. Steps that tried a round to which
nothing was admitted are on record with the next one, since waiting and silence count in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mussurana.verifier.daemon.files import size_bytes
from mussurana.verifier.daemon.log import START
from mussurana.verifier.daemon.violations import is_violation, json_of, shortened
from mussurana.verifier.render.json import counterexample_json
from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.outcome import RoundOutcome, Unchecked, Violation
from mussurana.verifier.rounds.stored import conforms
from mussurana.wire.segments import Appender, Damage, Position, read_from, segment_numbers, segment_path

SEGMENT_BYTES_MAX = 4 << 20
"""Some ten thousand rounds. Two of them are read at start, to have something to show."""

COMPARED = ("number", "level", "verdict", "violations", "further_violations", "epoch", "txn_count")
"""What has to be the same when a round is taken again. Times and counts of work may differ."""


@dataclass(frozen=True)
class Round:
    """A round as it is stored and shown."""

    number: int
    level: str
    verdict: str
    reason: str
    violations: tuple[str, ...]  # their ids
    further_violations: int
    epoch: int
    txn_count: int
    retained: int
    forgotten: int
    finished_ns: int
    lag_seconds: tuple[float, float, float] | None  # from commit to verdict: median, 99th percentile, longest
    seconds: dict[str, float]
    choices: dict[str, int]
    read_count: int = 0
    unchecked: tuple[Unchecked, ...] = ()

    @property
    def unchecked_reads(self) -> int:
        return sum(each.reads for each in self.unchecked)

    @staticmethod
    def of(outcome: RoundOutcome, now_ns: int) -> Round:
        known_ns = outcome.committed_ns[outcome.committed_ns > 0]
        lag_seconds = np.maximum(now_ns - known_ns, 0) / 1e9
        quantiles = np.quantile(lag_seconds, (0.5, 0.99, 1.0)).tolist() if len(lag_seconds) else None
        return Round(
            number=int(outcome.number),
            level=outcome.level,
            verdict=outcome.verdict,
            reason=outcome.reason,
            violations=tuple(violation.id for violation in outcome.violations),
            further_violations=int(outcome.further_violations),
            epoch=int(outcome.epoch),
            txn_count=int(outcome.txn_count),
            retained=int(outcome.retained),
            forgotten=int(outcome.forgotten),
            finished_ns=now_ns,
            lag_seconds=quantiles and tuple(quantiles),
            seconds={phase: round(float(seconds), 6) for phase, seconds in outcome.seconds.items()},
            choices={name: int(number) for name, number in asdict(outcome.choices).items()},
            read_count=outcome.read_count,
            unchecked=outcome.unchecked,
        )

    @staticmethod
    def from_json(plain: dict[str, Any]) -> Round:
        """The way back. What a newer version may have added is passed over."""
        known = {"read_count": 0, "unchecked": (), **plain}  # as of the versions that did not count them
        known = {each.name: known[each.name] for each in fields(Round)}
        lag_seconds = plain["lag_seconds"] and tuple(plain["lag_seconds"])
        unchecked = tuple(Unchecked(**each) for each in known["unchecked"])
        changed = {"violations": tuple(plain["violations"]), "lag_seconds": lag_seconds, "unchecked": unchecked}
        return Round(**{**known, **changed})


@dataclass(frozen=True)
class Step:
    """One call of the machine's `step` that finished rounds, or after which alarms were told or withdrawn."""

    number: int  # 1, 2, 3, ...
    log: Position  # everything before had been fed
    now_ns: int  # what the machine was told
    force: bool  # whether it was told to take in everything
    quiet: tuple[
        tuple[Position, int], ...
    ]  # steps since the one before that came to nothing: where in the log, and when
    rounds: tuple[Round, ...]
    violations: tuple[dict[str, Any], ...]  # as `violation_json` makes them
    alarms: tuple[
        AlarmChange, ...
    ] = ()  # which violations were told or withdrawn then, of this step or of earlier ones

    def to_bytes(self) -> bytes:
        plain = {
            "step": self.number,
            "log": [self.log.segment, self.log.offset],
            "now_ns": self.now_ns,
            "force": self.force,
            "quiet": [[log.segment, log.offset, now_ns] for log, now_ns in self.quiet],
            "rounds": [asdict(each) for each in self.rounds],
            "violations": self.violations,
            "alarms": [asdict(each) for each in self.alarms],
        }
        return json.dumps(plain, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(payload: bytes) -> Step:
        """Raises ValueError, KeyError or TypeError where the bytes are none that this version knows."""
        plain = json_of(payload)
        step = Step(
            number=plain["step"],
            log=Position(*plain["log"]),
            now_ns=plain["now_ns"],
            force=plain["force"],
            quiet=tuple((Position(segment, offset), now_ns) for segment, offset, now_ns in plain["quiet"]),
            rounds=tuple(map(Round.from_json, plain["rounds"])),
            violations=tuple(plain["violations"]),
            alarms=tuple(AlarmChange(**each) for each in plain["alarms"]) if "alarms" in plain else _told(plain),
        )
        if not conforms(step, Step) or not step.log.is_possible or not all(map(is_violation, step.violations)):
            raise ValueError("not a step")
        return step


def _told(plain: dict[str, Any]) -> tuple[AlarmChange, ...]:
    """What a version that told violations at once wrote."""
    return tuple(AlarmChange(each["id"], "told", "", plain["now_ns"]) for each in plain["violations"])


def violation_json(violation: Violation) -> dict[str, Any]:
    """What a webhook sends and `mussurana explain --json` prints."""
    plain = {
        "id": violation.id,
        "level": violation.level,
        "round": int(violation.round),
        "epoch": int(violation.epoch),
        "found_ns": int(violation.found_ns),
        "anomaly": violation.counterexample.anomaly,
        "adya": violation.counterexample.adya,
        "summary": violation.counterexample.summary,
        "counterexample": counterexample_json(violation.counterexample),
    }
    return shortened(plain)


def difference(recorded: Step, again: Step) -> str:
    """What is different when a step is taken again; empty if nothing is."""
    if len(recorded.rounds) != len(again.rounds):
        return f"{len(recorded.rounds)} rounds then, {len(again.rounds)} now"
    for then, now in zip(recorded.rounds, again.rounds, strict=True):
        for name in COMPARED:
            if getattr(then, name) != getattr(now, name):
                values = f"{getattr(then, name)!r} then, {getattr(now, name)!r} now"
                return f"round {then.number}, {then.level}: {name} {values}"
    if [(each.id, each.state) for each in recorded.alarms] != [(each.id, each.state) for each in again.alarms]:
        return f"alarms {recorded.alarms!r} then, {again.alarms!r} now"
    return ""


class Journal:
    """Appends steps and reads them back. One thread."""

    def __init__(self, directory: Path, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> None:
        self.directory = directory
        self._appender = Appender(directory, segment_bytes_max)

    @property
    def end(self) -> Position:
        return self._appender.end

    def skip_to(self, position: Position) -> None:
        """Go on beyond a place that a checkpoint knows, if what stood there is gone."""
        if self.end < position:
            self._appender.skip_to(position)

    def append(self, step: Step) -> None:
        """Returns when it is durable. After OSError it may be appended again: readers go by its number."""
        self._appender.append([step.to_bytes()])
        try:
            self._appender.sync()
        except BaseException:  # also where the thread is ended, and another one goes on
            self._appender.abandon()
            raise

    def read_from(self, position: Position = START) -> Iterator[Step | Damage]:
        """Steps in order, each once."""
        last = 0
        for found in read_from(self.directory, position):
            if isinstance(found, Damage):
                yield found
                continue
            try:
                step = Step.from_bytes(found.payload)
            except (ValueError, KeyError, TypeError):
                path = segment_path(self.directory, found.position.segment)
                yield Damage(path, found.position, found.end, "not a step that this version knows")
                continue
            if step.number > last:
                last = step.number
                yield step

    def newest(self) -> list[Step]:
        """The steps in the last two segments."""
        numbers = segment_numbers(self.directory)[-2:]
        start = Position(numbers[0], 0) if numbers else START
        return [step for step in self.read_from(start) if isinstance(step, Step)]

    def remove_before(self, position: Position, bytes_kept_min: int) -> int:
        """Delete whole segments before a position, but keep as much as this. Returns how many went."""
        numbers = segment_numbers(self.directory)
        kept = 0
        for number in reversed(numbers):
            if number < position.segment and kept >= bytes_kept_min:
                return self._appender.remove_before(number + 1)
            kept += segment_path(self.directory, number).stat().st_size
        return 0

    def size_bytes(self) -> int:
        return size_bytes(self.directory)

    def close(self) -> None:
        self._appender.close()
