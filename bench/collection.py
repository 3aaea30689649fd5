"""Our verdicts on a collection beside those that another checker gave. Where they differ, one of the two is wrong."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mussurana.verifier.history import HistoryError

_COLUMNS = {"history", "level", "verdict"}


@dataclass(frozen=True)
class Comparison:
    compared: int
    differences: list[str]  # one sentence each


def compare(verdicts_file: Path, level: str, paths: Sequence[Path], ours: Sequence[str]) -> Comparison:
    """Histories are named as paths relative to the file; those that it does not list are not compared."""
    theirs = _read(verdicts_file, level)
    names = [path.relative_to(verdicts_file.parent).as_posix() for path in paths]
    pairs = [(name, verdict) for name, verdict in zip(names, ours, strict=True) if name in theirs]
    return Comparison(
        len(pairs),
        [
            f"{name} at {level}: we say {verdict}, {verdicts_file.name} says {theirs[name]}"
            for name, verdict in pairs
            if verdict != theirs[name]
        ],
    )


def _read(verdicts_file: Path, level: str) -> dict[str, str]:
    with verdicts_file.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        if not _COLUMNS.issubset(lines.fieldnames or ()):
            raise HistoryError(f"{verdicts_file}: line 1: expected the columns history, level and verdict")
        listed = {line["history"]: line["verdict"] for line in lines if line["level"] == level}
    # A history that is a folder may be listed by the file in it.
    return {PurePosixPath(name).parent.as_posix(): verdict for name, verdict in listed.items()} | listed
