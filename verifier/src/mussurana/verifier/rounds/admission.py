"""Who may enter a round: transactions whose session predecessor and whose writers are all in (design 4).

What a transaction saw is *late* when its write id may still arrive: its collector has not settled it and has not
delivered it either. Such a transaction waits, and with it the later ones of its session and all that saw what any of
those wrote. The rest enters together; transactions that saw each other's writes do not wait for one another.

Nothing waits for ever. After a deadline, or when too many wait, what is late counts as not seen and its reader enters
without it: unknown, not rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import NO_VALUE, Ints
from mussurana.verifier.rounds.batch import ABORTED, Batch
from mussurana.verifier.rounds.ended import EndedTags
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.xids import is_from_before
from mussurana.wire import COUNTER_BITS, XID_TAG

AHEAD_MAX = 1_000_000
"""Of each tag so many of the last ones are known to have arrived before they were settled. The database's own
transaction ids nobody settles; a collector settles its write ids within seconds."""


class WriteIdProgress:
    """What the collectors have said about their write ids: which are settled, and which arrived before they were."""

    def __init__(self) -> None:
        self.settled: dict[int, int] = {}  # tag -> the first write id that may still arrive
        self.drawn: dict[int, int] = {}  # tag -> the first write id that had not been given to anybody
        self._ahead: dict[int, Ints] = {}  # tag -> those that did arrive from there on
        self.horizons: tuple[int, ...] = ()  # see `is_from_before`
        self.ended = EndedTags()  # tags that are in neither, unless something arrived ahead

    def deliver(self, versions: Ints) -> None:
        if not len(versions):
            return
        versions = np.sort(versions)
        tags, first = np.unique(versions >> COUNTER_BITS, return_index=True)
        for tag, some in zip(tags.tolist(), np.split(versions, first[1:]), strict=True):
            ahead = np.concatenate([self._ahead.get(tag, np.zeros(0, np.int64)), some])
            if tag != XID_TAG:
                ahead = ahead[ahead >= self.settled.get(tag, 0)]
            if tag == XID_TAG or len(ahead) > AHEAD_MAX:
                ahead = np.unique(ahead)[-AHEAD_MAX:]
            self._ahead[tag] = ahead

    def is_again(self, versions: Ints) -> npt.NDArray[np.bool_]:
        """Which of these write ids have arrived before, or were not to arrive any more: nobody draws one twice.

        Collectors that do not tell how many they have drawn may settle some of them before they are.
        """
        again = np.zeros(len(versions), bool)
        for tag in np.unique(versions >> COUNTER_BITS).tolist():
            own = versions >> COUNTER_BITS == tag
            if tag == XID_TAG:
                continue
            known = min(self.settled.get(tag, 0), self.drawn.get(tag, 0))
            again[own] = (versions[own] < known) | np.isin(versions[own], self._ahead.get(tag, ()))
        return again

    def ahead(self) -> Ints:
        return np.concatenate([*self._ahead.values(), np.zeros(0, np.int64)])

    def settle(self, tag: int, settled: int, drawn: int = 0) -> None:
        """All counters below `settled` have arrived, or never will. Does not go back.

        Those from `drawn` on have not been given to anybody; 0 if that is not known.
        """
        first = (tag << COUNTER_BITS) + settled
        if drawn:
            self.drawn[tag] = max((tag << COUNTER_BITS) + drawn, self.drawn.get(tag, 0))
        if first > self.settled.get(tag, -1):
            self.settled[tag] = first
            ahead = self._ahead.get(tag)
            if ahead is not None:
                self._ahead[tag] = ahead[ahead >= first]

    def end(self, tag: int, collector: bytes) -> None:
        """Nothing is to be expected of this tag any more."""
        self.ended.add(tag, self.settled.pop(tag, tag << COUNTER_BITS), collector)
        self.drawn.pop(tag, None)
        if not len(self._ahead.get(tag, ())):
            self._ahead.pop(tag, None)

    def known(self) -> tuple[Ints, Ints]:
        """Ranges, as first and end, that hold all write ids that are settled or have arrived."""
        ends = [*self.settled.items(), *((first >> COUNTER_BITS, first) for first in self.ended.first.tolist())]
        ends += [(tag, int(ahead.max()) + 1) for tag, ahead in self._ahead.items() if len(ahead)]
        first = [max(tag << COUNTER_BITS, 1) for tag, _ in ends]  # 0 is no write id
        return np.array(first, np.int64), np.array([end for _, end in ends], np.int64)

    def late(self, versions: Ints) -> npt.NDArray[np.bool_]:
        """Which of these may still arrive. Versions of a tag that nobody has announced may."""
        if not len(versions):
            return np.zeros(0, bool)
        tags = np.array(sorted(self.settled), np.int64)
        first = np.array([self.settled[tag] for tag in tags.tolist()], np.int64)
        at = np.searchsorted(tags, versions >> COUNTER_BITS)
        inside = np.minimum(at, max(len(tags) - 1, 0))
        known = (at < len(tags)) & (tags[inside] == versions >> COUNTER_BITS) if len(tags) else np.zeros(len(at), bool)
        late = ~known
        late[late] = ~self.ended.has_settled(versions[late])
        late[known] = versions[known] >= first[inside[known]]
        if late.any():
            late[late] = ~np.isin(versions[late], self.ahead())
            late &= ~is_from_before(versions, self.horizons)
        return late


@dataclass
class Admission:
    """The transactions that have been delivered and have not entered a round yet."""

    waiting_max: int
    progress: WriteIdProgress = field(default_factory=WriteIdProgress)
    pool: Batch = field(default_factory=Batch.empty)
    given_up_txns: int = 0  # in total: entered without something that they saw
    again: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # write ids that arrived once more
    _new: list[Batch] = field(default_factory=list)

    def deliver(self, batch: Batch) -> None:
        self._new.append(batch)
        written = batch.written
        again = self.progress.is_again(written)
        if again.any():
            self.again = np.union1d(self.again, written[again])
        self.progress.deliver(written)

    def fresh(self) -> list[Batch]:
        """What came since the last time that anything was admitted."""
        return self._new

    def take_all(self) -> Batch:
        """All that has not entered, in the order in which it was delivered, whoever waits for whom."""
        everything = Batch.join([self.pool, *self._new])
        self.pool, self._new = Batch.empty(), []
        return everything

    @property
    def delivered(self) -> int:
        return len(self.pool) + sum(map(len, self._new))

    def admit(self, overdue_ns: int, lost: LostVersions) -> Batch:
        """Take out all that may enter now, in the order in which it was delivered.

        What was received up to `overdue_ns` has waited for long enough.
        """
        pool = self.take_all()
        late = self.late(pool, lost)
        blocked = blocked_by(pool, late)
        if late.any():
            op_txn = pool.op_txn
            overdue = pool.received_ns <= overdue_ns
            excess = int(np.count_nonzero(blocked)) - self.waiting_max
            if excess > 0:
                overdue[np.flatnonzero(blocked)[:excess]] = True
            hopeless = late & overdue[op_txn]
            if hopeless.any():
                self.given_up_txns += len(np.unique(op_txn[hopeless]))
                pool = pool.without_reads(hopeless)
                blocked = blocked_by(pool, self.late(pool, lost))
        self.pool = pool.select(blocked) if blocked.any() else Batch.empty()
        return pool.select(~blocked) if blocked.any() else pool

    def late(self, pool: Batch, lost: LostVersions) -> npt.NDArray[np.bool_]:
        """Per operation: whether it saw something that may still arrive. What was rolled back need not wait."""
        seen = pool.seen
        asked = (seen != NO_VALUE) & (seen > 0)
        if (pool.status == ABORTED).any():
            asked &= (pool.status != ABORTED)[pool.op_txn]
        late = np.zeros(len(seen), bool)
        late[asked] = self.progress.late(seen[asked]) & ~lost.has(seen[asked])
        return late


def blocked_by(pool: Batch, late: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which transactions have to wait, given the operations that saw something late.

    Of several that wrote one version none enters before the others: who saw it may have seen any of them.

    Pre: transactions of one session are in session order.
    """
    blocked = np.zeros(len(pool), bool)
    if not late.any():
        return blocked
    op_txn, seen = pool.op_txn, pool.seen
    blocked[op_txn[late]] = True
    is_write = pool.kind == 1
    sessions, session = np.unique(pool.session, return_inverse=True)
    place = np.arange(len(pool))
    while True:
        before = int(np.count_nonzero(blocked))
        first = np.full(len(sessions), len(pool))
        np.minimum.at(first, session[blocked], place[blocked])
        blocked |= place > first[session]
        missing = pool.version[is_write & blocked[op_txn]]
        active = (pool.status != ABORTED)[op_txn]
        blocked[op_txn[active & (np.isin(seen, missing) | (is_write & np.isin(pool.version, missing)))]] = True
        if int(np.count_nonzero(blocked)) == before:
            return blocked
