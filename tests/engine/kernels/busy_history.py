"""Random histories that leave pruning and the solver much to do, from a seed.

Larger than those of `tests/random_history.py`, since nobody tries all their orders, and without anything that is
impossible by itself. Transactions run one after the other in a hidden order; many writes are blind, most reads
tell the truth, and sessions and clocks mostly agree with the order.
"""

from __future__ import annotations

from functools import cache
from random import Random

from mussurana.verifier.engine.graph import Graph, build_graph, keeps_sessions
from mussurana.verifier.engine.resolve import resolve
from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, HistoryBuilder, Status
from mussurana.verifier.levels import LEVELS
from mussurana.verifier.verdict import Settings
from tests.random_history import SECOND_NS, random_settings


def busy_history(rng: Random, txns: int) -> History:
    keys = "uvwxyz"[: rng.randint(1, 6)]
    lists = {key for key in keys if rng.random() < 0.15}
    sessions = rng.randint(2, 9)
    truthful = rng.choice((0.8, 1.0, 1.0))
    jumble = rng.choice((0.0, 0.0, 2.5))
    timed = rng.random() < 0.4
    blind = rng.choice((0.3, 0.6))
    inserted = rng.choice((0.0, 0.0, 0.3, 0.9))
    written: dict[str, list[int]] = {key: [] for key in keys}
    drafts = [_draft(rng, keys, lists, written, truthful, blind) for _ in range(txns)]
    build = HistoryBuilder()
    for second in sorted(range(txns), key=lambda second: second + rng.choice((0, 0, 0, jumble))):
        begin, committed = second * SECOND_NS, (second + rng.randint(1, 4)) * SECOND_NS
        known = timed and rng.random() < 0.8
        build.transaction(
            f"s{rng.randrange(sessions)}",
            Status.IN_DOUBT if rng.random() < 0.05 else Status.COMMITTED,
            begin_ns=begin if known else UNKNOWN_TIME,
            begun_ns=begin if known and rng.random() < 0.5 else UNKNOWN_TIME,
            commit_ns=committed if known and rng.random() < 0.5 else UNKNOWN_TIME,
            committed_ns=committed if known else UNKNOWN_TIME,
        )
        for key, seen, write in drafts[second]:
            if seen is not None and key in lists:
                build.read_list(key, seen)
            elif seen is not None:
                build.read(key, seen[-1] if seen else INITIAL)
            if write is not None and key in lists:
                build.append(key, write)
            elif write is not None:
                build.write(key, write, NO_ROW if rng.random() < inserted else NO_VALUE)
    return build.finish()


def _draft(
    rng: Random, keys: str, lists: set[str], written: dict[str, list[int]], truthful: float, blind: float
) -> list[tuple[str, list[int] | None, int | None]]:
    """What a transaction does: (key, the versions up to the one it saw, the version it wrote)."""
    draft: list[tuple[str, list[int] | None, int | None]] = []
    for key in rng.sample(keys, rng.randint(1, min(3, len(keys)))):
        before = written[key]
        if rng.random() > truthful:
            before = before[: rng.randint(0, len(before))]
        action = "write" if rng.random() < blind else rng.choice(("read", "read", "read", "update"))
        draft.append((key, None if action == "write" else list(before), None))
        if action != "read":
            written[key].append(len(written[key]) + 1)
            draft[-1] = (key, draft[-1][1], written[key][-1])
    return draft


def busy_graph(seed: int) -> Graph | None:
    """The graph of such a history at some level, or None where two transactions replaced the same version."""
    rng = Random(seed)
    history, settings = busy_history(rng, rng.randint(5, 18)), random_settings(rng)
    resolved = resolve(history, LEVELS[settings.level].split)
    assert not resolved.impossible
    graph = build_graph(resolved, settings, keeps_sessions(settings))
    return None if graph.chains.clash is not None else graph


def wide_graph(seed: int) -> Graph:
    """The graph of a history with so many sessions that clocks have several blocks, and keys several words of rows.

    A version is mostly read just after it was written, so that there is much to derive.
    """
    rng = Random(seed)
    build = HistoryBuilder()
    latest: dict[str, list[int]] = {"x": [INITIAL], "y": [INITIAL]}
    for txn in range(150):
        build.transaction(f"s{rng.randrange(250)}")
        written = rng.choice("xxxy-")
        for key in "xy":
            if key == written:
                build.write(key, txn + 1)
                latest[key].append(txn + 1)
            elif rng.random() < 0.6:
                build.read(key, rng.choice(latest[key][-2:]))
    level = rng.choice(("serializable", "strong-session-si"))
    return build_graph(resolve(build.finish(), LEVELS[level].split), Settings(level), True)


@cache
def wide_graphs(count: int = 12) -> list[tuple[int, Graph]]:
    return [(seed, graph) for seed in range(count) if (graph := wide_graph(seed)).chains.clash is None]


@cache
def busy_graphs(count: int = 1500) -> list[tuple[int, Graph]]:
    """Those of the first seeds, with their seeds."""
    made = ((seed, busy_graph(seed)) for seed in range(count))
    return [(seed, graph) for seed, graph in made if graph is not None]
