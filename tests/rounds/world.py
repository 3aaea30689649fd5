"""A small world from a seed: a toy database, collectors whose sessions come and go, fences, and what each recorded.

The database runs transactions step by step: one at a time, or on snapshots, fresh or stale, or seeing whatever is
committed, or anything at all; what was recorded is then, often, spoilt in a few places. How it goes on the wire is in
`schedule.py`. A world can be made without some of its transactions (t3), operations (o17) and events of sessions (e2),
so that one that shows a bug can be made smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, HistoryBuilder, Status
from mussurana.wire import EPOCH_BITS, FENCE_KEY, write_id
from tests.rounds.doubts import NEW_ROW, NOT_RECORDED, Doubts, table_of

STYLES = ("serial", "serial", "snapshot", "snapshot", "stale snapshot", "read committed", "anything")
STEP_NS = 1_000_000_000


@dataclass
class Operation:
    is_write: bool
    key: int
    version: int
    previous: int = NOT_RECORDED  # for writes: the version replaced, NOT_RECORDED or NEW_ROW
    number: int = -1
    epoch: int = 0  # of the fence row, as its collector tells it; 0 for none

    @property
    def seen(self) -> int:
        """The version it saw; below 0 for none."""
        return self.previous if self.is_write else self.version

    def see(self, version: int) -> None:
        if self.is_write:
            self.previous = version
        else:
            self.version = version


@dataclass
class Transaction:
    session: Session
    status: Status = Status.COMMITTED
    times: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    ops: list[Operation] = field(default_factory=list)
    is_fence: bool = False
    opens: bool = False  # the write fence with which its session begins, or begins again
    number: int = -1
    drawn: int = 0  # how many write ids its collector had drawn when it was recorded


@dataclass
class Event:
    what: str  # open, idle, close
    session: Session
    number: int = -1
    drawn: int = 0


Item = Transaction | Event


@dataclass
class Session:
    collector: Collector
    number: int
    must_fence: bool = True
    epoch: int = 0
    since_fence: int = 0
    running: Running | None = None


@dataclass
class Collector:
    id: bytes
    tag: int
    skew_ns: int = 0  # how far its clock is off
    counter: int = 0
    tells_epochs: bool = True
    sessions: list[Session] = field(default_factory=list)
    recorded: list[Item] = field(default_factory=list)

    def write_id(self) -> int:
        self.counter += 1
        return write_id(self.tag, self.counter)

    def record(self, item: Item) -> None:
        item.drawn = self.counter
        self.recorded.append(item)


@dataclass
class Running:
    txn: Transaction
    steps: int
    snapshot: dict[int, int]
    seen_count: dict[int, int]
    own: dict[int, int] = field(default_factory=dict)
    inserted: set[int] = field(default_factory=set)  # keys where the first write began a row


@dataclass(frozen=True)
class Shape:
    """What kind of world it is."""

    style: str
    focus: float  # how often the one that runs goes on before anybody else does
    txns: int
    keys: int
    read_share: float
    late_read_share: float  # towards the end, when much has been forgotten
    replaced_share: float  # of the writes that say what they replaced
    inserted_share: float  # of the writes that begin a row
    fence_every: int
    fence_races: float  # of the fences that somebody else overtakes, so that they are tried again
    in_doubt: float
    spoilt: float  # the chance of one more wrong record
    collectors: int
    skew_ns: int
    timed: float  # of the transactions whose times are known in full; below 0, none has any

    @staticmethod
    def random(rng: Random) -> Shape:
        style = rng.choice(STYLES)
        blind = rng.random() < 0.3  # writes that nobody reads for long, so that their order stays open
        read_share = rng.choice((0.02, 0.1, 0.3)) if blind else rng.choice((0.2, 0.5, 0.8))
        return Shape(
            style=style,
            focus=1.0 if style == "serial" and rng.random() < 0.5 else rng.choice((0.0, 0.5, 0.9)),
            txns=rng.choice((25, 40, 40, 60) if blind else (*(8, 15, 25, 40) * 4, 80, 150)),
            keys=rng.choice((2, 3, 5, 8) if blind else (1, 2, 3, 5, 8, 20)),
            read_share=read_share,
            late_read_share=0.8 if blind else read_share,
            replaced_share=0.0 if blind else rng.choice((0.0, 0.3, 1.0)),
            inserted_share=rng.choice((0.0, 0.0, 0.2, 0.8)),
            fence_every=rng.choice((1, 2, 3) if blind else (1, 2, 3, 5, 10)),
            fence_races=rng.choice((0.0, 0.0, 0.3)),
            in_doubt=rng.choice((0.0, 0.0, 0.1, 0.3)),
            spoilt=rng.choice((0.0, 0.3, 0.5, 0.8)),
            collectors=rng.choice((1, 2, 3)),
            skew_ns=rng.choice((0, 0, 0, STEP_NS // 3, 2 * STEP_NS)),
            timed=rng.choice((-1.0, -1.0, 1.0) if blind else (-1.0, 0.0, 0.7, 1.0, 1.0)),
        )


class World:
    def __init__(
        self,
        seed: int,
        without: frozenset[str] = frozenset(),
        shape: Shape | None = None,
        era: int = 0,
        unseen_writes: bool = False,
    ) -> None:
        """A world of a later era knows nothing of those before, and has collectors and times of its own.

        With `unseen_writes` somebody does write to the tables that are said to be tainted.
        """
        self.rng = rng = Random(seed)
        self.doubt = Random(f"fences {seed}")  # of its own, so that worlds without it stay as they are
        self.fences_in_doubt = self.doubt.choice((0.0, 0.0, 0.0, 0.3))
        fences = Random(f"closing fences and epochs {seed}")
        self.closing_fences = fences.random() < 0.5
        old_collectors = fences.choice((0.0, 0.0, 0.3))
        self.shape = shape or Shape.random(rng)
        self.style = self.shape.style
        self.keys = list(range(1, 1 + self.shape.keys))
        self.unseen = Random(f"doubts {seed}")
        self.doubts = Doubts.random(self.unseen, self.keys)
        self.unseen_share = self.unseen.choice((0.05, 0.2)) if unseen_writes and self.doubts.tainted else 0.0
        self.state: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.old: list[tuple[dict[int, int], dict[int, int]]] = [({}, {})]
        self.all_versions: dict[int, list[int]] = {}
        self.epochs: dict[int, int] = {0: era << EPOCH_BITS}
        self.now_ns = (100 + era) * 10**16
        skews = [rng.randint(-self.shape.skew_ns, self.shape.skew_ns) for _ in range(self.shape.collectors)]
        first = 10 * era
        self.collectors = [Collector(bytes([n]) * 16, 100 + n, skew) for n, skew in enumerate(skews, first)]
        for collector in self.collectors:
            collector.tells_epochs = fences.random() >= old_collectors
        self.order: list[Transaction] = []  # as they ended
        self._run(self.shape.txns)
        while rng.random() < self.shape.spoilt:
            self._spoil()
        self._number()
        self.doubts.plant(self.unseen, self.order)
        self.gone: set[str] = set()
        self._leave_out(without)

    # Running

    def _run(self, left: int) -> None:
        rng = self.rng
        sessions = [self._open() for _ in range(rng.choice((1, 2, 3, 4)))]
        closed: list[Session] = []
        while left > 0 or any(session.running for session in sessions):
            self.now_ns += STEP_NS
            if self.unseen_share and self.unseen.random() < self.unseen_share:
                self._write_unseen()
            busy = [session for session in sessions if session.running]
            one = busy[0] if busy and rng.random() < self.shape.focus else rng.choice(sessions)
            if one.running:
                self._go_on(one)
                continue
            if left <= 0:
                continue
            chance = rng.random()
            if chance < 0.03:
                if self.closing_fences and one.since_fence:
                    self._closing_fence(one)
                one.collector.record(Event("close", one))
                sessions.remove(one)
                sessions.append(self._open(closed.pop() if closed and rng.random() < 0.5 else None))
                closed.append(one)
            elif chance < 0.06 and not one.must_fence:
                one.must_fence = True
                one.collector.record(Event("idle", one))
            elif one.must_fence or one.since_fence >= self.shape.fence_every:
                left -= 1
                self._fence(one)
            else:
                left -= 1
                self._begin(one)

    def _open(self, again: Session | None = None) -> Session:
        session = again
        if session is None:
            collector = self.rng.choice(self.collectors)
            session = Session(collector, len(collector.sessions))
            collector.sessions.append(session)
        session.must_fence = True
        session.collector.record(Event("open", session))
        return session

    def _begin(self, session: Session) -> None:
        age = self.rng.choice((1, 1, 2, 3, 8)) if self.style == "stale snapshot" else 1
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
        beside = key in running.inserted and self.style != "serial" and rng.random() < 0.3  # the row of the snapshot
        if key in running.own and not beside:
            seen = running.own[key]
        elif self.style == "anything":
            seen = rng.choice([0, *self.all_versions.get(key, [])])
        elif self.style == "read committed":
            seen = self.state.get(key, 0)
        else:
            seen = (self.state if self.style == "serial" else running.snapshot).get(key, 0)
        ops = running.txn.ops
        late = len(self.order) > 0.6 * self.shape.txns
        if rng.random() < (self.shape.late_read_share if late else self.shape.read_share):
            ops.append(Operation(False, key, seen))
            if rng.random() < 0.7:
                return
        version = running.txn.session.collector.write_id()
        self.all_versions.setdefault(key, []).append(version)
        replaced = running.own.get(key, seen)
        previous = replaced if rng.random() < self.shape.replaced_share else NOT_RECORDED
        if rng.random() < self.shape.inserted_share:
            previous = NEW_ROW
            if key not in running.own:
                running.inserted.add(key)
        ops.append(Operation(True, key, version, previous))
        running.own[key] = version

    def _end(self, running: Running) -> None:
        rng, txn = self.rng, running.txn
        if self.style == "serial":
            # Optimistic: whoever saw something that has changed since is rolled back.
            own = {op.version for op in txn.ops if op.is_write}
            outside = (op for op in txn.ops if op.seen >= 0 and op.seen not in own)
            overtaken = any(self.state.get(op.key, 0) != op.seen for op in outside)
        else:
            replaced = set(running.own) - running.inserted
            overtaken = any(self.counts.get(key, 0) != running.seen_count.get(key, 0) for key in replaced)
        refused = overtaken and (self.style == "serial" or "snapshot" in self.style)
        takes_effect = rng.random() < 0.93 and not refused
        txn.status = Status.COMMITTED if takes_effect else Status.ABORTED
        if rng.random() < self.shape.in_doubt:
            txn.status = Status.IN_DOUBT
        if takes_effect:
            self._install(running.own)
        self._finish(txn)

    def _install(self, own: dict[int, int]) -> None:
        self.state = self.state | own
        self.counts = {**self.counts, **{key: self.counts.get(key, 0) + 1 for key in own}}
        self.old.append((self.state, self.counts))

    def _write_unseen(self) -> None:
        """Somebody changes a row of a tainted table, version and all, or puts another one in its place."""
        keys = [key for key in self.keys if table_of(key) in self.doubts.tainted]
        if keys:
            key = self.unseen.choice(keys)
            self._install({key: self.unseen.choice((0, self.state.get(key, 0)))})

    def _finish(self, txn: Transaction) -> None:
        txn.times[2] = max(self.now_ns - self.rng.choice((0, STEP_NS // 4)), txn.times[1])
        txn.times[3] = 0 if txn.status == Status.IN_DOUBT else self.now_ns + self.rng.choice((0, STEP_NS // 3))
        txn.times[3] = txn.times[3] and max(txn.times[2:])
        txn.times = [time and time + txn.session.collector.skew_ns for time in txn.times]
        if self.shape.timed < 0:
            txn.times = [0, 0, 0, 0]
        elif self.rng.random() >= self.shape.timed:
            txn.times[self.rng.choice((1, 2))] = 0
        txn.session.collector.record(txn)
        self.order.append(txn)

    def _fence(self, session: Session) -> None:
        txn = Transaction(session, is_fence=True)
        txn.times[:2] = [self.now_ns, self.now_ns]
        seen = self.state.get(FENCE_KEY, 0)
        epoch = self.epochs[seen]
        if epoch > session.epoch and not session.must_fence:
            session.epoch = epoch
            txn.ops.append(Operation(False, FENCE_KEY, seen, epoch=epoch))
        else:
            version = session.collector.write_id()
            txn.opens = session.must_fence
            if self.rng.random() < self.shape.fence_races:
                txn.status = Status.ABORTED  # it will be tried again
            elif self.doubt.random() < self.fences_in_doubt:
                txn.status = Status.IN_DOUBT  # and so will this, whether or not it took effect
                if self.doubt.random() < 0.5:
                    self.epochs[version] = epoch + 1
                    self._install({FENCE_KEY: version})
            else:
                session.epoch = epoch + 1
                self.epochs[version] = epoch + 1
                self._install({FENCE_KEY: version})
            told = epoch if txn.status == Status.COMMITTED else -1
            if self.rng.random() < 0.5:
                txn.ops.append(Operation(False, FENCE_KEY, seen, epoch=max(told, 0)))
                seen = NOT_RECORDED
            txn.ops.append(Operation(True, FENCE_KEY, version, seen, epoch=told + 1))
        if txn.status == Status.COMMITTED:
            session.must_fence = False
            session.since_fence = 0
        self._finish(txn)

    def _closing_fence(self, session: Session) -> None:
        txn = Transaction(session, is_fence=True)
        txn.times[:2] = [self.now_ns, self.now_ns]
        seen = self.state.get(FENCE_KEY, 0)
        txn.ops.append(Operation(False, FENCE_KEY, seen, epoch=self.epochs[seen]))
        self._finish(txn)

    # Spoiling

    def _spoil(self) -> None:
        rng = self.rng
        txns = [txn for txn in self.order if not txn.is_fence and txn.ops]
        if not txns:
            return
        kind = rng.random()
        txn = rng.choice(txns[-1 - len(txns) // 3 :] if kind < 0.3 or kind > 0.85 else txns)
        if kind < 0.8:
            seeing = [op for op in txn.ops if op.seen >= 0]
            if not seeing:
                return
            op = rng.choice(seeing)
            versions = [0, *self.all_versions.get(op.key, [])]
            if kind < 0.3:  # something that is long gone
                versions = versions[: 1 + len(versions) // 3]
            elif rng.random() < 0.1:
                collector = rng.choice([some for some in self.collectors if some.recorded])
                versions = [collector.write_id()]  # nobody wrote it
            op.see(rng.choice(versions))
        elif kind < 0.9:
            other = rng.choice(txns[: 1 + len(txns) // 3] if rng.random() < 0.5 else txns)
            if Status.IN_DOUBT not in (txn.status, other.status):
                txn.times, other.times = other.times, txn.times
        else:
            txn.status = rng.choice((Status.COMMITTED, Status.ABORTED))
            txn.times[3] = max(txn.times)

    # Leaving out

    def _number(self) -> None:
        ops = 0
        for number, txn in enumerate(self.order):
            txn.number = number
            for op in txn.ops:
                op.number, ops = ops, ops + 1
        events = (item for collector in self.collectors for item in collector.recorded if isinstance(item, Event))
        for number, event in enumerate(events):
            event.number = number

    def parts(self) -> list[str]:
        """What can be left out one by one, the largest first; see `_leave_out` for fences."""
        here = [txn for txn in self.order if f"t{txn.number}" not in self.gone]
        events = [item for collector in self.collectors for item in collector.recorded if isinstance(item, Event)]
        return [
            *(f"t{txn.number}" for txn in reversed(here)),
            *(f"e{event.number}" for event in events if f"e{event.number}" not in self.gone and event.what != "open"),
            *(f"o{op.number}" for txn in here if not txn.is_fence for op in txn.ops),
        ]

    def _leave_out(self, without: frozenset[str]) -> None:
        """Who saw a fence that is left out saw the one before it. One that opens a session goes after all others."""
        instead: dict[int, int] = {}
        self.gone |= {part for part in without if part[0] == "e"}
        for txn in self.order:
            left = [op for op in txn.ops if f"o{op.number}" not in without]
            if f"t{txn.number}" in without and not (txn.opens and self._is_needed(txn, without)):
                self.gone.add(f"t{txn.number}")
                if txn.is_fence and txn.ops[-1].is_write and txn.status != Status.ABORTED:
                    instead[txn.ops[-1].version] = max(op.seen for op in txn.ops)
            elif not txn.is_fence:
                txn.ops = left
        for txn in self.order:
            for op in txn.ops:
                while txn.is_fence and op.seen in instead:
                    op.see(instead[op.seen])

    def _is_needed(self, opening: Transaction, without: frozenset[str]) -> bool:
        return any(
            txn.session is opening.session and txn is not opening and f"t{txn.number}" not in without
            for txn in self.order
        )

    def has(self, item: Item) -> bool:
        return ("t" if isinstance(item, Transaction) else "e") + str(item.number) not in self.gone

    # As one history

    def history(self) -> History:
        build = HistoryBuilder()
        for txn in filter(self.has, self.order):
            times = [time or UNKNOWN_TIME for time in txn.times]
            name = f"c{txn.session.collector.tag}/s{txn.session.number}"
            build.transaction(
                name, txn.status, begin_ns=times[0], begun_ns=times[1], commit_ns=times[2], committed_ns=times[3]
            )
            for op in txn.ops:
                if op.is_write:
                    unknown = {NOT_RECORDED: NO_VALUE, NEW_ROW: NO_ROW, 0: INITIAL}
                    previous = unknown.get(op.previous, op.previous)
                    build.write(str(op.key), op.version, previous)
                else:
                    build.read(str(op.key), op.version or INITIAL)
        return build.finish()
