"""Viper's logs: every kind of operation, the initial state, and lines that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier import formats
from mussurana.verifier.history import INITIAL, UNKNOWN_TIME, History, HistoryError, Kind

Lines = list[dict[str, Any]]


def load(folder: Path, *sessions: Lines) -> History:
    (folder / "json").mkdir()
    for number, lines in enumerate(sessions):
        (folder / "json" / f"J{number}.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return formats.load(folder)


def left_out(history: History) -> dict[str, int]:
    return {note.what: note.count for note in history.left_out}


def test_reads_and_writes(tmp_path: Path) -> None:
    history = load(
        tmp_path,
        [{"value": [["w", 7, 5, True], ["r", 7, 5, False]]}, {"value": []}],
        [{"value": [{"opType": "r", "key": "x", "value": 5, "isDead": False}]}],
    )
    assert list(history.session_names) == ["J0", "J1"]
    assert history.op_start.tolist() == [0, 2, 2, 3]
    assert list(history.key_names) == ["7", "x"]


def test_the_one_version_of_a_key_that_nobody_wrote_is_the_initial_one(tmp_path: Path) -> None:
    reads = [["r", 1, 5, False], ["r", 1, 5, False], ["r", 2, 6, False], ["r", 2, 7, False]]
    history = load(tmp_path, [{"value": reads}])
    assert history.value.tolist() == [INITIAL, INITIAL, 6, 7]
    assert left_out(history) == {"keys whose initial version is not recorded but taken from reads": 1}


def test_a_recorded_initial_state_is_all_there_was(tmp_path: Path) -> None:
    initial = {
        "value": [["w", 1, 5, True], ["range", "nil", "nil", [{"id": 2, "sk": 2, "val": 6}], []]],
        "isInitial": True,
    }
    history = load(tmp_path, [initial], [{"value": [["r", k, k + 4, False] for k in (1, 2, 3)] + [["r", 3, 0, False]]}])
    assert history.txn_count == 1
    assert history.value.tolist() == [INITIAL, INITIAL, 7, INITIAL]
    assert left_out(history) == {}


def test_inserts_and_deletes_read_and_write(tmp_path: Path) -> None:
    operations = [["i", 1, 11, None, False, True], ["d", 1, 12, 11, False, True]]
    history = load(tmp_path, [{"value": operations}])
    assert history.kind.tolist() == [Kind.READ, Kind.WRITE, Kind.READ, Kind.WRITE]
    assert history.value.tolist() == [INITIAL, 11, 11, 12]


def test_writes_that_were_refused_are_left_out_and_counted(tmp_path: Path) -> None:
    history = load(tmp_path, [{"value": [["w", 1, 11, False], ["w", 1, 12, True]]}])
    assert history.value.tolist() == [12]
    assert left_out(history) == {"writes that the database refused": 1}


def test_a_range_query_reads_its_rows_and_the_rest_of_it_is_counted(tmp_path: Path) -> None:
    rows = [[{"id": 1, "sk": 1, "val": 11}], [{"id": 2, "sk": 2, "val": 12}]]
    writes = {"value": [["w", 1, 11, True], ["w", 2, 12, True]]}
    history = load(tmp_path, [writes], [{"value": [["range", 1, 9, *rows]]}])
    assert history.value.tolist() == [11, 12, 11, 12]
    assert left_out(history) == {"range queries, as far as they saw that there are no other rows": 1}


def test_milliseconds_become_the_widest_intervals(tmp_path: Path) -> None:
    times = {"preBeginTS": 1, "postBeginTS": 2, "preCommitTS": 3, "postCommitTS": 4}
    history = load(tmp_path, [{**times, "value": []}, {"value": []}])
    assert history.begin_ns.tolist() == [1_000_000, UNKNOWN_TIME]
    assert history.begun_ns.tolist() == [2_999_999, UNKNOWN_TIME]
    assert history.commit_ns.tolist() == [3_000_000, UNKNOWN_TIME]
    assert history.committed_ns.tolist() == [4_999_999, UNKNOWN_TIME]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"value": [', "column 12: not JSON"),
        ("[]", "expected an object with a list of operations"),
        (
            '{"value": [["x", 1, 2, true]]}',
            'expected an operation of kind r, w, i, d or range with all its parts, found ["x"',
        ),
        ('{"value": [["r", 1, 2]]}', "expected an operation of kind"),
        ('{"value": [{"opType": "r", "key": 1}]}', "expected an operation of kind"),
        ('{"value": [["r", null, 2, true]]}', "expected a key, a number or a string, found null"),
        ('{"value": [["r", 1, 1e99, true]]}', "expected a version, a number of 64 bits, found 1e+99"),
        ('{"value": [["r", 1, 9223372036854775808, true]]}', "expected a version, a number of 64 bits"),
        ('{"value": [["w", 1, 2, "yes"]]}', "expected true or false for the success of a write"),
        ('{"value": [["w", 1, 0, true]]}', "expected a version to write to key 1, found 0"),
        ('{"value": [["range", 1, 2, [3], []]]}', "expected rows"),
        ('{"value": [], "preBeginTS": "now"}', "expected preBeginTS in milliseconds"),
        ('{"value": [["r", 1, 2, true]], "isInitial": true}', "expected writes or a range query in the initial state"),
        ('{"value": [["r", ' + "9" * 5000 + ", 2, true]]}", "a number has too many digits"),
    ],
)
def test_malformed_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "J1.log").write_text('{"value": []}\n' + line + "\n")
    with pytest.raises(HistoryError) as caught:
        formats.load(tmp_path)
    assert f"J1.log: line 2: {message}" in str(caught.value)
