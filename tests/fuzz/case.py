"""One case of differential testing: a random history, what the engine says of it, and what is wrong with that."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import numpy as np

from mussurana.verifier import check
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import certificate
from mussurana.verifier.engine import decide
from mussurana.verifier.engine.graph import keeps_sessions
from mussurana.verifier.history import History, Kind
from mussurana.verifier.verdict import Accepted, Rejected, Result, Settings, Unknown
from tests.brute_force import brute_force
from tests.random_history import random_history, random_settings


def make(seed: int, level: str | None = None) -> tuple[History, Settings]:
    """The case of a seed; every fifth one has values that are written more than once."""
    rng = Random(seed)
    return random_history(rng, duplicates=seed % 5 == 4), random_settings(rng, level)


def complaint(history: History, settings: Settings) -> str:
    """What is wrong with the engine's verdict, or nothing."""
    return complaint_about(check(history, settings), history) or (
        "" if keeps_sessions(settings) else complaint_about(checked_with_sessions_first(history, settings), history)
    )


def checked_with_sessions_first(history: History, settings: Settings) -> Result:
    """What the engine would say if it took this for a large history."""
    with patch.object(decide, "SESSIONS_FIRST_MIN", 0):
        return check(history, settings)


def complaint_about(result: Result, history: History) -> str:
    if isinstance(result.verdict, Unknown):
        return "" if has_duplicates(history) else f"unknown, though no value is written twice: {result.verdict.reason}"
    acceptable = brute_force(history, result.settings)
    if isinstance(result.verdict, Accepted) and not acceptable:
        return "accepted, but no order explains it"
    if isinstance(result.verdict, Rejected) and acceptable:
        return f"rejected ({result.verdict.counterexample.anomaly}), but there is an order that explains it"
    audited = audit(certificate(result, history), history)
    return "" if audited.ok else f"the proof does not hold: {audited.message}"


def has_duplicates(history: History) -> bool:
    written = (history.kind == Kind.WRITE) | (history.kind == Kind.APPEND)
    pairs = np.stack([history.key[written], history.value[written]], axis=1)
    return len(np.unique(pairs, axis=0)) < len(pairs)
