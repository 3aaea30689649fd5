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
      transactions         [{label, txn, session, position, name, status, begin_ns, committed_ns, operations}]
        operations         [{kind, key, version, previous, statement}]
      cases                [{assumptions, steps, conclusion}]
        steps              [{source, target, source_event, target_event, kind, key, reason}];
                           source and target index transactions

A new version may add keys; it does not change or remove these.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mussurana.verifier.render.words import verdict_word
from mussurana.verifier.verdict import Rejected, Result, Unknown


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
        "counterexample": _plain(asdict(counterexample)) if counterexample else None,
        "seconds": {phase: float(seconds) for phase, seconds in result.seconds.items()},
        "choices": _plain(asdict(result.choices)),
        "left_out": _plain([asdict(left_out) for left_out in result.left_out]),
        "reason": verdict.reason if isinstance(verdict, Unknown) else None,
        "session_order": bool(result.settings.session_order),
        "clock_drift_seconds": result.settings.clock_drift_ns / 1e9,
        "conflicts": int(result.conflicts),
    }


def _plain(value: Any) -> Any:
    """Tuples as lists and numpy numbers as Python's, so that the object equals what a reader parses back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | bool | float) else int(value)
