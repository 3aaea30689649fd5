"""A counterexample as Graphviz text, for those who collect graphs or want another layout.

One cluster per case; in it one node per transaction and one edge per step. All text from the history goes through
`_quoted`, which leaves Graphviz neither an escape nor an entity nor a quote to act on.
"""

from __future__ import annotations

from mussurana.verifier.render.palette import LIGHT
from mussurana.verifier.render.words import (
    KIND_WORDS,
    Clock,
    anomaly_title,
    count,
    elide,
    keys_that_matter,
    shorten_operations,
    transaction_place,
    verb,
    visible,
)
from mussurana.verifier.verdict import Case, Counterexample, EdgeKind, ShownOperation, ShownTransaction, Step

_OPERATIONS_MAX = 12
_TEXT_CELLS_MAX = 48
_STYLES: dict[EdgeKind, str] = {
    "wr": "solid",
    "ww": "bold",
    "rw": "dashed",
    "session": "dotted",
    "realtime": "dotted",
    "epoch": "dotted",
}


def counterexample_dot(counterexample: Counterexample) -> str:
    """A directed graph that `dot` draws from left to right; edges have their sentence as tooltip."""
    cases = counterexample.cases or (Case((), (), ""),)
    lines = [
        "digraph counterexample {",
        f"  label={_quoted(anomaly_title(counterexample))}; labelloc=t;",
        "  rankdir=LR;",
        '  node [shape=box, style=rounded, fontname="monospace", fontsize=11];',
        '  edge [fontname="monospace", fontsize=10];',
    ]
    for number, case in enumerate(cases):
        lines += _case_lines(counterexample, case, number, len(cases))
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str, cells_max: int | None = None) -> str:
    """A double-quoted Graphviz string that shows exactly this text."""
    shown = visible(text) if cells_max is None else elide(text, cells_max)
    return '"' + _escaped(shown) + '"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")


def _case_lines(counterexample: Counterexample, case: Case, number: int, cases: int) -> list[str]:
    heading = (f"Case {number + 1} of {cases}. " if cases > 1 else "") + " ".join(case.assumptions)
    lines = [f"  subgraph cluster_{number} {{", f"    label={_quoted(heading)};"]
    if not heading:
        lines.append("    style=invis;")
    clock = Clock(counterexample.transactions)
    keys = keys_that_matter(counterexample)
    for place, txn in enumerate(counterexample.transactions):
        style = ', style="rounded,dashed"' if txn.status != "committed" else ""
        lines.append(f"    c{number}t{place} [label={_node_label(txn, clock, keys)}{style}];")
    for place, step in enumerate(case.steps, 1):
        lines.append(f"    c{number}t{step.source} -> c{number}t{step.target} [{_edge_attributes(step, place)}];")
    return [*lines, "  }"]


def _node_label(txn: ShownTransaction, clock: Clock, keys: frozenset[str]) -> str:
    head = f"{txn.label}  {elide(txn.session, _TEXT_CELLS_MAX)} / {transaction_place(txn)}"
    if txn.status != "committed":
        head += f"  {txn.status}"
    if txn.isolation:
        head += f"  {txn.isolation.lower()}"
    lines = [head, elide(txn.name, _TEXT_CELLS_MAX), clock.span(txn)]
    lines += [_operation_words(o) for o in shorten_operations(txn.operations, keys, _OPERATIONS_MAX)]
    # `\l` ends a line and aligns it to the left.
    return '"' + "".join(_escaped(visible(line)) + "\\l" for line in lines if line) + '"'


def _operation_words(operation: ShownOperation | int) -> str:
    if isinstance(operation, int):
        return f"... {count(operation, 'more operation')} ..."
    versions = elide(operation.version, _TEXT_CELLS_MAX)
    if operation.previous:
        versions = f"{elide(operation.previous, _TEXT_CELLS_MAX // 2)} -> {versions}"
    return f"{verb(operation):<5} {elide(operation.key, _TEXT_CELLS_MAX)} {versions}"


def _edge_attributes(step: Step, place: int) -> str:
    ends = f" ({step.source_event} to {step.target_event})" if step.source_event and step.target_event else ""
    words = f"{place}. {KIND_WORDS[step.kind]} {elide(step.key, _TEXT_CELLS_MAX // 2)}".rstrip() + ends
    colour = LIGHT[step.kind]
    return (
        f"label={_quoted(words)}, tooltip={_quoted(step.reason)}, "
        f'style={_STYLES[step.kind]}, color="{colour}", fontcolor="{colour}"'
    )
