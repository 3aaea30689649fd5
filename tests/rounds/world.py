"""A small world from a seed: a toy database, collectors whose sessions come and go, fences, and what each recorded.

The database runs transactions step by step: one at a time, or on snapshots, fresh or stale, or seeing whatever is
committed, or anything at all; what was recorded is then, often, spoilt in one or two places. The same recording can be
had as one `History` and as fragments on the wire, cut and interleaved at random.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from mussurana.verifier.history import INITIAL, NO_VALUE, UNKNOWN_TIME, History, HistoryBuilder, Status
from mussurana.wire import FENCE_KEY, write_id
from mussurana.wire import history_pb2 as wire

STYLES = ("serial", "serial", "snapshot", "snapshot", "stale snapshot", "read committed", "anything")
STEP_NS = 1_000_000_000


@dataclass
class Operation:
    is_write: bool
    key: int
    version: int
    previous: int = -1  # for writes: the version replaced, -1 if not recorded


@dataclass
class Transaction:
    session: Session
    status: Status = Status.COMMITTED
    times: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    ops: list[Operation] = field(default_factory=list)
    is_fence: bool = False


@dataclass
class Session:
    collector: Collector
    number: int
    must_fence: bool = True
    epoch: int = 0
    since_fence: int = 0
    closed: bool = False
    running: Running | None = None


@dataclass
class Collector:
    id: bytes
    tag: int
    counter: int = 0
    sessions: list[Session] = field(default_factory=list)
    recorded: list[Transaction | tuple[str, Session]] = field(default_factory=list)  # or an event: open, idle, close

    def write_id(self) -> int:
        self.counter += 1
        return write_id(self.tag, self.counter)


@dataclass
class Running:
    txn: Transaction
    steps: int
    snapshot: dict[int, int]
    seen_count: dict[int, int]
    own: dict[int, int] = field(default_factory=dict)


class World:
    def __init__(self, seed: int, txns: int | None = None) -> None:
        self.rng = rng = Random(seed)
        self.style = rng.choice(STYLES)
        self.focus = 1.0 if self.style == "serial" and rng.random() < 0.5 else rng.choice((0.0, 0.5, 0.9))
        self.keys = list(range(1, 1 + rng.choice((1, 2, 3, 5, 8))))
        self.read_share = rng.choice((0.2, 0.5, 0.8))
        self.replaced_share = rng.choice((0.0, 0.3, 1.0))
        self.fence_every = rng.choice((1, 2, 3, 5))
        self.in_doubt = rng.choice((0.0, 0.0, 0.1))
        self.state: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.old: list[tuple[dict[int, int], dict[int, int]]] = [({}, {})]
        self.all_versions: dict[int, list[int]] = {}
        self.epochs: dict[int, int] = {0: 0}
        self.now_ns = 10**18
        self.collectors = [Collector(bytes([n]) * 16, 100 + n) for n in range(rng.choice((1, 2, 3)))]
        self.order: list[Transaction] = []  # as they ended
        self._run(txns or rng.choice((8, 15, 25, 40)))
        while rng.random() < 0.4:
            self._spoil()

    # Running

    def _run(self, left: int) -> None:
        rng = self.rng
        sessions = [self._open() for _ in range(rng.choice((1, 2, 3, 4)))]
        while left > 0 or any(session.running for session in sessions):
            self.now_ns += STEP_NS
            busy = [session for session in sessions if session.running]
            one = busy[0] if busy and rng.random() < self.focus else rng.choice(sessions)
            if one.running:
                self._go_on(one)
                continue
            if left <= 0:
                continue
            chance = rng.random()
            if chance < 0.03:
                one.collector.recorded.append(("close", one))
                sessions.remove(one)
                sessions.append(self._open())
            elif chance < 0.06 and not one.must_fence:
                one.must_fence = True
                one.collector.recorded.append(("idle", one))
            elif one.must_fence or one.since_fence >= self.fence_every:
                left -= 1
                self._fence(one)
            else:
                left -= 1
                self._begin(one)

    def _open(self) -> Session:
        collector = self.rng.choice(self.collectors)
        session = Session(collector, len(collector.sessions))
        collector.sessions.append(session)
        collector.recorded.append(("open", session))
        return session

    def _begin(self, session: Session) -> None:
        age = self.rng.choice((1, 1, 2, 3)) if self.style == "stale snapshot" else 1
        snapshot, counts = self.old[-min(age, len(self.old))]
        txn = Transaction(session)
        txn.times[:2] = [self.now_ns, self.now_ns + self.rng.choice((0, STEP_NS // 2))]
        session.running = Running(txn, self.rng.choice((1, 2, 2, 3)), snapshot, counts)
        session.since_fence += 1

    def _go_on(self, session: Session) -> None:
        running = session.running
        assert running is not None
        if running.steps:
            running.steps -= 1
            self._operate(running)
        else:
            session.running = None
            self._end(running)

    def _operate(self, running: Running) -> None:
        rng = self.rng
        key = rng.choice(self.keys)
        if key in running.own:
            seen = running.own[key]
        elif self.style == "anything":
            seen = rng.choice([0, *self.all_versions.get(key, [])])
        elif self.style == "read committed":
            seen = self.state.get(key, 0)
        else:
            seen = (self.state if self.style == "serial" else running.snapshot).get(key, 0)
        ops = running.txn.ops
        if rng.random() < self.read_share:
            ops.append(Operation(False, key, seen))
            if rng.random() < 0.7:
                return
        version = running.txn.session.collector.write_id()
        self.all_versions.setdefault(key, []).append(version)
        ops.append(Operation(True, key, version, seen if rng.random() < self.replaced_share else -1))
        running.own[key] = version

    def _end(self, running: Running) -> None:
        rng, txn = self.rng, running.txn
        overtaken = any(self.counts.get(key, 0) != running.seen_count.get(key, 0) for key in running.own)
        if self.style == "serial":
            # Optimistic: whoever saw something that has changed since is rolled back.
            seen = [op for op in txn.ops if not op.is_write or op.previous >= 0]
            overtaken = any(
                self.state.get(op.key, 0) != op.version and op.version not in running.own.values()
                for op in seen
                if not op.is_write
            ) or any(
                op.previous >= 0 and self.state.get(op.key, 0) != op.previous and op.previous not in self._own(txn)
                for op in txn.ops
                if op.is_write
            )
        refused = overtaken and (self.style == "serial" or "snapshot" in self.style)
        takes_effect = rng.random() < 0.93 and not refused
        txn.status = Status.COMMITTED if takes_effect else Status.ABORTED
        if rng.random() < self.in_doubt:
            txn.status = Status.IN_DOUBT
        if takes_effect:
            self._install(running.own)
        self._finish(txn)

    def _own(self, txn: Transaction) -> set[int]:
        return {op.version for op in txn.ops if op.is_write}

    def _install(self, own: dict[int, int]) -> None:
        self.state = self.state | own
        self.counts = {**self.counts, **{key: self.counts.get(key, 0) + 1 for key in own}}
        self.old.append((self.state, self.counts))

    def _finish(self, txn: Transaction) -> None:
        txn.times[2] = max(self.now_ns - self.rng.choice((0, STEP_NS // 4)), txn.times[1])
        txn.times[3] = 0 if txn.status == Status.IN_DOUBT else self.now_ns + self.rng.choice((0, STEP_NS // 3))
        txn.times[3] = txn.times[3] and max(txn.times[2:])
        txn.session.collector.recorded.append(txn)
        self.order.append(txn)

    def _fence(self, session: Session) -> None:
        txn = Transaction(session, is_fence=True)
        txn.times[:2] = [self.now_ns, self.now_ns]
        seen = self.state.get(FENCE_KEY, 0)
        epoch = self.epochs[seen]
        if epoch > session.epoch and not session.must_fence:
            session.epoch = epoch
            txn.ops.append(Operation(False, FENCE_KEY, seen))
        else:
            session.epoch = epoch + 1
            version = session.collector.write_id()
            self.epochs[version] = epoch + 1
            self._install({FENCE_KEY: version})
            if self.rng.random() < 0.5:
                txn.ops.append(Operation(False, FENCE_KEY, seen))
                seen = -1
            txn.ops.append(Operation(True, FENCE_KEY, version, seen))
        session.must_fence = False
        session.since_fence = 0
        self._finish(txn)

    # Spoiling

    def _spoil(self) -> None:
        rng = self.rng
        txns = [txn for txn in self.order if not txn.is_fence and txn.ops]
        if not txns:
            return
        kind = rng.random()
        txn = rng.choice(txns)
        if kind < 0.8:
            seeing = [op for op in txn.ops if not op.is_write or op.previous >= 0]
            if not seeing:
                return
            op = rng.choice(seeing)
            versions = [0, *self.all_versions.get(op.key, [])]
            if rng.random() < 0.1:
                collector = rng.choice([some for some in self.collectors if some.recorded])
                versions = [collector.write_id()]  # nobody wrote it
            if op.is_write:
                op.previous = rng.choice(versions)
            else:
                op.version = rng.choice(versions)
        elif kind < 0.9:
            other = rng.choice(txns)
            if Status.IN_DOUBT not in (txn.status, other.status):
                txn.times, other.times = other.times, txn.times
        else:
            txn.status = rng.choice((Status.COMMITTED, Status.ABORTED))
            txn.times[3] = txn.times[3] or txn.times[2]

    # As one history

    def history(self) -> History:
        build = HistoryBuilder()
        for txn in self.order:
            times = [time or UNKNOWN_TIME for time in txn.times]
            name = f"c{txn.session.collector.tag}/s{txn.session.number}"
            build.transaction(
                name, txn.status, begin_ns=times[0], begun_ns=times[1], commit_ns=times[2], committed_ns=times[3]
            )
            for op in txn.ops:
                if op.is_write:
                    previous = NO_VALUE if op.previous < 0 else op.previous or INITIAL
                    build.write(str(op.key), op.version, previous)
                else:
                    build.read(str(op.key), op.version or INITIAL)
        return build.finish()

    # On the wire

    def fragments(self, rng: Random) -> Iterator[tuple[bytes, wire.Fragment]]:
        """Everything that was recorded, cut into fragments that arrive in any order; each collector's in its own."""
        queues = [(collector, list(self._cut(collector, rng))) for collector in self.collectors]
        queues = [queue for queue in queues if queue[1]]
        while queues:
            collector, parts = rng.choice(queues)
            yield collector.id, parts.pop(0)
            queues = [queue for queue in queues if queue[1]]

    def _cut(self, collector: Collector, rng: Random) -> Iterator[wire.Fragment]:
        left = collector.recorded
        sequence = 0
        while left:
            size = rng.choice((1, 2, 3, 5, 10, 100))
            part, left = left[:size], left[size:]
            # What comes before and after the transactions of a fragment has its own fragments, so that order is kept.
            runs: list[list[Transaction | tuple[str, Session]]] = []
            for item in part:
                if not runs or isinstance(item, tuple) or isinstance(runs[-1][-1], tuple):
                    runs.append([])
                runs[-1].append(item)
            for at, run in enumerate(runs):
                sequence += 1
                rest = [*(item for later in runs[at + 1 :] for item in later), *left]
                yield self._fragment(collector, sequence, run, rest)

    def _fragment(
        self,
        collector: Collector,
        sequence: int,
        run: list[Transaction | tuple[str, Session]],
        rest: list[Transaction | tuple[str, Session]],
    ) -> wire.Fragment:
        fragment = wire.Fragment(sequence=sequence, sealed_ns=sequence)
        unsent = [op.version for txn in rest if isinstance(txn, Transaction) for op in txn.ops if op.is_write]
        settled = min((version & 0xFFFFFFFF for version in unsent), default=collector.counter + 1)
        fragment.write_ids.add(tag=collector.tag, settled=settled)
        txns = []
        for item in run:
            if isinstance(item, Transaction):
                txns.append(item)
            else:
                what, session = item
                event = {"open": wire.SessionEvent.OPEN, "idle": wire.SessionEvent.IDLE}
                fragment.session_event.add(
                    what=event.get(what, wire.SessionEvent.CLOSE), session=session.number, fenced=what == "open"
                )
        write_columns(fragment, txns)
        return fragment


def write_columns(fragment: wire.Fragment, txns: list[Transaction]) -> None:
    ops = [op for txn in txns for op in txn.ops]
    kinds: list[int] = [wire.READ if not op.is_write else wire.WRITE if op.previous < 0 else wire.UPDATE for op in ops]

    def pack(code: str, values: list[int]) -> bytes:
        return struct.pack(f"<{len(values)}{code}", *values)

    fragment.txn_count = len(txns)
    fragment.txn_session = pack("I", [txn.session.number for txn in txns])
    fragment.txn_status = pack("B", [txn.status for txn in txns])
    fragment.txn_begin_ns = pack("q", [txn.times[0] for txn in txns])
    fragment.txn_begun_ns = pack("q", [txn.times[1] for txn in txns])
    fragment.txn_commit_ns = pack("q", [txn.times[2] for txn in txns])
    fragment.txn_committed_ns = pack("q", [txn.times[3] for txn in txns])
    fragment.txn_op_count = pack("I", [len(txn.ops) for txn in txns])
    fragment.op_kind = pack("B", kinds)
    fragment.op_key = pack("Q", [op.key for op in ops])
    fragment.op_version = pack("Q", [op.version for op in ops])
    fragment.op_previous = pack("Q", [op.previous for op in ops if op.is_write and op.previous >= 0])
