"""The version that each key had when everything before it was forgotten: key -> write id, as a hash table.

It plays the part of the transaction that wrote the initial state. A round costs what is new, not what the database
holds: only the keys that the round touches are looked up. 16 bytes per slot, at most two thirds of them in use.
"""

from __future__ import annotations

import numpy as np

from mussurana.verifier.history import Ints
from mussurana.verifier.kernels import kernel

FIRST_SIZE = 1 << 10


@kernel
def find_slot(slot_key, slot_version, key):
    """The slot that holds a key, or the empty one where it would go. A slot is empty while its version is 0."""
    mask = np.uint64(len(slot_key) - 1)
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    at = (x ^ (x >> np.uint64(29))) & mask
    while slot_version[at] != 0 and slot_key[at] != key:
        at = (at + np.uint64(1)) & mask
    return at


@kernel
def look_up(slot_key, slot_version, key, version):
    """Fill `version` with what the table has for each key, 0 for those it does not have."""
    for i in range(len(key)):
        version[i] = slot_version[find_slot(slot_key, slot_version, key[i])]


@kernel
def store(slot_key, slot_version, key, version):
    """Set the version of each key and return how many are new. Pre: there is room; no version is 0."""
    new = 0
    for i in range(len(key)):
        at = find_slot(slot_key, slot_version, key[i])
        if slot_version[at] == 0:
            slot_key[at] = key[i]
            new += 1
        slot_version[at] = version[i]
    return new


class VersionTable:
    def __init__(self, size: int = FIRST_SIZE) -> None:
        self._key = np.zeros(size, np.int64)
        self._version = np.zeros(size, np.int64)
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def get(self, keys: Ints) -> Ints:
        """The version of each key; 0, the version from before anybody recorded, for those that are not here."""
        found = np.empty(len(keys), np.int64)
        look_up(self._key, self._version, keys, found)
        return found

    def put(self, keys: Ints, versions: Ints) -> None:
        while 3 * (self.count + len(keys)) > 2 * len(self._key):
            bigger = VersionTable(2 * len(self._key))
            bigger._store(*self.entries())
            self._key, self._version = bigger._key, bigger._version
        self._store(keys, versions)

    def _store(self, keys: Ints, versions: Ints) -> None:
        self.count += int(store(self._key, self._version, keys, versions))

    def copy(self) -> VersionTable:
        same = VersionTable(0)
        same._key, same._version, same.count = self._key.copy(), self._version.copy(), self.count
        return same

    def keys_at(self, versions: Ints) -> tuple[Ints, Ints]:
        """Which of these versions the table has, and of which keys. Goes through all of it."""
        found = np.isin(self._version, versions[versions != 0])
        return self._version[found], self._key[found]

    def entries(self) -> tuple[Ints, Ints]:
        used = self._version != 0
        return self._key[used], self._version[used]
