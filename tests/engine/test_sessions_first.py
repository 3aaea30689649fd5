"""Where sessions need not keep their order, deciding as if they did changes no verdict and saves work."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mussurana.verifier import check
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import certificate
from mussurana.verifier.engine import decide, graph
from mussurana.verifier.history import History, HistoryBuilder
from mussurana.verifier.simulate import inject
from mussurana.verifier.verdict import Accepted, Rejected, Settings, Unknown
from tests.engine.kernels.busy_history import busy_history
from tests.notation import show

WITHOUT_SESSIONS = (Settings("adya-si"), Settings("generalized-si"), Settings("serializable", session_order=False))
SESSIONS, TXNS_PER_SESSION = 4, 200


def with_broken_sessions(places: int) -> History:
    """Sessions that count in turn on one register; in some places one runs what should have come five turns later."""
    turns = [(turn % SESSIONS, turn) for turn in range(SESSIONS * TXNS_PER_SESSION)]
    for place in range(places):
        at = 7 + place * (len(turns) // places)
        later = at + 5 * SESSIONS
        turns[at], turns[later] = turns[later], turns[at]
    build = HistoryBuilder()
    for session, turn in turns:
        build.transaction(f"s{session}")
        if turn:
            build.read("x", turn)
        build.write("x", turn + 1)
    return build.finish()


def attempts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many transactions were decided on, and whether with sessions, each time from now on."""
    made: list[tuple[int, bool]] = []

    def build_graph(resolved: Any, settings: Settings, with_sessions: bool, free: Any = None) -> Any:
        made.append((resolved.history.txn_count, with_sessions))
        return graph.build_graph(resolved, settings, with_sessions, free)

    monkeypatch.setattr(decide, "build_graph", build_graph)
    return made


def test_the_verdict_is_the_same_with_sessions_first_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = []
    for seed in range(600):
        rng = Random(seed)
        history, settings = busy_history(rng, rng.randint(5, 40)), rng.choice(WITHOUT_SESSIONS)
        plain = check(history, settings)
        monkeypatch.setattr(decide, "SESSIONS_FIRST_MIN", 0)
        result = check(history, settings)
        monkeypatch.undo()
        assert type(result.verdict) is type(plain.verdict), f"seed {seed}: {settings}: {show(history)}"
        assert audit(certificate(result, history), history).ok, f"seed {seed}: {settings}"
        verdicts.append(type(result.verdict))
    assert min(verdicts.count(Accepted), verdicts.count(Rejected)) > 100


@pytest.mark.parametrize("settings", WITHOUT_SESSIONS, ids=lambda settings: settings.level)
def test_sessions_that_are_broken_here_and_there_are_still_of_use(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = with_broken_sessions(places=3)
    assert isinstance(check(history, Settings("serializable")).verdict, Rejected)
    made = attempts(monkeypatch)
    assert isinstance(check(history, settings).verdict, Accepted)
    assert (history.txn_count, True) in made
    assert (history.txn_count, False) not in made


@pytest.mark.parametrize("settings", WITHOUT_SESSIONS, ids=lambda settings: settings.level)
def test_what_is_refused_by_itself_is_found_among_broken_sessions(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, _ = inject(with_broken_sessions(places=3), "long fork")
    made = attempts(monkeypatch)
    result = check(history, settings)
    assert isinstance(result.verdict, Rejected)
    assert len(result.verdict.counterexample.transactions) <= 5
    assert (history.txn_count, False) not in made


def test_the_timeout_ends_the_rounds_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    history = with_broken_sessions(places=3)
    made = attempts(monkeypatch)
    result = check(history, Settings("adya-si"), timeout_seconds=0)
    assert isinstance(result.verdict, Unknown)
    assert "no answer within 0 seconds" in result.verdict.reason
    assert (history.txn_count, False) not in made
