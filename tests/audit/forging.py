"""Certificates that lie: made from a true one by changing its order, its transactions, its verdict or its level.

A forgery may happen to be true. Which ones are is asked of brute force and of a slow twin of the replay, which share
nothing with the auditor; one that is not true must never be upheld.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from mussurana.verifier.audit import audit
from mussurana.verifier.history import History
from mussurana.verifier.verdict import Settings
from tests.brute_force import Orders, brute_force, explains, install, parse
from tests.random_history import LEVELS, SECOND_NS

SERIAL = ("serializable", "strict-serializable")
Certificate = dict[str, Any]


def is_valid(history: History, settings: Settings, order: list[int]) -> bool:
    """The slow twin of the replay: looks at every pair of transactions that an order of events has."""
    events = [e for t in order for e in (2 * t, 2 * t + 1)] if settings.level in SERIAL else order
    place = {event: at for at, event in enumerate(events)}
    if any(place[2 * t] > place[2 * t + 1] for t in {event // 2 for event in events}):
        return False
    committed = [parse(history, event // 2) for event in events if event % 2]
    orders = Orders(committed, settings)
    snapshots: list[dict[int, tuple[int, ...]]] = [{}]
    for t in committed:
        snapshots.append(install(t, snapshots[-1]))
    for t in committed:
        begin, commit = place[2 * t.number], place[2 * t.number + 1]
        inserts = set() if orders.serial else t.inserts
        if not explains(snapshots[sum(place[2 * u.number + 1] < begin for u in committed)], t, inserts):
            return False
        for u in committed:
            u_begin, u_commit = place[2 * u.number], place[2 * u.number + 1]
            overlap = u is not t and u_begin < commit and begin < u_commit
            if overlap and u_commit < commit and (t.writes - t.inserts) & u.writes:
                return False
            if (t, u) in orders.commit_before_begin and commit > u_begin:
                return False
            if (t, u) in orders.commit_before_commit and commit > u_commit:
                return False
            if (t, u) in orders.begin_before_commit and begin > u_commit:
                return False
    return True


def is_true(proof: Certificate, history: History) -> bool:
    """Whether what a certificate says of a history, and the order that it shows, hold."""
    settings = Settings(proof["level"], proof["session_order"], proof["clock_drift_ns"])
    if proof["history"] != history.fingerprint() or proof["verdict"] == "unknown":
        return False
    if proof["verdict"] == "rejected":
        return not brute_force(history, settings)
    order: list[int] = proof["witness"]
    serial = settings.level in SERIAL
    events = [event for t in order for event in ((2 * t, 2 * t + 1) if serial else (t,))]
    whole = len(set(events)) == len(events) and {event ^ 1 for event in events} == set(events)
    if not whole or not all(0 <= event < 2 * history.txn_count for event in events):
        return False
    status = history.status.tolist()
    placed = {event // 2 for event in events}
    if any(status[t] == 1 for t in placed) or any(status[t] == 0 and t not in placed for t in range(len(status))):
        return False
    return is_valid(history, settings, order)


def forgeries(rng: Random, proof: Certificate, history: History) -> Iterator[Certificate]:
    """Changed ones, each in one way, then all of it in several ways at once."""
    for change in CHANGES:
        yield change(rng, proof, history)
    for _ in range(2):
        several = proof
        for _ in range(rng.randint(2, 4)):
            several = rng.choice(CHANGES)(rng, several, history)
        yield several


def upheld_forgery(history: History, proof: Certificate) -> str:
    """The first forgery that the auditor upholds though it is not true, in words; nothing if there is none."""
    for forged in forgeries(Random(repr(sorted(history.fingerprint().items()))), proof, history):
        if audit(forged, history).ok and not is_true(forged, history):
            return f"a forged certificate is upheld: {forged}"
    return ""


def numbers_of(proof: Certificate) -> list[int]:
    """The order that an accepting certificate shows, or the transactions that a rejecting one names."""
    if proof["verdict"] == "accepted":
        return list(proof["witness"])
    return list(proof["counterexample"]["transactions"]) if proof["verdict"] == "rejected" else []


def with_numbers(proof: Certificate, numbers: list[int]) -> Certificate:
    if proof["verdict"] == "accepted":
        return {**proof, "witness": numbers}
    return {**proof, "counterexample": {"transactions": numbers}} if proof["verdict"] == "rejected" else proof


def swapped(rng: Random, proof: Certificate, history: History) -> Certificate:
    numbers = numbers_of(proof)
    if len(numbers) > 1:
        a, b = rng.sample(range(len(numbers)), 2)
        numbers[a], numbers[b] = numbers[b], numbers[a]
    return with_numbers(proof, numbers)


def moved(rng: Random, proof: Certificate, history: History) -> Certificate:
    numbers = numbers_of(proof)
    if numbers:
        numbers.insert(rng.randint(0, len(numbers)), numbers.pop(rng.randrange(len(numbers))))
    return with_numbers(proof, numbers)


def shuffled(rng: Random, proof: Certificate, history: History) -> Certificate:
    return with_numbers(proof, rng.sample(numbers := numbers_of(proof), len(numbers)))


def truncated(rng: Random, proof: Certificate, history: History) -> Certificate:
    """Without its end, or without one in the middle."""
    numbers = numbers_of(proof)
    if not numbers:
        return proof
    at = rng.randrange(len(numbers))
    return with_numbers(proof, numbers[:at] + (numbers[at + 1 :] if rng.random() < 0.5 else []))


def repeated(rng: Random, proof: Certificate, history: History) -> Certificate:
    numbers = numbers_of(proof)
    return with_numbers(proof, [*numbers, *rng.sample(numbers, min(1, len(numbers)))])


def other_transactions(rng: Random, proof: Certificate, history: History) -> Certificate:
    """Some are replaced by any others, of which the history may not even have all."""
    last = history.txn_count * (2 if proof["level"] not in SERIAL and proof["verdict"] == "accepted" else 1)
    anyone = range(-1, last + 1)
    return with_numbers(proof, [n if rng.random() < 0.6 else rng.choice(anyone) for n in numbers_of(proof)])


def another_verdict(rng: Random, proof: Certificate, history: History) -> Certificate:
    """The opposite one, with a proof made up for it."""
    core = {field: value for field, value in proof.items() if field not in ("verdict", "witness", "counterexample")}
    everyone = list(range(history.txn_count))
    if proof["verdict"] != "rejected":
        some = [t for t in everyone if rng.random() < 0.6] if rng.random() < 0.5 else everyone
        return {**core, "verdict": "rejected", "counterexample": {"transactions": some}}
    taking_part = [t for t in everyone if history.status[t] == 0 or (history.status[t] == 2 and rng.random() < 0.5)]
    serial = proof["level"] in SERIAL
    return {
        **core,
        "verdict": "accepted",
        "witness": [t for u in taking_part for t in ((u,) if serial else (2 * u, 2 * u + 1))],
    }


def another_level(rng: Random, proof: Certificate, history: History) -> Certificate:
    level = rng.choice(LEVELS)
    if proof["verdict"] != "accepted" or (level in SERIAL) == (proof["level"] in SERIAL):
        return {**proof, "level": level}
    order = proof["witness"]
    if level in SERIAL:
        return {**proof, "level": level, "witness": [event // 2 for event in order if event % 2]}
    return {**proof, "level": level, "witness": [event for t in order for event in (2 * t, 2 * t + 1)]}


def other_settings(rng: Random, proof: Certificate, history: History) -> Certificate:
    return {**proof, "session_order": rng.random() < 0.5, "clock_drift_ns": rng.choice((0, 1, 9)) * SECOND_NS}


def about_another_history(rng: Random, proof: Certificate, history: History) -> Certificate:
    status = history.status.copy()
    status[rng.randrange(len(status))] ^= 1
    return {**proof, "history": replace(history, status=status).fingerprint()}


CHANGES = (
    swapped, moved, shuffled, truncated, repeated, other_transactions,
    another_verdict, another_level, other_settings, about_another_history,
)  # fmt: skip
