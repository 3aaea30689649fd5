"""Each edge of the graph says in a sentence what it is and why it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mussurana.verifier.engine.cycles import Paths
from mussurana.verifier.engine.graph import EPOCH, REAL_TIME, RW, SESSION, WITHIN, WR, WW, Graph
from mussurana.verifier.engine.realtime import event_times
from mussurana.verifier.engine.resolve import Resolved
from mussurana.verifier.explain.cases import Order
from mussurana.verifier.explain.shown import Cast, time_words
from mussurana.verifier.history import INITIAL, Kind
from mussurana.verifier.verdict import EdgeKind, Event, Step

_KINDS: dict[int, EdgeKind] = {
    SESSION: "session", REAL_TIME: "realtime", EPOCH: "epoch", WR: "wr", WW: "ww", RW: "rw",
}  # fmt: skip

INITIAL_NAME = "its initial version"


@dataclass(frozen=True)
class Narrator:
    cast: Cast
    resolved: Resolved

    def key(self, version: int) -> str:
        return self.cast.part.key_names[int(self.resolved.version_key[version])]

    def writer(self, version: int) -> str:
        return self.cast.label(int(self.resolved.version_txn[version]))

    def version(self, version: int) -> str:
        op = int(self.resolved.version_op[version])
        if op >= 0:
            return self.cast.seen(op)
        name = self.cast.part.version_name(int(self.resolved.version_key[version]), INITIAL)
        return INITIAL_NAME if name == "initial" else name

    def steps(self, paths: Paths, edges: Sequence[int]) -> tuple[Step, ...]:
        """Edges in a row as steps between transactions; ticks and the way from begin to commit are passed over."""
        graph, known = paths.pruned.graph, paths.pruned.edges
        steps = []
        start = -1
        for edge in edges:
            if known.kind[edge] == WITHIN:
                continue
            if start < 0:
                start = int(known.source[edge])
            if graph.node_txn[known.target[edge]] >= 0:
                steps.append(self._step(paths, edge, start, int(known.target[edge])))
                start = -1
        return tuple(steps)

    def cycle(self, paths: Paths, edges: Sequence[int]) -> tuple[Step, ...]:
        """The steps of a cycle, which may begin anywhere."""
        graph, known = paths.pruned.graph, paths.pruned.edges
        first = next(i for i, edge in enumerate(edges) if graph.node_txn[known.source[edge]] >= 0)
        return self.steps(paths, [*edges[first:], *edges[:first]])

    def given(self, order: Order) -> str:
        """The order of two writes that a case starts from."""
        wrote = f"{self.writer(order.first)} wrote {self.key(order.first)} before {self.writer(order.second)} did"
        if not order.since:
            return f"Suppose {wrote}."
        graph = order.paths.pruned.graph
        takes_rule = graph.level.split and not graph.version_new[order.first]  # a new row begins at a commit
        rule = "two that write one key do not overlap and " if takes_rule else ""
        return f"{wrote}, since {rule}{'; '.join(step.reason.removesuffix('.') for step in self.since(order))}."

    def since(self, order: Order) -> tuple[Step, ...]:
        """Why the order is obvious; nothing if it is an assumption."""
        return self.steps(order.paths, order.since)

    def order(self, source: int, target: int, events: tuple[Event, Event]) -> str:
        a, b = self.cast.label(source), self.cast.label(target)
        if events[0] == "":
            return f"{a} comes before {b}"
        words = {"begin": "began", "commit": "committed"}
        return f"{a} {words[events[0]]} before {b} {words[events[1]]}"

    def _step(self, paths: Paths, edge: int, start: int, end: int) -> Step:
        graph = paths.pruned.graph
        source, target = int(graph.txns[graph.node_txn[start]]), int(graph.txns[graph.node_txn[end]])
        kind = _KINDS[int(paths.pruned.edges.kind[edge])]
        events = _events(graph, kind, start, end)
        version = int(paths.pruned.edges.version[edge])
        why = self._why(paths, edge, kind, source, target, events)
        return Step(
            source=source,
            target=target,
            source_event=events[0],
            target_event=events[1],
            kind=kind,
            key=self.key(version) if version >= 0 else "",
            reason=f"{self.order(source, target, events)}, because {why}.",
        )

    def _why(
        self, paths: Paths, edge: int, kind: EdgeKind, source: int, target: int, events: tuple[Event, Event]
    ) -> str:
        graph, known = paths.pruned.graph, paths.pruned.edges
        a, b = self.cast.label(source), self.cast.label(target)
        if kind == "session":
            return f"session {self.cast.session(source)} ran {a} first"
        if kind == "epoch":
            return f"all sessions had passed a fence after {a} and before {b}"
        if kind == "realtime":
            times = event_times(self.cast.part, graph.txns)
            at = {int(t): i for i, t in enumerate(graph.txns)}
            ended, began = times.high(events[0] or "commit")[at[source]], times.low(events[1] or "begin")[at[target]]
            did = {"begin": ("had begun by", "committed no earlier than"), "commit": ("ended at", "began at")}
            return (
                f"{a} {did['begin'][0] if events[0] == 'begin' else did['commit'][0]} {time_words(int(ended))} and "
                f"{b} {did['begin'][1] if events[1] == 'commit' else did['commit'][1]} {time_words(int(began))}, "
                "further apart than the clocks can be"
            )
        version, after = int(known.version[edge]), int(known.next_version[edge])
        key, name, next_name = self.key(version), self.version(version), self.version(after)
        if kind == "wr":
            saw, seen_list = self.saw(target, version)
            return f"{b} read {key} {saw}, {f'and {a} appended {name}' if seen_list else f'which {a} wrote'}"
        replaced = int(graph.chains.following[version]) == after
        shown_by = int(graph.chains.shown_by[version])
        if kind == "ww" and replaced and shown_by >= 0:
            return f"{self._shown(int(graph.txns[shown_by]), version, after)}, where {name} comes before {next_name}"
        if kind == "ww":
            then = "replaced it by" if replaced else "wrote the later version"
            return f"{a} wrote {key} at {name} and {b} {then} {next_name}"
        saw, seen_list = self.saw(source, version)
        if seen_list:
            return f"{a} read {key} {saw} and {b} appended {next_name}"
        if name == INITIAL_NAME:
            return f"{a} read {key} {saw} and {b} wrote {next_name}"
        then = f"replaced {name} by" if replaced else "wrote the later version"
        return f"{a} read {key} {saw} and {b} {then} {next_name}"

    def _shown(self, t: int, version: int, after: int) -> str:
        """That a transaction read a list which has both of two versions."""
        resolved = self.resolved
        shows = [
            {version, after} <= set(resolved.list_version[start:end].tolist())
            for start, end in pairwise(resolved.list_start)
        ]
        op = int(resolved.list_op[np.flatnonzero((resolved.list_txn == t) & shows)[0]])
        return f"{self.cast.label(t)} read {self.key(version)} as {self.cast.seen(op)}"

    def saw(self, t: int, version: int) -> tuple[str, bool]:
        """What a transaction saw of a key when it saw this version, and whether that was a list."""
        reads = (self.resolved.read_txn == t) & (self.resolved.read_version == version)
        op = int(self.resolved.read_op[np.flatnonzero(reads)[0]])
        if self.cast.part.kind[op] == Kind.READ_LIST:
            return f"as {self.cast.seen(op)}", True
        return f"at {self.version(version)}", False


def _events(graph: Graph, kind: EdgeKind, start: int, end: int) -> tuple[Event, Event]:
    if not graph.level.split:
        return "", ""
    if kind == "rw":
        return "begin", "commit"
    if kind not in ("realtime", "ww"):
        return "commit", "begin"
    source, target = graph.node_txn[start], graph.node_txn[end]
    return "commit" if start == graph.commit[source] else "begin", "begin" if end == graph.begin[target] else "commit"
