"""The doctors' write skew on the wire: two sessions that each read both rows and write one of them."""

from __future__ import annotations

import time

from mussurana.wire import FENCE_KEY, write_id
from mussurana.wire.history_pb2 import Fragment, KeyName, SessionEvent
from tests.rounds.schedule import write_columns
from tests.rounds.world import Collector, Operation, Session, Transaction

ALICE, BOB = 1001, 1002
TAG = 77


def fragments(collector: bytes) -> list[Fragment]:
    """One that is fine, with the sessions' opening fences, and one that no serial order explains."""
    now_ns = time.time_ns()
    recorded = Collector(collector, TAG)
    one, two = Session(recorded, 1), Session(recorded, 2)
    first, second, alice, bob = (write_id(TAG, counter) for counter in (1, 2, 3, 4))

    def txn(session: Session, *ops: Operation) -> Transaction:
        return Transaction(session, times=[now_ns, now_ns, now_ns, now_ns], ops=list(ops))

    def read_both() -> list[Operation]:
        return [Operation(False, ALICE, 0), Operation(False, BOB, 0)]

    fences = [txn(one, Operation(True, FENCE_KEY, first, 0)), txn(two, Operation(True, FENCE_KEY, second, first))]
    fine = Fragment(sequence=1, sealed_ns=now_ns)
    fine.key_name.extend([KeyName(key=ALICE, name="duty/alice"), KeyName(key=BOB, name="duty/bob")])
    for session in (one, two):
        fine.session_event.add(what=SessionEvent.OPEN, session=session.number, fenced=True)
    fine.write_ids.add(tag=TAG, settled=3)
    write_columns(fine, fences)

    broken = Fragment(sequence=2, sealed_ns=now_ns)
    broken.write_ids.add(tag=TAG, settled=5)
    leave_alice = txn(one, *read_both(), Operation(True, ALICE, alice, 0))
    leave_bob = txn(two, *read_both(), Operation(True, BOB, bob, 0))
    write_columns(broken, [leave_alice, leave_bob])
    return [fine, broken]
