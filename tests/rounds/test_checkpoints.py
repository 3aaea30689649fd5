"""A machine that was saved and restored at any moment goes on exactly as it would have."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from mussurana.verifier.history import NO_VALUE
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.verifier.rounds.state import StateError
from mussurana.verifier.verdict import Settings
from tests.rounds.equality import make_case
from tests.rounds.feeding import Wire
from tests.rounds.schedule import fragments

SEEDS = range(12)


def plain(outcome: RoundOutcome) -> dict[str, Any]:
    """What an outcome says, but for how long it took."""
    told = asdict(outcome)
    del told["seconds"]
    told["committed_ns"] = told["committed_ns"].tolist()
    return told


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restored_machine_tells_the_same(seed: int) -> None:
    case = make_case(seed)
    whole, restored = Verifier(case.settings, case.limits), Verifier(case.settings, case.limits)
    done, sequence = [0] * len(case.world.collectors), [0] * len(case.world.collectors)
    for now_ns, action in enumerate(case.schedule, start=1):
        restored = Verifier.from_state(case.settings, case.limits, restored.state())
        if action.what == "deliver":
            n, collector = action.collector, case.world.collectors[action.collector]
            for fragment in fragments(case.world, collector, done[n], action.end, sequence[n], action.eager):
                whole.feed(collector.id, fragment, now_ns)
                restored.feed(collector.id, fragment, now_ns)
                sequence[n] = fragment.sequence
            done[n] = action.end
        told = [[plain(outcome) for outcome in one.step(now_ns, force=True)] for one in (whole, restored)]
        assert told[0] == told[1]
        assert whole.gauges() == restored.gauges()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_is_of_the_moment_at_which_it_was_taken(seed: int) -> None:
    case = make_case(seed)
    machine = Verifier(case.settings, case.limits)
    done, sequence = [0] * len(case.world.collectors), [0] * len(case.world.collectors)
    taken = []
    for now_ns, action in enumerate(case.schedule, start=1):
        taken.append((machine.snapshot(), machine.state()))
        if action.what == "deliver":
            n, collector = action.collector, case.world.collectors[action.collector]
            for fragment in fragments(case.world, collector, done[n], action.end, sequence[n], action.eager):
                machine.feed(collector.id, fragment, now_ns)
                sequence[n] = fragment.sequence
            done[n] = action.end
        machine.step(now_ns, force=True)
    assert all(to_bytes() == state for to_bytes, state in taken)


def as_version_2(state: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The texts and columns that the second version would have saved."""
    columns = dict(np.load(io.BytesIO(state)))
    text = json.loads(columns["text"].tobytes())
    for name in ("fenced_epoch", "proven_ns", "begun_anew"):
        del text[name]
    for memory in text["memory"]:
        del memory["border"]
    for name in [name for name in columns if name.endswith(".epoch")]:
        del columns[name]
    for name in [name for name in columns if name.endswith(".isolation")]:
        del columns[name]
    text["version"], text["fenced_ns"], text["fence_epoch"] = 2, 7, [[1, 1]]
    return text, columns


def as_version_1(state: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    text, columns = as_version_2(state)
    for name in ("collectors_made", "resumed_ns", "fenced_ns", "clashing_tags"):
        del text[name]
    for collector in text["collectors"]:
        del collector["heard_ns"]
    text["version"], text["unchecked"]["clashing write ids"] = 1, 0
    del columns["ended.first"], columns["ended.owner"]
    return text, columns


@pytest.mark.parametrize("as_saved", [as_version_1, as_version_2])
def test_the_states_of_earlier_versions_are_understood(
    as_saved: Callable[[bytes], tuple[dict[str, Any], dict[str, np.ndarray]]],
) -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x:=a1", "0 f:=a2<0#1", "0 f:=a3<a2#2", "0 f:=a4<a3#3")
    wire.round()
    text, columns = as_saved(wire.machine.state())
    columns["text"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    old = io.BytesIO()
    np.savez(old, **columns)  # type: ignore[arg-type]
    wire.machine = Verifier.from_state([Settings("serializable")], None, old.getvalue())
    wire.feed("b", "0 f:=b1<a4#4", "0 x==a1")
    wire.feed("a", "0 x==a1")
    assert wire.round().verdict == "accepted"
    assert [collector.number for collector in wire.machine.collectors.values()] == [1, 2]
    assert wire.machine.gauges().unknown_txns == 0
    assert wire.machine.levels[0].border.epoch == 3  # which b1 told
    wire.feed("b", "0 x==0")
    assert wire.round().verdict == "rejected"


def test_bytes_that_are_no_state_are_refused() -> None:
    machine = Verifier([Settings("serializable")])
    with pytest.raises(StateError, match="not the state"):
        Verifier.from_state([Settings("serializable")], None, b"nonsense")
    with pytest.raises(StateError, match="levels"):
        Verifier.from_state([Settings("strong-si")], None, machine.state())


Spoil = Callable[[dict[str, Any], dict[str, np.ndarray]], object]


def put(name: str, value: Any) -> Spoil:
    return lambda text, columns: text.update({name: value})


def put_column(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Spoil:
    return lambda text, columns: columns.update({name: change(columns[name])})


def put_in(name: str, field: str, value: Any) -> Spoil:
    return lambda text, columns: dict(enumerate(text[name]))[0].update({field: value})


UNSOUND: dict[str, Spoil] = {
    "operations beyond the column": put_column("level0.op_start", lambda column: column * 1_000_000),
    "operations that go back": put_column("level0.op_start", lambda column: np.append(column[:-1][::-1], column[-1:])),
    "a column that is shorter": put_column("level0.key", lambda column: column[:-1]),
    "a column of two dimensions": put_column("level0.key", lambda column: column[:, None]),
    "a column of floats": put_column("level0.key", lambda column: column.astype(float)),
    "a session that is not there": put_column("level0.session", lambda column: column + 1000),
    "a kind that is none": put_column("level0.kind", lambda column: column + 7),
    "a status that is none": put_column("level0.status", lambda column: column + 3),
    "a version that is none": put_column("level0.version", lambda column: column * 0 + NO_VALUE),
    "a time that is none": put_column("level0.begin_ns", lambda column: column * 0 - 1),
    "ranges that overlap": put_column("lost.start", lambda column: np.array([1, 2])),
    "a table that is longer": put_column("level0.table_key", lambda column: np.append(column, 5)),
    "a table with nothing in it": put_column("level0.table_version", lambda column: column * 0),
    "a column too few": lambda text, columns: columns.pop("level0.epoch"),
    "more in the past than there is": put_in("memory", "past", 10**6),
    "a border of words": put_in("memory", "border", {"last_version": "x", "last_epoch": 1, "version": 1, "epoch": 1}),
    "a border that is a list": put_in("memory", "border", []),
    "a border that is elsewhere": lambda text, columns: text["memory"][0]["border"].update(last_version=5),
    "no levels": put("memory", []),
    "a collector that is none": put_in("collectors", "sequence", "1"),
    "a collector with more": put_in("collectors", "evil", 1),
    "a collector with somebody else's session": put_in("collectors", "sessions", [[0, 999]]),
    "no collectors": put("collectors", []),
    "no sessions": put("sessions", []),
    "a tag that is none": put("tags", [[1 << 40, "61" * 16]]),
    "a tag of nobody": put("tags", [[5, "no hex"]]),
    "a write id of another tag": put("settled", [[5, 1]]),
    "a count that is none": put("rounds", 1 << 70),
    "a name that is none": put("key_names", [[1, 2]]),
    "an alarm that is none": put("alarms", [{"id": "x"}]),
    "a version that is a list": put("version", [3]),
    "all in a list": lambda text, columns: text.clear(),
}


def spoilt(spoil: Spoil) -> tuple[list[Settings], bytes]:
    """A state with something in it, changed."""
    wire = Wire("serializable")
    wire.feed("a", "0 f:=a1<0#1", "0 x:=a2", "0 f:=a3<a1#2", "0 f:=a4<a3#3", "0@3-4 y:=a9", "0 z:=a10", "0 z:=a11")
    wire.round()
    wire.feed("b", "0 x==q1")
    columns = dict(np.load(io.BytesIO(wire.machine.state())))
    text = json.loads(columns.pop("text").tobytes())
    spoil(text, columns)
    columns["text"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, **columns)
    return [level.settings for level in wire.machine.levels], out.getvalue()


def test_a_state_that_was_only_written_anew_is_understood() -> None:
    settings, state = spoilt(lambda text, columns: None)
    machine = Verifier.from_state(settings, None, state)
    assert len(machine.admission.pool)
    assert len(machine.levels[0].retained)
    assert len(machine.levels[0].table)


@pytest.mark.parametrize("what", UNSOUND)
def test_a_state_that_does_not_hold_together_is_refused(what: str) -> None:
    settings, state = spoilt(UNSOUND[what])
    with pytest.raises(StateError, match="state of"):
        Verifier.from_state(settings, None, state)


def test_a_state_takes_no_more_memory_than_its_bytes_say() -> None:
    many = np.zeros(30_000_000, np.int64)
    packed = io.BytesIO()
    np.savez_compressed(packed, many=many)
    claimed = spoilt(lambda text, columns: None)[1].replace(b"'shape': (", b"'shape': (9999999999", 1)
    for state in (packed.getvalue(), claimed):
        tracemalloc.start()
        with pytest.raises(StateError):
            Verifier.from_state([Settings("serializable")], None, state)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
        tracemalloc.stop()


def test_a_state_nested_without_end_is_refused() -> None:
    out = io.BytesIO()
    np.savez(out, text=np.frombuffer(b"[" * 100_000, np.uint8))
    with pytest.raises(StateError):
        Verifier.from_state([Settings("serializable")], None, out.getvalue())
