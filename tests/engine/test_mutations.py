"""Switch off each rule of the engine in turn: something must notice.

A mutation is a rule and a patch that takes its effect away from outside; the engine has no switches for that. Most
rules change verdicts: of the textbook, of a few histories made for rules that the textbook does not reach, and of
random ones, at least one verdict has to become wrong. The other rules save work or complete proofs, and other
comparisons notice them: the tests at the end say which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from random import Random
from typing import Any

import numpy as np
import pytest

from mussurana.verifier import check as check_history
from mussurana.verifier import explain
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import certificate
from mussurana.verifier.engine import cdcl, check, decide, graph, prune, resolve, versions
from mussurana.verifier.engine.cycles import suspects
from mussurana.verifier.engine.graph import RW, WITHIN, WR, WW, Graph
from mussurana.verifier.engine.problem import Ordered, Problem, Solver
from mussurana.verifier.history import UNKNOWN_TIME, History, Status
from mussurana.verifier.levels import LEVELS
from mussurana.verifier.solvers import sat
from mussurana.verifier.verdict import Accepted, Counterexample, Rejected, Settings, Verdict
from tests.brute_force import brute_force
from tests.engine.kernels.busy_history import busy_graphs
from tests.engine.test_textbook import TABLE
from tests.engine.twins import Edge, prune_by_hand, pruning_complaint
from tests.fuzz.case import has_duplicates, make
from tests.notation import h, show
from tests.solvers.random_problem import small_problem

shrink: Any = import_module("mussurana.verifier.explain.shrink")  # its package has a function of that name

Patch = Callable[[pytest.MonkeyPatch], None]
PairEdges = Callable[[list[Edge]], list[Edge]]

UNCALLED: set[str] = set()  # functions that a test has replaced and that nobody has called since


@pytest.fixture(autouse=True)
def every_patch_is_called() -> Iterator[None]:
    UNCALLED.clear()
    yield
    assert not UNCALLED, f"nobody called {', '.join(sorted(UNCALLED))}"


# The battery: histories whose verdicts are known.

RANDOM_CASES_PER_LEVEL = 60

EXTRA = [
    # Any order of the writes of x and y goes with three of the readers, none with all four: only a search finds that.
    "[x:=1] | [x:=2] | [y:=1] | [y:=2] | [x==1 y==1] | [x==1 y==2] | [x==2 y==1] | [x==2 y==2]",
    # A snapshot that has the later of two commits, but not the earlier.
    "[x:=1]@0..1 | [y:=1]@0..2-3 | [y==1 x==_]",
    # A blind write does not come before the one that replaced the initial version.
    "[x:=1<_ y==1] | [x:=2 y:=1]",
    # Seen before it is written.
    "[x==1 x:=1]",
    # Whichever of the two writes was seen, it was gone again later.
    "[x:=1] | [x:=1] | [x==1] [x==_]",
    # The writer of a repeated value is certain, since the other write of it was replaced at once.
    "[x:=2 y==1] | [x==2 y:=1] | [x:=2 x:=3]",
    # Both writes of a repeated value were replaced at once.
    "[x:=1 x:=2] | [x:=1 x:=3] | [x==1]",
]


@dataclass(frozen=True)
class Case:
    history: History
    settings: Settings
    acceptable: bool
    repeats: bool  # whether some value was written more than once, so that `unknown` is a fair answer

    def is_wrong(self, verdict: Verdict) -> bool:
        if isinstance(verdict, Accepted):
            return not self.acceptable
        return self.acceptable if isinstance(verdict, Rejected) else not self.repeats

    def __str__(self) -> str:
        return f"{show(self.history)} at {self.settings}"


@cache
def battery() -> list[Case]:
    all_settings = [*map(Settings, LEVELS), Settings("serializable", session_order=False)]
    written = [(h(text), settings) for text in (*(row[1] for row in TABLE), *EXTRA) for settings in all_settings]
    rolled = [make(seed, level) for level in LEVELS for seed in range(RANDOM_CASES_PER_LEVEL)]
    return [
        Case(history, settings, brute_force(history, settings), has_duplicates(history))
        for history, settings in (*written, *rolled)
    ]


NO_STORY = Counterexample("", "", "", (), ())


def wrong_verdicts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Cases of the battery that the engine, as it is patched now, decides wrongly. Nobody asks it why."""
    monkeypatch.setattr(check, "explain", lambda *_: NO_STORY)
    monkeypatch.setattr(check, "explain_impossible", lambda _: NO_STORY)
    return (case for case in battery() if case.is_wrong(check_history(case.history, case.settings).verdict))


def misnamed_lost_updates() -> list[str]:
    """Lost updates of the textbook that are called something else at some level."""
    misnamed = []
    for text in (row[1] for row in TABLE if row[3] == "lost update"):
        verdicts = [check_history(h(text), Settings(level)).verdict for level in LEVELS]
        names = {verdict.counterexample.anomaly for verdict in verdicts if isinstance(verdict, Rejected)}
        if names != {"lost update"}:
            misnamed.append(text)
    return misnamed


def incomplete_proofs() -> Iterator[Case]:
    """Rejected cases with commits in doubt or repeated values whose proof does not convince the auditor."""
    for case in battery():
        if not case.acceptable and (case.repeats or Status.IN_DOUBT in case.history.status):
            result = check_history(case.history, case.settings)
            if isinstance(result.verdict, Rejected) and not audit(certificate(result, case.history), case.history).ok:
                yield case


def innocent_suspects() -> Iterator[Case]:
    """Refused cases in which none of the sets of transactions to blame is refused on its own."""
    for case in battery():
        resolved = resolve.resolve(case.history, LEVELS[case.settings.level].split)
        if case.acceptable or case.repeats or resolved.impossible:
            continue
        found = suspects(decide.decide(resolved, case.settings, cdcl.solve))
        parts = (resolve.restrict(resolved, shrink.with_observers(resolved, some)) for some in found)
        if not any(decide.decide(part, case.settings, cdcl.solve).refused for part in parts):
            yield case


# Known edges


def wrap(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a function by a wrapper that gets the original as its first argument.

    A wrapper that nobody calls, since the function has moved, changes nothing: `UNCALLED` has its name until then.
    """
    right = getattr(module, name)
    UNCALLED.add(name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        UNCALLED.discard(name)
        return wrapper(right, *arguments, **named)

    monkeypatch.setattr(module, name, wrapped)


def decided_by_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave all pairs of chains to a solver that takes nothing for granted.

    Pruning and our own solver rely on the rules: without them they would write where they must not.
    """
    without_clocks(monkeypatch)
    monkeypatch.setattr(check, "find_solver", lambda _: sat.solve)
    monkeypatch.setattr(decide, "_order_all", lambda pruned, *_: pruned.order)


def without_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "CLOCK_BYTES_MAX", 0)


def without_known(kind: int) -> Patch:
    """Leave all edges of a kind out of the known graph, and out of the lines that its chains follow."""

    def build(original: Callable[..., Graph], *args: Any) -> Graph:
        whole = original(*args)
        left = whole.edges.kind != kind
        edges = graph.Edges(*(getattr(whole.edges, column)[left] for column in whole.edges.__dataclass_fields__))
        kept = set(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
        next_node = [v if (u, v) in kept else -1 for u, v in enumerate(whole.next_node.tolist())]
        return replace(whole, edges=edges, next_node=np.array(next_node, np.int32))

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        decided_by_search(monkeypatch)
        wrap(monkeypatch, decide, "build_graph", build)

    return apply


def with_level(name: str, **changed: Any) -> Patch:
    return lambda monkeypatch: monkeypatch.setitem(LEVELS, name, replace(LEVELS[name], **changed))


def ignore_no_session_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "keeps_sessions", lambda settings: LEVELS[settings.level].session_order)


def with_times(change: Callable[[History], History]) -> Patch:
    """Let the real-time rules see other times."""

    def event_times(original: Callable[..., Any], history: History, txns: Any) -> Any:
        return original(change(history), txns)

    return lambda monkeypatch: wrap(monkeypatch, graph, "event_times", event_times)


def without_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    def tick_edges(original: Callable[..., Any], *args: Any) -> Any:
        return original(*args[:4], 0, args[5])

    wrap(monkeypatch, graph, "tick_edges", tick_edges)


def unknown(history: History) -> Any:
    return np.full(history.txn_count, UNKNOWN_TIME)


def all_committed(history: History) -> History:
    return replace(history, status=np.full(history.txn_count, Status.COMMITTED, np.uint8))


# Version chains


def without_links(name: str) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(versions, name, lambda *_: None)


def without_clash(name: str) -> Patch:
    """Let a version keep the successor that was found first."""

    def link(original: Callable[..., None], *args: Any) -> None:
        original(*args)
        args[-1][:] = -1

    return lambda monkeypatch: wrap(monkeypatch, versions, name, link)


# Pruning and solving


def without_found(name: str, kind: int) -> Patch:
    """Drop the edges of a kind that a step of pruning finds.

    The last arguments of such a step are the columns for edges, how many they hold, and where to go on.
    """

    def order(original: Callable[..., tuple[int, int]], *args: Any) -> tuple[int, int]:
        *_, found, start, _ = args
        end, after = original(*args)
        left = start + np.flatnonzero(found.kind[start:end] != kind)
        for column in found:
            column[start : start + len(left)] = column[left]
        return start + len(left), after

    return lambda monkeypatch: wrap(monkeypatch, prune, name, order)


def without_forced_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "order_forced_chains", lambda opened, *args: (args[-2], opened.size))


def without_writer(edges: list[Edge]) -> list[Edge]:
    return edges[1:]


def without_readers(edges: list[Edge]) -> list[Edge]:
    return edges[:1]


def with_pair_edges(change: PairEdges) -> Patch:
    """Let the order of two chains mean less to a solver that asks the problem what it means."""
    whole = Problem.edges_if_before

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        decided_by_search(monkeypatch)
        monkeypatch.setattr(Problem, "edges_if_before", lambda problem, c, d: change(whole(problem, c, d)))

    return apply


def solved(solver: Solver, problem: Problem) -> bool:
    return isinstance(solver(problem, lambda: False), Ordered)


def always_with_sessions_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "SESSIONS_FIRST_MIN", 0)


# Resolving


def with_resolved(change: Callable[..., resolve.Resolved]) -> Patch:
    return lambda monkeypatch: wrap(monkeypatch, check, "resolve", change)


def without_anomaly(what: int) -> Patch:
    def resolved(original: Callable[..., resolve.Resolved], history: History, split: bool) -> resolve.Resolved:
        whole = original(history, split)
        return replace(whole, impossible=tuple(one for one in whole.impossible if one.what != what))

    return with_resolved(resolved)


def in_doubt_as(status: Status) -> Patch:
    def resolved(original: Callable[..., resolve.Resolved], history: History, split: bool) -> resolve.Resolved:
        decided = np.where(history.status == Status.IN_DOUBT, status, history.status).astype(np.uint8)
        return replace(original(replace(history, status=decided), split), history=history)

    return with_resolved(resolved)


def without_ambiguity(original: Callable[..., resolve.Resolved], history: History, split: bool) -> resolve.Resolved:
    return replace(original(history, split), ambiguous=np.zeros(0, np.int64))


def without_new_rows(original: Callable[..., resolve.Resolved], history: History, split: bool) -> resolve.Resolved:
    whole = original(history, split)
    return replace(whole, version_new=np.zeros_like(whole.version_new))


def only_new_rows(original: Callable[..., resolve.Resolved], history: History, split: bool) -> resolve.Resolved:
    whole = original(history, split)
    return replace(whole, version_new=(whole.version_txn >= 0) & split)


def in_doubt_precedes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def session_pairs(original: Callable[..., Any], session: Any, status: Any, bound: Any) -> Any:
        return original(session, np.zeros_like(status), bound)

    wrap(monkeypatch, graph, "_session_pairs", session_pairs)


def in_doubt_follows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def session_pairs(original: Callable[..., Any], session: Any, status: Any, bound: Any) -> Any:
        before, after = original(session, status, bound)
        certain = status[after] != Status.IN_DOUBT
        return before[certain], after[certain]

    wrap(monkeypatch, graph, "_session_pairs", session_pairs)


# Proofs


def only_itself(module: Any, name: str) -> Patch:
    """Let a function that adds transactions to some add none."""
    return lambda monkeypatch: monkeypatch.setattr(module, name, lambda _, txns: np.array(sorted(txns), np.int64))


CHANGE_VERDICTS: dict[str, Patch] = {
    "whoever reads a version comes after its writer": without_known(WR),
    "a transaction begins before it commits": without_known(WITHIN),
    "a list shows the order of its writers": without_known(WW),
    "whoever read a version comes before the one that replaced it": without_known(RW),
    **{
        f"{level.name}: sessions are in order": with_level(level.name, session_order=False)
        for level in LEVELS.values()
        if level.session_order
    },
    **{
        f"{level.name}: {pair[0]}s precede later {pair[1]}s": with_level(
            level.name, real_time=tuple(other for other in level.real_time if other != pair)
        )
        for level in LEVELS.values()
        for pair in level.real_time
    },
    **{
        f"{level.name}: begin and commit are {'two events' if level.split else 'one event'}": with_level(
            level.name, split=not level.split
        )
        for level in LEVELS.values()
    },
    "sessions are not in order if nobody wants it": ignore_no_session_order,
    "clocks may differ": without_drift,
    "who has the answer to begin has begun": with_times(lambda history: replace(history, begun_ns=unknown(history))),
    "nobody commits before asking to": with_times(lambda history: replace(history, commit_ns=unknown(history))),
    "who is in doubt may commit at any later time": with_times(all_committed),
    "an update follows the version that it saw": without_links("link_updates"),
    "an element follows the one before it": without_links("link_lists"),
    "lists agree about what follows": without_clash("link_lists"),
    "the initial version's last writer comes before other writers": without_found("order_initial_chains", WW),
    "the initial version's readers come before other writers": without_found("order_initial_chains", RW),
    "a chain's last writer comes before the next chain": with_pair_edges(without_writer),
    "readers of a chain's last version come before the next chain": with_pair_edges(without_readers),
    "a transaction agrees with itself": without_anomaly(resolve.INTERNAL),
    "nobody sees what they write later": without_anomaly(resolve.FUTURE),
    "nobody sees what was rolled back": without_anomaly(resolve.ABORTED_READ),
    "nobody sees a part of what was written": without_anomaly(resolve.INTERMEDIATE),
    "nobody sees what was never written": without_anomaly(resolve.NEVER_WRITTEN),
    "nobody sees an element twice": without_anomaly(resolve.DUPLICATE_ELEMENT),
    "who is in doubt and seen took effect": in_doubt_as(Status.ABORTED),
    "who is in doubt and not seen need not have": in_doubt_as(Status.COMMITTED),
    "who is in doubt comes before nobody in its session": in_doubt_precedes_later,
    "who is in doubt comes after its session's earlier ones": in_doubt_follows_nobody,
    "reads of a repeated value leave a doubt": with_resolved(without_ambiguity),
    "a new row is another row": with_resolved(without_new_rows),
    "whoever writes a row that is there overlaps nobody": with_resolved(only_new_rows),
}

SAVE_WORK: dict[str, Patch] = {
    "writers are ordered where only one order is possible": without_found("order_forced_chains", WW),
    "readers are ordered where only one order is possible": without_found("order_forced_chains", RW),
    "whatever has only one possible order is ordered": without_forced_order,
}

COMPLETE_PROOFS: dict[str, Patch] = {
    "whoever saw one in doubt is named": only_itself(explain, "with_observers"),
    "all writers of a value that cannot have been seen are named": only_itself(explain, "with_rival_writers"),
    "all writers of a value on a cycle are named": only_itself(shrink, "with_rival_writers"),
}


def test_all_verdicts_are_right_as_long_as_all_rules_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [str(case) for case in wrong_verdicts(monkeypatch)]


@pytest.mark.parametrize("rule", CHANGE_VERDICTS)
def test_a_verdict_is_wrong_without_the_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHANGE_VERDICTS[rule](monkeypatch)
    assert any(wrong_verdicts(monkeypatch))


@pytest.mark.parametrize("shortcut", [without_clocks, decided_by_search, always_with_sessions_first])
def test_no_verdict_is_wrong_without_the_shortcut(shortcut: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    shortcut(monkeypatch)
    assert not [str(case) for case in wrong_verdicts(monkeypatch)]


@pytest.mark.parametrize("rule", SAVE_WORK)
def test_the_comparison_of_pruning_with_its_twin_notices(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noticed here is what test_pruning_decides_exactly_what_trying_all_pairs_decides looks for."""
    SAVE_WORK[rule](monkeypatch)
    assert any(pruning_complaint(graph, prune_by_hand(graph)) for _, graph in busy_graphs(200))


@pytest.mark.parametrize("lacking", [without_writer, without_readers])
def test_the_comparison_of_solvers_notices(lacking: PairEdges, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own solver makes the edges of a pair itself: one that lacks some disagrees with one that has them all."""
    problems = [small_problem(Random(seed)) for seed in range(200)]
    assert all(solved(cdcl.solve, problem) == solved(sat.solve, problem) for problem in problems)
    with_pair_edges(lacking)(monkeypatch)
    assert any(solved(cdcl.solve, problem) != solved(sat.solve, problem) for problem in problems)


def test_a_lost_update_has_its_name_with_or_without_the_shortcut_for_clashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two updates of one version form a cycle anyway; the clash only finds it at once."""
    assert not misnamed_lost_updates()
    without_clash("link_updates")(monkeypatch)
    assert not any(wrong_verdicts(monkeypatch))
    monkeypatch.undo()
    without_clash("link_updates")(monkeypatch)
    assert not misnamed_lost_updates()


def test_all_proofs_are_complete_as_long_as_all_rules_hold() -> None:
    assert not [str(case) for case in incomplete_proofs()]


@pytest.mark.parametrize("rule", COMPLETE_PROOFS)
def test_a_proof_is_incomplete_without_the_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    COMPLETE_PROOFS[rule](monkeypatch)
    assert any(incomplete_proofs())


def test_suspects_are_not_refused_without_those_who_saw_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the whole history is searched for a proof, which finds one just as well, but slowly."""
    assert not [str(case) for case in innocent_suspects()]
    only_itself(shrink, "with_observers")(monkeypatch)
    assert any(innocent_suspects())
