"""What the daemon needs of the round machine, so that tests can put a small one in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.outcome import Gauges, RoundOutcome
from mussurana.wire.history_pb2 import Fragment


class Machine(Protocol):
    """As `rounds.machine.Verifier`: the same calls give the same outcomes."""

    last_round_ns: int
    """When it last tried a round. A step without outcomes has changed nothing unless this is its time."""

    def feed(self, collector: bytes, fragment: Fragment, received_ns: int) -> None: ...

    def lose(self, collector: bytes, first_sequence: int, last_sequence: int, received_ns: int) -> None: ...

    def resume(self, now_ns: int) -> None: ...

    def step(self, now_ns: int, force: bool = False) -> list[RoundOutcome]: ...

    def decide_alarms(self, now_ns: int) -> list[AlarmChange]: ...

    def collector_names(self) -> dict[bytes, str]: ...

    def gauges(self) -> Gauges: ...

    def snapshot(self) -> Callable[[], bytes]: ...


MachineFactory = Callable[[bytes | None], Machine]
"""A new machine, or one that goes on from a state. Called in the verifying thread: it may take its time to compile."""

FragmentCheck = Callable[[Fragment], None]
"""Raises an exception that names the field if no machine could take the fragment. Called before it is acknowledged."""
