"""What could and could not be observed, counted by table and shape of statement.

An adapter counts each statement once, with a key that its plan holds ready, so that counting costs one dictionary
access: `recorder.coverage.count(key)` with `key = (table, shape, FULL | PARTIAL | UNOBSERVED_READ | UNOBSERVED_WRITE)`.

A table with an UNOBSERVED_WRITE is *tainted*: somebody wrote to it unseen, so reads of it prove nothing any more, in
any process. An unobserved write with an empty table may have written anywhere and taints everything; an adapter that
knows better should say which table it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

FULL, PARTIAL, UNOBSERVED_READ, UNOBSERVED_WRITE = range(4)
"""As Coverage.Observed in history.proto."""

WORDS = ("full", "partial", "unobserved read", "tainted by unobserved write")

Key: TypeAlias = tuple[str, str, int]
"""Table (empty if not known), shape of the statement, how much was observed."""

KEYS_MAX = 10_000
"""Shapes are few. More than this are no shapes but texts with values in them, and would fill the memory."""

OTHER = "other statements"


@dataclass(frozen=True)
class CoverageRow:
    table: str
    shape: str
    observed: str  # one of WORDS
    statement_count: int


class Coverage:
    """Totals since the process started."""

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}
        self._sent: dict[Key, int] = {}

    def count(self, key: Key) -> None:
        """One statement more. Threads may race here: coverage is for people, and one more or less does not matter."""
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < KEYS_MAX:
            counts[key] = 1
        else:
            # The table is kept where it matters: whose table is not known taints all of them.
            folded = ("" if len(counts) > 2 * KEYS_MAX else key[0], OTHER, key[2])
            counts[folded] = counts.get(folded, 0) + 1

    def count_all(self, keys: Iterable[Key]) -> None:
        counts = self._counts
        for key in keys:
            if key in counts:
                counts[key] += 1
            else:
                self.count(key)

    def rows(self) -> list[CoverageRow]:
        entries = sorted(self._counts.items())
        return [CoverageRow(table, shape, WORDS[seen], count) for (table, shape, seen), count in entries]

    def unobserved_count(self) -> int:
        """Statements of which nothing was seen."""
        return sum(count for (_, _, seen), count in list(self._counts.items()) if seen >= UNOBSERVED_READ)

    def unsent(self) -> list[tuple[Key, int]]:
        """What has changed since the last `sent`."""
        return [(key, count) for key, count in list(self._counts.items()) if self._sent.get(key) != count]

    def sent(self, entries: list[tuple[Key, int]]) -> None:
        self._sent.update(entries)
