"""A result as one JSON object, for programs.

The keys, all always present:

    verdict                "accepted" | "rejected" | "unknown"
    level                  the level that was checked, as on the command line
    transactions           how many transactions took part
    sessions               how many sessions they came from
    anomaly                short, stable name of what is wrong; null unless rejected
    adya                   Adya's name for it; null unless rejected, and where there is none
    counterexample         null unless rejected; else an object, see below
    seconds                phase -> seconds: load, build, prune, solve, explain, total
    choices                {generated, pruned, solved}: pairs of writes to order, and what ordered them
    left_out               [{what, count}]: what in the input took no part
    reason                 why there is no answer, a sentence; null unless unknown
    session_order          whether the order within sessions had to be kept
    clock_drift_seconds    how far clocks may disagree, where the level looks at time
    conflicts              dead ends that the search met

    counterexample         {anomaly, adya, summary, transactions, cases, facts}
      transactions         [{label, txn, session, position, name, status, begin_ns, committed_ns, operations,
                           isolation}]: isolation is what it ran at, "READ COMMITTED"; "" where nobody knows
        operations         [{kind, key, version, previous, statement}]
      cases                [{assumptions, steps, conclusion}]
        steps              [{source, target, source_event, target_event, kind, key, reason}];
                           source and target index transactions

A new version may add keys; it does not change or remove these.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, TypeVar

from mussurana.verifier.render.words import verdict_word
from mussurana.verifier.verdict import (
    Case,
    Counterexample,
    Rejected,
    Result,
    ShownOperation,
    ShownTransaction,
    Step,
    Unknown,
)

_Value = TypeVar("_Value", ShownTransaction, ShownOperation, Step)


def result_json(result: Result) -> dict[str, Any]:
    """The result as plain dicts, lists, strings and numbers that `json.dumps` takes."""
    verdict = result.verdict
    counterexample = verdict.counterexample if isinstance(verdict, Rejected) else None
    return {
        "verdict": verdict_word(verdict),
        "level": result.settings.level,
        "transactions": int(result.transactions),
        "sessions": int(result.sessions),
        "anomaly": counterexample.anomaly if counterexample else None,
        "adya": (counterexample.adya or None) if counterexample else None,
        "counterexample": counterexample_json(counterexample) if counterexample else None,
        "seconds": {phase: float(seconds) for phase, seconds in result.seconds.items()},
        "choices": _plain(asdict(result.choices)),
        "left_out": _plain([asdict(left_out) for left_out in result.left_out]),
        "reason": verdict.reason if isinstance(verdict, Unknown) else None,
        "session_order": bool(result.settings.session_order),
        "clock_drift_seconds": result.settings.clock_drift_ns / 1e9,
        "conflicts": int(result.conflicts),
    }


def counterexample_json(counterexample: Counterexample) -> dict[str, Any]:
    """A counterexample on its own, with the keys above."""
    plain: dict[str, Any] = _plain(asdict(counterexample))
    return plain


def counterexample_from_json(plain: dict[str, Any]) -> Counterexample:
    """The way back, for what was stored. Keys that a newer version may have added are passed over."""
    return Counterexample(
        anomaly=plain["anomaly"],
        adya=plain["adya"],
        summary=plain["summary"],
        transactions=tuple(
            _made(ShownTransaction, txn, operations=tuple(_made(ShownOperation, op) for op in txn["operations"]))
            for txn in plain["transactions"]
        ),
        cases=tuple(
            Case(tuple(case["assumptions"]), tuple(_made(Step, step) for step in case["steps"]), case["conclusion"])
            for case in plain["cases"]
        ),
        facts=tuple(plain["facts"]),
    )


def _made(kind: type[_Value], plain: dict[str, Any], **instead: object) -> _Value:
    known = {field.name for field in fields(kind)}
    return kind(**{**{name: value for name, value in plain.items() if name in known}, **instead})


def _plain(value: Any) -> Any:
    """Tuples as lists and numpy numbers as Python's, so that the object equals what a reader parses back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | bool | float) else int(value)
