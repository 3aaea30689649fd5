"""Whatever a fragment holds: it is refused before it is acknowledged, or the machine takes it and goes on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from mussurana.verifier.commands.serve import check_fragment
from mussurana.verifier.rounds.bounds import BOUNDS, MOST, TIME_NS_MAX, Column, Number
from mussurana.verifier.rounds.fragments import BadFragment
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.verdict import Settings
from mussurana.wire import TAG_MAX
from mussurana.wire import history_pb2 as pb
from tests.rounds.feeding import SECOND_NS, Wire, fragment, tag

LEVELS = "strict-serializable generalized-si"

EXTREMES: dict[str, tuple[Any, ...]] = {
    "uint32": (0, 1, 2**31 - 1, 2**31, 2**32 - 1),
    "uint64": (0, 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    "int64": (-(2**63), -1, 0, 1, 2**62, 2**63 - 1),
    "double": (0.0, -1.0, 1e300, float("inf"), float("-inf"), float("nan")),
    "string": ("", "x", "\0", "x/", "/", "é" * 5000, "a" * 100_000),
    "bool": (False, True),
    "enum": (0, 1, 2, 3, 4, 77, -1, 2**31 - 1),
    "bytes": (b"",),
}
KINDS = {
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_UINT64: "uint64",
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_UINT32: "uint32",
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_INT64: "int64",
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_DOUBLE: "double",
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_STRING: "string",
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_BOOL: "bool",
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_ENUM: "enum",
    pb.Fragment.DESCRIPTOR.fields[0].TYPE_BYTES: "bytes",
}
WIDTHS = {"txn_status": "B", "txn_isolation": "B", "op_kind": "B", "txn_session": "I", "txn_op_count": "I"}
WIDTHS |= {"op_statement": "I", **{f"txn_{name}_ns": "q" for name in ("begin", "begun", "commit", "committed")}}
RANGES = {"B": (0, 255), "I": (0, 2**32 - 1), "q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1)}


def scalars(descriptor: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All scalar fields below a message, each with the fields that lead to it."""
    for field in descriptor.fields:
        if field.message_type is None:
            yield path, field
        else:
            yield from scalars(field.message_type, (*path, field))


ALL = list(scalars(pb.Fragment.DESCRIPTOR))


def test_every_field_says_what_it_may_hold_and_nothing_else_does() -> None:
    found = {f"{field.containing_type.name}.{field.name}" for _, field in ALL}
    lists = {name for name in found if name in MOST}
    assert set(BOUNDS) == found
    repeated = {f"{each.containing_type.name}.{each.name}" for path, _ in ALL for each in path if each.is_repeated}
    assert set(MOST) == repeated | lists


def values_of(field: Any) -> list[Any]:
    values = list(EXTREMES[KINDS[field.type]])
    bound = BOUNDS[f"{field.containing_type.name}.{field.name}"]
    if isinstance(bound, Number):
        values += [bound.least, bound.least + 1, bound.most - 1, bound.most, bound.most + 1]
    low, high = RANGES.get({"uint32": "I", "int64": "q"}.get(KINDS[field.type], "Q"), (0, 0))
    return [value for value in values if not isinstance(value, int) or low <= value <= high or field.enum_type]


def put(made: pb.Fragment, path: tuple[Any, ...], field: Any, value: Any) -> None:
    """Set a field, in the first message of each kind that leads to it."""
    message: Any = made
    for each in path:
        inner = getattr(message, each.name)
        message = inner if not each.is_repeated else inner[0] if len(inner) else inner.add()
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def put_in_column(made: pb.Fragment, name: str, value: int, at: int) -> bool:
    """Set one entry of a column, or all for -1. Returns whether the value fits its width."""
    code = WIDTHS.get(name, "Q")
    low, high = RANGES[code]
    content = getattr(made, name)
    count = len(content) // struct.calcsize(code)
    if not low <= value <= high or not count:
        return False
    entries = list(struct.unpack(f"<{count}{code}", content))
    entries = [value] * count if at < 0 else [*entries[: at % count], value, *entries[at % count + 1 :]]
    setattr(made, name, struct.pack(f"<{count}{code}", *entries))
    return True


class World:
    """Honest collectors, and one that sends what it likes. The check is that of the daemon."""

    def __init__(self) -> None:
        self.wire = Wire(LEVELS)
        self.check = check_fragment()
        self.refused = self.taken = self.gaps = 0
        self.counter = 0
        self.fence = "0"
        self.complaints: list[str] = []

    def honest(self, collector: str = "a") -> None:
        self.counter += 1
        self.wire.feed(collector, f"0 x:={collector}{self.counter}", f"1 x=={collector}{self.counter}")

    def base(self) -> pb.Fragment:
        """A fragment with something in each column, of the collector that is no honest one."""
        self.counter += 2
        first, second = f"e{self.counter}", f"e{self.counter + 1}"
        before, self.fence = self.fence, f"e{60_000 + self.counter}"
        made = self.wire.make(
            "e", f"7 y:={first} x==0", f"8 y:={second}<{first} f:={self.fence}<{before}#{self.counter}"
        )
        made.txn_isolation, made.op_statement = bytes(2), bytes(16)
        made.sealed_ns = self.wire.now_ns
        return made

    def send(self, made: pb.Fragment) -> None:
        """As the daemon does: check, serialise, and feed; what the machine does not take is a gap."""
        try:
            self.check(pb.Fragment.FromString(made.SerializeToString()))
        except BadFragment:
            self.refused += 1
            self.wire.sequence["e"] -= 1
            return
        known = self.wire.machine.collectors.get(b"e" * 16)
        if known is not None and made.sequence != known.sequence + 1:
            self.refused += 1  # ingest looks at that itself
            self.wire.sequence["e"] = known.sequence
            return
        try:
            self.wire.machine.feed(b"e" * 16, made, self.wire.now_ns)
            self.taken += 1
        except BadFragment as error:
            self.complaints.append(str(error))
            self.wire.machine.lose(b"e" * 16, made.sequence, made.sequence, self.wire.now_ns)
            self.gaps += 1
        self.wire.sequence["e"] = made.sequence

    def goes_on(self) -> None:
        # What only the machine can know.
        assert all("tag" in each or "op_version" in each for each in self.complaints), self.complaints
        self.honest()
        self.wire.later(0.3)
        for outcome in self.wire.rounds():
            assert not outcome.failure, outcome.failure
        gauges = self.wire.machine.gauges()
        assert 0 <= gauges.lost_txns < 2**63
        Verifier.from_state(
            [level.settings for level in self.wire.machine.levels], self.wire.limits, self.wire.machine.state()
        )


def test_any_field_alone_at_its_extremes_is_refused_or_harmless() -> None:
    for path, field in ALL:
        if isinstance(BOUNDS[f"{field.containing_type.name}.{field.name}"], Column):
            continue
        world = World()
        for value in values_of(field):
            made = world.base()
            put(made, path, field, value)
            world.send(made)
        world.goes_on()


def test_any_column_at_its_extremes_is_refused_or_harmless() -> None:
    for _, field in ALL:
        if not isinstance(BOUNDS[f"{field.containing_type.name}.{field.name}"], Column):
            continue
        world = World()
        for value in (*EXTREMES["uint64"], *EXTREMES["int64"], TIME_NS_MAX + 1, 3, 5, 6, TAG_MAX << 32, -(1 << 62)):
            for at in (-1, 0, 1):
                made = world.base()
                if put_in_column(made, field.name, value, at):
                    world.send(made)
        for outcome in world.wire.rounds():
            assert not outcome.failure, (field.name, outcome.failure)


@pytest.mark.parametrize("seed", range(12))
def test_random_combinations_of_extremes_are_refused_or_harmless(seed: int) -> None:
    rng = Random(seed)
    world = World()
    for _ in range(60):
        made = world.base()
        for path, field in rng.sample(ALL, rng.choice((1, 2, 3, 5))):
            bound = BOUNDS[f"{field.containing_type.name}.{field.name}"]
            if isinstance(bound, Column):
                values = [*EXTREMES["uint64"], *EXTREMES["int64"], rng.randrange(2**63), tag("e") << 32 | 70_000]
                put_in_column(made, field.name, rng.choice(values), rng.choice((-1, 0, 1)))
            elif field.name != "sequence":
                values = values_of(field)
                if isinstance(bound, Number) and rng.random() < 0.7:
                    values = [bound.least, bound.most, rng.randint(bound.least, bound.most)]
                put(made, path, field, rng.choice(values))
        world.send(made)
        if rng.random() < 0.3:
            world.wire.later(rng.choice((0.1, 1, 40)))
            for outcome in world.wire.rounds():
                assert not outcome.failure, outcome.failure
    assert world.taken > 5
    world.goes_on()


def test_the_last_tag_and_the_last_epoch_can_be_used_to_the_end() -> None:
    machine = Verifier([Settings("serializable")])
    end = 1 << 32
    for sequence in (1, 2):
        made = fragment(sequence)
        made.write_ids.add(tag=TAG_MAX, settled=end, drawn=end)
        made.gap.add(txn_count=1).write_ids.add(tag=TAG_MAX, first=0, end=end)
        machine.feed(b"z" * 16, made, SECOND_NS * sequence)
        machine.step(SECOND_NS * sequence, force=True)
    assert not machine.lost.has(machine.lost.end).any()


def test_sessions_of_a_killed_process_have_large_numbers() -> None:
    """What a journal saved gets sessions from 2**31 on."""
    wire = Wire("serializable")
    made = wire.make("a", "0 x:=a1")
    made.txn_session = struct.pack("<I", (1 << 31) + 5)
    wire.send("a", made)
    assert wire.round().txn_count == 1
