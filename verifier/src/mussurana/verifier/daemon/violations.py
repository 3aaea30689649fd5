"""The violations that were found, for as long as somebody may want to read about them.

Rounds are many and are soon forgotten; what a round rejected is not. Records in segments, each a violation as JSON, in
the order in which they became known, and records of those that were told or withdrawn. They get here from the
journal, which is durable first: after a crash what the journal has and this has not is added. The webhook's position is
a place in here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mussurana.verifier.daemon.files import size_bytes
from mussurana.verifier.daemon.log import START
from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.stored import conforms
from mussurana.wire.segments import Appender, Position, Record, read_from, segment_numbers

if TYPE_CHECKING:
    from mussurana.verifier.daemon.journal import Round

SEGMENT_BYTES_MAX = 1 << 20
BYTES_KEPT_MAX = 64 << 20
"""Some ten thousand violations. Whoever has that many knows, and the newest say as much as the oldest."""

STATEMENT_CHARACTERS_MAX = 10_000
"""Of each statement in a violation. Collectors send 2,000. More is cut, because a violation may quote it hundreds of
times, and goes into a record of the journal, a call of the webhook, an answer, and a page."""

CUT = " ... (cut here)"

WAITING = "an alarm waits for collectors that may take it back"
"""How the reason begins of a round whose violations are not told yet."""


@dataclass(frozen=True)
class Summary:
    """A violation in a list."""

    id: str
    level: str
    round: int
    epoch: int
    found_ns: int
    anomaly: str
    adya: str
    summary: str
    state: str = "told"  # or "waiting", or "withdrawn"; versions that did not wait told at once
    withdrawn: str = ""  # why it was taken back
    was_told: bool = True

    @staticmethod
    def of(violation: dict[str, Any]) -> Summary:
        state = violation.get("state", "told")
        plain = {name: violation[name] for name in SUMMARY}
        return Summary(**plain, state=state, was_told=state == "told")


SUMMARY = ("id", "level", "round", "epoch", "found_ns", "anomaly", "adya", "summary")


class Violations:
    """One thread adds; any may read."""

    def __init__(
        self, directory: Path, segment_bytes_max: int = SEGMENT_BYTES_MAX, bytes_kept_max: int = BYTES_KEPT_MAX
    ) -> None:
        self.directory = directory
        self._appender = Appender(directory, segment_bytes_max)
        self._segments_kept = max(1, bytes_kept_max // segment_bytes_max)
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Summary, Position]] = {}
        for plain, record in self._records(START):
            self._read(plain, record.position)

    def add(self, violations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Store those that are new, as waiting, and return them once they are durable."""
        new = [{**violation, "state": "waiting"} for violation in violations if violation["id"] not in self._known]
        for violation in new:
            start = self._appender.end
            end = self._appender.append([json.dumps(violation, separators=(",", ":")).encode()])
            position = start if start.segment == end.segment else Position(end.segment, 0)
            with self._lock:
                self._note(violation, position)
        if new:
            self._appender.sync()
            self._forget()
        return new

    def change(self, changes: list[AlarmChange]) -> list[Summary]:
        """Note which are told and which are withdrawn, and return those for which that is new, once it is durable."""
        changed = []
        for each in changes:
            known = self._known.get(each.id)
            if known is None or known[0].state == "withdrawn" or known[0].state == each.state:
                continue
            plain = {**vars(each), "change": each.id, "was_told": known[0].was_told}
            del plain["id"]
            self._appender.append([json.dumps(plain, separators=(",", ":")).encode()])
            changed.append(self._change(plain))
        if changed:
            self._appender.sync()
            self._forget()
        return changed

    def summaries(self) -> list[Summary]:
        """All of them, oldest first."""
        with self._lock:
            return [summary for summary, _ in self._known.values()]

    def shown(self, round: Round) -> Round:
        """A round as it is to be shown: rejected from when one of its violations is told until all are withdrawn."""
        with self._lock:
            known = [self._known[id][0] for id in round.violations if id in self._known]
        if not known or any(each.state == "told" for each in known):
            return round
        waiting = sum(each.state == "waiting" for each in known)
        reason = f"{WAITING}, {waiting:,} in all"
        if not waiting:
            reason = f"its violations were withdrawn: {known[0].withdrawn}"
        return replace(round, verdict="unknown", reason=reason)

    def get(self, id: str) -> dict[str, Any] | None:
        with self._lock:
            known = self._known.get(id)
        for violation, _ in self._records(known[1]) if known else ():
            if violation.get("id") == id and known:
                # It may be older than the limit of what is kept of a statement.
                return {**shortened(violation), "state": known[0].state, "withdrawn": known[0].withdrawn}
        return None

    def state(self, id: str) -> str:
        """`waiting`, `told` or `withdrawn`; empty for one that is not here."""
        with self._lock:
            return self._known[id][0].state if id in self._known else ""

    def after(self, position: Position) -> Iterator[tuple[dict[str, Any], Position]]:
        """What is to be delivered from a place on, and the place after it: violations when they are told, and those
        that were told when they are withdrawn."""
        for plain, record in self._records(position):
            if "change" not in plain:
                if "state" not in plain:  # of a version that told at once
                    yield plain, record.end
                continue
            violation = self.get(plain["change"])
            if violation and plain["state"] == "told":
                yield {**violation, "event": "rejected", "state": "told", "withdrawn": ""}, record.end
            elif violation and plain["was_told"]:
                yield {**violation, "event": "withdrawn"}, record.end

    @property
    def end(self) -> Position:
        return self._appender.end

    def size_bytes(self) -> int:
        return size_bytes(self.directory)

    def close(self) -> None:
        self._appender.close()

    def _records(self, position: Position) -> Iterator[tuple[dict[str, Any], Record]]:
        """Violations and changes. What another version wrote, and this one does not know, is passed over."""
        for found in read_from(self.directory, position):
            if isinstance(found, Record):
                with suppress(ValueError):
                    plain = json_of(found.payload)
                    if is_violation(plain) or _is_change(plain):
                        yield plain, found

    def _read(self, plain: dict[str, Any], position: Position) -> None:
        if "change" in plain:
            if plain["change"] in self._known:
                self._change(plain)
        else:
            self._note(plain, position)

    def _note(self, violation: dict[str, Any], position: Position) -> None:
        self._known.setdefault(violation["id"], (Summary.of(violation), position))

    def _change(self, plain: dict[str, Any]) -> Summary:
        summary, position = self._known[plain["change"]]
        was_told = summary.was_told or plain["state"] == "told"
        changed = replace(summary, state=plain["state"], withdrawn=plain["reason"], was_told=was_told)
        with self._lock:
            self._known[summary.id] = changed, position
        return changed

    def _forget(self) -> None:
        numbers = segment_numbers(self.directory)
        if len(numbers) <= self._segments_kept:
            return
        first = numbers[-self._segments_kept]
        self._appender.remove_before(first)
        with self._lock:
            self._known = {id: known for id, known in self._known.items() if known[1].segment >= first}


def json_of(payload: bytes) -> Any:
    """ValueError for whatever is wrong with it."""
    try:
        return json.loads(payload)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_violation(plain: Any) -> bool:
    """Whether this is a violation, with all that is asked of one here."""
    try:
        operations = [each for one in plain["counterexample"]["transactions"] for each in one["operations"]]
        return conforms(Summary.of(plain), Summary) and all(type(each["statement"]) is str for each in operations)
    except (KeyError, TypeError, AttributeError):
        return False


def _is_change(plain: Any) -> bool:
    kinds = {"change": str, "state": str, "reason": str, "was_told": bool}
    return isinstance(plain, dict) and all(type(plain.get(name)) is kind for name, kind in kinds.items())


def shortened(violation: dict[str, Any]) -> dict[str, Any]:
    """With the beginnings of its statements, and a note where they are cut."""
    for transaction in violation["counterexample"]["transactions"]:
        for operation in transaction["operations"]:
            if len(operation["statement"]) > STATEMENT_CHARACTERS_MAX:
                operation["statement"] = operation["statement"][: STATEMENT_CHARACTERS_MAX - len(CUT)] + CUT
    return violation
