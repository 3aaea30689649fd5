"""Keys with two names: of what happened to them nobody can say which row is meant, so it is left out.

A key is a hash of its row's name. By chance no two rows of a billion share one, but somebody may choose names for it,
or say a wrong name. Whoever told the second name of a key is known by it, and each round says how many reads that left
unchecked. A key stays in here: who knows only one of the two names does not tell it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints
from mussurana.wire import FENCE_KEY

COLLIDING_KEYS_MAX = 100_000
"""Some 100 bytes each. Whoever goes beyond it has told a second name of every key, under its own name. Refusing would
hit whoever comes with the right name after somebody with a wrong one."""


@dataclass(frozen=True)
class Collisions:
    """Never changed, only replaced, so that a fragment which fails half-way leaves the old one behind."""

    told_by: dict[int, bytes] = field(default_factory=dict)  # key -> the collector that told the second name
    every_by: bytes | None = None  # the one that went beyond what is kept

    def has(self, key: int) -> bool:
        return key in self.told_by

    def with_keys(self, keys: set[int], collector: bytes) -> Collisions:
        room = max(0, COLLIDING_KEYS_MAX - len(self.told_by))
        kept = sorted(keys - self.told_by.keys() - {FENCE_KEY})
        every_by = collector if len(kept) > room and self.every_by is None else self.every_by
        return Collisions(self.told_by | dict.fromkeys(kept[:room], collector), every_by)

    def of(self, key: Ints) -> npt.NDArray[np.bool_]:
        """Of each key, whether two rows may share it."""
        if self.every_by is not None:
            return np.asarray(key != FENCE_KEY)
        return np.isin(key, self._keys) if self.told_by else np.zeros(len(key), bool)

    def teller(self, key: int) -> bytes:
        """Pre: `of` says that two rows may share this key."""
        by = self.told_by.get(key, self.every_by)
        assert by is not None
        return by

    @cached_property
    def _keys(self) -> Ints:
        return np.array(sorted(self.told_by), np.int64)
