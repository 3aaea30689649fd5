"""A machine that is small enough to predict: it counts, and rejects what carries a mark.

Rounds are due by count and by time, as with the real one. What a round finds depends on everything that was fed before,
in order, so that a daemon that feeds something twice, not at all or in another order is found out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.fragments import BadFragment
from mussurana.verifier.rounds.outcome import Gauges, RoundOutcome, VerdictName, Violation
from mussurana.verifier.verdict import Counterexample
from mussurana.wire.history_pb2 import Fragment

MARK = "violation:"
"""A key name that starts like this makes the round of its fragment find a violation of that name."""


class FakeMachine:
    levels: Sequence[str] = ("serializable",)
    round_txns = 500
    round_ns = 50_000_000

    def __init__(self, state: bytes | None = None) -> None:
        self.last_round_ns = 0
        self.s: dict[str, Any] = (
            json.loads(state)
            if state
            else {
                "round": 0,
                "digest": 0,
                "last_ns": 0,
                "txns": 0,
                "pending": [],
                "marks": [],
                "lost": [],
                "last": {},
                "names": {},
            }
        )

    def feed(self, collector: bytes, fragment: Fragment, received_ns: int) -> None:
        if len(fragment.txn_committed_ns) != 8 * fragment.txn_count:
            raise BadFragment(f"fragment {fragment.sequence}: txn_committed_ns")
        if any(event.session == 666 for event in fragment.session_event):
            raise BadFragment(f"fragment {fragment.sequence}: session_event: session 666 was never opened")
        last = self.s["last"].get(collector.hex(), 0)
        assert fragment.sequence == last + 1, f"{fragment.sequence} after {last}"
        self.s["last"][collector.hex()] = fragment.sequence
        self.s["names"][collector.hex()] = fragment.collector_name
        self._digest(b"feed", collector, fragment.sequence, received_ns)
        self.s["pending"] += np.frombuffer(fragment.txn_committed_ns, "<i8").tolist()
        self.s["marks"] += [key.name.removeprefix(MARK) for key in fragment.key_name if key.name.startswith(MARK)]

    def lose(self, collector: bytes, first_sequence: int, last_sequence: int, received_ns: int) -> None:
        assert first_sequence == self.s["last"].get(collector.hex(), 0) + 1
        self.s["last"][collector.hex()] = last_sequence
        self._digest(b"lose", collector, last_sequence, received_ns)
        self.s["lost"].append([collector.hex(), first_sequence, last_sequence])

    def resume(self, now_ns: int) -> None:
        self._digest(b"resume", b"", 0, now_ns)

    def step(self, now_ns: int, force: bool = False) -> list[RoundOutcome]:
        pending = self.s["pending"]
        is_due = len(pending) >= self.round_txns or (pending and now_ns - self.s["last_ns"] >= self.round_ns)
        if not is_due and not (force and pending):
            return []
        self.s["round"] += 1
        self.s["last_ns"] = now_ns
        self.s["txns"] += len(pending)
        outcomes = [self._outcome(level, pending, now_ns) for level in self.levels]
        self.s["found"] = [found.id for outcome in outcomes for found in outcome.violations]
        self.s["pending"], self.s["marks"] = [], []
        return outcomes

    def decide_alarms(self, now_ns: int) -> list[AlarmChange]:
        """Nobody is waited for."""
        found, self.s["found"] = self.s.get("found", []), []
        return [AlarmChange(id, "told", "", now_ns) for id in found]

    def collector_names(self) -> dict[bytes, str]:
        return {bytes.fromhex(id): name for id, name in self.s["names"].items()}

    def gauges(self) -> Gauges:
        levels = dict.fromkeys(self.levels, 0)
        return Gauges(levels, 0, 0, levels, levels, levels, 1, 0, 0, {}, len(self.s["lost"]), 0, 0, 0, 0)

    def snapshot(self) -> Callable[[], bytes]:
        state = json.dumps(self.s).encode()
        return lambda: state

    def _digest(self, what: bytes, collector: bytes, sequence: int, received_ns: int) -> None:
        self.s["digest"] = zlib.crc32(b"%s %s %d %d" % (what, collector, sequence, received_ns), self.s["digest"])

    def _outcome(self, level: str, pending: list[int], now_ns: int) -> RoundOutcome:
        number = self.s["round"]
        verdict: VerdictName = "rejected" if self.s["marks"] else "accepted"
        violations = tuple(
            Violation(
                f"{level}-{mark}", level, number, 0, now_ns, Counterexample("write skew", "G2-item", mark, (), ())
            )
            for mark in self.s["marks"]
        )
        return RoundOutcome(
            number=number,
            level=level,
            verdict=verdict,
            reason="",
            violations=violations,
            further_violations=0,
            epoch=self.s["digest"],  # stands for all that was fed
            txn_count=len(pending),
            committed_ns=np.array(pending, np.int64),
            retained=0,
            forgotten=len(pending),
            seconds={"total": 0.001},
        )
