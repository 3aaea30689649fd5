"""Fences: who follows whom, also where some of them are lost (design 4).

All fences read, and write fences replace, one row. Its versions form a chain, and beside each version stands its epoch,
which every write fence counts up by one. So epochs order fences as exactly as versions do, and across lost ones as
well: one that saw epoch e comes after every write fence up to e and before every later one. No clock is asked. A row
that is made anew has a later era in its epochs, and shares nothing with the one before.

A fence whose predecessor is not there is *linked* to the last one before it that is. What a link says is true: whoever
replaced a lost version came after those before it. A link is made anew in every round, since one between may arrive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import NO_VALUE, Ints, Kind
from mussurana.verifier.rounds.batch import ABORTED, COMMITTED, Batch
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.wire import FENCE_KEY

UNKNOWN_EPOCH = 0  # no fence has it: whoever writes counts the epoch up
INITIAL_VERSION = 0  # of the row, as of any other


@dataclass(frozen=True)
class Border:
    """Where the past ends, in the chain of fences."""

    last_version: int = INITIAL_VERSION  # the last one that is past
    last_epoch: int = -1  # of it; -1 if not known
    version: int = INITIAL_VERSION  # of a fence that all comes before that is past, or that is the last of it
    epoch: int = UNKNOWN_EPOCH  # of that one


@dataclass(frozen=True)
class Fences:
    """The operations on the fence row in a batch. Arrays have one entry per operation."""

    op: Ints  # where they stand in the batch
    txn: Ints
    is_write: npt.NDArray[np.bool_]
    version: Ints
    seen: Ints
    epoch: Ints  # as the transaction left it
    seen_epoch: Ints  # as it found it; below 0 if not known
    status: npt.NDArray[np.uint8]

    @staticmethod
    def of(batch: Batch) -> Fences:
        op = np.flatnonzero(batch.key == FENCE_KEY)
        txn = np.searchsorted(batch.op_start, op, side="right") - 1
        is_write = batch.kind[op] == Kind.WRITE
        epoch = batch.epoch[txn]
        seen_epoch = np.where(epoch == UNKNOWN_EPOCH, -1, epoch - np.isin(txn, txn[is_write]))
        seen = np.where(is_write, batch.previous[op], batch.version[op])
        return Fences(op, txn, is_write, batch.version[op], seen, epoch, seen_epoch, batch.status[txn])

    @property
    def in_effect(self) -> npt.NDArray[np.bool_]:
        """Write fences that took effect: those in doubt did if somebody saw them."""
        seen = self.seen[self.status != ABORTED]
        return np.asarray(self.is_write & ((self.status == COMMITTED) | np.isin(self.version, seen)))

    def followed(self) -> dict[int, int]:
        """For each fence that tells it, by its transaction: the version of the fence that it follows."""
        tells = np.flatnonzero(self.seen != NO_VALUE)[::-1]
        return dict(zip(self.txn[tells].tolist(), self.seen[tells].tolist(), strict=True))  # the first one counts

    def written(self) -> dict[int, int]:
        """The transaction of each version."""
        return dict(zip(self.version[self.is_write].tolist(), self.txn[self.is_write].tolist(), strict=True))


def link(batch: Batch, border: Border, lost: LostVersions, repeated: LostVersions | None = None) -> Batch:
    """Let each fence whose predecessor is not there follow the last one before it that is.

    Where that cannot be told, because an epoch is not known or because several transactions wrote that version, here or
    in what is forgotten (`repeated`), it follows none. Of all others that tell an epoch it is certain whom they follow,
    also if that one's write id counts as lost.
    """
    fences = Fences.of(batch)
    if not len(fences.op):
        return batch
    effect = fences.in_effect
    epoch_of = dict(zip(fences.version[effect].tolist(), fences.epoch[effect].tolist(), strict=True))
    is_complete = UNKNOWN_EPOCH not in epoch_of.values() and len(epoch_of) == np.count_nonzero(effect)
    epoch_of[border.last_version] = border.last_epoch
    # A link of an earlier round is told from what was really seen by the epochs between.
    found = np.array([epoch_of.get(seen, NO_VALUE) for seen in fences.seen.tolist()], np.int64)
    is_open = lost.has(fences.seen) | ((found != NO_VALUE) & (found < fences.seen_epoch))
    unread = fences.is_write & (fences.seen == NO_VALUE)
    is_open |= unread & ~np.isin(fences.txn, fences.txn[~fences.is_write])
    is_open &= (fences.seen_epoch >= 0) & (fences.status != ABORTED)
    if not is_open.any():
        return batch
    chain = sorted((epoch, version) for version, epoch in epoch_of.items())
    version, previous = batch.version.copy(), batch.previous.copy()
    unlinked = np.zeros(len(batch.kind), bool)
    written, times = np.unique(fences.version[fences.is_write], return_counts=True)
    in_chain = np.array([version for _, version in chain], np.int64)
    is_repeated = np.isin(in_chain, written[times > 1])
    if repeated:
        is_repeated |= repeated.has(in_chain)
    for at in np.flatnonzero(is_open).tolist():
        op, before = int(fences.op[at]), bisect_right(chain, int(fences.seen_epoch[at]), key=lambda one: one[0]) - 1
        if not is_complete or before < 0 or is_repeated[before]:
            unlinked[op] = True
        elif fences.is_write[at]:
            previous[op] = chain[before][1]
        else:
            version[op] = chain[before][1]
    return replace(batch, version=version, previous=previous).without_reads(unlinked)


def tell_epochs(batch: Batch, earlier: Iterable[Batch], borders: Iterable[Border]) -> dict[int, int]:
    """The epochs of all versions that follow from what these fences say and saw, beside those that are known already.

    One that does not say its own, because its collector is older or the answer never came, has the one after that of
    the fence it followed; and whoever saw it tells.
    """
    known = {border.last_version: border.last_epoch for border in borders if border.last_epoch >= 0}
    for some in earlier:
        _tell(Fences.of(some), known)
    fences = Fences.of(batch)
    _tell(fences, known)
    saw = (fences.seen_epoch >= 0) & (fences.seen >= INITIAL_VERSION) & (fences.status != ABORTED)
    for seen, epoch in zip(fences.seen[saw].tolist(), fences.seen_epoch[saw].tolist(), strict=True):
        known.setdefault(seen, epoch)
    follows, written = fences.followed(), fences.written()
    follower: dict[int, list[int]] = {}
    for version, txn in written.items():
        if version not in known and txn in follows and batch.status[txn] != ABORTED:
            follower.setdefault(follows[txn], []).append(version)
    ready = [version for version in follower if version in known]
    while ready:
        seen = ready.pop()
        for version in follower.pop(seen, ()):
            known.setdefault(version, known[seen] + 1)
            ready.append(version)
    return known


def _tell(fences: Fences, known: dict[int, int]) -> None:
    says = fences.is_write & (fences.epoch != UNKNOWN_EPOCH)
    known.update(zip(fences.version[says].tolist(), fences.epoch[says].tolist(), strict=True))


def with_epochs(batch: Batch, known: dict[int, int]) -> Batch:
    """The same batch, its write fences with the epochs that are known."""
    fences = Fences.of(batch)
    silent = np.flatnonzero(fences.is_write & (fences.epoch == UNKNOWN_EPOCH) & (fences.status != ABORTED))
    if not len(silent):
        return batch
    epoch = batch.epoch.copy()
    epoch[fences.txn[silent]] = [known.get(version, UNKNOWN_EPOCH) for version in fences.version[silent].tolist()]
    return replace(batch, epoch=epoch)
