"""`check`: a history in, a proven verdict out. The one entry point that the CLI, the daemon and tests call."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from mussurana.verifier.engine.decide import decide
from mussurana.verifier.engine.resolve import resolve
from mussurana.verifier.explain import explain, explain_impossible
from mussurana.verifier.history import UNKNOWN_TIME, History, HistoryError, Kind, LeftOut, Status
from mussurana.verifier.levels import LEVELS
from mussurana.verifier.solvers import find_solver
from mussurana.verifier.verdict import Accepted, Choices, Rejected, Result, Settings, Unknown, Verdict

EXPLAIN_SECONDS_MIN = 10.0
"""So long may a rejection be explained although the timeout is over; it seldom takes one second."""


def check(
    history: History,
    settings: Settings,
    *,
    solver: str = "own",
    timeout_seconds: float | None = None,
    report: Callable[[str], None] = lambda phase: None,
) -> Result:
    """Decide whether the database could have produced this history at this level.

    `report` is called with the name of each phase as it starts. The timeout ends pruning and the search; building
    is linear in the history. A rejection that is at hand is explained as far as some seconds more allow.
    """
    if settings.level not in LEVELS:
        raise ValueError(f"unknown level {settings.level!r}; the levels are {', '.join(LEVELS)}")
    refuse_backward_times(history)
    refuse_mixed_keys(history)
    started = perf_counter()
    search = find_solver(solver)

    def out_of_time() -> bool:
        return timeout_seconds is not None and perf_counter() - started > timeout_seconds

    report("building")
    resolved = resolve(history, LEVELS[settings.level].split)
    seconds = {"build": perf_counter() - started, "prune": 0.0, "solve": 0.0, "explain": 0.0}
    choices, conflicts = Choices(), 0
    verdict: Verdict
    if resolved.impossible:
        verdict = Rejected(explain_impossible(resolved))
    else:
        decision = decide(resolved, settings, search, out_of_time, report)
        choices, conflicts = decision.choices, decision.conflicts
        for phase, spent in decision.seconds.items():
            seconds[phase] += spent
        if decision.refused:
            report("explaining")
            explaining = perf_counter()

            def explained_enough() -> bool:
                return out_of_time() and perf_counter() - explaining > EXPLAIN_SECONDS_MIN

            verdict = Rejected(explain(resolved, settings, decision, search, explained_enough))
            seconds["explain"] = perf_counter() - explaining
        elif decision.gave_up:
            verdict = Unknown(
                f"no answer within {timeout_seconds:g} seconds, with {choices.generated - choices.pruned:,} pairs of "
                "writes to be ordered. "
                "Try a longer --timeout."
            )
        elif len(resolved.ambiguous):
            verdict = Unknown(
                f"{len(resolved.ambiguous):,} reads saw a value that several transactions wrote to that key, so their "
                "writer is not known; without them the history is fine. Record unique values per key, or write ids, "
                "to get an answer."
            )
        else:
            assert decision.witness is not None
            verdict = Accepted(decision.witness)
    seconds["total"] = perf_counter() - started
    return Result(
        verdict=verdict,
        settings=settings,
        transactions=history.txn_count,
        sessions=len(np.unique(history.session)),
        seconds=seconds,
        choices=choices,
        left_out=(*history.left_out, *_left_out(history, resolved.in_effect, len(resolved.ambiguous))),
        conflicts=conflicts,
    )


def _left_out(history: History, in_effect: np.ndarray, ambiguous_reads: int) -> list[LeftOut]:
    aborted = int(np.count_nonzero(history.status == Status.ABORTED))
    unseen = int(np.count_nonzero((history.status == Status.IN_DOUBT) & ~in_effect))
    counted = [
        ("aborted transactions (only to recognise reads of what they wrote)", aborted),
        ("in-doubt transactions of which nobody saw a write", unseen),
        ("reads of a value that several transactions wrote", ambiguous_reads),
    ]
    return [LeftOut(what, count) for what, count in counted if count]


def refuse_mixed_keys(history: History) -> None:
    """A key is a register or a list; what a read of one shows about writes of the other nobody can say."""
    is_list = (history.kind == Kind.APPEND) | (history.kind == Kind.READ_LIST)
    both = np.intersect1d(history.key[is_list], history.key[~is_list] if is_list.any() else ())
    if len(both):
        op = int(np.flatnonzero((history.key == both[0]) & ~is_list)[0])
        txn = int(np.searchsorted(history.op_start, op, side="right")) - 1
        raise HistoryError(
            f"{history.source or 'history'}: transaction {txn}: key {history.key_names[int(both[0])]} is used "
            "as a register here and as a list elsewhere"
        )


def refuse_backward_times(history: History) -> None:
    """A transaction whose own times go backwards has no sane clock; say so rather than reason from it."""
    latest = np.full(history.txn_count, UNKNOWN_TIME)
    for name in ("begin_ns", "begun_ns", "commit_ns", "committed_ns"):
        times = getattr(history, name)
        bad = np.flatnonzero((times != UNKNOWN_TIME) & (times < latest))
        if len(bad):
            txn = int(bad[0])
            session = history.session_names[int(history.session[txn])]
            raise HistoryError(
                f"{history.source or 'history'}: transaction {txn} (session {session}): {name} is {times[txn]}, "
                f"earlier than the time before it, {latest[txn]}"
            )
        latest = np.maximum(latest, times)
