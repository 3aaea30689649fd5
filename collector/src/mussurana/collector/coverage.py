"""What could and could not be observed, counted by table and shape of statement.

An adapter counts each statement once, with a key that its plan holds ready, so that counting costs one dictionary
access: `recorder.coverage.count(key)` with `key = (table, shape, FULL | PARTIAL | UNOBSERVED_READ | UNOBSERVED_WRITE)`.

A table with an UNOBSERVED_WRITE is *tainted*: somebody wrote to it unseen, so reads of it prove nothing any more, in
any process. An unobserved write with an empty table may have written anywhere and taints everything; an adapter that
knows better should say which table it was.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TypeAlias

FULL, PARTIAL, UNOBSERVED_READ, UNOBSERVED_WRITE = range(4)
"""As Coverage.Observed in history.proto."""

WORDS = ("full", "partial", "unobserved read", "tainted by unobserved write")

Key: TypeAlias = tuple[str, str, int]
"""Table (empty if not known), shape of the statement, how much was observed."""

KEYS_MAX = 10_000
"""Shapes are few. More than this are no shapes but texts with values in them, and would fill the memory."""

PLACES_MAX = 2 * KEYS_MAX + 100
"""For shapes, and then for what is left of them."""

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
        self._places: dict[Key, int] = {}
        self._sent: dict[Key, int] = {}
        self.counts = array(
            "Q", bytes(8 * PLACES_MAX)
        )  # by place; of fixed size, since readers write to it (columns.py)

    def place(self, key: Key) -> int:
        """Where statements of a kind are counted."""
        place = self._places.get(key)
        if place is None:
            known = len(self._places)
            if known >= KEYS_MAX and key[1] != OTHER:
                # The table is kept where it matters: whose table is not known taints all of them.
                return self.place(("" if known >= 2 * KEYS_MAX else key[0], OTHER, key[2]))
            if known >= PLACES_MAX - len(WORDS) and key[0]:
                return self.place(("", OTHER, key[2]))
            place = self._places[key] = known
        return place

    def count(self, key: Key) -> None:
        """One statement more. Threads may race here: coverage is for people, and one more or less does not matter."""
        self.counts[self.place(key)] += 1

    def rows(self) -> list[CoverageRow]:
        entries = sorted(self._entries())
        return [CoverageRow(table, shape, WORDS[seen], count) for (table, shape, seen), count in entries]

    def unobserved_count(self) -> int:
        """Statements of which nothing was seen."""
        return sum(count for (_, _, seen), count in self._entries() if seen >= UNOBSERVED_READ)

    def unsent(self) -> list[tuple[Key, int]]:
        """What has changed since the last `sent`."""
        return [(key, count) for key, count in self._entries() if self._sent.get(key) != count]

    def sent(self, entries: list[tuple[Key, int]]) -> None:
        self._sent.update(entries)

    def send_again(self) -> None:
        """What was sent did not arrive."""
        self._sent = {}

    def _entries(self) -> list[tuple[Key, int]]:
        counted = [(key, self.counts[place]) for key, place in list(self._places.items())]
        return [(key, count) for key, count in counted if count]
