"""Rows from before recording, where versions are the database's own transaction ids.

Whoever saw an id from before all recording began saw what was there before: the initial version of that key. A key has
one at most. If there seem to be more, somebody wrote whose recording is not here, and none of them is believed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints
from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.table import VersionTable
from mussurana.wire import COUNTER_BITS, XID_TAG

Flags = npt.NDArray[np.bool_]

FIRST_XID = 3  # smaller ones stand for rows that have been there for ever
SEVERAL = -1  # in place of an id, for keys of which more than one was seen


def is_from_before(versions: Ints, horizons: Sequence[int]) -> Flags:
    """Which versions are database transactions that had ended when all collectors with these horizons began to record.

    Ids come round after 2**32.
    """
    old: Flags = (versions > 0) & (versions >> COUNTER_BITS == XID_TAG) & bool(horizons)
    for horizon in horizons:
        age = (horizon - versions) % (1 << COUNTER_BITS)
        old &= (versions < FIRST_XID) | ((age > 0) & (age < 1 << (COUNTER_BITS - 1)))
    return old


class InitialXids:
    """The one id of each key that was seen from before recording; 16 bytes a slot."""

    def __init__(self) -> None:
        self.table = VersionTable()

    def learn(self, batch: Batch, horizons: tuple[int, ...]) -> bool:
        """Take note of what these transactions saw. Returns whether some key is now known to have had several."""
        old = is_from_before(batch.seen, horizons)
        if not old.any():
            return False
        keys, xids = np.unique(np.stack([batch.key[old], batch.seen[old]]), axis=1)
        known = self.table.get(keys)
        repeated = np.append(keys[1:] == keys[:-1], False) | np.append(False, keys[1:] == keys[:-1])
        several = repeated | ((known != 0) & (known != xids))
        self.table.put(keys, np.where(several, SEVERAL, xids))
        return bool((several & (known != SEVERAL)).any())

    def doubtful(self, key: Ints, batch: Batch, horizons: tuple[int, ...]) -> Flags:
        """The operations of a batch, on these keys, that saw such an id where there seem to be several."""
        old = is_from_before(batch.seen, horizons)
        old[old] = self.table.get(key[old]) == SEVERAL
        return old
