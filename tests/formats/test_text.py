"""The text format: what its lines mean, and which of them are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier import formats
from mussurana.verifier.history import INITIAL, History, HistoryError, Status
from tests.formats.samples import canonical


def load(path: Path, content: str) -> History:
    (path / "h.txt").write_text(content)
    return formats.load(path / "h.txt")


def test_lines_of_sessions_may_take_turns(tmp_path: Path) -> None:
    history = load(tmp_path, "w(x,1,a,1)\nw(y,2,b,2)\nw(z,3,a,1)\r\n\nr( x , 1 , b , 3 )\n")
    assert {session: len(txns) for session, txns in canonical(history).items()} == {"a": 1, "b": 2}
    assert list(history.txn_names) == ["1", "2", "3"]
    assert history.op_start.tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("value", [0, -1])
def test_reads_of_zero_or_minus_one_saw_the_initial_state(value: int, tmp_path: Path) -> None:
    assert load(tmp_path, f"r(x,{value},1,1)\n").value.tolist() == [INITIAL]


def test_a_transaction_that_sets_up_zeros_is_a_transaction(tmp_path: Path) -> None:
    assert load(tmp_path, "w(x,0,9,9)\nw(y,0,9,9)\nr(x,0,1,1)\n").value.tolist() == [0, 0, 0]


def test_transaction_minus_one_was_rolled_back(tmp_path: Path) -> None:
    history = load(tmp_path, "w(x,5,1,-1)\nw(x,6,1,1)\nw(x,7,1,-1)\n")
    assert history.status.tolist() == [Status.ABORTED, Status.COMMITTED, Status.ABORTED]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("w(1,2,3,4)\nx(1,2,3,4)\n", "line 2: expected r(key,value,session,transaction) or w(...), found 'x(1,2,3,4)'"),
        ("w(1,2,3)\n", "line 1: expected r(key,value,session,transaction) or w(...), found 'w(1,2,3)'"),
        ("w(1,two,3,4)\n", "line 1: expected r(key,value,session,transaction)"),
        ("\n\nw(1,9223372036854775808,3,4)\n", "line 3: expected a value from -9223372036854775806 to"),
        (
            "w(x,1,1,1)\nw(x,2,1,2)\nw(x,3,1,1)\n",
            "line 3: transaction 1 of session 1 goes on after another has begun; it started in line 1",
        ),
        ("w(x,1,1,1)\nw(x,0,1,1)\n", "line 2: expected a value other than 0, which is the initial one"),
    ],
)
def test_malformed_lines_are_named(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as caught:
        load(tmp_path, content)
    assert f"h.txt: {message}" in str(caught.value)


def test_bytes_that_are_not_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "h.txt").write_bytes(b"w(1,2,3,4)\n\xff")
    with pytest.raises(HistoryError, match=r"h\.txt: byte 11: expected UTF-8 text"):
        formats.load(tmp_path / "h.txt")
