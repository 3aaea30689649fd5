"""Slow, obvious twins of what the rounds compute, from the words of their contracts; see `tests/engine/twins.py`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Kind
from mussurana.verifier.rounds.batch import ABORTED, Batch

Flags = npt.NDArray[np.bool_]


def blocked_by_hand(
    pool: Batch, late: Flags, by_session: bool = True, by_version: bool = True, by_name: bool = True
) -> Flags:
    """Who has to wait: who saw something late; for each of them who follows in its session, who saw what it wrote, and
    who wrote a version of the same name."""
    ops = [range(int(start), int(end)) for start, end in zip(pool.op_start[:-1], pool.op_start[1:], strict=True)]

    def writes(txn: int) -> list[int]:
        return [op for op in ops[txn] if pool.kind[op] == Kind.WRITE]

    blocked = {txn for txn in range(len(pool)) if any(late[op] for op in ops[txn])}
    while True:
        missing = {int(pool.version[op]) for txn in blocked for op in writes(txn)}
        more = {
            txn
            for txn in range(len(pool))
            if (by_session and any(pool.session[txn] == pool.session[other] and txn > other for other in blocked))
            or (by_version and pool.status[txn] != ABORTED and any(int(pool.seen[op]) in missing for op in ops[txn]))
            or (by_name and pool.status[txn] != ABORTED and any(int(pool.version[op]) in missing for op in writes(txn)))
        }
        if more <= blocked:
            return np.array([txn in blocked for txn in range(len(pool))], bool)
        blocked |= more
