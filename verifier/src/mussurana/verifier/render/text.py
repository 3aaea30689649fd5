"""A result as text: what `mussurana check` prints.

Accepted and unknown take a few lines. A rejection lists the transactions with what they did, then says each step of
the contradiction in a sentence. Lines stay within `WIDTH` columns, or the fewer that a terminal has,
whatever the names in the history are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mussurana.verifier.render.words import (
    Clock,
    anomaly_title,
    cells,
    choices_phrase,
    count,
    duration,
    elide,
    elide_statement,
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

WIDTH_MIN = 72  # below it columns have no room left, and a terminal may as well wrap

_OPERATIONS_MAX = 12  # per transaction; a screen shows about four such transactions
_KEY_CELLS_MAX = 48  # these two where there is room; `_access` has the rest
_VERSION_CELLS_MAX = 40
_PREVIOUS_CELLS_MIN = 10
_NAME_CELLS_MAX = 28  # of a session and of a transaction's own name, less where times need the room
_ACCESS_CELLS_MAX = 44  # of what was done to a key, where statements stand beside it in a column
_OPERATION_INDENT = 8

_BOLD, _RESET = "\x1b[1m", "\x1b[0m"
_VERDICT_COLOR = {"accepted": "\x1b[1;32m", "rejected": "\x1b[1;31m", "unknown": "\x1b[1;33m"}


def width_for(columns: int) -> int:
    """How wide text may be on a terminal with so many columns."""
    return max(WIDTH_MIN, min(WIDTH, columns))


def result_text(result: Result, source: str = "", color: bool = False, width: int = WIDTH) -> str:
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
        room = max(24, width - 10 - sum(cells(part) + 2 for part in title) - cells(what) - 2)
        title.append(f"{elide(source, room)}: {what}")
    else:
        title.append(what)
    lines = wrap(f"{pad(word.upper(), 8)}  {'  '.join(title)}", width)
    if color:
        lines[0] = _VERDICT_COLOR[word] + word.upper() + _RESET + lines[0][len(word) :]
    if isinstance(result.verdict, Rejected):
        lines += counterexample_lines(result.verdict.counterexample, color, width)
        lines += _indented(f"Checked {size_phrase(result)}{_seconds(result)}.", 2, width)
    elif isinstance(result.verdict, Unknown):
        lines += _indented(result.verdict.reason, 2, width)
    effort = choices_phrase(result)
    left_out = left_out_phrase(result)
    closing = [effort + "."] if effort else []
    if left_out:
        closing.append(f"Left out: {left_out}.")
    joined = " ".join(closing)
    for sentence in [joined] if closing and cells(joined) <= width - 2 else closing:
        lines += _indented(sentence, 2, width)
    return "\n".join(lines) + "\n"


def _seconds(result: Result) -> str:
    return f", {duration(result.seconds['total'])}" if "total" in result.seconds else ""


def _indented(text: str, indent: int, width: int, hanging: int = 0) -> list[str]:
    """The text wrapped, every line indented, those after the first by `hanging` more."""
    lines = wrap(text, width - indent - hanging)
    return [" " * (indent + (hanging if number else 0)) + line for number, line in enumerate(lines)]


def counterexample_lines(found: Counterexample, color: bool = False, width: int = WIDTH) -> list[str]:
    """What a rejection rests on: the transactions, and each step of the contradiction."""
    lines = _indented(found.summary, 2, width) if found.summary else []
    lines += _transaction_lines(found, color, width)
    for fact in found.facts:
        lines += _indented(fact, 2, width, hanging=2)
    for number, case in enumerate(found.cases, 1):
        lines += _case_lines(case, number, len(found.cases), width)
    return lines


def _case_lines(case: Case, number: int, cases: int, width: int) -> list[str]:
    lines: list[str] = []
    indent = 2
    if cases > 1 or case.assumptions:
        heading = f"Case {number} of {cases}. " if cases > 1 else ""
        lines += _indented((heading + " ".join(case.assumptions)).rstrip(), 2, width, hanging=2)
        indent = 4
    for step in case.steps:
        lines += _indented(step.reason, indent, width, hanging=2)
    return lines + (_indented(case.conclusion, indent, width) if case.conclusion else [])


def _transaction_lines(found: Counterexample, color: bool, width: int) -> list[str]:
    """A header line and the operations of each transaction, columns aligned over all of them."""
    clock = Clock(found.transactions)
    keys = keys_that_matter(found)
    name_cells_max = _name_cells_max(found.transactions, clock, width)
    headers = [_header_columns(transaction, clock, name_cells_max) for transaction in found.transactions]
    column_widths = [max(map(cells, column), default=0) for column in zip(*headers, strict=True)]
    shown = [shorten_operations(t.operations, keys, _OPERATIONS_MAX) for t in found.transactions]
    access_width = max(
        (cells(_access(o, width)) for ops in shown for o in ops if isinstance(o, ShownOperation)), default=0
    )
    lines: list[str] = []
    for transaction, header, operations in zip(found.transactions, headers, shown, strict=True):
        label, *rest = (pad(text, room) for text, room in zip(header, column_widths, strict=True))
        columns = [f"{_BOLD}{label}{_RESET}" if color else label, *(text for text in rest if text)]
        lines.append(("  " + "  ".join(columns)).rstrip())
        if transaction.isolation:
            lines.append(" " * _OPERATION_INDENT + f"ran at {transaction.isolation.lower()}")
        lines += [_operation_line(operation, access_width, width) for operation in operations]
    if clock.note:
        lines.append("  " + clock.note)
    return lines


def _name_cells_max(transactions: Sequence[ShownTransaction], clock: Clock, width: int) -> int:
    """The room that all else in the first lines of transactions leaves to the names of sessions and of transactions."""
    bare = [_header_columns(replace(each, session="", name=""), clock, 0) for each in transactions]
    taken = sum(max(map(cells, column)) + 2 for column in zip(*bare, strict=True))
    names = 2 if any(each.name for each in transactions) else 1
    return min(_NAME_CELLS_MAX, max(10, (width - taken) // names))


def _header_columns(transaction: ShownTransaction, clock: Clock, name_cells_max: int) -> list[str]:
    return [
        visible(transaction.label),
        f"{elide(transaction.session, name_cells_max)} / {transaction_place(transaction)}",
        elide(transaction.name, name_cells_max),
        clock.span(transaction),
        "" if transaction.status == "committed" else transaction.status,
    ]


def _access(operation: ShownOperation, width: int) -> str:
    """`read  doctors/7 v41` or `wrote doctors/9 v12 -> v58`."""
    room = width - _OPERATION_INDENT - len("wrote  ") - len(" -> ") - _PREVIOUS_CELLS_MIN
    key_cells_max = min(_KEY_CELLS_MAX, room // 2)
    version_cells_max = min(_VERSION_CELLS_MAX, room - key_cells_max)
    versions = elide(operation.version, version_cells_max)
    if operation.previous:
        rest = max(_PREVIOUS_CELLS_MIN, version_cells_max - 4 - cells(versions))
        versions = f"{elide(operation.previous, rest)} -> {versions}"
    return f"{verb(operation):<5} {elide(operation.key, key_cells_max)} {versions}"


def _operation_line(operation: ShownOperation | int, access_width: int, width: int) -> str:
    indent = " " * _OPERATION_INDENT
    if isinstance(operation, int):
        return f"{indent}... {count(operation, 'more operation')} ..."
    access = _access(operation, width)
    # One very long key would push every statement to the margin, so only short accesses share a column.
    access = pad(access, min(access_width, _ACCESS_CELLS_MAX)) if cells(access) < _ACCESS_CELLS_MAX else access
    room = width - _OPERATION_INDENT - cells(access) - 4
    statement = elide_statement(operation.statement, room) if operation.statement and room >= 16 else ""
    return f"{indent}{access}    {statement}".rstrip()
