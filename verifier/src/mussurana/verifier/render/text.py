"""A result as text: what `mussurana check` prints.

Accepted and unknown take a few lines. A rejection lists the transactions with what they did, then says each step of
the contradiction in a sentence. Lines stay within `WIDTH` columns whatever the names in the history are.
"""

from __future__ import annotations

from mussurana.verifier.render.words import (
    Clock,
    anomaly_title,
    cells,
    choices_phrase,
    count,
    duration,
    elide,
    keys_that_matter,
    left_out_phrase,
    pad,
    shorten_operations,
    size_phrase,
    transaction_place,
    verb,
    verdict_word,
    visible,
    wrap,
)
from mussurana.verifier.verdict import Case, Counterexample, Rejected, Result, ShownOperation, ShownTransaction, Unknown

WIDTH = 120
"""Columns: fits a wide terminal and, unwrapped, most ticket systems."""

_OPERATIONS_MAX = 12  # per transaction; a screen shows about four such transactions
_KEY_CELLS_MAX = 48
_VERSION_CELLS_MAX = 40
_NAME_CELLS_MAX = 28  # of a session and of a transaction's own name, less where times need the room
_OPERATION_INDENT = 8
_HEADER_FIXED_CELLS = 38  # of a transaction's first line: indent, label, position, status and the gaps between columns

_BOLD, _RESET = "\x1b[1m", "\x1b[0m"
_VERDICT_COLOR = {"accepted": "\x1b[1;32m", "rejected": "\x1b[1;31m", "unknown": "\x1b[1;33m"}


def result_text(result: Result, source: str = "", color: bool = False) -> str:
    """What happened, for a person at a terminal. `source` says where the history came from; ends with a newline."""
    word = verdict_word(result.verdict)
    title = [visible(result.settings.level)]
    if not result.settings.session_order:
        title.append("without session order")
    if isinstance(result.verdict, Rejected):
        found = result.verdict.counterexample
        what = f"{anomaly_title(found)}, {count(len(found.transactions), 'transaction')}"
    else:
        what = size_phrase(result) + _seconds(result)
    if source:
        room = max(24, WIDTH - 10 - sum(cells(part) + 2 for part in title) - cells(what) - 2)
        title.append(f"{elide(source, room)}: {what}")
    else:
        title.append(what)
    lines = wrap(f"{pad(word.upper(), 8)}  {'  '.join(title)}", WIDTH)
    if color:
        lines[0] = _VERDICT_COLOR[word] + word.upper() + _RESET + lines[0][len(word) :]
    if isinstance(result.verdict, Rejected):
        lines += counterexample_lines(result.verdict.counterexample, color)
        lines += _indented(f"Checked {size_phrase(result)}{_seconds(result)}.", 2)
    elif isinstance(result.verdict, Unknown):
        lines += _indented(result.verdict.reason, 2)
    effort = choices_phrase(result)
    left_out = left_out_phrase(result)
    closing = [effort + "."] if effort else []
    if left_out:
        closing.append(f"Left out: {left_out}.")
    joined = " ".join(closing)
    for sentence in [joined] if closing and cells(joined) <= WIDTH - 2 else closing:
        lines += _indented(sentence, 2)
    return "\n".join(lines) + "\n"


def _seconds(result: Result) -> str:
    return f", {duration(result.seconds['total'])}" if "total" in result.seconds else ""


def _indented(text: str, indent: int, hanging: int = 0) -> list[str]:
    """The text wrapped, every line indented, those after the first by `hanging` more."""
    lines = wrap(text, WIDTH - indent - hanging)
    return [" " * (indent + (hanging if number else 0)) + line for number, line in enumerate(lines)]


def counterexample_lines(found: Counterexample, color: bool = False) -> list[str]:
    """What a rejection rests on: the transactions, and each step of the contradiction."""
    lines = _indented(found.summary, 2) if found.summary else []
    lines += _transaction_lines(found, color)
    for fact in found.facts:
        lines += _indented(fact, 2, hanging=2)
    for number, case in enumerate(found.cases, 1):
        lines += _case_lines(case, number, len(found.cases))
    return lines


def _case_lines(case: Case, number: int, cases: int) -> list[str]:
    lines: list[str] = []
    indent = 2
    if cases > 1 or case.assumptions:
        heading = f"Case {number} of {cases}. " if cases > 1 else ""
        lines += _indented((heading + " ".join(case.assumptions)).rstrip(), 2, hanging=2)
        indent = 4
    for step in case.steps:
        lines += _indented(step.reason, indent, hanging=2)
    return lines + (_indented(case.conclusion, indent) if case.conclusion else [])


def _transaction_lines(found: Counterexample, color: bool) -> list[str]:
    """A header line and the operations of each transaction, columns aligned over all of them."""
    clock = Clock(found.transactions)
    keys = keys_that_matter(found)
    span_width = max((cells(clock.span(transaction)) for transaction in found.transactions), default=0)
    name_cells_max = min(_NAME_CELLS_MAX, max(10, (WIDTH - _HEADER_FIXED_CELLS - span_width) // 2))
    headers = [_header_columns(transaction, clock, name_cells_max) for transaction in found.transactions]
    column_widths = [max(map(cells, column), default=0) for column in zip(*headers, strict=True)]
    shown = [shorten_operations(t.operations, keys, _OPERATIONS_MAX) for t in found.transactions]
    access_width = max((cells(_access(o)) for ops in shown for o in ops if isinstance(o, ShownOperation)), default=0)
    lines: list[str] = []
    for header, operations in zip(headers, shown, strict=True):
        label, *rest = (pad(text, width) for text, width in zip(header, column_widths, strict=True))
        columns = [f"{_BOLD}{label}{_RESET}" if color else label, *(text for text in rest if text)]
        lines.append(("  " + "  ".join(columns)).rstrip())
        lines += [_operation_line(operation, access_width) for operation in operations]
    if clock.note:
        lines.append("  " + clock.note)
    return lines


def _header_columns(transaction: ShownTransaction, clock: Clock, name_cells_max: int) -> list[str]:
    return [
        visible(transaction.label),
        f"{elide(transaction.session, name_cells_max)} / {transaction_place(transaction)}",
        elide(transaction.name, name_cells_max),
        clock.span(transaction),
        "" if transaction.status == "committed" else transaction.status,
    ]


def _access(operation: ShownOperation) -> str:
    """`read  doctors/7 v41` or `wrote doctors/9 v12 -> v58`."""
    versions = elide(operation.version, _VERSION_CELLS_MAX)
    if operation.previous:
        room = max(10, _VERSION_CELLS_MAX - 4 - cells(versions))
        versions = f"{elide(operation.previous, room)} -> {versions}"
    return f"{verb(operation):<5} {elide(operation.key, _KEY_CELLS_MAX)} {versions}"


def _operation_line(operation: ShownOperation | int, access_width: int) -> str:
    indent = " " * _OPERATION_INDENT
    if isinstance(operation, int):
        return f"{indent}... {count(operation, 'more operation')} ..."
    access = _access(operation)
    # One very long key would push every statement to the margin, so only short accesses share a column.
    access = pad(access, min(access_width, 44)) if cells(access) < 44 else access
    room = WIDTH - _OPERATION_INDENT - cells(access) - 4
    statement = elide(" ".join(operation.statement.split()), room) if operation.statement and room >= 16 else ""
    return f"{indent}{access}    {statement}".rstrip()
