"""Load for the round machine: a database that runs one transaction at a time, on the wire in fragments of a thousand.

Written for speed, since memory is only put to the test by many transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from mussurana.wire import FENCE_KEY, history_pb2, write_id

COLLECTOR, TAG = b"l" * 16, 77
FRAGMENT_TXNS = 1_000
STEP_NS = 100_000


@dataclass
class Load:
    sessions: int = 24
    ops: int = 8
    keys: int = 5_000
    read_share: float = 0.9
    blind: bool = False  # writes do not tell what they replaced
    fence_every: int = 200  # transactions of a session
    seed: int = 1
    now_ns: int = 10**18
    counter: int = 0

    def fragments(self, txns: int) -> Iterator[history_pb2.Fragment]:
        rng = Random(self.seed)
        pick, chance = rng.randrange, rng.random
        state = [0] * (self.keys + 1)
        since = [self.fence_every] * self.sessions
        fence = 0
        for sequence in range(1, txns // FRAGMENT_TXNS + 1):
            kinds, keys, versions, previous = [], [], [], []
            counts, sessions = [], []
            for _ in range(FRAGMENT_TXNS):
                session = pick(self.sessions)
                sessions.append(session)
                if since[session] >= self.fence_every:
                    since[session] = 0
                    self.counter += 1
                    kinds.append(history_pb2.UPDATE)
                    keys.append(FENCE_KEY)
                    previous.append(fence)
                    fence = write_id(TAG, self.counter)
                    versions.append(fence)
                    counts.append(1)
                    continue
                since[session] += 1
                counts.append(self.ops)
                for _ in range(self.ops):
                    key = 1 + pick(self.keys)
                    keys.append(key)
                    if chance() < self.read_share:
                        kinds.append(history_pb2.READ)
                        versions.append(state[key])
                        continue
                    self.counter += 1
                    if self.blind:
                        kinds.append(history_pb2.WRITE)
                    else:
                        kinds.append(history_pb2.UPDATE)
                        previous.append(state[key])
                    state[key] = write_id(TAG, self.counter)
                    versions.append(state[key])
            begin_ns = self.now_ns + STEP_NS * np.arange(FRAGMENT_TXNS, dtype="<i8")
            self.now_ns = int(begin_ns[-1]) + STEP_NS
            fragment = history_pb2.Fragment(
                sequence=sequence,
                sealed_ns=self.now_ns,
                txn_count=FRAGMENT_TXNS,
                txn_session=np.array(sessions, "<u4").tobytes(),
                txn_status=bytes(FRAGMENT_TXNS),
                txn_begin_ns=begin_ns.tobytes(),
                txn_begun_ns=begin_ns.tobytes(),
                txn_commit_ns=(begin_ns + STEP_NS // 2).tobytes(),
                txn_committed_ns=(begin_ns + STEP_NS // 2).tobytes(),
                txn_op_count=np.array(counts, "<u4").tobytes(),
                op_kind=np.array(kinds, "u1").tobytes(),
                op_key=np.array(keys, "<u8").tobytes(),
                op_version=np.array(versions, "<u8").tobytes(),
                op_previous=np.array(previous, "<u8").tobytes(),
            )
            fragment.write_ids.add(tag=TAG, settled=self.counter + 1, drawn=self.counter + 1)
            yield fragment
