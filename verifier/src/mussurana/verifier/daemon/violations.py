"""The violations that were found, for as long as somebody may want to read about them.

Rounds are many and are soon forgotten; what a round rejected is not. Records in segments, each a violation as JSON, in
the order in which they became known. They get here from the journal, which is durable first: after a crash what the
journal has and this has not is added. The webhook's position is a place in here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mussurana.verifier.daemon.files import size_bytes
from mussurana.verifier.daemon.log import START
from mussurana.wire.segments import Appender, Position, Record, read_from, segment_numbers

SEGMENT_BYTES_MAX = 1 << 20
BYTES_KEPT_MAX = 64 << 20
"""Some ten thousand violations. Whoever has that many knows, and the newest say as much as the oldest."""


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
        for record in self._records(START):
            with suppress(ValueError, KeyError, TypeError):  # of a version that this one does not know
                self._note(json.loads(record.payload), record.position)

    def add(self, violations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Store those that are new, and return them once they are durable."""
        new = [violation for violation in violations if violation["id"] not in self._known]
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

    def summaries(self) -> list[Summary]:
        """All of them, oldest first."""
        with self._lock:
            return [summary for summary, _ in self._known.values()]

    def get(self, id: str) -> dict[str, Any] | None:
        with self._lock:
            known = self._known.get(id)
        for record in self._records(known[1]) if known else ():
            violation: dict[str, Any] = json.loads(record.payload)
            if violation["id"] == id:
                return violation
        return None

    def after(self, position: Position) -> Iterator[tuple[dict[str, Any], Position]]:
        """Each violation from a place on, and the place after it."""
        for record in self._records(position):
            yield json.loads(record.payload), record.end

    @property
    def end(self) -> Position:
        return self._appender.end

    def size_bytes(self) -> int:
        return size_bytes(self.directory)

    def close(self) -> None:
        self._appender.close()

    def _records(self, position: Position) -> Iterator[Record]:
        return (found for found in read_from(self.directory, position) if isinstance(found, Record))

    def _note(self, violation: dict[str, Any], position: Position) -> None:
        fields = {name: violation[name] for name in Summary.__dataclass_fields__}
        self._known.setdefault(violation["id"], (Summary(**fields), position))

    def _forget(self) -> None:
        numbers = segment_numbers(self.directory)
        if len(numbers) <= self._segments_kept:
            return
        first = numbers[-self._segments_kept]
        self._appender.remove_before(first)
        with self._lock:
            self._known = {id: known for id, known in self._known.items() if known[1].segment >= first}
