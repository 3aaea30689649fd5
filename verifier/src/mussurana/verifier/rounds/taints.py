"""Tables that somebody wrote to unseen, and who says so.

What anybody read of such a table proves nothing any more, so it is left unchecked. That weakens what others recorded as
well, and has to: so each taint is known by the collector that told it and by its table, and each round says how many
reads the taints left unchecked.

A taint ends when the operator begins a new era of the fence (`mussurana adopt --anew`) after the last unseen write.
Everything begins anew then, so what was written unseen before is as unknown as all that is that old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mussurana.verifier.history import Ints
from mussurana.wire import FENCE_KEY, NOT_KNOWN_YET
from mussurana.wire.history_pb2 import Coverage, Fragment

TAINTS_MAX = 10_000
"""Pairs of collector and table, about 200 bytes each. Who tells more taints everything, under its own name."""

SLASHES_MAX = 64
"""In the name of a key, each of which may end the name of its table. One with more of them may be of any table: to try
all of thousands would take milliseconds, and a fragment may name thousands of such keys."""

END_MARGIN_NS = 60 * 1_000_000_000
"""A taint that was told this shortly before a new era may be of an unseen write after its begin: it stays. This is how
far the database's clock may be ahead of the daemon's."""

EVERY = ""
"""In place of a table: its writer does not know which one it was."""


@dataclass(frozen=True)
class Taint:
    collector: bytes
    table: str


@dataclass
class Taints:
    told_ns: dict[Taint, int] = field(default_factory=dict)  # when each was told last; in the order of the first time
    _first: dict[str, int] = field(default_factory=dict)  # table -> place of the taint that came first

    def __bool__(self) -> bool:
        return bool(self.told_ns)

    def tell(self, taint: Taint, now_ns: int) -> bool:
        """Returns whether its table was not tainted before."""
        if taint not in self.told_ns and len(self.told_ns) >= TAINTS_MAX:
            taint = Taint(taint.collector, EVERY)
        is_new, place = taint not in self.told_ns, len(self.told_ns)
        self.told_ns[taint] = max(now_ns, self.told_ns.get(taint, 0))
        return is_new and self._first.setdefault(taint.table, place) == place

    def end_before(self, time_ns: int) -> None:
        """Those that were told before are over."""
        self.told_ns = {taint: told_ns for taint, told_ns in self.told_ns.items() if told_ns >= time_ns}
        self._first = {}
        for place, taint in enumerate(self.told_ns):
            self._first.setdefault(taint.table, place)

    def by_place(self) -> list[Taint]:
        return list(self.told_ns)

    def of(self, key: Ints, names: Mapping[int, str]) -> Ints:
        """Per key: the place of the taint that it falls under, -1 for none. One without a name may be of any table."""
        if not self.told_ns:
            return np.full(len(key), -1, np.int64)
        keys, at = np.unique(key, return_inverse=True)
        places = [-1 if number == FENCE_KEY else self.of_name(names.get(number)) for number in keys.tolist()]
        return np.array(places, np.int64)[at]

    def of_name(self, name: str | None) -> int:
        """The same for a key of this name, which begins with its table and a slash. A table may have slashes, too."""
        if name is None or name.count("/") > SLASHES_MAX:
            return 0
        slash = name.find("/")
        while slash >= 0:
            place = self._first.get(name[:slash])
            if place is not None:
                return place
            slash = name.find("/", slash + 1)
        return self._first.get(EVERY, -1)


def tainted_tables(fragment: Fragment) -> dict[str, bool]:
    """Tables that the collector of a fragment says it wrote to unseen, and whether it found out only afterwards."""
    found: dict[str, bool] = {}
    for seen in fragment.coverage:
        if seen.observed == Coverage.UNOBSERVED_WRITE and seen.statement_count:
            found[seen.table] = found.get(seen.table, False) or seen.shape == NOT_KNOWN_YET
    return found
