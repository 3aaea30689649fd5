"""How the rounds of one act went, by level."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mussurana.wire import query_pb2 as wire


@dataclass
class Count:
    accepted: int = 0
    rejected: int = 0
    unknown: int = 0
    txns: int = 0
    violations: int = 0
    lag_seconds: float = 0.0  # median of the last round that had any

    @property
    def rounds(self) -> int:
        return self.accepted + self.rejected + self.unknown

    @property
    def all_accepted(self) -> bool:
        return self.rounds == self.accepted > 0

    @property
    def others(self) -> str:
        """The rounds that were not accepted, in words."""
        counts = {"rejected": self.rejected, "unknown": self.unknown}
        return " and ".join(f"{count:,} {verdict}" for verdict, count in counts.items() if count) or "none verified"


@dataclass
class Tally:
    levels: dict[str, Count]
    since_ns: int = field(default_factory=time.time_ns)
    violations: list[wire.Violation] = field(default_factory=list)
    _seen: set[tuple[str, int]] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)

    @staticmethod
    def of(levels: tuple[str, ...]) -> Tally:
        return Tally({level: Count() for level in levels})

    def of_level(self, level: str) -> list[wire.Violation]:
        """Its violations, oldest first."""
        return [violation for violation in self.violations if violation.level == level]

    def take(self, reply: wire.VerdictsReply) -> None:
        """Count what is new in a reply."""
        for done in reversed(reply.round):
            if (done.level, done.number) in self._seen:
                continue
            self._seen.add((done.level, done.number))
            count = self.levels[done.level]
            setattr(count, done.verdict, getattr(count, done.verdict) + 1)
            count.txns += done.txn_count
            count.lag_seconds = done.lag_median_seconds or count.lag_seconds
        for violation in reversed(reply.violation):
            if violation.id not in self._known:
                self._known.add(violation.id)
                self.violations.append(violation)
                self.levels[violation.level].violations += 1
