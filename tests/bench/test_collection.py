"""Our verdicts beside those of another checker."""

from pathlib import Path

import pytest

from bench.collection import compare
from mussurana.verifier.history import HistoryError

LISTED = """history,level,verdict
a/history.bincode,serializable,accepted
b/history.bincode,serializable,rejected
b/history.bincode,strong-session-si,accepted
"""


def verdicts(folder: Path, content: str = LISTED) -> Path:
    file = folder / "verdicts.csv"
    file.write_text(content)
    return file


def test_a_different_verdict_names_history_level_and_both_answers(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b" / "history.bincode"]
    comparison = compare(verdicts(tmp_path), "serializable", paths, ["rejected", "rejected"])
    assert comparison.compared == 2
    assert comparison.differences == ["a at serializable: we say rejected, verdicts.csv says accepted"]


def test_unknown_differs_from_any_verdict(tmp_path: Path) -> None:
    comparison = compare(verdicts(tmp_path), "serializable", [tmp_path / "a"], ["unknown"])
    assert len(comparison.differences) == 1


def test_only_listed_histories_of_that_level_are_compared(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    comparison = compare(verdicts(tmp_path), "strong-session-si", paths, ["rejected", "accepted", "rejected"])
    assert (comparison.compared, comparison.differences) == (1, [])


def test_a_list_without_the_columns_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"verdicts\.csv: line 1: expected the columns"):
        compare(verdicts(tmp_path, "name;result\n"), "serializable", [], [])
