"""A machine that was saved and restored at any moment goes on exactly as it would have."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

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
