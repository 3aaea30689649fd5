"""A counterexample says what its transactions ran at, and first of all when that promised less than was checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mussurana.verifier import Settings
from mussurana.verifier.engine.check import check
from mussurana.verifier.formats import native
from mussurana.verifier.history import History, Isolation
from mussurana.verifier.render.html import report_html
from mussurana.verifier.render.json import counterexample_from_json, counterexample_json
from mussurana.verifier.render.text import result_text
from mussurana.verifier.rounds.fragments import BadFragment, decode
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.verdict import Counterexample, Rejected
from tests.notation import h
from tests.rounds.feeding import Wire

SKEW = "[x==_ y:=1] | [y==_ x:=2]"
UPDATES = "[x==_ x:=1] | [x==_ x:=2]"
DIRTY = "[x:=1 y==2] | [y:=2 x==1]"

RC, RR, SER, NOT_KNOWN = (Isolation(number) for number in (2, 3, 4, 0))


def ran_at(history: History, *levels: Isolation) -> History:
    return replace(history, isolation=np.array(levels, np.uint8))


def rejected(history: History, level: str = "serializable") -> Counterexample:
    verdict = check(history, Settings(level)).verdict
    assert isinstance(verdict, Rejected)
    return verdict.counterexample


@pytest.mark.parametrize(
    ("text", "levels", "level", "said"),
    [
        (SKEW, (SER, RC), "serializable", "T2 ran at READ COMMITTED, so the database did not promise it this."),
        (
            SKEW,
            (RR, RR),
            "serializable",
            "T1 and T2 ran at REPEATABLE READ, so the database did not promise them this.",
        ),
        (
            SKEW,
            (RC, RR),
            "strict-serializable",
            "T1 ran at READ COMMITTED and T2 ran at REPEATABLE READ, so the database did not promise them this.",
        ),
        (UPDATES, (RC, RR), "strong-si", "T1 ran at READ COMMITTED, so the database did not promise it this."),
        (UPDATES, (RR, RR), "adya-si", ""),
        (SKEW, (SER, SER), "serializable", ""),
        (SKEW, (NOT_KNOWN, SER), "serializable", ""),
        (DIRTY, (RC, RC), "serializable", ""),
    ],
)
def test_the_first_sentence_says_who_ran_below(text: str, levels: tuple[Isolation, ...], level: str, said: str) -> None:
    found = rejected(ran_at(h(text), *levels), level)
    assert found.summary.startswith(said)
    assert ("promise" in found.summary) == bool(said)
    assert [each.isolation for each in found.transactions] == [
        each.name.replace("_", " ") if each else "" for each in levels
    ]


def test_it_is_shown_as_text_page_and_json() -> None:
    result = check(ran_at(h(SKEW), SER, RC), Settings("serializable"))
    found = rejected(ran_at(h(SKEW), SER, RC))
    text, page = result_text(result), report_html(result, "")
    for shown in ("read committed", "serializable", "T2 ran at READ COMMITTED"):
        assert shown in text
        assert shown in page
    assert counterexample_from_json(counterexample_json(found)) == found
    old = counterexample_json(found)
    for txn in old["transactions"]:
        del txn["isolation"]
    assert [txn.isolation for txn in counterexample_from_json(old).transactions] == ["", ""]


def test_a_history_without_it_says_nothing_of_it() -> None:
    assert [txn.isolation for txn in rejected(h(SKEW)).transactions] == ["", ""]


def test_it_is_not_part_of_what_a_proof_is_held_against() -> None:
    assert ran_at(h(SKEW), SER, RC).fingerprint() == h(SKEW).fingerprint()


def test_our_own_format_keeps_it(tmp_path: Path) -> None:
    for levels in ((SER, RC), (NOT_KNOWN, RR)):
        native.write(ran_at(h(SKEW), *levels), tmp_path / "h.mus")
        assert native.read(tmp_path / "h.mus").isolation.tolist() == list(levels)
    native.write(h(SKEW), tmp_path / "h.mus")
    assert not len(native.read(tmp_path / "h.mus").isolation)


def test_rounds_keep_it_across_a_restart() -> None:
    wire = Wire("serializable")
    first, second = wire.make("a", "0 x==0 y:=a1"), wire.make("b", "0 y==0 x:=b1")
    first.txn_isolation, second.txn_isolation = bytes([SER]), bytes([RC])
    wire.send("a", first)
    wire.round()
    settings = [Settings("serializable", clock_drift_ns=wire.drift_ns)]
    wire.machine = Verifier.from_state(settings, None, wire.machine.state())
    wire.send("b", second)
    (violation,) = wire.round().violations
    assert violation.counterexample.summary.startswith("T2 ran at READ COMMITTED")


@pytest.mark.parametrize("column", [b"\x05", b"\x01\x01"])
def test_a_fragment_with_another_level_is_refused(column: bytes) -> None:
    wire = Wire("serializable")
    made = wire.make("a", "0 x:=a1")
    made.txn_isolation = column
    with pytest.raises(BadFragment, match="txn_isolation"):
        decode(made, 0)
