"""An endless serializable history as fragments, made as arrays so that making it costs little.

Transactions take effect one after another, and each read sees the last write before it (as in `simulate/bulk.py`); the
sessions take turns at random, each belongs to a collector, and each fences every so many transactions. A block of
transactions is made at a time: the state of the database is one array, the last version of each key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints, offsets
from mussurana.wire import COUNTER_BITS, FENCE_KEY
from mussurana.wire.history_pb2 import READ, UPDATE, WRITE, Fragment, SessionEvent

FENCE_TXNS = 300
"""Transactions of a session between its fences."""


@dataclass(frozen=True)
class Shape:
    sessions: int = 24
    operations: int = 8
    keys: int = 10_000
    read_fraction: float = 0.9
    blind_fraction: float = 0.0  # of the writes: those that do not tell what they replaced
    collectors: int = 4
    seed: int = 0


@dataclass
class _Collector:
    id: bytes
    tag: int
    sequence: int = 0
    counter: int = 0


@dataclass(frozen=True)
class Made:
    collector: int
    id: bytes
    fragment: Fragment


class Workload:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._random = np.random.default_rng(shape.seed)
        self.collectors = [
            _Collector(self._random.bytes(16), int(self._random.integers(1, 1 << 31))) for _ in range(shape.collectors)
        ]
        self._version = np.zeros(shape.keys, np.int64)  # of each key: the last write id
        self._key_number = self._random.integers(1, 1 << 62, shape.keys, dtype=np.uint64)
        self._fence_version, self._fence_epoch = 0, 0
        self._session_epoch = np.zeros(shape.sessions, np.int64)
        self._since_fence = self._random.integers(0, FENCE_TXNS, shape.sessions)
        self._tags = np.array([each.tag for each in self.collectors], np.int64)

    def block(self, txns: int, begin_ns: int, end_ns: int) -> Iterator[Made]:
        """So many transactions, spread evenly over a time: a fragment for each collector."""
        shape = self.shape
        session = self._random.integers(shape.sessions, size=txns)
        is_fence = self._fences(session)
        counts = np.where(is_fence, 1, shape.operations)
        start = offsets(counts)
        ops = int(start[-1])
        op_fence = np.zeros(ops, bool)
        op_fence[start[:-1][is_fence]] = True
        op_txn = np.repeat(np.arange(txns), counts)
        is_read = self._random.random(ops) < shape.read_fraction
        key = self._keys(ops, op_txn, start)
        collector = session % shape.collectors
        writes = ~is_read & ~op_fence
        written = np.zeros(ops, np.int64)
        for number, each in enumerate(self.collectors):
            mine = np.flatnonzero(writes & (collector[op_txn] == number))
            written[mine] = (each.tag << COUNTER_BITS) + each.counter + 1 + np.arange(len(mine))
            each.counter += len(mine)
        seen = self._execute(key, writes, written, ~op_fence)
        kind = np.where(is_read, READ, np.where(self._random.random(ops) < shape.blind_fraction, WRITE, UPDATE))
        version = np.where(is_read, seen, written)
        previous = np.where(kind == UPDATE, seen, 0)
        key_number = self._key_number[key]
        epoch = np.zeros(ops, np.int64)
        self._run_fences(np.flatnonzero(op_fence), session, collector, op_txn, kind, version, previous, epoch)
        key_number[op_fence] = FENCE_KEY
        times = np.linspace(begin_ns, end_ns, txns + 1).astype(np.int64)
        for number in range(shape.collectors):
            yield self._fragment(number, collector, session, times, start, kind, key_number, version, previous, epoch)

    def last(self) -> Iterator[Made]:
        """The end: every session is closed."""
        for number, each in enumerate(self.collectors):
            each.sequence += 1
            fragment = Fragment(sequence=each.sequence)
            for session in range(number, self.shape.sessions, self.shape.collectors):
                fragment.session_event.add(what=SessionEvent.CLOSE, session=session)
            yield Made(number, each.id, fragment)

    def _fences(self, session: Ints) -> npt.NDArray[np.bool_]:
        """Which transactions are fences: in each session every so many."""
        is_fence = np.zeros(len(session), bool)
        for number in range(self.shape.sessions):
            mine = np.flatnonzero(session == number)
            count = self._since_fence[number] + 1 + np.arange(len(mine))
            is_fence[mine[count % FENCE_TXNS == 0]] = True
            self._since_fence[number] = (self._since_fence[number] + len(mine)) % FENCE_TXNS
        return is_fence

    def _keys(self, ops: int, op_txn: Ints, start: Ints) -> Ints:
        """At random, but different ones within a transaction: neighbours in a random order of all keys."""
        stride = 1 + self._random.integers(self.shape.keys // (2 * self.shape.operations), size=len(start) - 1)
        first = self._random.integers(self.shape.keys, size=len(start) - 1)
        rank = np.arange(ops) - start[op_txn]
        return np.asarray((first[op_txn] + rank * stride[op_txn]) % self.shape.keys)

    def _execute(
        self, key: Ints, writes: npt.NDArray[np.bool_], written: Ints, takes_part: npt.NDArray[np.bool_]
    ) -> Ints:
        """What each operation saw before itself, in order; the state afterwards is kept."""
        ops = np.flatnonzero(takes_part)
        by_key = ops[np.argsort(key[ops].astype(np.int32), kind="stable")]
        place = np.arange(len(by_key))
        starts = np.diff(key[by_key], prepend=-1) != 0
        # Sorted by key: the last write strictly before each operation, or the state before this block.
        writer = np.where(writes[by_key], place, -1)
        shifted = np.concatenate([[-1], writer[:-1]]) if len(writer) else writer
        run_start = np.maximum.accumulate(np.where(starts, place, 0))
        last = np.maximum.accumulate(np.where(starts, -1, shifted))
        inside = last >= run_start
        seen = np.zeros(len(key), np.int64)
        seen[by_key] = np.where(inside, written[by_key[np.maximum(last, 0)]], self._version[key[by_key]])
        mine = by_key[writes[by_key]]  # the last write of a key comes last, and assignment keeps it
        self._version[key[mine]] = written[mine]
        return seen

    def _run_fences(
        self,
        ops: Ints,
        session: Ints,
        collector: Ints,
        op_txn: Ints,
        kind: Ints,
        version: Ints,
        previous: Ints,
        epoch: Ints,
    ) -> None:
        """One after another, in the order in which they took effect."""
        for op in ops.tolist():
            txn = int(op_txn[op])
            who, sender = int(session[txn]), self.collectors[int(collector[txn])]
            if self._fence_epoch > self._session_epoch[who]:
                kind[op], version[op] = READ, self._fence_version
            else:
                sender.counter += 1
                kind[op], previous[op] = UPDATE, self._fence_version
                version[op] = self._fence_version = (sender.tag << COUNTER_BITS) + sender.counter
                self._fence_epoch += 1
            self._session_epoch[who] = epoch[op] = self._fence_epoch

    def _fragment(
        self,
        number: int,
        collector: Ints,
        session: Ints,
        times: Ints,
        start: Ints,
        kind: Ints,
        key: npt.NDArray[np.uint64],
        version: Ints,
        previous: Ints,
        epoch: Ints,
    ) -> Made:
        each = self.collectors[number]
        each.sequence += 1
        mine = np.flatnonzero(collector == number)
        counts = np.diff(start)
        ops = np.flatnonzero(np.repeat(collector == number, counts))
        committed = times[1:][mine]
        begin = times[:-1][mine]
        made = Fragment(
            sequence=each.sequence,
            sealed_ns=int(times[-1]),
            txn_count=len(mine),
            txn_session=session[mine].astype("<u4").tobytes(),
            txn_status=bytes(len(mine)),
            txn_begin_ns=begin.tobytes(),
            txn_begun_ns=begin.tobytes(),
            txn_commit_ns=committed.tobytes(),
            txn_committed_ns=committed.tobytes(),
            txn_op_count=counts[mine].astype("<u4").tobytes(),
            op_kind=kind[ops].astype(np.uint8).tobytes(),
            op_key=key[ops].tobytes(),
            op_version=version[ops].tobytes(),
            op_previous=previous[ops][kind[ops] == UPDATE].tobytes(),
            fence_epoch=epoch[ops][key[ops] == FENCE_KEY].tobytes(),
        )
        made.write_ids.add(tag=each.tag, settled=each.counter + 1, drawn=each.counter + 1)
        if each.sequence == 1:
            for who in range(number, self.shape.sessions, self.shape.collectors):
                made.session_event.add(what=SessionEvent.OPEN, session=who, name=f"conn {who}")
        return Made(number, each.id, made)
