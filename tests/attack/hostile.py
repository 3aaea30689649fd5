"""Collectors that send whatever the bounds let through, drawn from a few values so that what they say collides."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from mussurana.verifier import Settings
from mussurana.verifier.rounds.fragments import BadFragment
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.wire import EPOCH_BITS, FENCE_KEY, XID_TAG
from mussurana.wire.history_pb2 import (
    DELETE,
    INSERT,
    READ,
    READ_ABSENT,
    UPDATE,
    WRITE,
    Coverage,
    Fragment,
    SessionEvent,
)

SECOND_NS = 1_000_000_000
LEVELS = ("serializable", "strict-serializable", "strong-si", "strong-session-si", "generalized-si", "adya-si")
KINDS = (READ, READ, WRITE, UPDATE, UPDATE, DELETE, READ_ABSENT, INSERT)
TAGS = (5, 6, 7)
COUNTERS = (1, 2, 3, 4, 5, 6, 9, 100)
EPOCHS = (0, 0, 1, 2, 3, 4, (1 << EPOCH_BITS) + 1, (2 << EPOCH_BITS) + 1)


@dataclass
class Hostile:
    """One machine and some collectors, from a seed. `errors` are mistakes of the machine, each with where it was."""

    seed: int
    steps: int = 25
    errors: list[str] = field(default_factory=list)
    fragments: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.level = self.random.choice(LEVELS)
        self.limits = Limits(wait_ns_max=SECOND_NS, silence_ns_max=2 * SECOND_NS, in_doubt_ns_max=SECOND_NS)
        self.machine = Verifier([Settings(self.level)], self.limits)
        self.sequences = dict.fromkeys((b"a" * 16, b"b" * 16, b"c" * 16), 0)
        self.now_ns = 1_800_000_000 * SECOND_NS
        self.uses_xids = self.random.random() < 0.2

    def run(self) -> None:
        for _ in range(self.steps):
            self.now_ns += self.random.choice((1, SECOND_NS // 3, SECOND_NS, 3 * SECOND_NS))
            for _ in range(self.random.randrange(3)):
                self._feed()
            self._note(self.machine.step(self.now_ns, self.random.random() < 0.5))
            self.machine.decide_alarms(self.now_ns)
            if self.random.random() < 0.1:
                self.machine = Verifier.from_state([Settings(self.level)], self.limits, self.machine.state())

    def _note(self, outcomes: list[RoundOutcome]) -> None:
        self.errors += [outcome.failure for outcome in outcomes if outcome.failure]

    def _feed(self) -> None:
        some = self.random
        collector = some.choice(list(self.sequences))
        if some.random() < 0.05:
            self.sequences[collector] += 2
            first = self.sequences[collector] - 1
            self.machine.lose(collector, first, first + 1, self.now_ns)
        made = self.fragment(self.sequences[collector] + 1)
        try:
            self.machine.feed(collector, made, self.now_ns)
            self.fragments += 1
        except BadFragment as error:
            if error.__cause__ is not None:
                self.errors.append(str(error))
            self.machine.lose(collector, made.sequence, made.sequence, self.now_ns)
        self.sequences[collector] += 1

    def _version(self) -> int:
        some = self.random
        tag = XID_TAG if self.uses_xids and some.random() < 0.5 else some.choice(TAGS)
        return 0 if some.random() < 0.1 else (tag << 32) + some.choice(COUNTERS)

    def fragment(self, sequence: int) -> Fragment:
        some = self.random
        txns = some.choice((0, 1, 1, 2, 3, 5))
        counts = [some.choice((0, 1, 1, 2, 3)) for _ in range(txns)]
        keys = [some.choice((FENCE_KEY, 11, 12, 13)) for _ in range(sum(counts))]
        kinds = [some.choice(KINDS) for _ in keys]
        replaced = [self._version() for kind in kinds if kind in (UPDATE, DELETE)]
        versions = [self._version() or (0 if kind in (READ, READ_ABSENT) else (5 << 32) + 1) for kind in kinds]

        def times() -> bytes:
            offsets = [some.choice((-3, -1, 0, 0, 1, 5)) * SECOND_NS for _ in range(txns)]
            return struct.pack(f"<{txns}q", *(0 if some.random() < 0.2 else self.now_ns + each for each in offsets))

        made = Fragment(
            sequence=sequence,
            sealed_ns=max(0, self.now_ns + some.choice((-5, 0, 0, 5)) * SECOND_NS),
            collector_name="hostile",
            txn_count=txns,
            txn_session=struct.pack(f"<{txns}I", *(some.randrange(3) for _ in range(txns))),
            txn_status=bytes(some.choice((0, 0, 0, 1, 2)) for _ in range(txns)),
            txn_begin_ns=times(),
            txn_begun_ns=times(),
            txn_commit_ns=times(),
            txn_committed_ns=times(),
            txn_op_count=struct.pack(f"<{txns}I", *counts),
            op_kind=bytes(kinds),
            op_key=struct.pack(f"<{len(keys)}Q", *keys),
            op_version=struct.pack(f"<{len(keys)}Q", *versions),
            op_previous=struct.pack(f"<{len(replaced)}Q", *replaced),
        )
        fences = keys.count(FENCE_KEY)
        if some.random() < 0.8:
            made.fence_epoch = struct.pack(f"<{fences}Q", *(some.choice(EPOCHS) for _ in range(fences)))
        for tag in TAGS:
            if some.random() < 0.8:
                made.write_ids.add(tag=tag, settled=some.choice((0, 1, 3, 10, 200)), drawn=some.choice((0, 4, 200)))
        self._say(made)
        return made

    def _say(self, made: Fragment) -> None:
        """What is not about transactions."""
        some = self.random
        for _ in range(some.choice((0, 0, 1, 2))):
            what = some.choice((SessionEvent.OPEN, SessionEvent.IDLE, SessionEvent.CLOSE))
            made.session_event.add(what=what, session=some.randrange(3), fenced=some.random() < 0.5)
        if some.random() < 0.1:
            gap = made.gap.add(reason="x", txn_count=some.choice((0, 3)))
            gap.write_ids.add(tag=some.choice((0, *TAGS)), first=some.choice(COUNTERS), end=some.choice(COUNTERS))
        if some.random() < 0.05:
            made.coverage.add(table="t", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
        if some.random() < 0.1:
            made.key_name.add(key=some.choice((11, 12, 13)), name=some.choice(("t/1", "t/2", "u/1")))
        if some.random() < 0.05:
            made.beginning.add(table=some.choice(("t", "u")))
        if self.uses_xids and some.random() < 0.3:
            made.xid_horizon = some.choice((1, 3, 5))
