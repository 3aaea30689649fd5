"""Fragments on their way into the round machine: columns and messages with anything in them, in any order.

A fragment that is refused has changed nothing, and the machine goes on with the others: it steps, is saved, restored,
and decides about alarms.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from google.protobuf.message import DecodeError, Message

from mussurana.verifier import Settings
from mussurana.verifier.daemon.quotas import Ledger, OverQuota
from mussurana.verifier.rounds.fragments import BadFragment, decode
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire import write_id
from mussurana.wire.history_pb2 import Coverage, Fragment, KeyName, SessionEvent
from tests.inputs.damage import damaged, number, packed
from tests.inputs.reader import Files, Reader
from tests.inputs.samples import any_world
from tests.rounds.equality import LEVELS

PLAN = "plan.json"
NOW_NS = 1_700_000_000 * 10**9
SECOND_NS = 10**9
WIDTHS = {"session": 4, "status": 1, "ns": 8, "count": 4, "isolation": 1, "kind": 1, "statement": 4}
STATE_BYTES_MAX = 64 << 20
OPS_MAX = 3_000  # of a fragment that is repeated: rounds look at all that is open between its writes each time

Change = Callable[[Random, Fragment], object]


def columns(fragment: Fragment) -> list[str]:
    return [field.name for field in fragment.DESCRIPTOR.fields if field.type == field.TYPE_BYTES]


def width_of(column: str) -> int:
    return WIDTHS.get(column.rsplit("_", 1)[1], 8)


def with_entry(rng: Random, fragment: Fragment) -> None:
    """An entry of a column is extreme, or is that of another one."""
    column = rng.choice(columns(fragment))
    content, width = getattr(fragment, column), width_of(column)
    if len(content) < width:
        return
    at, other = (rng.randrange(len(content) // width) * width for _ in range(2))
    new = content[other : other + width] if rng.random() < 0.5 else packed(rng, width)
    setattr(fragment, column, content[:at] + new + content[at + width :])


def with_link(rng: Random, fragment: Fragment) -> None:
    """An operation replaces or sees what some other one wrote: also what comes later, or itself."""
    source = "op_version" if rng.random() < 0.7 else "op_previous"
    target = "op_version" if rng.random() < 0.4 else "op_previous"
    versions, content = getattr(fragment, source), getattr(fragment, target)
    if len(versions) < 8 or len(content) < 8:
        return
    for _ in range(rng.choice((1, 3, 10))):
        at, other = rng.randrange(len(content) // 8) * 8, rng.randrange(len(versions) // 8) * 8
        content = content[:at] + versions[other : other + 8] + content[at + 8 :]
    setattr(fragment, target, content)


def with_other_kinds(rng: Random, fragment: Fragment) -> None:
    """Operations of other kinds, with as many replaced versions as these have."""
    kinds = bytes(rng.choice((kind, kind, rng.randrange(6))) for kind in fragment.op_kind)
    fragment.op_kind = kinds
    missing = sum(kind in (2, 3) for kind in kinds) - len(fragment.op_previous) // 8
    versions = fragment.op_version[:8] or bytes(8)
    fragment.op_previous = (fragment.op_previous + versions * max(0, missing))[: 8 * sum(k in (2, 3) for k in kinds)]


def with_one_key(rng: Random, fragment: Fragment) -> None:
    """All operations on one key, the fence perhaps."""
    key = bytes(8) if rng.random() < 0.5 else fragment.op_key[:8] or bytes(8)
    fragment.op_key = key * (len(fragment.op_key) // 8)
    if not any(key):
        fragment.fence_epoch = b"".join(packed(rng, 8) for _ in range(len(fragment.op_key) // 8))
        if rng.random() < 0.7:
            fragment.fence_epoch = bytes(8) * (len(fragment.op_key) // 8)


def with_more(rng: Random, fragment: Fragment) -> None:
    """All of its transactions many times over, under other write ids or the same."""
    times = min(rng.choice((2, 10, 500)), 1 + OPS_MAX // (len(fragment.op_kind) + 1))
    anew = rng.random() < 0.7
    for column in columns(fragment):
        content = getattr(fragment, column)
        if anew and column == "op_version":
            versions = struct.unpack(f"<{len(content) // 8}Q", content[: len(content) // 8 * 8])
            parts = [[(v + 1_000 * n) % (1 << 63) if v else 0 for v in versions] for n in range(times)]
            content = b"".join(struct.pack(f"<{len(part)}Q", *part) for part in parts)
        else:
            content *= times
        setattr(fragment, column, content)
    fragment.txn_count = min(fragment.txn_count * times, (1 << 32) - 1)


def with_longer_column(rng: Random, fragment: Fragment) -> None:
    column = rng.choice(columns(fragment))
    content = getattr(fragment, column)
    setattr(fragment, column, rng.choice((b"", content[:-1], content + bytes(width_of(column)), damaged(rng, content))))


def with_other_count(rng: Random, fragment: Fragment) -> None:
    fragment.txn_count = max(0, rng.choice((number(rng), fragment.txn_count + 1, fragment.txn_count - 1))) % (1 << 32)


def messages_in(message: Message) -> Iterator[Message]:
    yield message
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            some = getattr(message, field.name)
            for inner in some if field.is_repeated else [some]:
                yield from messages_in(inner)


def with_scalar(rng: Random, fragment: Fragment) -> None:
    """A number or a text anywhere in it is extreme."""
    message = rng.choice(list(messages_in(fragment)))
    set_scalar(rng, message)


def set_scalar(rng: Random, message: Message) -> None:
    """One of a message's numbers and texts, or of those of a message in it."""
    fields = [field for field in message.DESCRIPTOR.fields if not field.is_repeated]
    field = rng.choice(fields) if fields else None
    if field is None or field.type == field.TYPE_BYTES or field.name == "sequence":
        return
    if field.message_type is not None:
        set_scalar(rng, getattr(message, field.name))
        return
    value: Any = number(rng)
    if field.type == field.TYPE_STRING:
        text = rng.choice(("", "/", "x", "a/b/c", "/" * 4_000, "x" * 100_000, "\0", "\uffff", "f"))
        value = text
    elif field.type == field.TYPE_DOUBLE:
        value = rng.choice((float("nan"), float("inf"), -1.0, 1e308, float(number(rng))))
    elif field.type == field.TYPE_BOOL:
        value = rng.random() < 0.5
    elif field.type in (field.TYPE_UINT32, field.TYPE_ENUM):
        value %= 1 << (31 if field.type == field.TYPE_ENUM else 32)
    elif field.type == field.TYPE_INT64:
        value = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    else:
        value %= 1 << 64
    setattr(message, field.name, value)


def with_message(rng: Random, fragment: Fragment) -> None:
    """One more message of some kind, or thousands."""
    tags = [ids.tag for ids in fragment.write_ids] or [1]
    tag = rng.choice((*tags, *tags, *tags, 0, 1, 5, number(rng) % (1 << 31)))
    first = rng.choice((0, 1, 5, 100, number(rng) % (1 << 33)))
    times = rng.choice((1, 1, 1, 3, 1_000))
    many = [n if times > 3 else 0 for n in range(times)]
    kind = rng.choice(("event", "event", "ids", "name", "statement", "gap", "gap", "coverage", "beginning", "fences"))
    if kind == "event":
        session = rng.choice((0, 1, 2, number(rng) % (1 << 32)))
        what = rng.choice(list(SessionEvent.What.values()))
        for n in many:
            fragment.session_event.add(what=what, session=(session + n) % (1 << 32), fenced=rng.random() < 0.5)
    elif kind == "ids":
        for n in many:
            drawn = rng.choice((0, first, number(rng) % (1 << 33)))
            fragment.write_ids.add(tag=(tag + n) % (1 << 32), settled=first, drawn=drawn)
    elif kind == "name":
        fragment.key_name.extend([KeyName(key=rng.randrange(30), name=f"t/{rng.randrange(30)}") for _ in many])
    elif kind == "statement":
        for n in many:
            fragment.statement.add(number=n, text="SELECT " * rng.choice((1, 1, 50_000 // times)))
    elif kind == "gap":
        made = fragment.gap.add(reason="x", txn_count=rng.choice((0, 1, number(rng) % (1 << 53))))
        for n in many:
            made.write_ids.add(
                tag=tag % (1 << 31), first=first + 2 * n, end=first + 2 * n + rng.choice((0, 1, 1 << 30))
            )
    elif kind == "coverage":
        table = rng.choice(("", "t", "x", "t/1", "/" * 1_000))
        for n in many:
            observed = rng.choice(list(Coverage.Observed.values()))
            fragment.coverage.add(table=f"{table}{n or ''}", shape="COPY", observed=observed, statement_count=1)
    elif kind == "beginning":
        for n in many:
            fragment.beginning.add(table=f"t{n}")
    else:
        fragment.fences.issued = number(rng) % (1 << 53)
    if rng.random() < 0.05:
        fragment.xid_horizon = number(rng) % (1 << 32)
    if rng.random() < 0.05 and fragment.op_version:
        fragment.op_version = struct.pack("<Q", write_id(tag % (1 << 31), first % (1 << 32))) + fragment.op_version[8:]


CHANGES: tuple[Change, ...] = (
    *(with_entry,) * 4,
    *(with_link,) * 3,
    *(with_message,) * 4,
    *(with_scalar,) * 3,
    *(with_other_kinds, with_one_key, with_more, with_longer_column, with_other_count),
)


def changed(rng: Random, fragment: Fragment) -> bytes:
    made = Fragment()
    made.CopyFrom(fragment)
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(CHANGES)(rng, made)
    content = made.SerializeToString()
    return damaged(rng, content) if rng.random() < 0.1 else content


def make(rng: Random) -> Files:
    """What each collector sends, and when the machine steps or is restored in between."""
    _, followed = any_world(rng)
    files: Files = {}
    plan: list[list[Any]] = []
    share = rng.choice((0.05, 0.3, 0.3, 1.0))
    for action, fragments in followed:
        if action.what != "deliver":
            plan.append([action.what, rng.choice((0, 1, 20, 20, 200, 4_000_000))])
        for fragment in fragments:
            name = f"{len(files):04d}.bin"
            files[name] = changed(rng, fragment) if rng.random() < share else fragment.SerializeToString()
            plan.append(["feed", action.collector, name])
            if rng.random() < 0.03:
                plan.append(["feed", rng.randrange(4), name])
        if rng.random() < 0.03:
            plan.append(["lose", rng.randrange(3), rng.choice((1, 2, 1_000, 1 << 40))])
        if len(plan) > 60:
            break
    plan += [["step", 20]] * rng.choice((1, 2, 18))
    return {**files, PLAN: json.dumps(plan).encode()}


def settings_for(rng: Random) -> list[Settings]:
    some = rng.sample(LEVELS, rng.choice((1, 1, 2)))
    return [Settings(level, clock_drift_ns=rng.choice((0, SECOND_NS))) for level in some]


def limits_for(rng: Random) -> Limits:
    """The usual ones, or some that so little reaches."""
    if rng.random() < 0.5:
        return Limits()
    return replace(
        Limits(),
        round_txns_max=5,
        waiting_txns_max=20,
        retained_txns_max=rng.choice((10, 2_000)),
        silence_ns_max=rng.choice((1, 60)) * SECOND_NS,
        collector_silence_ns_max=rng.choice((1, 10**6)) * SECOND_NS,
        wait_ns_max=rng.choice((1, 30)) * SECOND_NS,
        search_calls_max=1,
    )


class Player:
    """Does what a plan says with a machine. Says what is wrong as soon as something is."""

    def __init__(self, settings: list[Settings], limits: Limits, machine: Verifier | None = None) -> None:
        self.settings, self.limits = settings, limits
        self.machine = machine or Verifier(settings, limits)
        self.now_ns = max(NOW_NS, self.machine.last_round_ns)
        self.refused = 0
        self.ledgers: dict[bytes, Ledger] = {}

    def play(self, plan: list[list[Any]], files: Files) -> str:
        for what, *told in plan:
            self.now_ns += SECOND_NS // 10
            if what == "feed":
                complaint = self.feed(bytes([told[0] + 1]) * 16, files[told[1]])
            elif what == "lose":
                complaint = self.lose(bytes([told[0] + 1]) * 16, told[1])
            elif what == "crash":
                complaint = self.restored()
            else:
                complaint = self.step(told[0])
            if complaint:
                return complaint
        return self.looked_at()

    def expected(self, collector: bytes) -> int:
        known = self.machine.collectors.get(collector)
        return known.sequence + 1 if known else 1

    def feed(self, collector: bytes, content: bytes) -> str:
        fragment = Fragment()
        expected = self.expected(collector)
        try:
            fragment.ParseFromString(content)
        except DecodeError:
            self.machine.lose(collector, expected, expected, self.now_ns)
            return ""
        if fragment.sequence >= expected:  # as ingest lets only the next one through
            fragment.sequence = expected
        before = self.machine.state()
        try:
            decode(fragment, self.now_ns)
            self.ledgers.setdefault(collector, Ledger()).charge(fragment)
            self.machine.feed(collector, fragment, self.now_ns)
        except (BadFragment, OverQuota) as error:
            self.refused += 1
            if error.__cause__ is not None:
                raise RuntimeError(f"a fragment came upon a mistake in the program: {error}") from error
            if self.machine.state() != before:
                return f"a fragment was refused and has changed the machine: {error}"
            if fragment.sequence == expected:
                self.machine.lose(collector, expected, expected, self.now_ns)
        return ""

    def lose(self, collector: bytes, count: int) -> str:
        expected = self.expected(collector)
        self.machine.lose(collector, expected, expected + count - 1, self.now_ns)
        return ""

    def restored(self) -> str:
        state = self.machine.state()
        if len(state) > STATE_BYTES_MAX:
            return f"the state has {len(state):,} bytes"
        self.machine = Verifier.from_state(self.settings, self.limits, state)
        again = Verifier.from_state(self.settings, self.limits, same := self.machine.state())
        return "" if again.state() == same else "a state that was restored is another one"

    def step(self, seconds: float) -> str:
        self.now_ns += int(seconds * SECOND_NS)
        for outcome in self.machine.step(self.now_ns, force=True):
            if outcome.failure:
                return f"a round came upon a mistake in the program: {outcome.failure}"
        self.machine.decide_alarms(self.now_ns)
        return ""

    def looked_at(self) -> str:
        self.machine.gauges()
        self.machine.collector_names()
        return self.restored() or self.step(20)


def read(files: Files, folder: Path, rng: Random) -> str:
    player = Player(settings_for(rng), limits_for(rng))
    complaint = player.play(json.loads(files[PLAN]), files)
    if player.refused and not complaint:
        raise BadFragment("some of them")
    return complaint


READER = Reader("fragment", make, read, (BadFragment,))
