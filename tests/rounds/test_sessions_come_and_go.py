"""Sessions that are over cost nothing, however many there were."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

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
STEP_NS = 1_000_000


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


class Requests:
    """A connection for each request: it opens with a write fence, does a little, reads the fence and closes."""

    def __init__(self, at_a_time: int, closing_fences: bool, timed: bool) -> None:
        self.rng = Random(1)
        self.closing_fences, self.timed = closing_fences, timed
        self.counter = self.sequence = self.epoch = self.fence = self.made = 0
        self.now_ns = 10**18
        self.state: dict[int, int] = {}
        self.steps: list[list[int]] = []  # of each open session: its number, and what it has still to do
        self.at_a_time = at_a_time

    def fragment(self, txns: int) -> wire.Fragment:
        self.sequence += 1
        fragment = wire.Fragment(sequence=self.sequence)
        rows = [self._one(fragment) for _ in range(txns)]
        ops = [op for _, ops in rows for op in ops]

        def pack(code: str, values: list[int]) -> bytes:
            return struct.pack(f"<{len(values)}{code}", *values)

        fragment.txn_count = txns
        fragment.txn_session = pack("I", [session for session, _ in rows])
        fragment.txn_status = bytes(txns)
        begin_ns = [(self.now_ns + STEP_NS * at) * self.timed for at in range(txns)]
        end_ns = [(self.now_ns + STEP_NS * at + STEP_NS // 2) * self.timed for at in range(txns)]
        self.now_ns += STEP_NS * txns
        fragment.sealed_ns = self.now_ns
        fragment.txn_begin_ns = fragment.txn_begun_ns = pack("q", begin_ns)
        fragment.txn_commit_ns = fragment.txn_committed_ns = pack("q", end_ns)
        fragment.txn_op_count = pack("I", [len(ops) for _, ops in rows])
        fragment.op_kind = pack("B", [op[0] for op in ops])
        fragment.op_key = pack("Q", [op[1] for op in ops])
        fragment.op_version = pack("Q", [op[2] for op in ops])
        fragment.op_previous = pack("Q", [op[3] for op in ops if op[0] == wire.UPDATE])
        fragment.fence_epoch = pack("Q", [op[4] for op in ops if op[1] == FENCE_KEY])
        fragment.write_ids.add(tag=TAG, settled=self.counter + 1, drawn=self.counter + 1)
        return fragment

    def _write(self, key: int, seen: int) -> tuple[int, int, int, int, int]:
        self.counter += 1
        version = write_id(TAG, self.counter)
        if key != FENCE_KEY:
            self.state[key] = version
            return wire.UPDATE, key, version, seen, 0
        self.fence, self.epoch = version, self.epoch + 1
        return wire.UPDATE, key, version, seen, self.epoch

    def _one(self, fragment: wire.Fragment) -> tuple[int, list[tuple[int, int, int, int, int]]]:
        """The next transaction, by whoever's turn it is."""
        if len(self.steps) < self.at_a_time:
            self.made += 1
            self.steps.append([self.made, self.rng.choice((1, 2, 3))])
            fragment.session_event.add(what=wire.SessionEvent.OPEN, session=self.made, fenced=True)
            return self.made, [self._write(FENCE_KEY, self.fence)]
        turn = self.rng.choice(self.steps)
        turn[1] -= 1
        if turn[1] < (0 if self.closing_fences else 1):
            self.steps.remove(turn)
            fragment.session_event.add(what=wire.SessionEvent.CLOSE, session=turn[0])
            if self.closing_fences:
                return turn[0], [(wire.READ, FENCE_KEY, self.fence, 0, self.epoch)]
        key, other = self.rng.randrange(1, 10**4), self.rng.randrange(1, 10**4)
        ops: list[tuple[int, int, int, int, int]] = [(wire.READ, other, self.state.get(other, 0), 0, 0)]
        if key != other and self.rng.random() < 0.2:
            ops.append(self._write(key, self.state.get(key, 0)))
        return turn[0], ops


def retained_of(requests: Requests, level: str, rounds: int) -> list[int]:
    machine, retained, known = Verifier([Settings(level)]), [], []
    for _ in range(rounds):
        fragment = requests.fragment(500)
        machine.feed(COLLECTOR, fragment, fragment.sealed_ns)
        (outcome,) = machine.step(fragment.sealed_ns, force=True)
        assert outcome.verdict == "accepted"
        retained.append(outcome.retained)
        known.append(len(machine.sessions))
    assert machine.gauges().unknown_txns == 0
    assert max(known) < requests.made // 2 or max(retained) > requests.made
    return retained


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("level", ["serializable", "strict-serializable", "strong-session-si", "strong-si"])
def test_a_connection_per_request_is_forgotten_though_none_lives_on(level: str, timed: bool) -> None:
    requests = Requests(8, True, timed)
    assert max(retained_of(requests, level, rounds=60)) < 200
    assert requests.made > 5_000


def test_without_a_fence_at_their_end_nothing_of_them_is() -> None:
    assert retained_of(Requests(8, False, True), "serializable", rounds=10)[-1] > 3_000


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
