"""Refutes a counterexample of many transactions: tries their orders only as far as what they saw has not decided them.

Part of the auditor (audit.py), which tries every order of a few. Of dozens that cannot be done, but most orders are
ruled out by what was seen: of each read it is asked which writer's state explains it, so that this one came last, and
all that follows is written down as "if this comes before that, then ...". Where no more conclusions can be drawn, both
orders of one pair are tried. An order that is left is replayed, so that a rule that is missing here costs only time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, groupby, pairwise, permutations
from typing import TYPE_CHECKING

from mussurana.verifier.history import Kind, Status

if TYPE_CHECKING:
    from mussurana.verifier.audit import Rules

STEPS_MAX = 1_000_000  # events put in order; takes some minutes at most, where most counterexamples take one case

NAMED_MAX = 500
DEMANDS_MAX = 500_000  # some hundred bytes each; dozens of transactions have thousands

START = -1  # an event before all others, which installed the initial versions
Pair = tuple[int, int]  # of events, of which the first comes before the second
Demand = tuple[Pair, Pair]  # if the first, then the second


def seen_by(rules: Rules, txn: int) -> set[tuple[int, int]]:
    """All versions that a transaction saw, whoever wrote them."""
    found = {(key, v) for op, _, key, _, _ in rules.ops[txn] for v in rules.history.list_seen(op)}
    return found | {(key, v if kind == Kind.READ else previous) for _, kind, key, v, previous in rules.ops[txn]}


def demands_of(rules: Rules, events: list[int]) -> list[Demand]:
    """What holds in every valid order of some events, or more than DEMANDS_MAX of it.

    If nothing can, an event has to come before itself.
    """
    found = [((START, b), (a, b)) for a, b in permutations(events, 2) if rules.before(a, b ^ rules.serial)]
    txns = sorted({event // 2 for event in events})
    writer = {(key, v): 2 * txn + 1 for txn in txns for _, _, key, v, _ in rules.writes[txn]}
    final = {txn: {key: v for _, _, key, v, _ in rules.writes[txn]} for txn in txns}
    saw = {txn: seen_by(rules, txn) for txn in txns}
    for txn, key in {(t, op[2]): None for t in txns for op in rules.ops[t]}:
        if len(found) > DEMANDS_MAX:
            return found
        begin, commit = 2 * txn | rules.serial, 2 * txn + 1
        ops = [op for op in rules.ops[txn] if op[2] == key]
        others = {2 * u + 1: {key: [final[u][key]]} for u in txns if u != txn and key in final[u]}
        # If this one writes the key, none of the others commits between its begin and its commit.
        until = commit if key in final[txn].keys() - rules.new[txn] else begin
        found += [((event, other), (max(event, until), other)) for event in (begin, commit) for other in others]
        lists = [[(key, v) for v in rules.history.list_seen(op)] for op, kind, *_ in ops if kind == Kind.READ_LIST]
        # Whoever saw a version that was written once, and then writes the key, puts an end to it.
        once = {v for v in saw[txn] & rules.outside & rules.once if v[0] == key and not lists}
        found += [((START, other), (begin, other)) for other in others if saw[other // 2] & once]
        able = [e for e in (START, *others) if not lists and not rules.unexplained(txn, ops, others.get(e, {}))]
        chains = [[*(able or [begin]), begin]] if not lists and len(able) < 2 else []
        for seen in lists:
            shown = [writer.get(v, begin) for v in seen if v not in rules.outside and writer.get(v) != commit]
            if rules.repeated.isdisjoint(seen):
                chains.append([START, *(event for event, _ in groupby(shown)), begin])
        for last, event in (pair for chain in chains for pair in pairwise(chain)):
            found.append(((START, event), (last, event)))
            found += [((other, event), (other, last)) for other in others if other not in (last, event)]
    return found + [((d, c), (b, a)) for (a, b), (c, d) in found]


def settle(before: dict[int, set[int]], known: list[Pair], demands: list[Demand]) -> bool:
    """Add pairs, and all that follows, to what comes before each event. False if one would come before itself."""
    while known:
        for a, b in known:
            if a == b or b in before[a]:
                return False
            before |= {event: some | before[a] | {a} for event, some in before.items() if event == b or b in some}
        known = [(c, d) for (a, b), (c, d) in demands if a in before[b] and c not in before[d]]
    return True


def order_of(before: dict[int, set[int]]) -> list[int]:
    """An order that goes with all that is known; a transaction begins in it just before it has to."""
    count = {event: len(some) for event, some in before.items()}.__getitem__
    commits = (event for event in sorted(before, key=count) if event % 2)
    return list(dict.fromkeys(e for commit in commits for e in sorted({*before[commit], commit}, key=count)))


def refute(
    rules: Rules, named: list[int], replay: Callable[[Rules, list[int], list[int]], str]
) -> tuple[bool | None, str]:
    """Whether no order of the named transactions is valid, with and without each one in doubt; None: it cannot tell."""
    steps = 0
    too_many = f"{len(named)} transactions have too many orders to try them all"
    if len(named) > NAMED_MAX:
        return None, too_many
    sure, in_doubt = (
        [txn for txn in named if rules.status[txn] == status] for status in (Status.COMMITTED, Status.IN_DOUBT)
    )
    writer = {(key, v): txn for txn in in_doubt for _, _, key, v, _ in rules.writes[txn] if (key, v) in rules.once}
    for txn in sure:  # and all that are added to it on the way, since somebody saw what only they wrote
        sure += {writer[version] for version in seen_by(rules, txn) if version in writer} - set(sure)
    unsure = [txn for txn in in_doubt if txn not in sure]
    for chosen in (some for size in range(len(unsure) + 1) for some in combinations(unsure, size)):
        events = sorted({event | rules.serial for t in (*sure, *chosen) for event in (2 * t, 2 * t + 1)})
        demands = demands_of(rules, events)
        todo = [({event: set[int]() for event in (START, *events)}, [(START, event) for event in events])]
        while todo:
            steps += len(events) + len(demands) // 100
            if steps > STEPS_MAX or len(demands) > DEMANDS_MAX:
                return None, too_many
            before, known = todo.pop()
            if not settle(before, known, demands):
                continue
            order = order_of(before)
            at = {event: place for place, event in enumerate(order)}
            pairs = [(a, b) for (a, b), (c, d) in demands if at[a] < at[b] and at[c] > at[d]]
            events_in_order = [e for event in order[1:] for e in ((event - 1, event) if rules.serial else (event,))]
            if not pairs and not replay(rules, events_in_order, named):
                return False, f"transactions {sorted((*sure, *chosen))} do have a valid order"
            pairs = pairs or [(a, b) for (a, b), _ in demands if a not in before[b] and b not in before[a]]
            todo += [(dict(before), [pair]) for a, b in pairs[:1] for pair in ((a, b), (b, a))]
    return True, f"no order of transactions {named} is valid ({steps} steps)"
