"""The slow, obvious oracle: is there any order that explains a tiny history?

Written from docs/levels.md and from nothing else, and in another way than the auditor: choose who took effect, choose
the order of their commits, and choose for each how many of these commits came before its begin. Where begins stand
among each other never matters, so these choices cover all orders of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from math import inf

from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, Kind, Status
from mussurana.verifier.verdict import Settings

Snapshot = dict[int, tuple[int, ...]]


@dataclass(eq=False)
class Transaction:
    number: int
    session: int
    sure: bool
    begin: tuple[float, float]  # from the earliest to the latest possible time
    commit: tuple[float, float]
    ops: list[tuple[Kind, int, int, int, tuple[int, ...]]]
    writes: set[int] = field(default_factory=set)
    inserts: set[int] = field(default_factory=set)  # of these, the keys where it first began a row


def brute_force(history: History, settings: Settings) -> bool:
    """Whether the history is accepted at the level of the settings."""
    everyone = [parse(history, t) for t in range(history.txn_count) if history.status[t] != Status.ABORTED]
    committed = [t for t in everyone if t.sure]
    in_doubt = [t for t in everyone if not t.sure]
    return any(Orders([*committed, *lucky], settings).exist() for lucky in subsets(in_doubt))


def subsets(items: list[Transaction]) -> Iterator[Iterable[Transaction]]:
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))


def parse(history: History, t: int) -> Transaction:
    sure = bool(history.status[t] == Status.COMMITTED)
    begin_ns, begun_ns, commit_ns, committed_ns = (
        None if column[t] == UNKNOWN_TIME else int(column[t])
        for column in (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
    )
    end = inf if committed_ns is None or not sure else committed_ns
    start = -inf if begin_ns is None else begin_ns
    ops = [
        (
            Kind(int(history.kind[o])),
            int(history.key[o]),
            int(history.value[o]),
            int(history.previous[o]),
            tuple(history.list_seen(o)),
        )
        for o in history.operations(t)
    ]
    writes = [(key, previous) for kind, key, _, previous, _ in ops if kind in (Kind.WRITE, Kind.APPEND)]
    return Transaction(
        number=t,
        session=int(history.session[t]),
        sure=sure,
        begin=(start, end if begun_ns is None else begun_ns),
        commit=(start if commit_ns is None else commit_ns, end),
        ops=ops,
        writes={key for key, _ in writes},
        inserts={key for key, previous in dict(reversed(writes)).items() if previous == NO_ROW},
    )


class Orders:
    """All orders of some transactions that a level allows."""

    def __init__(self, txns: list[Transaction], settings: Settings) -> None:
        self.txns = txns
        level, drift = settings.level, settings.clock_drift_ns
        self.serial = level in ("serializable", "strict-serializable")
        self.commit_before_begin = set()
        self.commit_before_commit = set()
        self.begin_before_commit = set()
        for a in txns:
            for b in txns:
                if a is b:
                    continue
                if (
                    settings.session_order
                    and level in ("serializable", "strict-serializable", "strong-session-si", "strong-si")
                    and a.session == b.session
                    and a.number < b.number
                    and a.sure
                ):
                    self.commit_before_begin.add((a, b))
                if level in ("strict-serializable", "strong-si") and a.commit[1] + drift < b.begin[0]:
                    self.commit_before_begin.add((a, b))
                if level in ("generalized-si", "strong-session-si", "strong-si"):
                    if a.commit[1] + drift < b.commit[0]:
                        self.commit_before_commit.add((a, b))
                    if a.begin[1] + drift < b.commit[0]:
                        self.begin_before_commit.add((a, b))

    def exist(self) -> bool:
        return self.continues([], [{}])

    def continues(self, committed: list[Transaction], snapshots: list[Snapshot]) -> bool:
        """Whether the rest can commit after these; `snapshots[k]` is the state after the first k commits."""
        if len(committed) == len(self.txns):
            return True
        waiting = [t for t in self.txns if t not in committed]
        for t in waiting:
            if any((u, t) in self.commit_before_commit or (u, t) in self.commit_before_begin for u in waiting):
                continue
            fewest = len(committed) if self.serial else 0
            # Which of the possible snapshots it took makes no difference to anybody else.
            if any(self.can_begin(t, k, committed, snapshots[k]) for k in range(len(committed), fewest - 1, -1)):
                after = install(t, snapshots[-1])
                if self.continues([*committed, t], [*snapshots, after]):
                    return True
        return False

    def can_begin(self, t: Transaction, k: int, committed: list[Transaction], snapshot: Snapshot) -> bool:
        """Whether t, the next one to commit, can have begun when k transactions had committed."""
        for place, u in enumerate(committed):
            if place < k and (t, u) in self.begin_before_commit:
                return False
            if place >= k and ((u, t) in self.commit_before_begin or (t.writes - t.inserts) & u.writes):
                return False
        return explains(snapshot, t, set() if self.serial else t.inserts)


def install(t: Transaction, snapshot: Snapshot) -> Snapshot:
    after = dict(snapshot)
    for kind, key, value, _, _ in t.ops:
        if kind == Kind.WRITE:
            after[key] = (value,)
        if kind == Kind.APPEND:
            after[key] = (*after.get(key, ()), value)
    return after


def explains(snapshot: Snapshot, t: Transaction, inserts: set[int]) -> bool:
    """Whether t sees what it saw if it runs alone on a copy of the snapshot, where `inserts` may stand beside a row."""
    mine = dict(snapshot)
    for kind, key, value, previous, seen in t.ops:
        now = mine.get(key, ())
        last = now[-1] if now else INITIAL
        beside = snapshot.get(key, (INITIAL,))[-1] if key in inserts else last
        if kind == Kind.READ and value not in (last, beside):
            return False
        if kind == Kind.READ_LIST and seen != now:
            return False
        if kind in (Kind.WRITE, Kind.APPEND) and previous not in (NO_VALUE, NO_ROW, last):
            return False
        if kind == Kind.WRITE:
            mine[key] = (value,)
        if kind == Kind.APPEND:
            mine[key] = (*now, value)
    return True
