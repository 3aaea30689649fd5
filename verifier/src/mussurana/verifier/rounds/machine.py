"""The round machine: `feed` it fragments, `step` it, and it says what it found (design 4).

Pure: it has no clock, no network and no disk, so that a whole deployment can be simulated from a seed, and a daemon
that crashed can go the same way again. Everything here is shared by the levels; what differs between them is in
`level.py`. Sessions come and go: a session that says that it will begin with a write fence need not be waited for
until it does, because a write fence can only extend the end of the chain of fences, and so comes after all that was
forgotten.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import NO_VALUE, UNKNOWN_TIME, Ints, Kind, SmallInts
from mussurana.verifier.rounds.admission import Admission
from mussurana.verifier.rounds.alarms import AlarmChange, Alarms
from mussurana.verifier.rounds.batch import ABORTED, COMMITTED, PAST_VERSION, Batch
from mussurana.verifier.rounds.collisions import Collisions
from mussurana.verifier.rounds.ended import short
from mussurana.verifier.rounds.failure import ERROR, described
from mussurana.verifier.rounds.fences import INITIAL_VERSION, UNKNOWN_EPOCH, Fences, tell_epochs, with_epochs
from mussurana.verifier.rounds.fragments import BadFragment, Decoded, decode
from mussurana.verifier.rounds.level import Found, LevelRounds
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.moved import MovedRows
from mussurana.verifier.rounds.outcome import Gauges, RoundOutcome, Unchecked, VerdictName, Violation
from mussurana.verifier.rounds.owners import Owners
from mussurana.verifier.rounds.taints import END_MARGIN_NS, EVERY, Taint, Taints, tainted_tables
from mussurana.verifier.rounds.undo import Before
from mussurana.verifier.rounds.window import Names
from mussurana.verifier.rounds.xids import InitialXids, is_from_before
from mussurana.verifier.verdict import Settings
from mussurana.wire import COUNTER_BITS, EPOCH_BITS, ERA_BEGIN_SECONDS, FENCE_KEY, XID_TAG, counter_of, era_of, tag_of
from mussurana.wire.history_pb2 import Fragment, SessionEvent

COUNTER_END = 1 << COUNTER_BITS
SECOND_NS = 1_000_000_000

REPEATED = (
    "{:,} times a version was read, or written once more, that several transactions wrote, so its writer is not known; "
    "without that all is fine"
)

ROUNDS_PER_CLEANING = 16  # between looks for sessions that can be forgotten; each goes through all of them

ERA_AHEAD_SECONDS_MAX = 24 * 3600
"""How far the era of a fence row, which is the second of the database's clock in which it was made, may be ahead of the
daemon's clock. Of fences with a later one the epoch counts as not told."""

BLAMED_MAX = 100
"""Pairs of collector and table for which the reads that they left unchecked are counted in total; the first ones."""

LOST_TXNS_MAX = (1 << 63) - 1
"""Collectors say how many they lost, and what is told of the sum has 64 bits."""

NAMES_MAX = 1_000_000
"""Names of keys in memory, about 100 bytes each; the oldest go first. They are for people, but for one thing: two keys
with the same hash are told apart by them, so for keys of which both names are remembered."""

NAME_LENGTH_MEAN_MAX = 256
KEY_NAME_CHARACTERS_MAX = 5_000
"""One name may be as long as a table and a key of PostgreSQL can be; of a longer one its beginning and a digest are
kept. All of them together may be as long as if each had the first of these lengths."""

STATEMENTS_MAX = 20_000
STATEMENT_LENGTH_MEAN_MAX = 1_600
STATEMENT_CHARACTERS_MAX = 200_000
"""Likewise statements, of each collector. It numbers 10,000 before it begins anew."""

Blame: TypeAlias = tuple[str, Taint]
"""Why reads are left unchecked, as in `Unchecked.reason`, and whose claim of which table it is."""


@dataclass
class Session:
    """One session of a collector. Positions count its transactions."""

    collector: bytes
    number: int
    name: str
    delivered: int = 0
    admitted: int = 0
    fence_due: int = -1  # the position at which it has to begin anew with a write fence; -1 for none
    rested_at: int = -1  # the position at which it last said that it pauses, which may not have been reached yet
    heard_ns: int = 0
    epoch: int = 0
    era: int = 0  # the latest that a fence of it told
    closed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether its next transaction may be an ordinary one, so that forgetting has to wait for it."""
        return self.admitted != self.fence_due

    def rest(self) -> None:
        """What it does after all that was delivered so far begins with a write fence."""
        self.rested_at = self.delivered
        if self.is_open:
            self.fence_due = self.delivered

    def fence(self, position: int) -> None:
        """It did fence."""
        self.fence_due = self.rested_at if self.rested_at > position else -1


@dataclass
class Collector:
    id: bytes
    number: int
    sequence: int = 0  # of the last fragment fed
    name: str = ""  # for people
    sealed_ns: int = 0  # the latest time that its clock has shown
    heard_ns: int = 0  # when its last fragment was received
    tags: set[int] = field(default_factory=set)  # that it says it draws write ids from
    sessions: dict[int, int] = field(default_factory=dict)  # its numbers -> ours
    statements: dict[int, str] = field(default_factory=dict)
    lost_from: dict[int, int] = field(default_factory=dict)  # tag -> where it was settled when fragments were lost
    xid_horizon: int = -1  # where versions are the database's own ids; 0 if not, -1 if there was nothing to tell it by
    is_whole: bool = True  # whether all that it ever sent is here

    @property
    def heard_to_ns(self) -> int:
        """Up to when it was heard: by its own clock, unless that is ahead of ours."""
        return min(self.sealed_ns, self.heard_ns)


class Verifier:
    def __init__(
        self,
        levels: Sequence[Settings],
        limits: Limits | None = None,
        keeps_absent: bool = False,
        names_max: int = NAMES_MAX,
    ) -> None:
        """Reads that found no row are counted and left out, unless `keeps_absent`."""
        self.limits = limits or Limits()
        self.names_max = names_max
        self.keeps_absent = keeps_absent
        self.collectors: dict[bytes, Collector] = {}
        self.sessions: dict[int, Session] = {}  # by our numbers; closed ones go when nothing of them is left
        self.collectors_made = 0
        self.sessions_made = 0
        self.owners = Owners()
        self.admission = Admission(self.limits.waiting_txns_max)
        self.lost = LostVersions()
        self.losing: list[tuple[int, int]] = []  # ranges of write ids that are about to go there
        self.key_names: dict[int, str] = {}
        self.collisions = Collisions()
        self.names_length = 0  # of all of them together
        self.taints = Taints()
        self.alarms = Alarms()
        self.unchecked = dict.fromkeys(("absent", "unfenced", "tainted", "colliding", "contested", "lost"), 0)
        self.blamed: Counter[Taint] = Counter()  # reads that each left unchecked, in total
        self._unchecked_now: Counter[Blame] = Counter()  # reads that were left unchecked in this round
        self.ignored_claims = 0
        self.clocks_set_back = 0
        self.initial_xids = InitialXids()
        self.lost_txns = 0
        self.lost_fragments = 0
        self.rounds = 0
        self.last_round_ns = 0
        self.resumed_ns = 0
        self.fenced_epoch = 0  # of all fences that have entered, the greatest
        self.proven_ns = 0  # when the last of them was received
        self.begun_anew = 0  # how often
        self.epoch = 0
        self.epoch_reached_ns = 0
        self.moved = MovedRows()
        names = Names(self._key_name, self._session_name, self._version_name, self.statement, self.known_key)
        self.levels = [LevelRounds(settings, self.limits, names, self.owners, moved=self.moved) for settings in levels]

    # Feeding

    def feed(self, collector: bytes, fragment: Fragment, received_ns: int) -> None:
        """Take in a fragment. Those of one collector come in order of their sequence numbers, without holes.

        Raises BadFragment, and then has taken in nothing of it, whatever went wrong.
        """
        known = self.collectors.get(collector)
        expected = known.sequence + 1 if known else fragment.sequence
        if fragment.sequence != expected or not fragment.sequence:
            raise BadFragment(f"fragment {fragment.sequence}: sequence: {expected} was expected")
        trusted = not known or fragment.sealed_ns >= known.sealed_ns
        decoded = decode(fragment, received_ns, trusted)
        self._refuse_strange(fragment, decoded.batch, collector)
        names, colliding = self._new_names(fragment)
        before = Before(self, collector, fragment, decoded.batch)
        try:
            self._take_in(collector, fragment, decoded, colliding, received_ns)
        except Exception as error:  # a mistake in this program must not end verification
            before.restore()
            raise BadFragment(f"fragment {fragment.sequence}: {described(error)}") from error
        self._learn_names(self.collectors[collector], names, fragment)

    def _take_in(
        self, collector: bytes, fragment: Fragment, decoded: Decoded, colliding: set[int], received_ns: int
    ) -> None:
        known = self.collectors.get(collector)
        if known is None:
            known = self._new_collector(collector)
            known.is_whole = fragment.sequence == 1
        heard_to_ns = known.heard_to_ns
        known.sequence, known.heard_ns = fragment.sequence, received_ns
        known.name = fragment.collector_name or known.name
        known.sealed_ns = max(known.sealed_ns, fragment.sealed_ns)
        self.clocks_set_back += decoded.clocks_set_back
        batch = self._own_times(decoded.batch, received_ns)
        absent = batch.found_no_row
        if absent.any() and not self.keeps_absent:
            self.unchecked["absent"] += int(np.count_nonzero(absent))
            batch = batch.select_ops(~absent)
        self._learn_collisions(colliding, collector)
        self._learn_owners(known, fragment, batch)
        self._learn_taints(known, fragment, received_ns, heard_to_ns)
        self._learn_horizon(known, fragment.xid_horizon, batch)
        for beginning in fragment.beginning:
            self.moved.add(beginning.table)
        for event in fragment.session_event:
            if event.what == SessionEvent.OPEN:
                self._open(known, event, received_ns)
        self._deliver(known, batch, received_ns)
        for event in fragment.session_event:
            if event.what != SessionEvent.OPEN:
                session = self._session(known, event.session)
                session.rest()
                session.closed = event.what == SessionEvent.CLOSE
        for gap in fragment.gap:
            self.lost_txns = min(self.lost_txns + gap.txn_count, LOST_TXNS_MAX)
            for some in gap.write_ids:
                self._lose(known, some.tag, some.first, some.end)
        for progress in fragment.write_ids:
            if progress.tag in known.lost_from:
                self._lose(known, progress.tag, known.lost_from.pop(progress.tag), progress.drawn or COUNTER_END)
            if self._counts(known, progress.tag):
                self.admission.progress.settle(progress.tag, progress.settled, progress.drawn)
        self._note_lost(known)

    def _new_collector(self, id: bytes) -> Collector:
        self.collectors_made += 1
        made = self.collectors[id] = Collector(id, self.collectors_made)
        return made

    def lose(self, collector: bytes, first_sequence: int, last_sequence: int, received_ns: int) -> None:
        """These fragments of a collector are gone for good, and with them whatever they held.

        Which write ids that were, its next fragment bounds: all that was not settled before and had been drawn by then.
        """
        known = self.collectors.get(collector) or self._new_collector(collector)
        known.sequence, known.heard_ns = max(known.sequence, last_sequence), received_ns
        known.is_whole = False
        self.lost_fragments += 1 + last_sequence - first_sequence
        for tag in known.tags:
            settled = self.admission.progress.settled.get(tag, tag << COUNTER_BITS)
            known.lost_from.setdefault(tag, settled - (tag << COUNTER_BITS))

    def resume(self, now_ns: int) -> None:
        """Until now nobody could be heard since the last fragment, and nobody is to blame for that.

        All deadlines begin anew. Otherwise every session would count as silent after a downtime, and what it did
        meanwhile would be left out, although all of it is about to arrive.
        """
        self.resumed_ns = max(self.resumed_ns, now_ns)

    def _overdue_ns(self, now_ns: int, limit_ns: int) -> int:
        """What was received up to then has had its time; -1 for nothing."""
        return now_ns - limit_ns if now_ns - limit_ns >= self.resumed_ns else -1

    def _refuse_strange(self, fragment: Fragment, batch: Batch, collector: bytes) -> None:
        """All that is written has a tag that the collector says is its own.

        It may have drawn by chance what another collector draws from, but not twice.
        """
        known = self.collectors.get(collector)
        own = {XID_TAG} | {progress.tag for progress in fragment.write_ids} | (known.tags if known else set())
        contested = self.owners.contests(collector)
        for tag in np.unique(batch.written >> COUNTER_BITS).tolist():
            if tag not in own:
                raise BadFragment(f"fragment {fragment.sequence}: op_version: tag {tag} is not in write_ids")
            if self._is_anothers(collector, tag):
                if contested not in (0, tag):
                    what = f"tag {tag} is another collector's, and so is {contested}"
                    raise BadFragment(f"fragment {fragment.sequence}: op_version: {what}")
                contested = tag

    def _learn_names(self, known: Collector, names: dict[int, str], fragment: Fragment) -> None:
        for key, name in names.items():
            if self.collisions.has(key) and key in self.key_names:
                continue  # the first name stays: the second one may be a lie
            self.names_length += len(name) - len(self.key_names.get(key, ""))
            self.key_names[key] = name
        length_max = self.names_max * NAME_LENGTH_MEAN_MAX
        if len(self.key_names) > self.names_max or self.names_length > length_max:
            forget_first(self.key_names, self.names_max, length_max)
            self.names_length = sum(map(len, self.key_names.values()))
        for statement in fragment.statement:
            known.statements[statement.number] = known_statement(statement.text)
        if fragment.statement:
            most = max(STATEMENTS_MAX, self.names_max // 50)
            forget_first(known.statements, most, most * STATEMENT_LENGTH_MEAN_MAX)

    def _new_names(self, fragment: Fragment) -> tuple[dict[int, str], set[int]]:
        """The names that a fragment gives to keys, and the keys that are found to have two names by now."""
        names: dict[int, str] = {}
        found: set[int] = set()
        known = self.key_names
        for named in fragment.key_name:
            key, name = named.key - (named.key >> 63 << 64), known_name(named.name)
            if names.setdefault(key, name) != name or known.get(key, name) != name:
                found.add(key)
        return names, found - self.collisions.told_by.keys() - {FENCE_KEY}

    def _learn_collisions(self, keys: set[int], collector: bytes) -> None:
        """Which row is meant nobody can say any more, of what was recorded before and of what will be."""
        if keys:
            self.collisions = self.collisions.with_keys(keys, collector)
            for level in self.levels:
                level.retained = level.retained.select_ops(~self._is_colliding(level.real_keys()))

    def _is_colliding(self, key: Ints) -> npt.NDArray[np.bool_]:
        """Of each key, whether two rows are known to share its hash."""
        return self.collisions.of(key)

    def _learn_horizon(self, known: Collector, horizon: int, batch: Batch) -> None:
        """From when on database transactions were recorded, where versions are these.

        What all collectors hold to be older is what was there before. One that began earlier than all those before it,
        or that records other versions, makes that doubtful for what was seen by then.
        """
        if horizon and known.xid_horizon <= 0:
            known.xid_horizon = horizon
        elif known.xid_horizon < 0 and (batch.key != FENCE_KEY).any():
            known.xid_horizon = 0
        else:
            return
        told = {collector.xid_horizon for collector in self.collectors.values()} - {-1}
        before, progress = self.admission.progress.horizons, self.admission.progress
        progress.horizons = () if 0 in told else tuple(sorted(told))
        for level in self.levels:
            seen = level.retained.seen
            doubtful = is_from_before(seen, before) & ~is_from_before(seen, progress.horizons)
            level.retained = level.retained.without_reads(doubtful)

    def _own_times(self, batch: Batch, received_ns: int) -> Batch:
        """The same without epochs of eras that have not begun."""
        latest = (max(0, received_ns // SECOND_NS - ERA_BEGIN_SECONDS) + ERA_AHEAD_SECONDS_MAX) << EPOCH_BITS
        if not (batch.epoch > latest).any():
            return batch
        return replace(batch, epoch=np.where(batch.epoch > latest, UNKNOWN_EPOCH, batch.epoch))

    # What collectors claim

    def _learn_taints(self, known: Collector, fragment: Fragment, now_ns: int, heard_to_ns: int) -> None:
        """Reads of a table that somebody writes to unseen prove nothing any more, in any process."""
        told = tainted_tables(fragment)
        tables = sorted(told)
        for table in tables:
            self.alarms.taint([table], UNKNOWN_TIME if told[table] else heard_to_ns, self._collector_label(known.id))
        new = [self.taints.tell(Taint(known.id, table), now_ns) for table in tables]
        if any(new):
            for level in self.levels:
                tainted = self.taints.of(level.real_keys(), self.key_names) >= 0
                level.retained = level.retained.without_reads(tainted)

    def _learn_owners(self, known: Collector, fragment: Fragment, batch: Batch) -> None:
        """Whose the tags are that stand in a fragment; see `owners.py`."""
        claimed = {progress.tag for progress in fragment.write_ids}
        claimed |= {lost.tag for gap in fragment.gap for lost in gap.write_ids}
        for tag in sorted(claimed - {XID_TAG}):
            self._claim(known, tag)
        for tag in np.unique(batch.written >> COUNTER_BITS).tolist():
            if tag == XID_TAG or (self.owners.of.get(tag) == known.id and tag in self.owners.proved):
                continue
            if self._is_anothers(known.id, tag):
                self.owners.contest(known.id, tag)
                foreign = (batch.kind == Kind.WRITE) & (batch.version >> COUNTER_BITS == tag)
                self.owners.note_pairs(batch.key[foreign], batch.version[foreign])
                pairs = set(zip(batch.key[foreign].tolist(), batch.version[foreign].tolist(), strict=True))
                self.alarms.disown(tag, pairs, self._collector_label(known.id))
            elif self.owners.prove(known.id, tag):  # what was said of its versions by others counts no more
                self.alarms.disown(tag, set(), self._collector_label(known.id))
                self.lost = self.lost.without_tag(tag)
                self.admission.progress.settled.pop(tag, None)

    def _claim(self, known: Collector, tag: int) -> None:
        is_new = tag not in known.tags
        known.tags.add(tag)
        ended = self.admission.progress.ended
        if tag not in self.owners.of and (owner := ended.owner_of(tag)) is not None:
            if owner != short(known.id):
                return
            first = ended.take_out(tag)  # it was forgotten, and is back
            self.admission.progress.settled[tag] = first
            self.owners.prove(known.id, tag)
            known.lost_from[tag] = counter_of(first)
            return
        self.owners.claim(known.id, tag)
        if tag in self.owners.disputed:
            self.admission.progress.settled.pop(tag, None)
        if is_new and not known.is_whole:
            known.lost_from[tag] = 0  # it may have been in use in what is missing

    def _is_anothers(self, collector: bytes, tag: int) -> bool:
        """Whether somebody else delivered versions of this tag."""
        if tag in self.owners.of:
            return tag in self.owners.proved and self.owners.of[tag] != collector
        return self.admission.progress.ended.owner_of(tag) not in (None, short(collector))

    def _counts(self, known: Collector, tag: int) -> bool:
        """Whether a collector's word on the versions of a tag counts. The database's own ids are nobody's."""
        counts = self.owners.is_word_of(known.id, tag)
        self.ignored_claims += not counts
        return counts

    def _lose(self, known: Collector, tag: int, first: int, end: int) -> None:
        """A collector says that these versions of its own are lost. `_note_lost` makes it so, for all at once."""
        if self._counts(known, tag):
            base, end = tag << COUNTER_BITS, min(max(first, end), COUNTER_END)
            self.losing.append((base + min(first, end), base + end))

    def _note_lost(self, known: Collector) -> None:
        if not self.losing:
            return
        start, end = np.array(self.losing, np.int64).T
        self.losing = []
        self.lost.add(start, end)
        lost = LostVersions()
        lost.add(start, end)
        self.alarms.lose(lost, self._collector_label(known.id))

    def _open(self, known: Collector, event: SessionEvent, received_ns: int) -> None:
        session = self._session(known, event.session)
        session.name = event.name or session.name
        session.heard_ns = received_ns
        session.closed = False
        if event.fenced:
            session.rest()

    def _session(self, known: Collector, number: int) -> Session:
        """The session of that number. One that nobody opened is as good as opened now."""
        at = known.sessions.get(number)
        if at is None:
            at = known.sessions[number] = self.sessions_made
            self.sessions_made += 1
            session = Session(known.id, number, f"session {number}")
            if self.begun_anew or self._forgot_anything:
                session.fence_due = 0
            self.sessions[at] = session
        return self.sessions[at]

    def _deliver(self, known: Collector, batch: Batch, received_ns: int) -> None:
        if not len(batch):
            return
        ours, position = np.empty(len(batch), np.int32), np.empty(len(batch), np.int64)
        for number, mine in by_session(batch.session):
            session = self._session(known, number)
            ours[mine] = known.sessions[number]
            position[mine] = session.delivered + np.arange(len(mine))
            session.delivered += len(mine)
            session.heard_ns = received_ns
        self.admission.deliver(replace(batch, session=ours, position=position))

    # Stepping

    def step(self, now_ns: int, force: bool = False) -> list[RoundOutcome]:
        """Run a round at each level if one is due, or in any case if forced. The same calls give the same answers."""
        waiting = self.admission.delivered
        due = waiting and (
            now_ns - self.last_round_ns >= self.limits.round_interval_ns
            or waiting - len(self.admission.pool) >= self.limits.round_txns_max
        )
        if not (due or force):
            return []
        started = perf_counter()
        self.last_round_ns = now_ns
        failure, admitted, read_count, again = "", 0, 0, self.admission.again[:0]
        try:
            admitted, read_count, batch, again = self._admit(now_ns)
        except Exception as error:
            failure, batch = described(error), self._give_up()
        admitting = perf_counter() - started
        if not admitted and not force and not failure:
            return []
        self.rounds += 1
        last = {number: session.admitted - 1 for number, session in self.sessions.items() if session.is_open}
        unchecked, self._unchecked_now = self._unchecked_now, Counter()
        self._count_blamed(unchecked)
        outcomes = [
            self._round(level, batch, last, again, now_ns, admitting, read_count, unchecked, failure)
            for level in self.levels
        ]
        if self.rounds % ROUNDS_PER_CLEANING == 0:
            try:
                self._clean(self._overdue_ns(now_ns, self.limits.collector_silence_ns_max))
            except Exception as error:  # what was to go stays, or is gone already
                outcomes[0] = replace(outcomes[0], failure=outcomes[0].failure or described(error))
        return outcomes

    def _admit(self, now_ns: int) -> tuple[int, int, Batch, Ints]:
        """How many transactions and reads may enter the rounds now, those that do, and what came once before."""
        silent_ns = self._overdue_ns(now_ns, self.limits.silence_ns_max)
        admitted = self.admission.admit(self._overdue_ns(now_ns, self.limits.wait_ns_max), self.lost)
        batch = self._enter(admitted, silent_ns)
        self._number_epochs(batch, now_ns)
        for session in self.sessions.values():
            if session.is_open and session.heard_ns < silent_ns:
                session.rest()
        read_count = int(np.count_nonzero(admitted.kind == Kind.READ))
        return len(admitted), read_count, batch, self._take_again(admitted, batch)

    def _give_up(self) -> Batch:
        """Go on without all that was delivered so far, after an error that left it half-way: nothing of it enters.

        That is what `_begin_anew` does to what has entered: it accuses nobody.
        """
        self.unchecked["unfenced"] += len(self.admission.take_all())
        self.admission.again = np.zeros(0, np.int64)
        for session in self.sessions.values():
            session.fence_due = session.admitted = session.delivered
        self._begin_anew()
        return Batch.empty()

    def _take_again(self, admitted: Batch, batch: Batch) -> Ints:
        """The write ids that had arrived before and have entered, in `batch`, or were left out of what was admitted."""
        again = self.admission.again
        if not len(again):
            return again
        self.admission.again = np.setdiff1d(again, admitted.written)
        again = np.intersect1d(again, batch.written)
        return again[~self.owners.is_contested(again)]  # two collectors drew these, each once

    def _clean(self, gone_ns: int) -> None:
        """Forget who is gone: connections come and go by the thousand, and processes as well.

        A session goes when it is closed and nothing of it is left, and so does one whose collector was not heard of
        after `gone_ns`; a collector goes then as well, if no session of it is left.
        """
        kept = [self.admission.pool.session, *(level.retained.session for level in self.levels)]
        busy = set().union(*(np.unique(session).tolist() for session in kept))
        for number, session in list(self.sessions.items()):
            collector = self.collectors[session.collector]
            is_over = session.closed or (collector.heard_ns <= gone_ns and not session.is_open)
            if is_over and session.admitted == session.delivered and number not in busy:
                del self.sessions[number], collector.sessions[session.number]
        for collector in list(self.collectors.values()):
            if collector.heard_ns <= gone_ns and not collector.sessions:
                del self.collectors[collector.id]
                for tag in collector.tags:
                    self._end(collector, tag)
        statements = sum(len(collector.statements) for collector in self.collectors.values())
        for collector in sorted(self.collectors.values(), key=lambda each: each.heard_ns):
            if statements <= NAMES_MAX:
                break
            statements -= len(collector.statements)
            collector.statements.clear()

    def _end(self, collector: Collector, tag: int) -> None:
        """Nothing more is to be expected of a collector that is gone. What it only held is free."""
        if self.owners.of.get(tag) != collector.id:
            return
        if tag in self.owners.proved:
            self.admission.progress.end(tag, collector.id)
        else:
            self.lost = self.lost.without_tag(tag)
            self.admission.progress.settled.pop(tag, None)
        self.owners.forget(tag)

    def _enter(self, batch: Batch, silent_ns: int) -> Batch:
        """Count what enters, and leave out what sessions do that had to fence first and did not.

        When no fence has proved its place since `silent_ns`, the next one that cannot begins everything anew.
        """
        batch = self._learn_epochs(batch)
        fences = Fences.of(batch)
        is_committed = fences.status == COMMITTED
        doubted = self._of_doubted_eras(batch, fences, silent_ns)
        self._follow_row(fences, doubted)
        due = {number: self.sessions[number].fence_due for number, _ in by_session(batch.session)}
        doubted |= self._foreign(batch)
        strange = doubted | self._of_older_eras(batch, fences)
        for number in set(batch.session[strange].tolist()):
            due[number] = 0  # what it does until it fences is of another era, or cannot be told from others' deeds
        left_out = self._unfenced(batch, fences, due, strange)
        is_silent = self.proven_ns <= silent_ns and not any(each.is_open for each in self.sessions.values())
        if is_silent and (is_committed & fences.is_write).any() and left_out[fences.txn[is_committed]].all():
            self._begin_anew()
            left_out = self._unfenced(batch, fences, due, doubted)
        if left_out.any():
            self._lose_what_they_wrote(batch.select(left_out))
        proven = is_committed & ~left_out[fences.txn]
        self.fenced_epoch = max(self.fenced_epoch, int(fences.epoch[proven].max(initial=0)))
        self.proven_ns = max(self.proven_ns, int(batch.received_ns[fences.txn[proven]].max(initial=0)))
        batch = batch.select(~left_out) if left_out.any() else batch
        return self._weaken(batch)

    def everything(self) -> Batch:
        """All that was delivered, for one check of it: nobody waits, and nobody has to fence."""
        batch = self._learn_epochs(self.admission.take_all())
        left_out = self._foreign(batch) | _before_the_last_era(batch)
        self._lose_what_they_wrote(batch.select(left_out))
        batch = self._weaken(batch.select(~left_out))
        none_before = np.zeros(len(batch.key), np.int64)
        doubtful = self.owners.doubtful(batch.key, batch.seen, batch.kind == Kind.WRITE, batch.version, none_before)
        self.unchecked["contested"] += int(np.count_nonzero(doubtful))
        return batch.without_reads(doubtful)

    def _lose_what_they_wrote(self, left_out: Batch) -> None:
        """Go on without these transactions."""
        self.unchecked["unfenced"] += len(left_out)
        lost = left_out.written
        lost = lost[~self.owners.is_contested(lost)]  # the owner's version of that name stands
        self.lost.add(lost, lost + 1)

    def _weaken(self, batch: Batch) -> Batch:
        """Take out, and count, what proves nothing. That only allows more orders.

        Of a tainted table what a read or an update saw may be anybody's. What we wrote stays, and so does that an
        INSERT found no row. Of a key with two names nobody can say which row is meant, so all of it goes.
        """
        colliding = self._is_colliding(batch.key)
        if colliding.any():
            self.unchecked["colliding"] += int(np.count_nonzero(colliding))
            self._blame_collisions(batch.key[colliding & (batch.kind == Kind.READ)])
            batch = batch.select_ops(~colliding)
        taint = self.taints.of(batch.key, self.key_names)
        self._blame(self.taints.by_place(), taint[batch.kind == Kind.READ])
        batch = batch.without_reads(taint >= 0)
        horizons = self.admission.progress.horizons
        if self.initial_xids.learn(batch, horizons):
            for level in self.levels:
                doubtful = self.initial_xids.doubtful(level.real_keys(), level.retained, horizons)
                level.retained = level.retained.without_reads(doubtful)
        doubtful = self.initial_xids.doubtful(batch.key, batch, horizons)
        self.unchecked["lost"] += int(np.count_nonzero(doubtful))
        return batch.without_reads(doubtful)

    def _blame(self, taints: list[Taint], place: Ints) -> None:
        """Note whose taint left each read unchecked, -1 for nobody's."""
        reads = np.bincount(place[place >= 0], minlength=len(taints))
        for at in np.flatnonzero(reads).tolist():
            self.unchecked["tainted"] += int(reads[at])
            self._unchecked_now["tainted", taints[at]] += int(reads[at])

    def _blame_collisions(self, keys: Ints) -> None:
        """Note whose second name left each of these reads unchecked."""
        for key, reads in zip(*(each.tolist() for each in np.unique(keys, return_counts=True)), strict=True):
            table = self.key_names.get(key, EVERY).partition("/")[0]
            self._unchecked_now["colliding", Taint(self.collisions.teller(key), table)] += reads

    def _foreign(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """The transactions that wrote under a tag which belongs to another collector; see `owners.py`."""
        foreign = np.zeros(len(batch), bool)
        contested = np.flatnonzero((batch.kind == Kind.WRITE) & self.owners.is_contested(batch.version))
        for op, txn in zip(contested.tolist(), batch.op_txn[contested].tolist(), strict=True):
            foreign[txn] |= self._is_anothers(
                self.sessions[int(batch.session[txn])].collector, tag_of(batch.version[op])
            )
        return foreign

    def _of_older_eras(self, batch: Batch, fences: Fences) -> npt.NDArray[np.bool_]:
        """The transactions with a fence from before the row was made anew."""
        older = np.zeros(len(batch), bool)
        is_old = (fences.epoch != UNKNOWN_EPOCH) & (fences.epoch < era_of(self.fenced_epoch) << EPOCH_BITS)
        older[fences.txn[is_old]] = True
        return older

    def _of_doubted_eras(self, batch: Batch, fences: Fences, silent_ns: int) -> npt.NDArray[np.bool_]:
        """The transactions with a fence of a later era than most collectors are in that are at work.

        When the row is made anew, all that are at work find it within seconds. An era that others do not find is told
        by somebody who is wrong, and what would be let go for it is what all others did.
        """
        doubted = np.zeros(len(batch), bool)
        known = (fences.status == COMMITTED) & (fences.epoch != UNKNOWN_EPOCH)
        sessions, at = np.unique(batch.session[fences.txn[known]], return_inverse=True)
        eras = np.zeros(len(sessions), np.int64)
        np.maximum.at(eras, at, fences.epoch[known] >> EPOCH_BITS)
        for number, era in zip(sessions.tolist(), eras.tolist(), strict=True):
            self.sessions[number].era = max(self.sessions[number].era, era)
        current = era_of(self.fenced_epoch)
        later = {era for era in eras.tolist() if era > current}
        if not current or not later:
            return doubted
        told: dict[bytes, int] = {}
        for number, session in self.sessions.items():
            if number in sessions or (session.is_open and session.heard_ns > silent_ns):
                told[session.collector] = max(session.era, told.get(session.collector, 0))
        for era in later:
            agree = sum(each >= era for each in told.values())
            if sum(0 < each < era for each in told.values()) >= agree:
                doubted[fences.txn[known & (fences.epoch >> EPOCH_BITS == era)]] = True
        return doubted

    def _follow_row(self, fences: Fences, doubted: npt.NDArray[np.bool_]) -> None:
        """If the fence row is a new one, whatever is known of the old one says nothing of it; see `wire.EPOCH_BITS`.

        A row without an era, as an application's own store has it, begins with no version and epoch 1.
        """
        is_known = (fences.status == COMMITTED) & (fences.epoch != UNKNOWN_EPOCH) & ~doubted[fences.txn]
        eras = {era_of(epoch) for epoch in (*fences.epoch[is_known].tolist(), self.fenced_epoch) if epoch}
        era, era_before = max(eras, default=0), era_of(self.fenced_epoch)
        is_first = is_known & fences.is_write & (fences.seen == INITIAL_VERSION) & (fences.epoch == 1)
        begins_again = bool(is_first.any()) and self.fenced_epoch > 1
        is_later = len(eras) > 1 and (era > era_before or not self.fenced_epoch)
        if era and not self.fenced_epoch and (len(self.lost) or self.admission.given_up_txns):
            # Of which row the fences were that are lost nobody knows; what has entered may belong to an older one.
            is_later |= self._forgot_anything or any(len(level.retained) for level in self.levels)
        if not is_later and (era or not begins_again):
            return
        self._begin_anew()
        self.fenced_epoch = era << EPOCH_BITS
        begun_ns = (ERA_BEGIN_SECONDS + era) * SECOND_NS
        self.taints.end_before(min(begun_ns, self.last_round_ns) - END_MARGIN_NS)
        for session in self.sessions.values():
            session.fence_due = session.admitted  # what it does until it fences may have been before

    def _unfenced(
        self, batch: Batch, fences: Fences, due: dict[int, int], strange: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """The transactions that are to be left out, if sessions had to fence where `due` says. They are moved on.

        Fences of those that are `strange` prove nothing.
        """
        follows, fence_txn = fences.followed(), fences.written()
        writers, fenced = set(fence_txn.values()), set(fences.txn.tolist())
        left_out = np.zeros(len(batch), bool)
        while True:  # a fence that follows one that is left out is no better
            before = int(np.count_nonzero(left_out))
            for number, mine in by_session(batch.session):
                session = self.sessions[number]
                session.admitted = int(batch.position[mine[-1]]) + 1
                session.fence_due = due[number]
                if not 0 <= session.fence_due < session.admitted:
                    continue
                for txn in mine.tolist():
                    position = int(batch.position[txn])
                    if session.fence_due < 0 or position < session.fence_due:
                        continue
                    seen, epoch = follows.get(txn, NO_VALUE), int(batch.epoch[txn])
                    known = seen in fence_txn and not left_out[fence_txn[seen]]
                    is_write = txn in writers
                    is_fence = txn in fenced and not strange[txn]
                    follows_known = is_fence and (known or self._is_before(seen, epoch, is_write))
                    if batch.status[txn] == COMMITTED and follows_known:
                        session.fence(position)
                    else:  # one in doubt proves nothing about its session, but others may turn out to follow it
                        left_out[txn] = batch.status[txn] != ABORTED and not follows_known
                        session.fence_due = position + 1
            if int(np.count_nonzero(left_out)) == before:
                return left_out

    def _is_before(self, seen: int, epoch: int, is_write: bool) -> bool:
        """Whether all that was forgotten comes before a fence that saw this version and has this epoch.

        Fences form a chain, and only what comes before its end is forgotten. But where a fence is missing there may be
        more than one end, and what arrives late may belong before some of them. Without any loss it does not matter to
        a write fence: one that follows another than the last is a violation, which the levels will find. One that only
        reads may have seen an old version.
        """
        may_be_old = epoch == UNKNOWN_EPOCH and self.fenced_epoch and not self._forgot_anything
        if may_be_old and self.lost.has(np.array([seen])).any():
            return False  # it may belong to a row that was there before
        if is_write and not len(self.lost) and not self.admission.given_up_txns and seen != NO_VALUE:
            return True
        return all(level.is_before(seen, epoch, is_write) for level in self.levels)

    @property
    def _forgot_anything(self) -> bool:
        return any(level.forgot_anything for level in self.levels)

    def _begin_anew(self) -> None:
        """The chain of fences that was followed is not the one that goes on, so nothing new can prove its place in it.

        Let go of everything. Who sees what was written so far sees something lost, which accuses nobody.
        """
        for level in self.levels:
            level.begin_anew()
        self.lost.add(*self.admission.progress.known())
        self.begun_anew += 1
        self.fenced_epoch = self.epoch = 0
        for session in self.sessions.values():
            session.epoch = 0

    def _learn_epochs(self, batch: Batch) -> Batch:
        """Complete the epochs of fences, here and of those that have entered before."""
        kept = [level.retained for level in self.levels]
        known = tell_epochs(batch, kept, [level.border for level in self.levels])
        for level in self.levels:
            level.learn_epochs(known)
        return with_epochs(batch, known)

    def _number_epochs(self, batch: Batch, now_ns: int) -> None:
        """How far all sessions have come. For people only."""
        fences = Fences.of(batch)
        for txn in fences.txn[fences.status == COMMITTED].tolist():
            session = self.sessions[int(batch.session[txn])]
            session.epoch = max(session.epoch, int(batch.epoch[txn]) - (era_of(int(batch.epoch[txn])) << EPOCH_BITS))
        passed = [session.epoch for session in self.sessions.values() if session.is_open]
        agreed = min(passed, default=self.fenced_epoch - (era_of(self.fenced_epoch) << EPOCH_BITS))
        if agreed > self.epoch:
            self.epoch, self.epoch_reached_ns = agreed, now_ns

    def _round(
        self,
        level: LevelRounds,
        batch: Batch,
        last: dict[int, int],
        again: Ints,
        now_ns: int,
        admitting: float,
        read_count: int,
        unchecked: Counter[Blame],
        failure: str,
    ) -> RoundOutcome:
        started = perf_counter()
        in_doubt_ns = self._overdue_ns(now_ns, self.limits.in_doubt_ns_max)
        before = level.before()
        try:
            done = level.round(batch, last, self.lost, in_doubt_ns, again, self.admission.progress.horizons)
        except Exception as error:  # a mistake in this program must not end verification
            failure = described(error)
            done = level.failed(before, batch, failure, self.admission.progress.known)
        if failure and not done.unknown:
            done.unknown = ERROR + failure
        violations = tuple(self._violation(level, found, now_ns) for found in done.found)
        reason = done.unknown or (REPEATED.format(done.repeated) if done.repeated else "")
        verdict: VerdictName = "rejected" if violations or done.set_aside else "unknown" if reason else "accepted"
        committed = batch.committed_ns[(batch.committed_ns != UNKNOWN_TIME) & (batch.status == COMMITTED)]
        return RoundOutcome(
            number=self.rounds,
            level=level.settings.level,
            verdict=verdict,
            reason=reason,
            violations=violations,
            further_violations=done.set_aside,
            epoch=self.epoch,
            txn_count=len(batch),
            committed_ns=committed,
            retained=len(level.retained),
            forgotten=done.forgotten,
            seconds={"admit": admitting, **done.seconds, "total": admitting + perf_counter() - started},
            choices=done.choices,
            read_count=read_count,
            unchecked=(
                *(self._unchecked(*blame, reads) for blame, reads in sorted(unchecked.items(), key=_by_reads)),
                *(self._unchecked("contested", self._contest(tag), reads) for tag, reads in done.contested.items()),
            ),
            failure=failure,
        )

    def _contest(self, tag: int) -> Taint:
        """Who leaves reads of a contested tag unchecked: they may be of any table."""
        return Taint(self.owners.contester[tag], EVERY)

    def _unchecked(self, reason: str, taint: Taint, reads: int) -> Unchecked:
        return Unchecked(reason, self._collector_label(taint.collector), taint.table, reads)

    def _count_blamed(self, unchecked: Counter[Blame]) -> None:
        for (reason, taint), reads in unchecked.items():
            if reason == "tainted" and (taint in self.blamed or len(self.blamed) < BLAMED_MAX):
                self.blamed[taint] += reads

    def _violation(self, level: LevelRounds, found: Found, now_ns: int) -> Violation:
        told = found.counterexample
        digest = hashlib.sha256(level.settings.level.encode())
        for number, position in zip(found.txns.session.tolist(), found.txns.position.tolist(), strict=True):
            session = self.sessions[number]
            digest.update(session.collector + f"/{session.number}/{position}".encode())
        violation = Violation(
            id=digest.hexdigest()[:12],
            level=level.settings.level,
            round=self.rounds,
            epoch=self.epoch,
            found_ns=now_ns,
            counterexample=told,
        )
        self._raise(level, violation, found, now_ns)
        return violation

    def _raise(self, level: LevelRounds, violation: Violation, found: Found, now_ns: int) -> None:
        keys = [level.real_key.get(key, key) for key in found.txns.key.tolist()]
        names = [self.key_names.get(key) for key in keys]
        self.alarms.found(violation.id, now_ns, found.txns, np.array(keys, np.int64), names)

    def decide_alarms(self, now_ns: int) -> list[AlarmChange]:
        """The alarms that are to be told or withdrawn now. The same calls give the same answers, also after a restart;
        a call that returns nothing has changed nothing."""
        if not self.alarms.by_id:
            return []
        heard: dict[bytes, int] = {}
        if self.alarms.waiting:
            open_at = {session.collector for session in self.sessions.values() if session.is_open}
            heard = {id: self.collectors[id].heard_to_ns for id in open_at}
        return self.alarms.decide(now_ns, self._overdue_ns(now_ns, self.limits.alarm_wait_ns_max), heard)

    # Names

    def _real_key(self, key: int) -> int:
        return next((level.real_key[key] for level in self.levels if key in level.real_key), key)

    def known_key(self, key: int) -> str | None:
        return self.key_names.get(self._real_key(key))

    def _key_name(self, key: int) -> str:
        real = self._real_key(key)
        if real == FENCE_KEY:
            return "the fence"
        return self.key_names.get(real) or f"key {real & 0xFFFFFFFFFFFFFFFF:016x}"

    def _collector_label(self, id: bytes) -> str:
        """For people, who may have several of one name, and may not have everybody's own word for it."""
        known = self.collectors.get(id)
        return f"{known.name} @{known.number}" if known else "a collector that is gone"

    def _session_name(self, number: int) -> str:
        session = self.sessions[number]
        collector = self.collectors[session.collector].name
        return f"{collector} / {session.name}" if collector else session.name

    def _version_name(self, version: int) -> str:
        if version == PAST_VERSION:
            return "an earlier version"
        owner = self.collectors.get(self.owners.of.get(tag_of(version), b""))
        return f"v{counter_of(version)}" + (f"@{owner.number}" if owner else "")

    def statement(self, session: int, number: int) -> str:
        """The SQL that a session's collector gave this number."""
        collector = self.collectors.get(self.sessions[session].collector)
        return collector.statements.get(number, "") if collector else ""

    # For the outside

    def state(self) -> bytes:
        """Everything, for a checkpoint."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], bytes]:
        """The same in two parts: everything is taken at once, and made bytes of later, in any thread."""
        from mussurana.verifier.rounds.state import snapshot

        return snapshot(self)

    @classmethod
    def from_state(cls, levels: Sequence[Settings], limits: Limits | None, state: bytes) -> Verifier:
        from mussurana.verifier.rounds.state import restore

        return restore(levels, limits, state)

    def collector_names(self) -> dict[bytes, str]:
        return {collector.id: collector.name for collector in self.collectors.values()}

    def gauges(self) -> Gauges:
        pool = self.admission.pool
        retained = {level.settings.level: len(level.retained) for level in self.levels}
        open_sessions = sum(session.is_open for session in self.sessions.values())
        return Gauges(
            retained=retained,
            waiting=len(pool),
            waiting_since_ns=int(pool.received_ns.min()) if len(pool) else 0,
            epoch=dict.fromkeys(retained, self.epoch),
            epoch_reached_ns=dict.fromkeys(retained, self.epoch_reached_ns),
            table_keys={level.settings.level: len(level.table) for level in self.levels},
            sessions_open=open_sessions,
            sessions_idle=len(self.sessions) - open_sessions,
            unknown_txns=self.admission.given_up_txns
            + self.unchecked["unfenced"]
            + max((level.left_out_txns for level in self.levels), default=0),
            unchecked_reads={
                "absent": self.unchecked["absent"],
                "tainted": self.unchecked["tainted"],
                "colliding": self.unchecked["colliding"],
                "repeated": max((level.repeated_reads for level in self.levels), default=0),
                "lost": self.unchecked["lost"] + max((level.unchecked_reads for level in self.levels), default=0),
                "contested": self.unchecked["contested"]
                + max((level.contested_reads for level in self.levels), default=0),
            },
            unchecked_by={
                (self._collector_label(taint.collector), taint.table): reads for taint, reads in self.blamed.items()
            },
            lost_txns=self.lost_txns,
            lost_fragments=self.lost_fragments,
            clashing_tags=len(self.owners.contester),
            alarms_waiting=len(self.alarms.waiting),
            ignored_claims=self.ignored_claims,
            clocks_set_back=self.clocks_set_back,
            begun_anew=self.begun_anew,
            in_doubt=max(
                (int(np.count_nonzero(level.retained.status == 2)) for level in self.levels),
                default=0,
            ),
        )


def _by_reads(counted: tuple[Blame, int]) -> tuple[int, str, str]:
    (reason, taint), reads = counted
    return -reads, reason, taint.table


def _before_the_last_era(batch: Batch) -> npt.NDArray[np.bool_]:
    """What sessions did before their first fence in the last era, if the fences are of several.

    Pre: transactions of one session are in session order.
    """
    fences = Fences.of(batch)
    known = (fences.status == COMMITTED) & (fences.epoch != UNKNOWN_EPOCH)
    eras = fences.epoch >> EPOCH_BITS
    if len(np.unique(eras[known])) < 2:
        return np.zeros(len(batch), bool)
    is_last = known & (eras == eras[known].max())
    sessions, session = np.unique(batch.session, return_inverse=True)
    first = np.full(len(sessions), len(batch))
    np.minimum.at(first, session[fences.txn[is_last]], fences.txn[is_last])
    return np.asarray(np.arange(len(batch)) < first[session])


def by_session(session: SmallInts) -> Iterator[tuple[int, Ints]]:
    """Each session with the places of its transactions, in order."""
    order = np.argsort(session, kind="stable")
    if len(order):
        first = np.flatnonzero(np.append(True, np.diff(session[order]) != 0))
        yield from zip(session[order[first]].tolist(), np.split(order, first[1:]), strict=True)


def known_name(name: str) -> str:
    """A key's name as it is kept. Two long ones that begin alike still differ."""
    if len(name) <= KEY_NAME_CHARACTERS_MAX:
        return name
    return f"{name[:KEY_NAME_CHARACTERS_MAX]}... {hashlib.sha256(name.encode()).hexdigest()}"


def known_statement(text: str) -> str:
    """A statement as it is kept: of a very long one the beginning, with a note."""
    if len(text) <= STATEMENT_CHARACTERS_MAX:
        return text
    return f"{text[:STATEMENT_CHARACTERS_MAX]} /* {len(text) - STATEMENT_CHARACTERS_MAX:,} more characters */"


def forget_first(names: dict[int, str], most: int, length_max: int) -> None:
    """Drop the oldest names, an eighth of those that may stay at a time: looking for the first one takes its time."""
    length = sum(map(len, names.values())) if len(names) <= most else length_max + 1
    while len(names) > most or length > length_max:
        for number in list(islice(names, max(1, min(len(names), most) // 8))):
            del names[number]
        length = sum(map(len, names.values()))
