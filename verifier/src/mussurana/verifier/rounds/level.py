"""Rounds at one level: check what is retained and what is new, set violations aside, forget what may go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from mussurana.verifier.engine.clashes import clashing_versions
from mussurana.verifier.engine.cycles import Paths
from mussurana.verifier.engine.decide import Decision, decide
from mussurana.verifier.engine.graph import Graph, build_graph, keeps_sessions
from mussurana.verifier.engine.prune import Pruned
from mussurana.verifier.engine.realtime import event_times
from mussurana.verifier.engine.resolve import NEVER_WRITTEN, Resolved, resolve
from mussurana.verifier.explain import explain, explain_impossible
from mussurana.verifier.explain.effort import Effort
from mussurana.verifier.history import UNKNOWN_TIME, Ints, Kind, ranges
from mussurana.verifier.levels import LEVELS
from mussurana.verifier.rounds.batch import ABORTED, COMMITTED, IN_DOUBT, PAST_VERSION, Batch
from mussurana.verifier.rounds.failure import ERROR
from mussurana.verifier.rounds.fences import UNKNOWN_EPOCH, Border, Fences, link, with_epochs
from mussurana.verifier.rounds.forget import Flags, Past, find_past, reach, stable
from mussurana.verifier.rounds.forget_by_time import find_past_by_time
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.moved import MovedRows
from mussurana.verifier.rounds.owners import Owners
from mussurana.verifier.rounds.table import VersionTable
from mussurana.verifier.rounds.window import Names, Window, make_window
from mussurana.verifier.solvers import find_solver
from mussurana.verifier.verdict import Choices, Counterexample, Settings
from mussurana.wire import COUNTER_BITS, FENCE_KEY

NONE = np.zeros(0, np.int64)

FAILURES_MAX = 3
"""Rounds in a row that end with an error before they go on without what they were to check. One may be for want of
memory, and the next one finds some; an error in the program comes back each time."""

PASSES_MAX = 1_000
"""Of a round. Each leaves out all that is wrong in one way, and after some violations all that is on cycles, so a few
do. More are an error in the program, and a round with an error ends."""

SEARCHES_MAX = 2
"""Rounds in a row whose search may run out of time, before they go on without what it was about."""

NO_ANSWER = "the search for an order ended without an answer"

ROUND_STATE = (
    *("retained", "past", "border", "unchecked_reads", "budget", "forgot_anything", "memory_ns", "left_out_txns"),
    *("failures", "contested_reads", "repeated_reads"),
)
"""What a round replaces but does not change in place; see `LevelRounds.before`."""


@dataclass(frozen=True)
class Found:
    """A counterexample, and the transactions it is about."""

    counterexample: Counterexample
    txns: Batch


@dataclass
class Round:
    """What came of a round; `machine.py` makes a `RoundOutcome` of it."""

    found: list[Found] = field(default_factory=list)
    set_aside: int = 0  # transactions of violations that were not explained
    repeated: int = 0  # reads of a version that several transactions wrote, and versions that came once more too late
    unknown: str = ""
    forgotten: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    choices: Choices = field(default_factory=Choices)
    contested: Counter[int] = field(default_factory=Counter)  # reads left unchecked, by the tag that is contested


@dataclass
class LevelRounds:
    """The memory that one level has between rounds."""

    settings: Settings
    limits: Limits
    names: Names
    owners: Owners = field(default_factory=Owners)
    retained: Batch = field(default_factory=Batch.empty)  # what is past and was kept stands first
    past: int = 0
    table: VersionTable = field(default_factory=VersionTable)
    border: Border = field(default_factory=Border)
    lost: LostVersions = field(default_factory=LostVersions)  # what this level has set aside
    moved: MovedRows = field(default_factory=MovedRows)  # of all levels together
    real_key: dict[int, int] = field(default_factory=dict)  # of the keys that stand for closed ones
    unchecked_reads: int = 0
    contested_reads: int = 0  # left unchecked, since two collectors use their tag
    repeated: LostVersions = field(default_factory=LostVersions)  # that several wrote of whom one is forgotten
    repeated_reads: int = 0
    budget: int = 0  # how many times the last rounds ran out of it
    forgot_anything: bool = False
    memory_ns: int = UNKNOWN_TIME  # without session order: what began before this is not followed
    left_out_txns: int = 0  # in total: those that began before it, and those that there was no room for
    failures: int = 0  # how many rounds in a row ended with an error
    table_changed: bool = False  # whether the round that goes on has changed the table, which is done in place
    ongoing: Round = field(default_factory=Round)  # what the last round has found, also if it did not end

    def __post_init__(self) -> None:
        self.level = LEVELS[self.settings.level]

    def real_keys(self) -> Ints:
        """The key of each operation that is retained, where it stands for a closed one that one."""
        keys, at = np.unique(self.retained.key, return_inverse=True)
        return np.array([self.real_key.get(key, key) for key in keys.tolist()], np.int64)[at]

    def round(
        self,
        new: Batch,
        last: dict[int, int] | None,
        lost: LostVersions,
        in_doubt_ns: int,
        again: Ints = NONE,
        horizons: tuple[int, ...] = (),
    ) -> Round:
        """Check the retained transactions together with the new ones.

        `last` has, for every session that may go on without a fence, the position of its last transaction (-1 if it has
        none); None if nothing may be forgotten. `lost` are the versions that are lost to all levels. Commits in doubt
        that were received up to `in_doubt_ns` have had their time. `again` are versions in `new` that came once before.
        """
        outcome = self.ongoing = Round()
        effort = Effort(self.limits.explained_txns_max)
        seconds = dict.fromkeys(("build", "prune", "solve", "explain", "forget"), 0.0)
        outcome.seconds = seconds
        too_old = (new.begin_ns < self.memory_ns) & (new.begin_ns != UNKNOWN_TIME)
        self.left_out_txns += int(np.count_nonzero(too_old))
        batch = Batch.join([self.retained, self._set_aside(new, too_old) if too_old.any() else new])
        self._note_again(batch, again, outcome)
        passes = 0
        # Fences are linked once, and again where transactions go, of which there is an end: a link that was taken away
        # because nobody can tell who wrote what it saw must not come back.
        is_linked = False
        while True:
            passes += 1
            if passes > PASSES_MAX:
                raise RuntimeError(f"{PASSES_MAX:,} passes, and each left something out")
            started = perf_counter()
            all_lost = LostVersions(lost.start, lost.end)
            all_lost.add(self.lost.start, self.lost.end)
            if not is_linked:
                batch, is_linked = link(batch, self.border, all_lost, self.repeated), True
            batch = self._without_contested(batch, outcome)
            window = make_window(
                batch,
                self.past,
                self.table,
                all_lost,
                list(self.real_key),
                self.names,
                horizons,
                self.repeated,
            )
            self.unchecked_reads += window.unchecked_reads
            resolved = resolve(window.history, self.level.split, window.doubtful)
            seconds["build"] += perf_counter() - started
            if resolved.impossible:
                bad, unseen = self._impossible(window, resolved, outcome)
                self.unchecked_reads += int(np.count_nonzero(unseen))
                batch = self._set_aside(window.batch.without_reads(unseen), bad)
                is_linked = not bad.any()
            elif len(resolved.ambiguous):
                batch = self._without_ambiguous(window, resolved.ambiguous, outcome)
            else:
                decision = self._decide(resolved, outcome)
                if decision.gave_up and self.budget + 1 >= SEARCHES_MAX:
                    batch = self._set_aside(window.batch, self._not_ordered(window, decision, outcome))
                elif decision.refused:
                    batch = self._set_aside(window.batch, self._refused(window, resolved, decision, outcome, effort))
                else:
                    break
                is_linked = False
        started = perf_counter()
        if decision.gave_up:
            self.budget += 1
            outcome.unknown = f"{NO_ANSWER}; it will be tried again with more time"
            self.retained = window.batch
        else:
            self.budget = 0
            self._forget(window, resolved, decision, last, in_doubt_ns, outcome)
            if resolved.repeated_values:
                self._note_forgotten_writers(window.batch)
        if len(self.retained) > self.limits.retained_txns_max:
            older = np.arange(len(self.retained)) < len(self.retained) // 2
            self.left_out_txns += int(np.count_nonzero(older))
            self.retained = self._set_aside(self.retained, older)
        seconds["forget"] += perf_counter() - started
        self.failures = 0
        return outcome

    def _without_contested(self, batch: Batch, outcome: Round) -> Batch:
        """Without reads of what two collectors may have written under one name; see `owners.py`."""
        if not self.owners.contester:
            return batch
        current = self.table.get(batch.key)
        doubtful = self.owners.doubtful(batch.key, batch.seen, batch.kind == Kind.WRITE, batch.version, current)
        tags = (batch.seen[doubtful] >> COUNTER_BITS).tolist()
        outcome.contested.update(tags)
        self.contested_reads += len(tags)
        return batch.without_reads(doubtful)

    def _decide(self, resolved: Resolved, outcome: Round) -> Decision:
        calls = 0

        def out_of_budget() -> bool:
            nonlocal calls
            calls += 1
            return calls > self.limits.search_calls_max << self.budget

        decision = decide(resolved, self.settings, find_solver("own"), out_of_budget)
        for phase, spent in decision.seconds.items():
            outcome.seconds[phase] += spent
        outcome.choices = decision.choices
        return decision

    def is_before(self, seen: int, epoch: int, is_write: bool) -> bool:
        """Whether all that was forgotten here comes before a fence that saw this version and has this epoch."""
        if not self.forgot_anything or not keeps_sessions(self.settings):
            return True  # in the second case it is the clocks that tell
        if epoch != UNKNOWN_EPOCH and self.border.epoch != UNKNOWN_EPOCH:
            return epoch > self.border.epoch - (not is_write)
        if seen == self.border.version:
            return True
        # Who replaces one that is there extends the end of a chain, all of which come after what was forgotten.
        fences = Fences.of(self.retained)
        remains = fences.is_write & (fences.status != ABORTED) & (fences.txn >= self.past)
        return is_write and bool((fences.version[remains] == seen).any())

    def learn_epochs(self, known: dict[int, int]) -> None:
        self.retained = with_epochs(self.retained, known)
        if self.border.last_epoch < 0:
            self.border = replace(self.border, last_epoch=known.get(self.border.last_version, -1))
        if self.border.epoch == UNKNOWN_EPOCH:
            self.border = replace(self.border, epoch=known.get(self.border.version, UNKNOWN_EPOCH))

    def before(self) -> dict[str, Any]:
        """What a round may change, for `failed`."""
        small = {name: getattr(self, name) for name in ROUND_STATE}
        small["lost"] = LostVersions(self.lost.start, self.lost.end)
        small["repeated"] = LostVersions(self.repeated.start, self.repeated.end)
        small["real_key"] = dict(self.real_key)
        self.table_changed = False
        return small

    def failed(
        self,
        before: dict[str, Any],
        new: Batch,
        why: str,
        written: Callable[[], tuple[Ints, Ints]],
    ) -> Round:
        """A round ended with an error. It is tried again with the next one, and at last goes on without its window.

        `written` are all versions that were written so far: who sees one of those then sees something lost.
        """
        vars(self).update(before)
        self.failures += 1
        outcome = self.ongoing  # with what it had found: if it is found again it is known
        if self.failures < FAILURES_MAX and not self.table_changed:
            self.retained = Batch.join([self.retained, new])
            outcome.unknown = f"{ERROR}{why}; it will be tried again"
            return outcome
        outcome.unknown = f"{ERROR}{why}; what it was to check is left out"
        self.retained = Batch.join([self.retained, new])
        self.begin_anew()
        self.lost.add(*written())
        self.failures = 0
        return outcome

    def begin_anew(self) -> None:
        """Let go of everything; all that was written so far is lost."""
        self.left_out_txns += len(self.retained)
        self.retained, self.past, self.table, self.border = Batch.empty(), 0, VersionTable(), Border()
        self.real_key, self.forgot_anything = {}, False

    # Versions that were written twice

    def _note_again(self, batch: Batch, again: Ints, outcome: Round) -> None:
        """Where the first to write a version is forgotten, its readers may be, too: whom they saw nobody can say."""
        if len(again):
            is_live = (batch.kind == Kind.WRITE) & (batch.status != ABORTED)[batch.op_txn]
            again = np.intersect1d(again, batch.version[is_live])
            late = np.setdiff1d(again, _written_twice(batch, of_all=True))
            late = late[~self.repeated.has(late)]
            self.repeated.add(late, late + 1)
            outcome.repeated += len(late)
            self.repeated_reads += len(late)

    def _note_forgotten_writers(self, batch: Batch) -> None:
        """While all writers of a version are here, resolving says what is ambiguous; later on nobody else can."""
        forgotten = np.setdiff1d(_written_twice(batch), _written_twice(self.retained))
        self.repeated.add(forgotten, forgotten + 1)

    def _without_ambiguous(self, window: Window, ops: Ints, outcome: Round) -> Batch:
        """Leave out what these operations saw, whose writer nobody can tell, and count it.

        A transaction that wrote such a version itself saw the other writer's. If that one is forgotten, nobody can tell
        its place any more, but a check of everything has no doubt whom the transaction saw; so it is not counted.
        """
        batch, op_txn = window.batch, window.batch.op_txn
        counted = np.zeros(len(batch.kind), bool)
        counted[ops] = True
        for op in np.intersect1d(ops, window.doubtful).tolist():
            own = slice(batch.op_start[op_txn[op]], batch.op_start[op_txn[op] + 1])
            counted[op] = batch.seen[op] not in batch.version[own][batch.kind[own] == Kind.WRITE]
        count = int(np.count_nonzero(counted))
        outcome.repeated += count
        self.repeated_reads += count
        return batch.without_reads(_like(batch, ops))

    # Violations

    def _impossible(self, window: Window, resolved: Resolved, outcome: Round) -> tuple[Flags, Flags]:
        """Find every transaction that saw something no order explains; tell about the first few.

        Returns (the transactions to set aside, the operations that count as if they had seen nothing).
        """
        started = perf_counter()
        bad, unseen = np.zeros(len(window.batch), bool), np.zeros(len(window.batch.kind), bool)
        moved = self._moved(window, [one.op for one in resolved.impossible if one.what == NEVER_WRITTEN])
        for at, one in enumerate(resolved.impossible):
            txn = int(np.searchsorted(window.history.op_start, one.op, side="right")) - 1
            if one.op in moved:
                unseen[one.op] = True
                continue
            if one.what == NEVER_WRITTEN and self.forgot_anything and not keeps_sessions(self.settings):
                # Without session order this may be a snapshot that is older than our memory.
                unseen[one.op] = True
                continue
            if bad[txn]:
                continue
            bad[txn] = True
            if len(outcome.found) >= self.limits.violations_explained_max:
                outcome.set_aside += 1
                continue
            told = explain_impossible(replace(resolved, impossible=resolved.impossible[at : at + 1]))
            if one.what == NEVER_WRITTEN:
                told = self._told_as_stale(told)
            self._tell(window, told, outcome)
        outcome.seconds["explain"] += perf_counter() - started
        return bad, unseen

    def _moved(self, window: Window, ops: list[int]) -> set[int]:
        """Of operations that saw a version that nobody wrote to their key: those that saw a row from elsewhere."""
        if not ops:
            return set()
        at = np.array(ops, np.int64)
        forgotten = self.table.keys_at(window.batch.seen[at])
        return set(at[self.moved.among(window.batch, at, forgotten, self.names.known_key)].tolist())

    def _told_as_stale(self, told: Counterexample) -> Counterexample:
        """A version that is neither current nor retained: its collector did write it, but it is history."""
        reader = told.transactions[0].label
        saw = told.summary.partition(", but nobody")[0]
        why = "which had been replaced or rolled back before all sessions passed a fence, and only then"
        return replace(told, anomaly="stale read", adya="G-single-session", summary=f"{saw}, {why} did {reader} begin.")

    def _refused(self, window: Window, resolved: Resolved, decision: Decision, outcome: Round, effort: Effort) -> Flags:
        """Set aside the transactions of a counterexample; when there have been many, all that are on cycles."""
        bad = np.zeros(len(window.batch), bool)
        if len(outcome.found) < self.limits.violations_explained_max and not effort.is_spent:
            started = perf_counter()
            told = explain(resolved, self.settings, decision, find_solver("own"), effort=effort)
            outcome.seconds["explain"] += perf_counter() - started
            bad[[shown.txn for shown in told.transactions]] = True
            self._tell(window, told, outcome)
            return bad
        graph = decision.graph
        if graph.chains.clash is not None:
            txns = graph.version_txn[clashing_versions(graph)]
        elif decision.pruned is not None and decision.pruned.cyclic:
            txns = graph.node_txn[Paths(decision.pruned).nodes_on_cycles()]
        else:
            assert decision.leftover is not None
            txns = graph.node_txn[decision.leftover.nodes]
        bad[graph.txns[txns[txns >= 0]]] = True
        outcome.set_aside += int(np.count_nonzero(bad))
        return bad

    def _not_ordered(self, window: Window, decision: Decision, outcome: Round) -> Flags:
        """Set aside what no search found an order of, nor that there is none, so that the others can go on."""
        self.budget = 0
        bad = np.ones(len(window.batch), bool)
        if decision.leftover is not None:
            graph, bad = decision.graph, np.zeros(len(window.batch), bool)
            txns = graph.node_txn[decision.leftover.nodes]
            bad[graph.txns[txns[txns >= 0]]] = True
        count = int(np.count_nonzero(bad))
        self.left_out_txns += count
        of = Counter(self.names.session(number).partition(" / ")[0] for number in window.batch.session[bad].tolist())
        (most, its), *_ = of.most_common(1)
        outcome.unknown = f"{NO_ANSWER}; the {count:,} transactions that it was about are left out, {its:,} of {most}"
        return bad

    def _tell(self, window: Window, told: Counterexample, outcome: Round) -> None:
        numbers = np.array([shown.txn for shown in told.transactions], np.int64)
        txns = window.batch.select(numbers)
        shown = tuple(
            replace(transaction, position=int(position))
            for transaction, position in zip(told.transactions, txns.position, strict=True)
        )
        outcome.found.append(Found(replace(told, transactions=shown), txns))

    def _set_aside(self, batch: Batch, bad: Flags) -> Batch:
        """Go on without these transactions. Who saw what they wrote saw something that is lost."""
        written = batch.select(bad).written
        written = written[written > 0]
        self.lost.add(written, written + 1)
        self.past -= int(np.count_nonzero(bad[: self.past]))
        return batch.select(~bad)

    # Forgetting

    def _forget(
        self,
        window: Window,
        resolved: Resolved,
        decision: Decision,
        last: dict[int, int] | None,
        in_doubt_ns: int,
        outcome: Round,
    ) -> None:
        batch = window.batch
        unread = (batch.status == IN_DOUBT) & ~resolved.in_effect
        expired = unread & (batch.received_ns <= in_doubt_ns)
        self.retained = batch
        waiting = np.flatnonzero(unread & ~expired)
        is_live = ~np.isin(window.keys, list(self.real_key))
        past: Past | None = None
        if last is not None and keeps_sessions(self.settings):
            pruned = decision.pruned
            if pruned is not None and not pruned.too_wide and len(pruned.graph.txns):
                graph, is_stable = pruned.graph, self._stable(window, pruned, last)
                if is_stable is not None:
                    for txn in waiting:
                        is_stable &= ~self._might_follow(window, pruned, int(txn))
                    past = find_past(pruned, is_stable, is_live)
        elif last is not None:
            is_stable = self._stable_by_time(batch, resolved, last)
            if is_stable is not None and is_stable.any() and not len(waiting):
                graph = build_graph(resolved, self.settings, False)
                times = event_times(window.history, graph.txns)
                stable_txns = is_stable[graph.txns]
                past = find_past_by_time(graph, times, self.settings.clock_drift_ns, stable_txns, is_live)
                while past is not None and past.kept.any():  # a snapshot older than these says nothing of their order
                    stable_txns &= ~past.kept
                    past = find_past_by_time(graph, times, self.settings.clock_drift_ns, stable_txns, is_live)
        if past is not None and (past.past & ~past.kept).any():
            self._let_go(window, resolved, graph, past, is_live, expired, outcome)
            return
        if expired.any():
            self.retained = self._set_aside(batch, expired)

    def _stable(self, window: Window, pruned: Pruned, last: dict[int, int]) -> Flags | None:
        """The transactions that come before all that is yet to come; None if that cannot be said of any."""
        batch, graph = window.batch, pruned.graph
        local = np.full(len(batch), -1, np.int64)
        local[graph.txns] = np.arange(len(graph.txns))
        local[: window.past] = -1  # nothing new comes before these
        certain = np.flatnonzero((local >= 0) & (batch.status == COMMITTED))
        latest = dict(zip(batch.session[certain].tolist(), certain.tolist(), strict=True))
        ends = [latest.get(session, -1) for session in last]
        ends += self._last_fences(window, graph)
        if min(ends) < 0 or (local[ends] < 0).any():
            return None
        return stable(pruned, local[ends])

    def _last_fences(self, window: Window, graph: Graph) -> list[int]:
        """The write fences that a new session's fence may follow directly; [-1] if there are none, or none any more."""
        key = int(np.searchsorted(window.keys, FENCE_KEY))
        if key == len(window.keys) or window.keys[key] != FENCE_KEY:
            return [-1]
        tails = graph.chains.chain_tail
        tails = tails[(graph.version_key[tails] == key) & (graph.version_txn[tails] >= 0)]
        return [int(txn) for txn in graph.txns[graph.version_txn[tails]]] or [-1]

    def _move_border(self, window: Window, graph: Graph) -> None:
        """Something was forgotten, all of which comes before each of the last fences."""
        fences = Fences.of(window.batch)
        version = int(self.table.get(np.array([FENCE_KEY]))[0])
        epoch = self.border.last_epoch
        if version != self.border.last_version:
            epoch = int(fences.epoch[fences.is_write & (fences.version == version)].max(initial=0)) or -1
        ends = np.flatnonzero(np.isin(fences.txn, self._last_fences(window, graph)) & fences.is_write)
        told = ends[fences.epoch[ends] != UNKNOWN_EPOCH]
        if len(ends):
            end = told[np.argmin(fences.epoch[told])] if len(told) else ends[0]
            self.border = Border(version, epoch, int(fences.version[end]), int(fences.epoch[end]))
        else:  # without session order
            self.border = replace(self.border, last_version=version, last_epoch=epoch)

    def _stable_by_time(self, batch: Batch, resolved: Resolved, last: dict[int, int]) -> Flags | None:
        """Where sessions keep no order: what committed long before the last that was heard of any session."""
        ends = [int(batch.committed_ns[batch.session == session].max(initial=UNKNOWN_TIME)) for session in last]
        if not ends or min(ends) == UNKNOWN_TIME:
            return None
        horizon_ns = min(ends) - self.limits.snapshot_age_ns_max
        known = (batch.committed_ns != UNKNOWN_TIME) & (batch.status == COMMITTED) & resolved.in_effect
        return np.asarray(known & (batch.committed_ns <= horizon_ns))

    def _might_follow(self, window: Window, pruned: Pruned, doubtful: int) -> Flags:
        """Transactions that one in doubt, should it turn out to have committed, might have to precede."""
        batch, graph = window.batch, pruned.graph
        op_txn = batch.op_txn
        own = op_txn == doubtful
        is_write = batch.kind == Kind.WRITE
        conflicts = np.isin(batch.key, batch.key[own & is_write])
        conflicts |= is_write & np.isin(batch.key, batch.key[own])
        touched = np.zeros(len(batch), bool)
        touched[op_txn[conflicts & ~own]] = True
        found = touched[graph.txns]
        if ("begin", "commit") in self.level.real_time:  # it had begun, and clocks may prove others to be later
            later_ns = np.maximum(batch.commit_ns, batch.begin_ns)[graph.txns]
            found |= later_ns > batch.begin_ns[doubtful]
        earlier = (batch.session == batch.session[doubtful]) & (batch.position < batch.position[doubtful])
        earlier &= batch.status == COMMITTED
        before = np.flatnonzero(earlier[graph.txns])
        if len(before):
            found &= ~reach(pruned, int(before[-1]))
        return np.asarray(found)

    def _let_go(
        self,
        window: Window,
        resolved: Resolved,
        graph: Graph,
        past: Past,
        is_live: Flags,
        expired: Flags,
        outcome: Round,
    ) -> None:
        batch = window.batch
        in_past, kept = np.zeros(len(batch), bool), np.zeros(len(batch), bool)
        in_past[graph.txns] = past.past
        kept[graph.txns] = past.kept
        # The versions that stay readable although their writers go.
        writer = np.where(past.last_version >= 0, graph.version_txn[past.last_version], -1)
        stays = is_live & (writer >= 0)
        stays[stays] = ~past.kept[writer[stays]]
        ops = resolved.version_op[past.last_version[stays]]
        self.table_changed = True
        self.table.put(window.keys[stays], batch.version[ops])
        self._move_border(window, graph)

        component = np.full(len(batch), -1, np.int64)
        component[graph.txns] = past.component
        closed = self._closed(window, kept, component, past, is_live)
        witnesses = self._latest_by_clock(batch, in_past & ~kept)
        old_ns = batch.received_ns.max(initial=0) - self.limits.aborted_ns_max
        aborted = (batch.status == ABORTED) & (batch.received_ns < old_ns)
        self.past = 0
        rest = self._set_aside(batch.select(~in_past & ~aborted), expired[~in_past & ~aborted])
        first = Batch.join([closed, witnesses])
        first = first.select(np.argsort(first.position, kind="stable"))  # each session in its order
        self.retained = Batch.join([first, rest])
        self.past = len(first)
        self.forgot_anything = True
        if not keeps_sessions(self.settings):
            self.memory_ns = max(self.memory_ns, int(batch.committed_ns[in_past].max(initial=UNKNOWN_TIME)))
        outcome.forgotten = len(batch) - len(self.retained)
        self.real_key = {int(key): self.real_key[key] for key in np.unique(closed.key).tolist() if key in self.real_key}

    def _closed(self, window: Window, kept: Flags, component: Ints, past: Past, is_live: Flags) -> Batch:
        """The kept transactions with only what still matters between those of one component.

        A key stays as it is for the component that has its last versions. For others it is closed: there are later
        versions, nobody can touch theirs any more, and it gets another name.
        """
        txns = np.flatnonzero(kept)
        batch = window.batch.select(txns)
        if not len(batch):
            return batch
        key = window.history.key[ranges(window.history.op_start[txns], window.history.op_start[txns + 1])]
        home = component[txns][batch.op_txn]
        is_write = batch.kind == Kind.WRITE
        pairs, pair_of = np.unique(home * len(window.keys) + key, return_inverse=True)
        pair_home, pair_key = np.divmod(pairs, len(window.keys))
        first_version = np.full(len(pairs), np.iinfo(np.int64).max)
        np.minimum.at(first_version, pair_of[is_write], batch.version[is_write])
        is_written = first_version < np.iinfo(np.int64).max
        stays = is_live[pair_key] & (past.owner[pair_key] == pair_home)
        names = window.keys[pair_key]
        for at in np.flatnonzero(~stays & is_written):
            real = self.real_key.get(int(names[at]), int(names[at]))
            names[at] = _closed_name(real, int(first_version[at]))
            self.real_key[int(names[at])] = real
        outside = ~_written_at_home(batch, home) & (batch.seen >= PAST_VERSION)
        changed = replace(
            batch,
            key=names[pair_of],
            version=np.where(outside & ~is_write, PAST_VERSION, batch.version),
            previous=np.where(outside & is_write, PAST_VERSION, batch.previous),
        )
        return changed.select_ops(is_written[pair_of])

    def _latest_by_clock(self, batch: Batch, gone: Flags) -> Batch:
        """Of what is past, those with the latest begin and the latest commit: whoever clocks prove to be before
        them came before the past. Without operations; only where the level looks at clocks."""
        if not self.level.real_time or not keeps_sessions(self.settings):
            return Batch.empty()
        commit_low = np.where(batch.commit_ns != UNKNOWN_TIME, batch.commit_ns, batch.begin_ns)
        chosen = set()
        txns = np.flatnonzero(gone)
        for low in (batch.begin_ns, commit_low):
            if len(txns) and low[txns].max() != UNKNOWN_TIME:
                chosen.add(int(txns[np.argmax(low[txns])]))
        some = batch.select(np.array(sorted(chosen), np.int64))
        some = replace(some, status=np.full(len(some), COMMITTED, np.uint8))  # also one in doubt that somebody saw
        return some.select_ops(np.zeros(len(some.kind), bool))


def _written_twice(batch: Batch, of_all: bool = False) -> Ints:
    """The versions that more than one transaction left behind on the same key, or wrote there at all."""
    op_txn = batch.op_txn
    ops = np.flatnonzero(batch.kind == Kind.WRITE)
    if not of_all:
        ops = ops[(batch.status != ABORTED)[op_txn[ops]]]
        ops = ops[np.lexsort((ops, batch.key[ops], op_txn[ops]))]
        next_on_key = (np.diff(op_txn[ops]) == 0) & (np.diff(batch.key[ops]) == 0)
        ops = ops[~np.append(next_on_key, np.zeros(min(1, len(ops)), bool))]
    writes = np.unique(np.stack([batch.version[ops], batch.key[ops], op_txn[ops]]), axis=1)
    same = (writes[:2, 1:] == writes[:2, :-1]).all(axis=0)
    twice: Ints = np.unique(writes[0, 1:][same])
    return twice


def _like(batch: Batch, ops: Ints) -> Flags:
    """These operations and all others of their transactions that saw the same."""
    seen, op_txn = batch.seen, batch.op_txn
    alike = np.zeros(len(seen), bool)
    for op in ops.tolist():
        own = np.arange(batch.op_start[op_txn[op]], batch.op_start[op_txn[op] + 1])
        alike[own[(seen[own] == seen[op]) & (batch.key[own] == batch.key[op])]] = True
    return alike


def _written_at_home(batch: Batch, home: Ints) -> Flags:
    """Per operation: whether what it saw was written in its own component. No write id is used twice."""
    writes = np.flatnonzero(batch.kind == Kind.WRITE)
    writes = writes[np.argsort(batch.version[writes])]
    at = np.minimum(np.searchsorted(batch.version[writes], batch.seen), len(writes) - 1)
    return np.asarray((batch.version[writes[at]] == batch.seen) & (home[writes[at]] == home))


def _closed_name(key: int, version: int) -> int:
    """A name for a closed key: as good as any other 64-bit hash, and the same whenever the same is closed."""
    x = (key ^ (version * 0x9E3779B97F4A7C15)) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x ^= x >> 31
    return x - (1 << 64) if x >> 63 else x
