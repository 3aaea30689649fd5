"""Tiny random histories near the border between accepted and rejected, from a seed.

A toy database runs a few transactions of a few sessions step by step: one at a time, or on snapshots, fresh or stale,
or seeing whatever is committed, or anything at all. What it recorded is then, often, spoilt in one or two places.
Times are whole seconds, so that `notation.show` prints them well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, HistoryBuilder, Kind, Status
from mussurana.verifier.verdict import Settings

LEVELS = ("serializable", "strict-serializable", "adya-si", "generalized-si", "strong-session-si", "strong-si")
SECOND_NS = 1_000_000_000
NEVER_WRITTEN = 99


@dataclass
class Operation:
    kind: Kind
    key: str
    value: int = INITIAL
    previous: int = NO_VALUE
    seen: list[int] = field(default_factory=list)


@dataclass
class Draft:
    """A transaction that can still be changed. Times are in seconds; None is unknown."""

    session: int
    status: Status
    times: list[int | None]  # begin, begun, commit, committed
    ops: list[Operation]


def random_settings(rng: Random, level: str | None = None) -> Settings:
    return Settings(
        level=level or rng.choice(LEVELS),
        session_order=rng.random() < 0.8,
        clock_drift_ns=rng.choice((0, 0, 1, 3)) * SECOND_NS,
    )


def random_history(
    rng: Random, *, duplicates: bool = False, list_share: float = 0.2, in_doubt_share: float = 0.12
) -> History:
    """A history of 2 to 7 transactions. With `duplicates`, several writes of a key may write the same value."""
    drafts = ToyDatabase(rng, duplicates, list_share, in_doubt_share).run()
    while rng.random() < 0.45:
        rng.choice(SPOILERS)(rng, drafts)
    return to_history(drafts)


def to_history(drafts: list[Draft]) -> History:
    build = HistoryBuilder()
    for draft in drafts:
        times = [UNKNOWN_TIME if second is None else second * SECOND_NS for second in draft.times]
        build.transaction(
            f"s{draft.session}",
            draft.status,
            begin_ns=times[0],
            begun_ns=times[1],
            commit_ns=times[2],
            committed_ns=times[3],
        )
        for op in draft.ops:
            if op.kind == Kind.READ:
                build.read(op.key, op.value)
            elif op.kind == Kind.WRITE:
                build.write(op.key, op.value, op.previous)
            elif op.kind == Kind.APPEND:
                build.append(op.key, op.value, op.previous)
            else:
                build.read_list(op.key, op.seen)
    return build.finish()


class ToyDatabase:
    """Runs random transactions, interleaved, and records them in the order of their begins."""

    def __init__(self, rng: Random, duplicates: bool, list_share: float = 0.2, in_doubt_share: float = 0.12) -> None:
        self.rng = rng
        self.style = rng.choice(("serial", "snapshot", *2 * ("stale snapshot",), "read committed", "anything"))
        # How likely a running transaction goes on before any other: real-time order says little about overlapping ones.
        self.focus = 1 if self.style == "serial" else rng.choice((0.0, 0.5, 0.9))
        self.keys = list("xyz"[: rng.choice((1, 2, 2, 3))])
        self.lists = {key for key in self.keys if rng.random() < list_share}
        self.in_doubt_share = in_doubt_share
        self.written_max = 2 if duplicates else None
        self.values: dict[str, list[int]] = {key: [] for key in self.keys}
        self.committed: dict[str, list[int]] = {}
        self.versions = dict.fromkeys(self.keys, 0)  # how often each key was installed
        self.past = [(self.committed, self.versions)]
        self.read_share = rng.choice((0.3, 0.5, 0.7))
        self.replaced_share = rng.choice((0.0, 0.0, 0.4, 1.0))
        self.inserted_share = rng.choice((0.0, 0.0, 0.3, 0.8))
        self.time_lost_share = rng.choice((0.0, 0.0, 0.0, 0.5))  # any of the four may be known without the others
        self.clock = 5

    def run(self) -> list[Draft]:
        rng = self.rng
        left = rng.choice((2, 3, 3, 4, 4, 5, 6, 7))
        sessions = rng.choice((1, 2, 2, 3, 3, 4))
        timed = rng.random() < 0.7
        drafts: list[Draft] = []
        running: dict[int, Running] = {}
        while left or running:
            self.clock += rng.choice((0, 1, 1, 2))
            session = next(iter(running)) if running and rng.random() < self.focus else rng.randrange(sessions)
            if session in running:
                if running[session].steps:
                    running[session].step(self)
                else:
                    running.pop(session).end(self)
            elif left:
                left -= 1
                running[session] = Running(self, session, timed and rng.random() < 0.95)
                drafts.append(running[session].draft)
        return drafts

    def new_value(self, key: str) -> int:
        written = self.values[key]
        written.append(self.rng.randint(1, self.written_max) if self.written_max else len(written) + 1)
        return written[-1]


class Running:
    """A transaction that has begun and not ended."""

    def __init__(self, db: ToyDatabase, session: int, timed: bool) -> None:
        rng = db.rng
        self.steps = rng.choice((1, 2, 2, 3))
        age = rng.choice((1, 2, 2, 3)) if db.style == "stale snapshot" else 1
        self.snapshot, self.versions = db.past[-min(age, len(db.past))]
        self.own: dict[str, list[int]] = {}
        self.inserted: set[str] = set()  # keys where the first write began a row
        self.timed = timed
        begin = db.clock - rng.choice((0, 0, 1, 3)) if timed else None
        begun = db.clock + rng.choice((0, 0, 1)) if timed and rng.random() < 0.5 else None
        self.draft = Draft(session, Status.COMMITTED, [begin, begun, None, None], [])

    def state(self, db: ToyDatabase, key: str) -> list[int]:
        beside = key in self.inserted and db.style != "serial" and db.rng.random() < 0.3  # the row of the snapshot
        if key in self.own and not beside:
            return self.own[key]
        if db.style == "anything":
            written = db.values[key]
            return written[: db.rng.randint(0, len(written))]
        return (db.committed if db.style == "read committed" else self.snapshot).get(key, [])

    def step(self, db: ToyDatabase) -> None:
        self.steps -= 1
        key = db.rng.choice(db.keys)
        state = self.state(db, key)
        last = state[-1] if state else INITIAL
        if db.rng.random() < db.read_share:
            if key in db.lists:
                self.draft.ops.append(Operation(Kind.READ_LIST, key, last, seen=list(state)))
            else:
                self.draft.ops.append(Operation(Kind.READ, key, last))
                if db.rng.random() < 0.3:
                    self.write(db, key, state, last)
        else:
            self.write(db, key, state, last)

    def write(self, db: ToyDatabase, key: str, state: list[int], last: int) -> None:
        value = db.new_value(key)
        last = self.own[key][-1] if key in self.own else last
        previous = last if db.rng.random() < db.replaced_share else NO_VALUE
        if key in db.lists:
            self.draft.ops.append(Operation(Kind.APPEND, key, value, previous))
        else:
            if db.rng.random() < db.inserted_share:
                previous = NO_ROW
                if key not in self.own:
                    self.inserted.add(key)
            self.draft.ops.append(Operation(Kind.WRITE, key, value, previous))
        self.own[key] = [*state, value]

    def end(self, db: ToyDatabase) -> None:
        rng = db.rng
        overtaken = any(db.versions[key] != self.versions[key] for key in set(self.own) - self.inserted)
        takes_effect = rng.random() < 0.93 and not ("snapshot" in db.style and overtaken and rng.random() < 0.8)
        in_doubt = rng.random() < db.in_doubt_share
        self.draft.status = Status.IN_DOUBT if in_doubt else Status.COMMITTED if takes_effect else Status.ABORTED
        if takes_effect:
            db.committed = db.committed | self.own
            db.versions = {key: count + (key in self.own) for key, count in db.versions.items()}
            db.past.append((db.committed, db.versions))
        if self.timed:
            begin, begun, _, _ = self.draft.times
            asked = max(db.clock - rng.choice((0, 0, 1)), begun or begin or 0)
            self.draft.times[2] = asked if rng.random() < 0.5 else None
            self.draft.times[3] = max(asked, db.clock + rng.choice((0, 0, 1, 3))) if rng.random() < 0.95 else None
            self.draft.times = [None if rng.random() < db.time_lost_share else time for time in self.draft.times]


def spoil_read(rng: Random, drafts: list[Draft]) -> None:
    """Let a read, or a write that names what it replaced, have seen another version."""
    ops = [op for draft in drafts for op in draft.ops]
    reads = [op for op in ops if op.kind in (Kind.READ, Kind.READ_LIST) or op.previous not in (NO_VALUE, NO_ROW)]
    if not reads:
        return
    op = rng.choice(reads)
    written = [other.value for other in ops if other.key == op.key and other.kind in (Kind.WRITE, Kind.APPEND)]
    if op.kind == Kind.READ_LIST:
        rng.shuffle(written)
        op.seen = rng.choice((op.seen[:-1], [*op.seen, *written[:1]], written, op.seen[1:], op.seen[::-1]))
        op.value = op.seen[-1] if op.seen else INITIAL
        return
    seen = rng.choice((*written, *written, INITIAL, NEVER_WRITTEN) if rng.random() < 0.2 else (*written, INITIAL))
    if op.kind == Kind.READ:
        op.value = seen
    else:
        op.previous = seen


def spoil_times(rng: Random, drafts: list[Draft]) -> None:
    """Shift a transaction in time, or let two change places."""
    draft, other = rng.choice(drafts), rng.choice(drafts)
    if rng.random() < 0.5:
        draft.times, other.times = other.times, draft.times
    else:
        shift = rng.choice((-9, -6, -4, -2, 2, 4, 6, 9))
        draft.times = [None if second is None else max(0, second + shift) for second in draft.times]


def spoil_session(rng: Random, drafts: list[Draft]) -> None:
    """Give a transaction to another session, or another place in its own."""
    draft = drafts.pop(rng.randrange(len(drafts)))
    if rng.random() < 0.5:
        draft.session = rng.choice(drafts).session if drafts else draft.session
    drafts.insert(rng.randint(0, len(drafts)), draft)


def spoil_status(rng: Random, drafts: list[Draft]) -> None:
    rng.choice(drafts).status = rng.choice(list(Status))


def spoil_operation(rng: Random, drafts: list[Draft]) -> None:
    """Lose an operation, or let two change places."""
    draft = rng.choice(drafts)
    if not draft.ops:
        return
    op = draft.ops.pop(rng.randrange(len(draft.ops)))
    if rng.random() < 0.6:
        draft.ops.insert(rng.randint(0, len(draft.ops)), op)


SPOILERS = (*3 * (spoil_read,), *3 * (spoil_times,), spoil_session, spoil_status, spoil_operation)
