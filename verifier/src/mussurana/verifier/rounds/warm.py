"""Have everything compiled before the first transaction comes: run a few made-up ones through a machine of its own.

Kernels are compiled for the types they are called with, and clocks have wider types when sessions are longer; so one
stream is short and one is long, and both have what makes a round go all the way: blind writes whose order is open, and
a write skew to explain. With compiled kernels in the cache this takes a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.verdict import Settings
from mussurana.wire import FENCE_KEY, write_id
from mussurana.wire.history_pb2 import READ, UPDATE, WRITE, Fragment, SessionEvent

COLLECTOR, TAG, SESSIONS, KEYS = bytes(16), 1, 3, 12
SHORT, LONG = 60, 1_000  # transactions in a stream; of a long one every session has more than 256
FENCE_EVERY = 10

Operation = tuple[int, int, int, int]  # kind, key, version, previous


def warm_up(levels: Sequence[Settings]) -> None:
    for txns in (SHORT, LONG):
        machine = Verifier(levels)
        fragment = made_up(txns)
        machine.feed(COLLECTOR, fragment, 1)
        machine.step(1, force=True)


def made_up(count: int) -> Fragment:
    """A fragment of transactions that are serializable but for one write skew in the middle."""
    rng = Random(0)
    state: dict[int, int] = {}
    drawn = 0
    txns: list[tuple[int, list[Operation]]] = []

    def write(key: int) -> int:
        nonlocal drawn
        drawn += 1
        state[key] = write_id(TAG, drawn)
        return state[key]

    for number in range(count):
        session = number % SESSIONS
        if number == count // 2:
            for one, other in ((KEYS + 1, KEYS + 2), (KEYS + 2, KEYS + 1)):
                drawn += 1
                txns.append((one % SESSIONS, [(READ, one, 0, 0), (UPDATE, other, write_id(TAG, drawn), 0)]))
        elif number // SESSIONS % FENCE_EVERY == 0:
            seen = state.get(FENCE_KEY, 0)
            txns.append((session, [(UPDATE, FENCE_KEY, write(FENCE_KEY), seen)]))
        else:
            reads = [(READ, key, state.get(key, 0), 0) for key in rng.sample(range(1, KEYS + 1), rng.randrange(3))]
            keys = rng.sample(range(1, KEYS + 1), 2)
            txns.append((session, [*reads, *((WRITE, key, write(key), 0) for key in keys)]))
    return _fragment(txns, drawn)


def _fragment(txns: list[tuple[int, list[Operation]]], drawn: int) -> Fragment:
    ops = [op for _, of_txn in txns for op in of_txn]
    times = (np.arange(1, len(txns) + 1) * 1_000_000_000).astype("<i8").tobytes()
    fragment = Fragment(
        sequence=1,
        sealed_ns=1,
        txn_count=len(txns),
        txn_session=np.array([session for session, _ in txns], "<u4").tobytes(),
        txn_status=bytes(len(txns)),
        txn_begin_ns=times,
        txn_begun_ns=times,
        txn_commit_ns=times,
        txn_committed_ns=times,
        txn_op_count=np.array([len(of_txn) for _, of_txn in txns], "<u4").tobytes(),
        op_kind=bytes(op[0] for op in ops),
        op_key=np.array([op[1] for op in ops], "<u8").tobytes(),
        op_version=np.array([op[2] for op in ops], "<u8").tobytes(),
        op_previous=np.array([op[3] for op in ops if op[0] == UPDATE], "<u8").tobytes(),
    )
    fragment.write_ids.add(tag=TAG, settled=drawn + 1, drawn=drawn + 1)
    for session in range(SESSIONS):
        fragment.session_event.add(what=SessionEvent.OPEN, session=session, fenced=True)
    return fragment
