"""Switch off each rule of forgetting and admission in turn: the comparison with one check must notice.

A mutation is a rule and a patch that takes its effect away from outside; the machine has no switches for that. Rules
that honest collectors never touch, such as those about sessions that come back without a fence, are mutated in
`test_scenarios.py`'s own terms: its tests fail without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest

from mussurana.verifier.history import UNKNOWN_TIME
from mussurana.verifier.rounds import admission, forget, forget_by_time, level, machine
from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.level import LevelRounds
from mussurana.verifier.rounds.table import VersionTable
from tests.rounds.__main__ import complaint
from tests.rounds.equality import make_case
from tests.rounds.twins import blocked_by_hand

CASES_MAX = 4_000
"""Where the seeds below no longer notice, because worlds have changed, others are tried, as many as this."""


@dataclass(frozen=True)
class Mutation:
    rule: str  # what holds, and is switched off
    target: Any
    name: str
    wrong: Callable[[Any], Any]  # from the right one
    noticed_by: tuple[int, ...] = ()  # seeds

    def seeds(self) -> Iterator[int]:
        return chain(self.noticed_by, range(CASES_MAX))


def constant(value: Any) -> Callable[[Any], Any]:
    return lambda right: lambda *arguments, **named: value


def mark_only_the_start(right: Any) -> Any:
    def wrong(start: Any, out_start: Any, out_to: Any, reached: Any) -> None:
        reached[start] = True

    return wrong


def nothing_kept(right: Any) -> Any:
    def wrong(*arguments: Any) -> forget.Past:
        past: forget.Past = right(*arguments)
        return replace(past, kept=np.zeros_like(past.kept))

    return wrong


def no_border(right: Any) -> Any:
    def wrong(*arguments: Any) -> Any:
        window = right(*arguments)
        return replace(window, history=replace(window.history, past=0))

    return wrong


def without_memory(right: Any) -> Any:
    def wrong(rounds: LevelRounds, *arguments: Any) -> None:
        right(rounds, *arguments)
        rounds.memory_ns = UNKNOWN_TIME

    return wrong


def unread(right: Any) -> Any:
    return lambda pruned, readable: right(pruned, np.zeros_like(readable))


def known_edges_only(right: Any) -> Any:
    return lambda pruned, readable: (pruned.edges.source, pruned.edges.target)


def no_drift(right: Any) -> Any:
    return lambda graph, times, drift_ns, *rest: right(graph, times, 0, *rest)


def one_witness(right: Any) -> Any:
    def wrong(rounds: LevelRounds, batch: Batch, gone: Any) -> Batch:
        some: Batch = right(rounds, batch, gone)
        return some.select(np.arange(len(some)) < 1)

    return wrong


MUTATIONS = [
    Mutation("what follows something unstable is not past", forget, "mark_reached", mark_only_the_start),
    Mutation("edges that open pairs might bring count", forget, "_all_edges", known_edges_only),
    Mutation("unread writes that can still be read need an order", forget, "_all_edges", unread),
    Mutation("open components are kept", forget, "split_past", nothing_kept),
    Mutation("open components are kept, by time", forget_by_time, "split_past", nothing_kept),
    Mutation("the past comes first", level, "make_window", no_border),
    Mutation("closed keys have names of their own", level, "_closed_name", lambda right: lambda key, version: key),
    Mutation("the latest of the past by the clocks stay", LevelRounds, "_latest_by_clock", constant(Batch.empty())),
    Mutation("the latest begin and the latest commit both stay", LevelRounds, "_latest_by_clock", one_witness),
    Mutation("a new session's fence follows the last one", LevelRounds, "_last_fences", constant([])),
    Mutation("forgetting waits for open sessions", machine.Session, "is_open", lambda right: property(lambda s: False)),
    Mutation("who waits makes its session wait", admission, "blocked_by",
             lambda right: partial(blocked_by_hand, by_session=False)),
    Mutation("who waits makes its readers wait", admission, "blocked_by",
             lambda right: partial(blocked_by_hand, by_version=False)),
    Mutation("what is late is waited for", admission.WriteIdProgress, "late",
             lambda right: lambda progress, versions: np.zeros(len(versions), bool)),
    Mutation("one in doubt may turn out to precede others", LevelRounds, "_might_follow",
             lambda right: lambda rounds, window, pruned, txn: np.zeros(len(pruned.graph.txns), bool)),
    Mutation("last versions go to the table", VersionTable, "put", constant(None)),
    Mutation("what is older than memory is left out", LevelRounds, "_let_go", without_memory),
    Mutation("clocks may be apart", level, "find_past_by_time", no_drift),
]  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule.replace(" ", "_"))
def test_rule_is_missed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation.target, mutation.name, mutation.wrong(getattr(mutation.target, mutation.name)))
    assert any(complaint(make_case(seed)) for seed in mutation.seeds())
