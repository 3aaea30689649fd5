"""The auditor: checks the proof that comes with a verdict, without trusting whatever found it.

Short and plain, so that a sceptic can read all of it; it shares no code with the engine. docs/levels.md says in words
what is checked here. An order is a list of events: 2 * t is the begin of transaction t, 2 * t + 1 its commit. A
transaction sees the state at its begin and its own writes, and installs its writes at its commit. A witness is
replayed, event by event; a counterexample is refuted by trying all orders of the few transactions it names, as far as
what they saw has not decided them.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, groupby, pairwise, permutations
from math import inf
from typing import Any, NamedTuple

from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, Kind, Status

READ, WRITE, APPEND, READ_LIST = (int(kind) for kind in Kind)
COMMITTED, ABORTED, IN_DOUBT = (int(status) for status in Status)

STEPS_MAX = 1_000_000  # events put in order; takes up to two minutes, where most counterexamples take one case

LEVELS = {  # one transaction at a time; session order; real time into commits; real time from commits into begins
    "serializable": (True, True, False, False),
    "strict-serializable": (True, True, False, True),
    "adya-si": (False, False, False, False),
    "generalized-si": (False, False, True, False),
    "strong-session-si": (False, True, True, False),
    "strong-si": (False, True, True, True),
}
START = -1  # an event before all others, which installed the initial versions
State = dict[int, list[int]]  # all versions that a key has had: a list is all of them, a register the last one
Pair = tuple[int, int]  # of events, of which the first comes before the second
Demand = tuple[Pair, Pair]  # if the first, then the second


class Audit(NamedTuple):
    ok: bool | None  # None: it cannot be told
    message: str


class Rules:
    """What a level demands of an order in which only the `named` transactions take part."""

    def __init__(self, certificate: dict[str, Any], history: History, named: set[int]) -> None:
        self.serial, sessions, self.into_commits, self.into_begins = LEVELS[certificate["level"]]
        self.sessions, self.drift_ns = sessions and certificate["session_order"], certificate["clock_drift_ns"]
        self.history, self.session, self.status = history, history.session.tolist(), history.status.tolist()
        columns = (history.kind, history.key, history.value, history.previous)
        ops = list(zip(range(history.op_count), *(column.tolist() for column in columns), strict=True))
        self.ops = [ops[start:end] for start, end in pairwise(history.op_start)]
        self.writes = [[(k, v) for _, kind, k, v, _ in ops if kind in (WRITE, APPEND)] for ops in self.ops]
        self.final = [dict(writes) for writes in self.writes]
        # Per transaction the keys where its first write began a row, which earlier writers of the key may overlap.
        first = [{k: p for _, kind, k, _, p in reversed(ops) if kind in (WRITE, APPEND)} for ops in self.ops]
        self.new = [{key for key in keys if keys[key] == NO_ROW and not self.serial} for keys in first]
        self.earliest_ns, self.latest_ns = list[float](), list[float]()  # by event
        times = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
        for status, begin, begun, commit, committed in zip(self.status, *(t.tolist() for t in times), strict=True):
            end = inf if committed == UNKNOWN_TIME or status == IN_DOUBT else committed
            self.earliest_ns += (begin, begin if commit == UNKNOWN_TIME else commit)  # UNKNOWN_TIME is below all times
            self.latest_ns += (end if begun == UNKNOWN_TIME else begun, end)
        self.times_written = Counter(version for writes in self.writes for version in writes)
        # Versions that others may have written: to have seen one says nothing of who among the named wrote last.
        others = (t for t, status in enumerate(self.status) if t not in named and status != ABORTED)
        self.outside = {version for txn in others for version in self.writes[txn]}

    def before(self, first: int, second: int) -> bool:
        """Must event `first` come before event `second`, whatever they read and write?"""
        t, u, from_commit, into_commit = first // 2, second // 2, first % 2, second % 2
        if (t == u and into_commit) or t < self.history.past <= u:
            return True
        if self.sessions and from_commit and not into_commit and self.session[t] == self.session[u] and t < u:
            return bool(self.status[t] == COMMITTED)  # one in doubt may take effect at any later time
        timed = self.into_commits if into_commit else self.into_begins and from_commit
        return bool(timed and self.latest_ns[first] + self.drift_ns < self.earliest_ns[second])

    def place(self, event: int, state: State, held: set[int]) -> str:
        """Let an event happen to `state` and to `held`, the keys that open transactions write. Says what forbids it."""
        txn, is_commit = divmod(event, 2)
        holds = {-1} if self.serial else self.final[txn].keys() - self.new[txn]  # -1: everything
        if held & (self.new[txn] if is_commit else holds):
            return f"transaction {txn} overlaps one that {'runs' if self.serial else 'writes the same key'}"
        held ^= holds
        if not is_commit:
            return self.unexplained(txn, self.ops[txn], state)
        for key, value in self.writes[txn]:
            state.setdefault(key, []).append(value)
        return ""

    def unexplained(self, txn: int, ops: list[tuple[int, ...]], state: State) -> str:
        """What a transaction saw in some operations that it could not have seen, had it begun in this state."""
        own: State = {}
        external: dict[int, Any] = {}  # what it saw of others is the same each time, whoever wrote it
        for op, kind, key, value, previous in ops:
            mine, there = own.get(key, []), state.get(key, [])
            saw = value if kind in (READ, READ_LIST) else previous
            if kind == READ_LIST:
                seen = self.history.list_seen(op)
                theirs = seen[: max(0, len(seen) - len(mine))]
                unsure = {v for v in theirs if (key, v) in self.outside}
                sure, expected = ([v for v in some if v not in unsure] for some in (theirs, there))
                fits = theirs + mine == seen and sure == expected and external.setdefault(key, theirs) == theirs
            elif saw == NO_VALUE or (kind == WRITE and saw == NO_ROW):
                fits = True
            elif mine and (saw == mine[-1] or kind == WRITE or key not in self.new[txn]):
                fits = saw == mine[-1]
            else:
                fits = (key, saw) in self.outside or saw == (there or [INITIAL])[-1]
                fits = fits and external.setdefault(key, saw) == saw
            if not fits:
                version = f"version {self.history.value_name(saw)} of {self.history.key_names[key]}"
                return f"transaction {txn} could not have seen {version}"
            if kind in (WRITE, APPEND):
                own.setdefault(key, []).append(value)
        return ""

    def saw(self, txn: int) -> set[tuple[int, int]]:
        """All versions that a transaction saw, whoever wrote them."""
        found = {(key, v) for op, _, key, _, _ in self.ops[txn] for v in self.history.list_seen(op)}
        return found | {(key, v if kind == READ else previous) for _, kind, key, v, previous in self.ops[txn]}

    def demands(self, events: list[int]) -> list[Demand]:
        """What holds in every valid order of some events. If nothing can, an event has to come before itself."""
        found = [((START, b), (a, b)) for a, b in permutations(events, 2) if self.before(a, b ^ self.serial)]
        txns = sorted({event // 2 for event in events})
        writer = {version: 2 * txn + 1 for txn in txns for version in self.writes[txn]}
        saw = {txn: self.saw(txn) for txn in txns}
        for txn, key in {(t, op[2]): None for t in txns for op in self.ops[t]}:
            begin, commit = 2 * txn | self.serial, 2 * txn + 1
            ops = [op for op in self.ops[txn] if op[2] == key]
            others = {2 * u + 1: {key: [self.final[u][key]]} for u in txns if u != txn and key in self.final[u]}
            # If this one writes the key, none of the others commits between its begin and its commit.
            until = commit if key in self.final[txn].keys() - self.new[txn] else begin
            found += [((event, other), (max(event, until), other)) for event in (begin, commit) for other in others]
            lists = [[(key, v) for v in self.history.list_seen(op)] for op, kind, *_ in ops if kind == READ_LIST]
            # Whoever saw a version that was written once, and then writes the key, puts an end to it.
            once = {v for v in saw[txn] & self.outside if v[0] == key and self.times_written[v] == 1 and not lists}
            found += [((START, other), (begin, other)) for other in others if saw[other // 2] & once]
            able = [e for e in (START, *others) if not lists and not self.unexplained(txn, ops, others.get(e, {}))]
            chains = [[*(able or [begin]), begin]] if not lists and len(able) < 2 else []
            for seen in lists:
                shown = [writer.get(v, begin) for v in seen if v not in self.outside and writer.get(v) != commit]
                if all(self.times_written[version] < 2 for version in seen):
                    chains.append([START, *(event for event, _ in groupby(shown)), begin])
            for last, event in (pair for chain in chains for pair in pairwise(chain)):
                found.append(((START, event), (last, event)))
                found += [((other, event), (other, last)) for other in others if other not in (last, event)]
        return found + [((d, c), (b, a)) for (a, b), (c, d) in found]


def replay(rules: Rules, numbers: list[int], named: list[int]) -> str:
    """What is wrong with a witness; nothing if it is a valid order of all named ones that committed."""
    state, held, placed = State(), set[int](), set[int]()
    last: dict[Any, int] = {}  # an event that comes too late for some other one comes too late for one of these:
    events = [event for txn in numbers for event in (2 * txn, 2 * txn + 1)] if rules.serial else numbers
    for place, event in enumerate(events):
        txn, kind = divmod(event, 2)
        session = f"session {rules.session[txn]}"
        problem = rules.place(event, state, held)
        for other in (last[which] for which in (0, 1, "all", session) if which in last):
            if rules.before(event, other):
                problem = f"transaction {txn} has to come before {other // 2}"
        if event in placed or (kind == 1) != (event ^ 1 in placed) or rules.status[txn] == ABORTED:
            problem = f"transaction {txn} aborted, or does not begin once and then commit once"
        if problem:
            return f"{problem} at place {place}"
        placed.add(event)
        last[kind] = max(event, last.get(kind, event), key=rules.earliest_ns.__getitem__)
        for which in ("all", session):
            last[which] = max(2 * txn, last.get(which, 0))
    missing = [t for t in named if 2 * t + 1 not in placed and (rules.status[t] == COMMITTED or 2 * t in placed)]
    return f"the commit of transaction {missing[0]} is missing" if missing else ""


def settle(before: dict[int, set[int]], known: list[Pair], demands: list[Demand]) -> bool:
    """Add pairs, and all that follows, to what comes before each event. False if one would come before itself."""
    while known:
        for a, b in known:
            if a == b or b in before[a]:
                return False
            before |= {event: some | before[a] | {a} for event, some in before.items() if event == b or b in some}
        known = [(c, d) for (a, b), (c, d) in demands if a in before[b] and c not in before[d]]
    return True


def refute(rules: Rules, named: list[int]) -> Audit:
    """Try all orders of the named transactions, with and without each one in doubt, as far as they are not decided."""
    steps = 0
    sure, in_doubt = ([txn for txn in named if rules.status[txn] == status] for status in (COMMITTED, IN_DOUBT))
    writer = {version: txn for txn in in_doubt for version in rules.writes[txn] if rules.times_written[version] == 1}
    for txn in sure:  # and all that are added to it on the way, since somebody saw what only they wrote
        sure += {writer[version] for version in rules.saw(txn) if version in writer} - set(sure)
    unsure = [txn for txn in in_doubt if txn not in sure]
    for chosen in (some for size in range(len(unsure) + 1) for some in combinations(unsure, size)):
        events = sorted({event | rules.serial for t in (*sure, *chosen) for event in (2 * t, 2 * t + 1)})
        demands = rules.demands(events)
        todo = [({event: set[int]() for event in (START, *events)}, [(START, event) for event in events])]
        while todo:
            steps += len(events)
            if steps > STEPS_MAX:
                return Audit(None, f"{len(named)} transactions have too many orders to try them all")
            before, known = todo.pop()
            if not settle(before, known, demands):
                continue
            # An order that goes with all that is known; a transaction begins in it just before it has to.
            count = {event: len(some) for event, some in before.items()}.__getitem__
            commits = (event for event in sorted(before, key=count) if event % 2)
            order = list(dict.fromkeys(e for commit in commits for e in sorted({*before[commit], commit}, key=count)))
            at = {event: place for place, event in enumerate(order)}
            pairs = [(a, b) for (a, b), (c, d) in demands if at[a] < at[b] and at[c] > at[d]]
            if not pairs and not replay(rules, [event // 2 if rules.serial else event for event in order[1:]], named):
                return Audit(False, f"transactions {sorted((*sure, *chosen))} do have a valid order")
            pairs = pairs or [(a, b) for (a, b), _ in demands if a not in before[b] and b not in before[a]]
            todo += [(dict(before), [pair]) for a, b in pairs[:1] for pair in ((a, b), (b, a))]
    return Audit(True, f"no order of transactions {named} is valid ({steps} steps)")


def audit(certificate: dict[str, Any], history: History) -> Audit:
    """Check a certificate, as `certificate.py` makes or reads it, against the history it is about."""
    if certificate["history"] != history.fingerprint():
        return Audit(False, "the certificate is about another history, or the history has changed since")
    lists, registers = (set(history.key[(history.kind >= APPEND) == yes].tolist()) for yes in (True, False))
    if lists & registers:
        return Audit(False, f"{history.key_names[min(lists & registers)]} is both a list and a register")
    if certificate["verdict"] not in ("accepted", "rejected"):
        return Audit(None, "the verdict is unknown, which needs no proof")
    accepted = certificate["verdict"] == "accepted"
    numbers: list[int] = certificate["witness"] if accepted else certificate["counterexample"]["transactions"]
    rules = Rules(certificate, history, set(range(history.txn_count) if accepted else numbers))
    if not all(0 <= number < history.txn_count * (2 if accepted and not rules.serial else 1) for number in numbers):
        return Audit(False, "a transaction is named that the history does not have")
    if not accepted:
        return refute(rules, sorted(set(numbers)))
    problem = replay(rules, numbers, list(range(history.txn_count)))
    return Audit(not problem, problem or f"the witness is a valid order ({len(numbers)} steps)")
