"""Keys that two rows may have for a while, since their constraint is deferrable: what a transaction did to them in all.

A history knows a row by its key, and each key has one row at a time. So only the row from before and the one that is
left in the end are told: then the constraint held. What the transaction itself saw in between is left out.
"""

from __future__ import annotations

from collections.abc import Set

from mussurana.collector.columns import DELETE, INSERT, REPLACING, UPDATE, WRITES, Row


def settled(rows: list[Row], keys: Set[int]) -> list[Row]:
    """The operations of a transaction, with one write at most to each of these keys, in place of its last one."""
    seen: dict[int, _Key] = {}
    for place, row in enumerate(rows):
        kind, key, *_ = row
        if key in keys and (kind in WRITES or key in seen):
            seen.setdefault(key, _Key()).add(place, row)
    changed = {place: row for key in seen.values() for place, row in key.in_all().items()}
    kept = (changed.get(place, row) for place, row in enumerate(rows))
    return [row for row in kept if row is not None]


class _Key:
    """What happened to a key from the first write on."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.writes: list[tuple[int, Row]] = []

    def add(self, place: int, row: Row) -> None:
        self.places.append(place)
        if row[0] in WRITES:
            self.writes.append((place, row))

    def in_all(self) -> dict[int, Row | None]:
        """The operation that stands at each place instead."""
        own: list[int] = []  # versions of rows of the transaction's own that have the key
        before: int | None = None  # the version of the row that had it before
        for _, (kind, _, version, replaced, _) in self.writes:
            if kind in REPLACING:
                if replaced in own:
                    own.remove(replaced)
                else:
                    before = replaced
            if kind != DELETE:
                own.append(version)
        last, (_, key, version, _, statement) = self.writes[-1]
        left: dict[int, Row | None] = dict.fromkeys(self.places)
        if len(own) > 1:  # it cannot be committed so
            left.update(self.writes)
        elif own:
            left[last] = (
                (INSERT, key, own[0], 0, statement) if before is None else (UPDATE, key, own[0], before, statement)
            )
        elif before is not None:
            left[last] = DELETE, key, version, before, statement
        return left
