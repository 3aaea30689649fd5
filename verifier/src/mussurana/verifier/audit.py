"""The auditor: checks the proof that comes with a verdict, without trusting whatever found it.

Short and plain, so that a sceptic can read all of it; it shares no code with the engine. docs/levels.md says in words
what is checked here. An order is a list of events: 2 * t is the begin of transaction t, 2 * t + 1 its commit. A
transaction sees the state at its begin and its own writes, and installs its writes at its commit. A witness is
replayed, event by event; a counterexample is refuted by trying every order of the few transactions it names. Where they
are too many for that, and nothing smaller shows the anomaly, conclusions.py leaves out the orders that cannot be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from math import inf
from typing import Any, NamedTuple

from mussurana.verifier import conclusions
from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, Kind, Status

READ, WRITE, APPEND, READ_LIST = (int(kind) for kind in Kind)
COMMITTED, ABORTED, IN_DOUBT = (int(status) for status in Status)

ORDERS_MAX = 10  # so many transactions are tried in all orders
STEPS_MAX = 1_000_000  # enough for these, if they begin and commit in any order; takes up to a minute

LEVELS = {  # one transaction at a time; session order; real time into commits; real time from commits into begins
    "serializable": (True, True, False, False),
    "strict-serializable": (True, True, False, True),
    "adya-si": (False, False, False, False),
    "generalized-si": (False, False, True, False),
    "strong-session-si": (False, True, True, False),
    "strong-si": (False, True, True, True),
}
State = dict[int, list[int]]  # the versions that a key holds, of a register the last one; under ~key, those replaced


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
        self.ops = [ops[start:end] for start, end in zip(history.op_start[:-1], history.op_start[1:], strict=True)]
        self.writes = [[op for op in ops if op[1] in (WRITE, APPEND)] for ops in self.ops]
        # Per transaction the keys where its first write began a row, which earlier writers of the key may overlap.
        first = [{key: previous for _, _, key, _, previous in reversed(writes)} for writes in self.writes]
        self.new = [{key for key in keys if keys[key] == NO_ROW and not self.serial} for keys in first]
        self.earliest_ns, self.latest_ns = list[float](), list[float]()  # by event
        times = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
        for status, begin, begun, commit, committed in zip(self.status, *(t.tolist() for t in times), strict=True):
            end = inf if committed == UNKNOWN_TIME or status == IN_DOUBT else committed
            self.earliest_ns += (begin, begin if commit == UNKNOWN_TIME else commit)  # UNKNOWN_TIME is below all times
            self.latest_ns += (end if begun == UNKNOWN_TIME else begun, end)
        # Versions that others may have written: to have seen one demands nothing of the named transactions.
        others = (t for t, status in enumerate(self.status) if t not in named and status != ABORTED)
        self.outside = {(key, value) for txn in others for _, _, key, value, _ in self.writes[txn]}
        written = Counter((key, value) for writes in self.writes for _, _, key, value, _ in writes)
        self.once = {version for version, times in written.items() if times == 1}
        self.repeated = written.keys() - self.once

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
        holds = {-1} if self.serial else {key for _, _, key, _, _ in self.writes[txn]} - self.new[txn]  # -1: everything
        if held & (self.new[txn] if is_commit else holds):
            return f"transaction {txn} overlaps one that {'runs' if self.serial else 'writes the same key'}"
        held ^= holds
        if not is_commit:
            return self.unexplained(txn, self.ops[txn], state)
        for _, kind, key, value, _ in self.writes[txn]:
            if kind == WRITE:
                state[key] = []
            state.setdefault(~key, []).extend(self.replaced(txn, key))
            state.setdefault(key, []).append(value)
        return ""

    def replaced(self, txn: int, key: int) -> list[int]:
        """The version of others that a transaction put an end to: it saw it, wrote the key, and it is written once."""
        kind, value, previous = next((op[1], op[3], op[4]) for op in self.ops[txn] if op[2] == key)
        saw = value if kind in (READ, READ_LIST) else previous
        return [saw] if (key, saw) in self.once else []

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
                last = (theirs or [INITIAL])[-1]  # as an append says that it replaced
                fits = theirs + mine == seen and external.setdefault(~key, theirs) == theirs
                fits = fits and external.setdefault(key, last) == last
                if self.outside:
                    unsure = {v for v in theirs if (key, v) in self.outside}
                    theirs, there = ([v for v in some if v not in unsure] for some in (theirs, there))
                fits = fits and theirs == there
            elif saw == NO_VALUE or (kind == WRITE and saw == NO_ROW):
                fits = True
            elif mine and (saw == mine[-1] or kind == WRITE or key not in self.new[txn]):
                fits = saw == mine[-1]
            else:
                elsewhere = (key, saw) in self.outside and saw not in state.get(~key, [])
                fits = (elsewhere or saw == (there or [INITIAL])[-1]) and external.setdefault(key, saw) == saw
            if not fits:
                version = f"version {self.history.value_name(saw)} of {self.history.key_names[key]}"
                return f"transaction {txn} could not have seen {version}"
            if kind in (WRITE, APPEND):
                own.setdefault(key, []).append(value)
        return ""


def replay(rules: Rules, events: list[int], named: Iterable[int]) -> str:
    """What is wrong with a witness; nothing if it is a valid order of all named ones that committed."""
    state: State = {}
    held: set[int] = set()
    placed: set[int] = set()
    last: dict[Any, int] = {}  # an event that comes too late for some other one comes too late for one of these:
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


def refute(rules: Rules, named: list[int]) -> Audit:
    """Try all orders of the named transactions, with and without each one in doubt, as far as they are valid."""
    steps = 0
    committed, in_doubt = ([txn for txn in named if rules.status[txn] == status] for status in (COMMITTED, IN_DOUBT))
    for chosen in (some for size in range(len(in_doubt) + 1) for some in combinations(in_doubt, size)):
        events = [event for txn in (*committed, *chosen) for event in (2 * txn, 2 * txn + 1)]
        needs = {event: {other for other in events if rules.before(other, event)} - {event} for event in events}
        ways: dict[Any, tuple[frozenset[int], State, set[int]]] = {None: (frozenset(), {}, set())}
        for _ in events:  # what can follow depends only on the events so far and the state they left
            before, ways = ways, {}
            for placed, state, held in before.values():
                for event in (event for event in events if event not in placed and needs[event] <= placed):
                    after = (placed | {event}, {key: list(versions) for key, versions in state.items()}, set(held))
                    if not rules.place(event, after[1], after[2]):
                        ways[after[0], frozenset((key, tuple(versions)) for key, versions in after[1].items())] = after
                    steps += 1
                    if steps > STEPS_MAX:
                        return Audit(None, f"{len(named)} transactions have too many orders to try them all")
        if ways:
            return Audit(False, f"transactions {sorted((*committed, *chosen))} do have a valid order")
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
        named = sorted(set(numbers))
        return refute(rules, named) if len(named) <= ORDERS_MAX else Audit(*conclusions.refute(rules, named, replay))
    events = [event for txn in numbers for event in (2 * txn, 2 * txn + 1)] if rules.serial else numbers
    problem = replay(rules, events, range(history.txn_count))
    return Audit(not problem, problem or f"the witness is a valid order ({len(numbers)} steps)")
