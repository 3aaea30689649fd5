"""Sessions that are over cost nothing, however many there were."""

from __future__ import annotations

import struct

from mussurana.verifier import Settings
from mussurana.verifier.rounds.machine import ROUNDS_PER_CLEANING, Verifier
from mussurana.wire import FENCE_KEY, write_id
from mussurana.wire import history_pb2 as wire

COLLECTOR, TAG = b"c" * 16, 7
SESSIONS = 20 * ROUNDS_PER_CLEANING


def one_session(number: int) -> wire.Fragment:
    """A session that opens with a write fence, as it must, and closes again."""
    fragment = wire.Fragment(sequence=number, sealed_ns=number, txn_count=1)
    fragment.session_event.add(what=wire.SessionEvent.OPEN, session=number, fenced=True)
    fragment.session_event.add(what=wire.SessionEvent.CLOSE, session=number)
    fragment.write_ids.add(tag=TAG, settled=number + 1, drawn=number + 1)
    fragment.txn_session = struct.pack("<I", number)
    fragment.txn_status = bytes(1)
    for field in ("begin", "begun", "commit", "committed"):
        setattr(fragment, f"txn_{field}_ns", struct.pack("<q", number))
    fragment.txn_op_count = struct.pack("<I", 1)
    fragment.op_kind = bytes([wire.UPDATE])
    fragment.op_key = struct.pack("<Q", FENCE_KEY)
    fragment.op_version = struct.pack("<Q", write_id(TAG, number))
    fragment.op_previous = struct.pack("<Q", write_id(TAG, number - 1) if number > 1 else 0)
    return fragment


def test_closed_sessions_are_forgotten_also_across_a_restart() -> None:
    levels = [Settings("serializable")]
    machine = Verifier(levels)
    most = 0
    for number in range(1, SESSIONS + 1):
        machine.feed(COLLECTOR, one_session(number), number)
        (outcome,) = machine.step(number, force=True)
        assert outcome.verdict == "accepted"
        most = max(most, len(machine.sessions))
        if number == SESSIONS // 2:
            machine = Verifier.from_state(levels, None, machine.state())
    assert machine.sessions_made == SESSIONS
    assert most <= 2 * ROUNDS_PER_CLEANING
    assert len(machine.collectors[COLLECTOR].sessions) == len(machine.sessions)
