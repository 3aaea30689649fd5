"""INSERTs of many rows: analysed once for all numbers of rows.

SQLAlchemy sends up to thousands of rows in one VALUES, with a text of its own for each number of rows. Analysing such a
text takes tens of milliseconds; here only one of its rows is analysed, and the others are recognised as equal to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BATCH_LENGTH_MIN = 2000
"""Characters. Shorter texts are analysed whole, which is as fast."""

_VALUES = re.compile(r"\bVALUES\s*\(", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Batch:
    """`head + row + tail` is the statement with one row only; `rows` is what stands in place of that row."""

    head: str
    row: str
    tail: str
    rows: str
    shape: re.Pattern[str]

    @property
    def one(self) -> str:
        return self.head + self.row + self.tail


def find_batch(text: str) -> Batch | None:
    """A text that inserts many equal rows; None if it is not certain."""
    if len(text) < BATCH_LENGTH_MIN or not text[:20].lstrip().upper().startswith("INSERT"):
        return None
    match = _VALUES.search(text)
    if match is None:
        return None
    start = match.end() - 1
    end = _row_end(text, start)
    if end < 0:
        return None
    row = text[start:end]
    shape = _DIGITS.sub(r"\\d+", re.escape(row))
    rows = re.compile(rf"{shape}(?:\s*,\s*{shape})*").match(text, start)
    if rows is None:
        return None
    return Batch(text[:start], row, text[rows.end() :], rows[0], re.compile(shape))


def _row_end(text: str, start: int) -> int:
    """The offset after the row that opens at `start`; -1 if a string or comment in it makes counting unsafe."""
    depth = 0
    for offset in range(start, len(text)):
        character = text[offset]
        if character in "'\"$" or text.startswith(("--", "/*"), offset):
            return -1
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if not depth:
                return offset + 1
    return -1
