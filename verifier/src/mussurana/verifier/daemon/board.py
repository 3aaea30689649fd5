"""What is known so far, for whoever asks: the query service, metrics, the web page. Written by the verifying thread."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from mussurana.verifier.daemon.gaps import Gaps
from mussurana.verifier.daemon.journal import Round
from mussurana.verifier.rounds.outcome import Gauges

ROUNDS_SHOWN_MAX = 2_000
"""Some minutes under load and hours when idle; older ones are in the journal."""


@dataclass
class CollectorInfo:
    """A collector that is or was connected."""

    id: bytes
    name: str = ""
    database: str = ""
    version: str = ""
    connected: bool = False
    durable_sequence: int = 0
    fragments: int = 0  # since the daemon started
    last_seen_ns: int = 0


@dataclass(frozen=True)
class Progress:
    """How far verification is."""

    state: str = "starting"  # starting, catching up, verifying, stopped
    gauges: Gauges | None = None
    rerun_steps: int = 0  # taken again since the start
    differences: int = 0  # of those, how many found something else
    trouble: str = ""  # what keeps verification from going on
    said_ns: int = 0  # when all this was said: long ago if the verifying thread hangs


@dataclass
class Board:
    progress: Progress = field(default_factory=Progress)  # replaced as a whole
    gaps: Gaps = field(default_factory=Gaps)
    collector_names: dict[bytes, str] = field(default_factory=dict)  # as in the log, for those that are not connected
    _rounds: deque[Round] = field(default_factory=lambda: deque(maxlen=ROUNDS_SHOWN_MAX))
    _last: dict[str, Round] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, now_ns: int, **changes: Any) -> None:
        """Where verification stands. From its own thread only."""
        self.progress = replace(self.progress, said_ns=now_ns, **changes)

    def publish(self, rounds: tuple[Round, ...]) -> None:
        with self._lock:
            self._rounds.extend(rounds)
            self._last.update({each.level: each for each in rounds})

    def rounds(self) -> list[Round]:
        """Oldest first."""
        with self._lock:
            return list(self._rounds)

    def last_round(self, level: str) -> Round | None:
        with self._lock:
            return self._last.get(level)
