"""What is known so far, for whoever asks: the query service, metrics, the web page. Written by the verifying thread."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from mussurana.verifier.daemon.gaps import Gaps
from mussurana.verifier.daemon.journal import Round
from mussurana.verifier.rounds.outcome import Gauges

ROUNDS_SHOWN_MAX = 2_000
"""Some minutes under load and hours when idle; older ones are in the journal."""

INCIDENT_NS = 3600 * 10**9
INCIDENTS_MAX = 20
"""What went wrong is among the troubles for an hour, as the alert on it is."""


def public_id(collector: bytes) -> str:
    """What a collector is called where others may see it: its id is not shown to anybody."""
    return sha256(b"shown" + collector).hexdigest()[:12]


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
    _incidents: list[tuple[int, str]] = field(default_factory=list)  # replaced before something is added
    _rounds: deque[Round] = field(default_factory=lambda: deque(maxlen=ROUNDS_SHOWN_MAX))
    _last: dict[str, Round] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, now_ns: int, **changes: Any) -> None:
        """Where verification stands. From its own thread only."""
        self.progress = replace(self.progress, said_ns=now_ns, **changes)

    def tell(self, now_ns: int, text: str) -> None:
        """Something went wrong in the verifier itself, and it went on. From the verifying thread only."""
        self._incidents = [(at_ns, each) for at_ns, each in self._incidents if each != text][1 - INCIDENTS_MAX :]
        self._incidents.append((now_ns, text))

    def incidents(self, now_ns: int) -> list[str]:
        """What went wrong lately."""
        return [text for at_ns, text in self._incidents if at_ns >= now_ns - INCIDENT_NS]

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
