"""What stays of collectors that are long gone: how far the write ids of each tag were settled, 16 bytes a tag.

Every process of an application is a collector of its own, and what it wrote may be read for years. So whether a version
of it may still arrive has to be known for as long, and nothing else has: not its sequence number, its sessions or its
statements. If it does come back, or sends again what it sent before, it is taken for one that was never heard of: its
sessions have to begin with a write fence, and its tag is known again by its owner. A new collector that drew an old tag
by chance is told from it in the same way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints
from mussurana.wire import COUNTER_BITS

COUNTER_MAX = (1 << COUNTER_BITS) - 1


def short(collector: bytes) -> int:
    """Enough of a collector's id, which is random, to know it by."""
    return int.from_bytes(collector[:8], "little", signed=True)


class EndedTags:
    """Sorted by tag, which stands in the upper half of each write id."""

    def __init__(self, first: Ints | None = None, owner: Ints | None = None) -> None:
        self.first = np.zeros(0, np.int64) if first is None else first  # per tag: the first write id not settled
        self.owner = np.zeros(0, np.int64) if owner is None else owner

    def __len__(self) -> int:
        return len(self.first)

    def add(self, tag: int, first: int, collector: bytes) -> None:
        first = min(first, (tag << COUNTER_BITS) + COUNTER_MAX)  # all of them settled is one more than a counter has
        at = int(np.searchsorted(self.first, first))
        self.first = np.insert(self.first, at, first)
        self.owner = np.insert(self.owner, at, short(collector))

    def owner_of(self, tag: int) -> int | None:
        """The collector that the tag belonged to, as `short` has it; None for a tag that is not here."""
        at = self._place(tag)
        return None if at is None else int(self.owner[at])

    def take_out(self, tag: int) -> int:
        """The first write id that was not settled; the tag is no longer among these. Pre: it is."""
        at = self._place(tag)
        assert at is not None
        first = int(self.first[at])
        self.first, self.owner = np.delete(self.first, at), np.delete(self.owner, at)
        return first

    def _place(self, tag: int) -> int | None:
        at = int(np.searchsorted(self.first, tag << COUNTER_BITS))
        return at if at < len(self.first) and self.first[at] >> COUNTER_BITS == tag else None

    def has_settled(self, versions: Ints) -> npt.NDArray[np.bool_]:
        """Which of these have a tag that is here, and will not arrive any more."""
        if not len(self.first):
            return np.zeros(len(versions), bool)
        tag = versions >> COUNTER_BITS
        first = self.first[np.minimum(np.searchsorted(self.first, tag << COUNTER_BITS), len(self.first) - 1)]
        return np.asarray((first >> COUNTER_BITS == tag) & (versions < first))
