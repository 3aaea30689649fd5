"""What makes a recording prove less: tables that somebody writes to unseen, keys with one hash, clocks, repeated ids.

A world has some of it, from a seed of its own. What the recording is worth then is said here in the plainest way, one
operation after the other; the round machine and the reader of spools have to say the same of its fragments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, HistoryBuilder, Status
from mussurana.wire import FENCE_KEY
from mussurana.wire import history_pb2 as wire

if TYPE_CHECKING:
    from tests.rounds.world import Transaction, World

TABLES = 3
NOT_RECORDED, NEW_ROW = -1, -2  # in place of the version that a write replaced


def table_of(key: int) -> str:
    return f"t{key % TABLES}"


def name_of(key: int) -> str:
    return f"{table_of(key)}/{key}"


@dataclass
class Doubts:
    tainted: frozenset[str] = frozenset()  # tables
    number: dict[int, int] = field(default_factory=dict)  # key -> another one, of which it has the hash
    instead: dict[int, int] = field(default_factory=dict)  # write id -> an earlier one that its transaction used again
    set_back: frozenset[int] = frozenset()  # transactions whose clock went back
    early: bool = True  # names and taints are told before anything else
    told_at: int = 0  # else the taint is told when so many write ids were drawn
    told: set[str] = field(default_factory=set)  # names of keys, and tables, that some fragment told of

    @staticmethod
    def random(rng: Random, keys: list[int]) -> Doubts:
        doubts = Doubts(early=rng.random() < 0.7, told_at=rng.randrange(40))
        if rng.random() < 0.25:
            doubts.tainted = frozenset(rng.sample([f"t{n}" for n in range(TABLES)], rng.choice((1, 1, 2))))
        if rng.random() < 0.2 and len(keys) > 1:
            one, other = rng.sample(keys, 2)
            doubts.number = {one: other}
        return doubts

    def plant(self, rng: Random, order: list[Transaction]) -> None:
        """Clocks that go back and write ids that come again, now that the transactions are known."""
        if rng.random() < 0.25:
            timed = [txn for txn in order if txn.times[0] and any(txn.times[1:])]
            chosen = rng.sample(timed, min(len(timed), rng.choice((1, 2, 5))))
            self.set_back = frozenset(txn.number for txn in chosen)
        writes = [(txn, op) for txn in order if not txn.is_fence for op in txn.ops if op.is_write]
        if writes and rng.random() < 0.2:
            txn, op = rng.choice(writes)
            same = [
                later
                for other, later in writes
                if other is not txn
                and other.session.collector is txn.session.collector
                and later.key == op.key
                and later.version > op.version
            ]
            if same:
                self.instead = {rng.choice(same).version: op.version}

    # On the wire

    def key(self, key: int) -> int:
        return self.number.get(key, key)

    def version(self, version: int) -> int:
        return self.instead.get(version, version)

    def times(self, txn: Transaction) -> list[int]:
        if txn.number not in self.set_back:
            return txn.times
        begin, *later = txn.times
        return [begin, *(time and begin - 1 - at for at, time in enumerate(later))]

    def tell(self, fragment: wire.Fragment, keys: Iterable[int], tells_taint: bool) -> None:
        for key in keys:
            if key != FENCE_KEY:
                fragment.key_name.add(key=self.key(key), name=name_of(key))
                self.told.add(name_of(key))
        for table in sorted(self.tainted) if tells_taint else ():
            unobserved = wire.Coverage.UNOBSERVED_WRITE
            fragment.coverage.add(table=table, shape="COPY", observed=unobserved, statement_count=1)
            self.told.add(table)

    # As one history

    def is_colliding(self, key: int) -> bool:
        return any(key in pair and self.told.issuperset(map(name_of, pair)) for pair in self.number.items())

    def is_tainted(self, key: int) -> bool:
        return key != FENCE_KEY and table_of(key) in self.tainted & self.told

    def weakened(self, world: World) -> tuple[History, Counter[str]]:
        """What the fragments made so far prove as one history, and how much of it does not count, by reason."""
        build = HistoryBuilder()
        left_out = Counter[str]()
        for txn in filter(world.has, world.order):
            known = txn.number not in self.set_back
            left_out["clocks"] += not known
            times = [time if time and known else UNKNOWN_TIME for time in txn.times]
            session = f"c{txn.session.collector.tag}/s{txn.session.number}"
            build.transaction(
                session, txn.status, begin_ns=times[0], begun_ns=times[1], commit_ns=times[2], committed_ns=times[3]
            )
            for op in txn.ops:
                if self.is_colliding(op.key):
                    left_out["colliding"] += 1
                    continue
                tainted = self.is_tainted(op.key)
                if not op.is_write and tainted:
                    left_out["tainted"] += 1
                elif not op.is_write:
                    build.read(str(op.key), self.version(op.version) or INITIAL)
                elif op.previous in (NOT_RECORDED, NEW_ROW):
                    build.write(str(op.key), self.version(op.version), NO_ROW if op.previous == NEW_ROW else NO_VALUE)
                else:
                    previous = NO_VALUE if tainted else self.version(op.previous) or INITIAL
                    build.write(str(op.key), self.version(op.version), previous)
        return build.finish(), left_out

    def traits(self, world: World) -> set[str]:
        txns = [txn for txn in world.order if world.has(txn)]
        ops = [op for txn in txns for op in txn.ops if op.key != FENCE_KEY]
        inserted = any(op.previous == NEW_ROW and table_of(op.key) in self.tainted for op in ops if op.is_write)
        seen = [self.version(op.seen) for txn in txns if txn.status == Status.COMMITTED for op in txn.ops]
        return {
            *(["tainted"] if self.tainted else []),
            *(["tainted and inserted"] if inserted else []),
            *(["colliding"] if self.number else []),
            *(["repeated and seen"] if any(version in seen for version in self.instead.values()) else []),
            *(["clock set back"] if self.set_back else []),
            *(["doubts told late"] if not self.early and (self.tainted or self.number) else []),
        }
