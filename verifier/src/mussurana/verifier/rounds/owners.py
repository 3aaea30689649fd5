"""Whose a tag of write ids is: a collector's word counts for its own versions only.

A tag belongs to the first collector that delivered a version under it. Until somebody did, its first claimer *holds*
it: its word counts too, but only until somebody else delivers. If two claim it, nobody's word counts until one of
them delivers.

Two processes that draw the same tag by chance both deliver under it. Then the tag is *contested*. What the later one
did is left out, and the owner's versions stand: a read of one that is there is a read of the owner's. A read of one
that is not there may be of the other's, so it accuses nobody. Where the two wrote the same version of the same key, a
read of it is left out as well. Nobody hides more than that by taking a tag that is not its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints
from mussurana.wire import COUNTER_BITS

PAIRS_MAX = 1_000
"""Versions of a key that a contester says it wrote and that therefore count for nobody. Two processes with one tag may
agree in a few: their fences count up alike. Who comes with more of them would hide what the owner wrote."""


@dataclass
class Owners:
    of: dict[int, bytes] = field(default_factory=dict)  # tag -> who owns or holds it
    proved: set[int] = field(default_factory=set)  # tags that are owned, and not only held
    disputed: set[int] = field(default_factory=set)  # tags that are held, and that somebody else claimed
    contester: dict[int, bytes] = field(default_factory=dict)  # of each contested tag
    pair_key: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # what contesters say they wrote
    pair_version: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def claim(self, collector: bytes, tag: int) -> None:
        """The collector says that it draws write ids from this tag."""
        owner = self.of.setdefault(tag, collector)
        if owner != collector and tag not in self.proved:
            self.disputed.add(tag)

    def is_word_of(self, collector: bytes, tag: int) -> bool:
        """Whether this collector's word on the versions of a tag counts."""
        return self.of.get(tag) == collector and tag not in self.disputed

    def prove(self, collector: bytes, tag: int) -> bool:
        """The collector delivered versions of a tag that is free or only held; it is its own from now on.

        Returns whether somebody else's word counted, or might have, until now.
        """
        held_by = self.of.get(tag, collector)
        self.of[tag] = collector
        self.proved.add(tag)
        was_disputed = tag in self.disputed
        self.disputed.discard(tag)
        return held_by != collector or was_disputed

    def contest(self, collector: bytes, tag: int) -> None:
        self.contester.setdefault(tag, collector)

    def contests(self, collector: bytes) -> int:
        """The tag of somebody else under which this collector delivers, 0 for none."""
        return next((tag for tag, contester in self.contester.items() if contester == collector), 0)

    def note_pairs(self, key: Ints, version: Ints) -> None:
        """A contester wrote these versions of these keys, as it says."""
        room = max(0, PAIRS_MAX - len(self.pair_key))
        self.pair_key = np.concatenate([self.pair_key, key[:room]])
        self.pair_version = np.concatenate([self.pair_version, version[:room]])

    def forget(self, tag: int) -> None:
        self.of.pop(tag, None)
        self.proved.discard(tag)
        self.disputed.discard(tag)

    def is_contested(self, versions: Ints) -> npt.NDArray[np.bool_]:
        """Of each version, whether its tag is contested."""
        if not self.contester:
            return np.zeros(len(versions), bool)
        return np.asarray((versions > 0) & np.isin(versions >> COUNTER_BITS, list(self.contester)))

    def doubtful(
        self, key: Ints, seen: Ints, written: npt.NDArray[np.bool_], version: Ints, current: Ints
    ) -> npt.NDArray[np.bool_]:
        """Per operation: whether what it saw may be a contester's version instead of the owner's.

        `written` are the operations that wrote `version`; `current` is what its key had when the past ended.
        """
        doubtful = self.is_contested(seen) & (seen != current)
        if not doubtful.any() and not len(self.pair_key):
            return np.asarray(doubtful)
        missing = doubtful.copy()
        missing[doubtful] = ~among(key[doubtful], seen[doubtful], key[written], version[written])
        return np.asarray(missing | among(key, seen, self.pair_key, self.pair_version))


def among(key: Ints, version: Ints, keys: Ints, versions: Ints) -> npt.NDArray[np.bool_]:
    """Which of these pairs of key and version are among those."""
    if not len(key) or not len(keys):
        return np.zeros(len(key), bool)
    _, place = np.unique(np.concatenate([key, keys]), return_inverse=True)
    _, number = np.unique(np.concatenate([version, versions]), return_inverse=True)
    pair = place.astype(np.int64) * (int(number.max()) + 1) + number
    return np.isin(pair[: len(key)], pair[len(key) :])
