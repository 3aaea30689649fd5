"""Scenes for the round machine in a few words.

    wire = Wire("serializable")
    wire.feed("a", "0 x:=a1 y==0", "0? x:=a2<a1", "1! y==b7")    # session, status, operations
    wire.fence("a", 0)
    wire.round()

Collectors are letters. A version is the collector that wrote it and its counter, or a number of the database's own,
or 0; a row that an INSERT made replaces `new`; `f` is the fence row. `?` marks
a commit in doubt, `!` a rollback, `@3-5` a transaction that began at second 3 and had committed at second 5, `@3/4-5`
one that asked to commit at second 4. `#7` is the epoch of a fence, `#2:7` one of era 2.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from mussurana.verifier import Settings
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.wire import EPOCH_BITS, FENCE_KEY, write_id
from mussurana.wire import history_pb2 as wire

SECOND_NS = 1_000_000_000
SETTLED = 100_000  # all write ids below have arrived, or never will
FIRST_FENCE = 50_000

_TXN = re.compile(r"(\d+)([?!]?)(?:@([\d.]+)(?:/([\d.]+))?-([\d.]+))?((?: \S+)*)")
_OP = re.compile(r"([a-z])(:=|==)([a-z]?\d+)(?:<([a-z]?\d+|new))?(?:#(?:(\d+):)?(\d+))?")


def tag(collector: str) -> int:
    return ord(collector)


def version(name: str) -> int:
    return int(name) if name.isdecimal() else write_id(tag(name[0]), int(name[1:]))


def key(name: str) -> int:
    return FENCE_KEY if name == "f" else ord(name)


def fragment(sequence: int, *txns: str) -> wire.Fragment:
    """The columns of these transactions."""
    columns: dict[str, list[int]] = {
        name: []
        for name in (
            *("txn_session", "txn_status", "txn_begin_ns", "txn_begun_ns", "txn_commit_ns", "txn_committed_ns"),
            *("txn_op_count", "op_kind", "op_key", "op_version", "op_previous", "fence_epoch"),
        )
    }
    for text in txns:
        found = _TXN.fullmatch(text)
        assert found, text
        ops = found[6].split()
        begin_ns, commit_ns, end_ns = (int(float(time or 0) * SECOND_NS) for time in found.groups()[2:5])
        status = {"": 0, "!": 1, "?": 2}[found[2]]
        times = (begin_ns, 0, commit_ns, 0 if status == 2 else end_ns)
        for name, value in zip(columns, (int(found[1]), status, *times, len(ops)), strict=False):
            columns[name].append(value)
        for op in ops:
            told = _OP.fullmatch(op)
            assert told, op
            writes = {None: wire.WRITE, "new": wire.INSERT}
            kind = wire.READ if told[2] == "==" else writes.get(told[4], wire.UPDATE)
            columns["op_kind"].append(kind)
            columns["op_key"].append(key(told[1]))
            columns["op_version"].append(version(told[3]))
            columns["op_previous"].extend([version(told[4])] if kind == wire.UPDATE else [])
            epoch = (int(told[5] or 0) << EPOCH_BITS) + int(told[6] or 0)
            columns["fence_epoch"].extend([epoch] if told[1] == "f" else [])
    code = {"session": "I", "status": "B", "count": "I", "kind": "B", "ns": "q"}
    packed = {
        name: struct.pack(f"<{len(column)}{code.get(name.rsplit('_', 1)[1], 'Q')}", *column)
        for name, column in columns.items()
    }
    return wire.Fragment(sequence=sequence, sealed_ns=sequence, txn_count=len(txns), **packed)  # type: ignore[arg-type]


@dataclass
class Wire:
    level: str = "serializable"
    limits: Limits = field(default_factory=Limits)
    drift_ns: int = SECOND_NS // 10
    machine: Verifier = field(init=False)
    now_ns: int = SECOND_NS
    sequence: dict[str, int] = field(default_factory=dict)
    last_fence: str = "0"
    fences: int = FIRST_FENCE

    def __post_init__(self) -> None:
        self.machine = Verifier(
            [Settings(level, clock_drift_ns=self.drift_ns) for level in self.level.split()], self.limits
        )

    def make(self, collector: str, *txns: str, settled: int = SETTLED, drawn: int = 0) -> wire.Fragment:
        """The collector's next fragment, not sent yet."""
        self.sequence[collector] = self.sequence.get(collector, 0) + 1
        made = fragment(self.sequence[collector], *txns)
        made.write_ids.add(tag=tag(collector), settled=settled, drawn=drawn)
        return made

    def send(self, collector: str, made: wire.Fragment) -> None:
        self.machine.feed(collector.encode() * 16, made, self.now_ns)

    def feed(self, collector: str, *txns: str, settled: int = SETTLED, drawn: int = 0) -> None:
        self.send(collector, self.make(collector, *txns, settled=settled, drawn=drawn))

    def event(self, collector: str, what: str, session: int) -> None:
        made = self.make(collector)
        kind = {"open": wire.SessionEvent.OPEN, "idle": wire.SessionEvent.IDLE, "close": wire.SessionEvent.CLOSE}
        made.session_event.add(what=kind[what], session=session, fenced=what == "open")
        self.send(collector, made)

    def fence(self, collector: str, *sessions: int) -> None:
        """Each of these sessions extends the chain of fences."""
        for session in sessions:
            self.fences += 1
            before, self.last_fence = self.last_fence, f"{collector}{self.fences}"
            self.feed(collector, f"{session} f:={self.last_fence}<{before}")

    def later(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)

    def round(self) -> RoundOutcome:
        """A round; the outcome at the first level."""
        return self.rounds()[0]

    def rounds(self) -> list[RoundOutcome]:
        self.now_ns += 1
        return self.machine.step(self.now_ns, force=True)

    @property
    def retained(self) -> int:
        return len(self.machine.levels[0].retained)
