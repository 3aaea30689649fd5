"""Sessions that are over cost nothing, however many there were."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest

from mussurana.verifier import Settings
from mussurana.verifier.rounds.machine import ROUNDS_PER_CLEANING, Verifier
from mussurana.wire import FENCE_KEY, write_id
from mussurana.wire import history_pb2 as wire
from tests.rounds.load import COLLECTOR as COLLECTOR_OF_LOAD
from tests.rounds.load import Load

COLLECTOR, TAG = b"c" * 16, 7
SESSIONS = 20 * ROUNDS_PER_CLEANING


LIVES_TXNS = 5


def short_lived(load: Load, txns: int, long_lived: int) -> Iterator[wire.Fragment]:
    """The load with all but so many of its sessions replaced by a new one at each of their fences."""
    number = dict(enumerate(range(load.sessions)))
    made = load.sessions
    for fragment in load.fragments(txns):
        session, ops = np.frombuffer(fragment.txn_session, "<u4").copy(), np.frombuffer(fragment.txn_op_count, "<u4")
        for at, place in enumerate(session.tolist()):
            if ops[at] == 1 and place >= long_lived:
                fragment.session_event.add(what=wire.SessionEvent.CLOSE, session=number[place])
                number[place], made = made, made + 1
                fragment.session_event.add(what=wire.SessionEvent.OPEN, session=number[place], fenced=True)
            session[at] = number[place]
        fragment.txn_session = session.tobytes()
        yield fragment


@pytest.mark.parametrize(
    ("level", "long_lived"), [("serializable", 1), ("strict-serializable", 0), ("strong-session-si", 0)]
)
def test_short_sessions_are_forgotten_if_one_lives_on_or_clocks_tell(level: str, long_lived: int) -> None:
    machine = Verifier([Settings(level)])
    retained = []
    for fragment in short_lived(Load(fence_every=LIVES_TXNS), 24_000, long_lived):
        machine.feed(COLLECTOR_OF_LOAD, fragment, fragment.sealed_ns)
        if fragment.sequence % 4 == 0:
            (outcome,) = machine.step(fragment.sealed_ns, force=True)
            assert outcome.verdict == "accepted"
            retained.append(outcome.retained)
    assert max(retained) < 2_000


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
