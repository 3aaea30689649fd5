"""Where in which file something is wrong: every message about bad input starts with that."""

from __future__ import annotations

import re
from pathlib import Path

from mussurana.verifier.history import HistoryError


def bad_byte(path: Path, offset: int, message: str) -> HistoryError:
    """The error for a binary file; offsets count from 0."""
    return HistoryError(f"{path}: byte {offset}: {message}")


def bad_text(path: Path, text: str, position: int, message: str) -> HistoryError:
    """The error for a text file; lines and columns count from 1."""
    return HistoryError(f"{path}: {line_and_column(text, position)}: {message}")


def bad_line(path: Path, line: int, message: str) -> HistoryError:
    """The error for a file that is read line by line; lines count from 1."""
    return HistoryError(f"{path}: line {line}: {message}")


def line_and_column(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - start + 1}"


def read_text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_byte(path, error.start, "expected UTF-8 text") from None


def numbered_files(folder: Path, pattern: str) -> list[Path]:
    """The files that match, with T2 before T10."""
    return sorted(
        (file for file in folder.glob(pattern) if file.is_file()),
        key=lambda file: [(len(part), part) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", file.name)],
    )


def new_folder(path: Path) -> None:
    """Make a folder to write into; one that holds files already would mix two histories."""
    if path.is_dir() and any(path.iterdir()):
        raise HistoryError(f"{path}: the folder is not empty; give a new one")
    path.mkdir(parents=True, exist_ok=True)
