"""Rows that were written under another table's name: read by a new one, or copied with their versions."""

from __future__ import annotations

import pytest

from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire import history_pb2 as pb
from tests.rounds.feeding import Wire, key

LEVELS = ("serializable", "strong-session-si")


def scene(level: str, names: dict[str, str], began: tuple[str, ...] = ()) -> Wire:
    """Collectors a and b have told the names of their keys."""
    wire = Wire(level)
    for collector in "ab":
        told = wire.make(collector)
        told.beginning.extend(pb.Beginning(table=table) for table in began)
        told.key_name.extend(pb.KeyName(key=key(short), name=name) for short, name in names.items())
        wire.send(collector, told)
    return wire


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_of_a_table_that_was_renamed_accuses_nobody(level: str) -> None:
    wire = scene(level, {"x": "a/1", "y": "z/1"})
    wire.feed("a", "0 x:=a1")
    wire.feed("b", "0 y==a1", "0 y:=b1<a1", "0 y==b1")
    assert wire.round().verdict == "accepted"
    assert wire.machine.gauges().unchecked_reads["lost"] == 2


@pytest.mark.parametrize("level", LEVELS)
def test_so_does_one_whose_writer_is_forgotten(level: str) -> None:
    wire = scene(level, {"x": "a/1", "y": "z/1"})
    wire.feed("a", "0 x:=a1")
    for _ in range(3):
        wire.fence("a", 0)
        wire.round()
    assert wire.retained < 3
    wire.feed("a", "0 y==a1")
    assert wire.round().verdict == "accepted"


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_written_under_the_new_name_is_checked(level: str) -> None:
    wire = scene(level, {"x": "a/1", "y": "z/1"})
    wire.feed("a", "0 x:=a1")
    wire.feed("b", "0 y:=b1<a1", "0 y:=b2<b1", "0 y==b1")
    assert wire.round().verdict == "rejected"


@pytest.mark.parametrize("level", LEVELS)
def test_the_version_of_another_row_of_the_same_table_is_a_violation(level: str) -> None:
    wire = scene(level, {"x": "a/1", "y": "a/2"})
    wire.feed("a", "0 x:=a1", "0 y==a1")
    assert wire.round().verdict == "rejected"


@pytest.mark.parametrize("level", LEVELS)
def test_so_is_one_that_was_rolled_back_elsewhere(level: str) -> None:
    wire = scene(level, {"x": "a/1", "y": "z/1"})
    wire.feed("a", "0! x:=a1", "0 y==a1")
    assert wire.round().verdict == "rejected"


@pytest.mark.parametrize("level", LEVELS)
def test_nobody_need_know_any_more_who_wrote_the_rows_of_a_copy(level: str) -> None:
    """The original has changed since the copy was made, and what it was is forgotten."""
    names, began = {"x": "a/1", "y": "a@01234567/1", "v": "b/1"}, ("a@01234567",)
    verdicts = []
    for copy in "yv":
        wire = scene(level, names, began)
        wire.feed("a", "0 x:=a1", "0 x:=a2<a1")
        for _ in range(3):
            wire.fence("a", 0)
            wire.round()
        levels = [each.settings for each in wire.machine.levels]
        wire.machine = Verifier.from_state(levels, None, wire.machine.state())  # also after a restart
        wire.feed("a", f"0 {copy}==a1")
        verdicts.append(wire.round().verdict)
    assert verdicts == ["accepted", "rejected"]
