"""Saying no so that a person understands it: from a refused history to a `Counterexample` (design 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise

import numpy as np

from mussurana.verifier.engine import resolve as seen
from mussurana.verifier.engine.decide import Decision
from mussurana.verifier.engine.graph import Graph, build_graph, keeps_sessions
from mussurana.verifier.engine.problem import Solver
from mussurana.verifier.engine.resolve import Impossible, Resolved, with_observers
from mussurana.verifier.explain.below import below
from mussurana.verifier.explain.cases import refutations
from mussurana.verifier.explain.classify import classify, mildest
from mussurana.verifier.explain.effort import Effort, boundless
from mussurana.verifier.explain.sentences import Narrator
from mussurana.verifier.explain.shown import Cast
from mussurana.verifier.explain.shrink import shrink, with_rival_writers
from mussurana.verifier.history import History, Kind
from mussurana.verifier.verdict import Case, Counterexample, Event, Settings, Step

CASES_SHOWN_MAX = 8  # more cases than that nobody reads; the auditor goes through all of them anyway

_IMPOSSIBLE = {
    seen.INTERNAL: ("internal inconsistency", ""),
    seen.FUTURE: ("internal inconsistency", ""),
    seen.ABORTED_READ: ("aborted read", "G1a"),
    seen.INTERMEDIATE: ("intermediate read", "G1b"),
    seen.NEVER_WRITTEN: ("version never written", ""),
    seen.DUPLICATE_ELEMENT: ("duplicate element", ""),
}


_NO_TIME = Case((), (), "Which of them contradict each other could not be told in the time that was given.")


def explain(
    resolved: Resolved,
    settings: Settings,
    decision: Decision,
    solver: Solver,
    out_of_time: Callable[[], bool] = lambda: False,
    effort: Effort | None = None,
) -> Counterexample:
    """The story of a history that `decide` refused, as far as there is time to tell it and effort left."""
    effort = effort or boundless()
    part, numbers = shrink(resolved, settings, decision, solver, out_of_time, effort)
    narrator = Narrator(Cast(resolved.history, part.history, numbers), part)
    graph = build_graph(part, settings, keeps_sessions(settings))
    if graph.chains.clash is not None:
        return _two_successors(narrator, graph, settings)
    cases, names, keys = [], [], set()
    found = refutations(graph, lambda: out_of_time() or not effort.look(len(numbers)))
    for case in islice(found, CASES_SHOWN_MAX):
        steps = narrator.cycle(case.paths, case.cycle)
        since = [step for order in case.orders for step in narrator.since(order)]
        assumptions = tuple(narrator.given(order) for order in case.orders)
        cases.append(Case(assumptions, steps, _conclusion(len(steps), graph)))
        names.append(classify(steps, since))
        keys |= {step.key for step in (*steps, *since)}
    hidden = sum(1 for _ in islice(found, 1000))
    anomaly, adya = mildest(names) if names else ("contradiction", "")
    count = len(numbers)
    shown = narrator.cast.show(keys)
    return Counterexample(
        anomaly=anomaly,
        adya=adya,
        summary=below(shown, settings.level, adya)
        + f"{count} transactions that no {graph.level.promise} order explains"
        + _where(keys)
        + ".",
        transactions=shown,
        cases=tuple(cases) or (_NO_TIME,),
        facts=(f"{hidden} further cases end in a contradiction as well and are not shown.",) if hidden else (),
    )


def _writer(resolved: Resolved, version: int) -> int:
    return int(resolved.version_txn[version])


def _where(keys: set[str]) -> str:
    named = sorted(key for key in keys if key)
    return f", on {', '.join(named[:4])}{' and more' if len(named) > 4 else ''}" if named else ""


def _conclusion(steps: int, graph: Graph) -> str:
    order = "order of begins and commits" if graph.level.split else "serial order"
    return f"No {order} has {'both' if steps == 2 else 'all of these'}."


def _two_successors(narrator: Narrator, graph: Graph, settings: Settings) -> Counterexample:
    """One version that two transactions claim to have replaced, or lists that disagree about what follows it."""
    assert graph.chains.clash is not None
    version, *after = graph.chains.clash
    part, cast, key = narrator.resolved, narrator.cast, narrator.key(version)
    writers = [_writer(part, v) for v in after]
    read = {int(t) for t, v in zip(part.read_txn, part.read_version, strict=True) if v == version}
    if not all(writer in read for writer in writers):
        return _lists_that_disagree(narrator, version, after, [t for t in writers if t in read])
    labels = [cast.label(t) for t in writers]
    events: tuple[Event, Event] = ("begin", "commit") if graph.level.split else ("", "")

    def step(a: int, b: int, v: int) -> Step:
        saw, is_list = narrator.saw(a, version)
        then = f"{'appended' if is_list else 'replaced it by'} {narrator.version(v)}"
        why = f"{cast.label(a)} read {key} {saw} and {cast.label(b)} {then}"
        return Step(a, b, *events, "rw", key, f"{narrator.order(a, b, events)}, because {why}.")

    steps = step(writers[0], writers[1], after[1]), step(writers[1], writers[0], after[0])
    conclusion = _conclusion(2, graph)
    if graph.level.split:
        conclusion = "Two transactions that write one key must not overlap, but here neither saw the other's write."
    shown = cast.show({key})
    return Counterexample(
        anomaly="lost update",
        adya="G-single",
        summary=below(shown, settings.level, "G-single")
        + f"{labels[0]} and {labels[1]} both replaced the same version of {key}, so one update is lost.",
        transactions=shown,
        cases=(Case((), steps, conclusion),),
    )


def _lists_that_disagree(narrator: Narrator, version: int, after: list[int], updaters: list[int]) -> Counterexample:
    """What was read of a list, and what those who read and appended made of it, does not fit together."""
    part, cast, key = narrator.resolved, narrator.cast, narrator.key(version)
    facts = [
        f"{cast.label(t)} read {key} {narrator.saw(t, version)[0]} and appended {narrator.version(v)} to that."
        for v in after
        if (t := _writer(part, v)) in updaters
    ]
    for i, reader in enumerate(part.list_txn):
        listed = part.list_version[part.list_start[i] : part.list_start[i + 1]].tolist()
        shown = set(pairwise([int(part.history.key[part.list_op[i]]), *listed]))
        if not shown.isdisjoint((version, v) for v in after):
            facts.append(f"{cast.label(int(reader))} read {key} as {cast.seen(int(part.list_op[i]))}.")
    return Counterexample(
        anomaly="incompatible order",
        adya="",
        summary=f"What was seen of {key} cannot all be of one list that grows at its end.",
        transactions=cast.show({key}),
        cases=(Case((), (), "Of two states of a list, the longer one has to begin with the shorter one."),),
        facts=tuple(dict.fromkeys(facts)),
    )


def explain_impossible(resolved: Resolved) -> Counterexample:
    """The story of an operation that no order explains; the first one, with a count of the others."""
    history, one = resolved.history, resolved.impossible[0]
    numbers = with_rival_writers(resolved, with_observers(resolved, _involved(history, one)))
    cast = Cast(history, history.restrict(numbers), numbers)

    def label(op: int) -> str:
        return cast.label(int(np.searchsorted(numbers, _txn(history, op))))

    reader, key = label(one.op), history.key_names[int(history.key[one.op])]
    value = history.version_name(int(history.key[one.op]), _value(history, one))
    writer = label(one.write) if one.write >= 0 else ""
    saw = f"{reader} read {key} at {value}"
    if history.kind[one.op] == Kind.READ_LIST:
        saw = f"{reader} read {key} as [{', '.join(map(history.value_name, history.list_seen(one.op)))}]"
    elif history.kind[one.op] != Kind.READ:
        saw = f"{reader} replaced {value} of {key}"
    fact = {
        seen.INTERNAL: f"{saw}, which contradicts what the same transaction read or wrote before.",
        seen.FUTURE: f"{saw} before it wrote {value} itself, and nobody else wrote it.",
        seen.ABORTED_READ: f"{saw}, but {writer}, which wrote {value}, was rolled back.",
        seen.INTERMEDIATE: f"{saw}, but {value} is only part of what {writer} wrote to {key}.",
        seen.NEVER_WRITTEN: f"{saw}, but nobody in the history wrote {value} to {key}.",
        seen.DUPLICATE_ELEMENT: f"{saw}, where {value} occurs more than once although it was appended once.",
    }[one.what]
    more = len(resolved.impossible) - 1
    anomaly, adya = _IMPOSSIBLE[one.what]
    return Counterexample(
        anomaly=anomaly,
        adya=adya,
        summary=fact,
        transactions=cast.show({key}),
        cases=(Case((), (), "No order of transactions explains that."),),
        facts=(f"{more} more operations in this history are impossible by themselves.",) if more else (),
    )


def _txn(history: History, op: int) -> int:
    return int(np.searchsorted(history.op_start, op, side="right")) - 1


def _value(history: History, one: Impossible) -> int:
    """The version that was seen and cannot be; in a list, the element."""
    if one.write >= 0:
        return int(history.value[one.write])
    if history.kind[one.op] == Kind.READ_LIST and one.what == seen.NEVER_WRITTEN:
        written = set(history.value[(history.kind == Kind.APPEND) & (history.key == history.key[one.op])].tolist())
        return next(v for v in history.list_seen(one.op) if v not in written)
    is_read = history.kind[one.op] in (Kind.READ, Kind.READ_LIST)
    return int(history.value[one.op] if is_read else history.previous[one.op])


def _involved(history: History, one: Impossible) -> set[int]:
    """The reader, the writer of what it saw, and in a list the writers of what stands beside it."""
    txns = {_txn(history, one.op)} | ({_txn(history, one.write)} if one.write >= 0 else set())
    listed = history.list_seen(one.op)
    if one.write >= 0 and listed:
        at = listed.index(_value(history, one))
        beside = np.isin(history.value, listed[max(at - 1, 0) : at + 2]) & (history.key == history.key[one.op])
        txns |= {_txn(history, int(op)) for op in np.flatnonzero(beside & (history.kind == Kind.APPEND))}
    return txns
