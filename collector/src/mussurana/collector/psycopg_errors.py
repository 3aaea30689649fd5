"""Errors as they would have been: about the statement that the application wrote, not about the one that was sent.

PostgreSQL says at which character of the statement something is wrong, libpq shows the line, and a violated constraint
shows the row. In all of these something of ours would show. Only errors come here, so nothing has to be fast.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

from psycopg import errors as e
from psycopg._server_cursor_base import ServerCursorMixin
from psycopg.pq import DiagnosticField

from mussurana.collector.catalog import Catalog, Table
from mussurana.collector.sql.plan import Plan
from mussurana.collector.sql.tokens import POSTGRES, RAW, NotUnderstood, tokenize

# How libpq cuts a long line (reportErrorPosition in fe-protocol3.c).
DISPLAY_SIZE = 60
RIGHT_CUT_MIN = 10

_NUMBER = r", (?:\d+|null)"

_LINE = re.compile(r"^LINE \d+: .*\n *\^", re.MULTILINE)


def repair_error(
    error: BaseException, cursor: Any, plan: Plan, query: Any, params: Any, write_id: int, tagged: Catalog | None
) -> None:
    """Change an error in place, if something of ours is in it. `tagged` has the tables with columns of ours."""
    if not isinstance(error, e.Error) or error.pgresult is None:
        return
    result = error.pgresult
    changed: dict[DiagnosticField, bytes | None] = {}
    edits: list[Callable[[str], str]] = []
    position = error.diag.statement_position
    if position is not None and plan.text != plan.original:
        given = params if plan.injection is None else plan.injection(params, write_id)
        declares = isinstance(cursor, ServerCursorMixin)
        sent = converted(cursor, cursor._make_declare_statement(plan.text) if declares else plan.text, given)
        original = converted(cursor, cursor._make_declare_statement(query) if declares else query, params)
        place = original_place(sent, original, int(position) - 1)
        if place is not None:
            changed[DiagnosticField.STATEMENT_POSITION] = str(place + 1).encode()
            line = shown_line(original, place)
            edits.append(lambda message: _LINE.sub(lambda _: line, message, count=1))
    detail, name = error.diag.message_detail, error.diag.table_name
    table = tagged.table(name, error.diag.schema_name) if name and tagged is not None else None
    if detail is not None and table is not None and detail.startswith("Failing row contains"):
        shorter = without_versions(detail, table, write_id)
        if shorter != detail:
            changed[DiagnosticField.MESSAGE_DETAIL] = shorter.encode(error._encoding)
            edits.append(lambda message: message.replace(detail, shorter))
    if changed:
        repaired: Any = RepairedResult(result, changed, edits)
        error._info = repaired
        error.args = (repaired.edited(str(error.args[0]) if error.args else ""), *error.args[1:])


class RepairedResult:
    """The result that an error came with, as it would have been."""

    def __init__(
        self, result: Any, changed: dict[DiagnosticField, bytes | None], edits: list[Callable[[str], str]]
    ) -> None:
        self._result = result
        self._changed = changed
        self._edits = edits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    def edited(self, message: str) -> str:
        for edit in self._edits:
            message = edit(message)
        return message

    def error_field(self, fieldcode: int) -> bytes | None:
        field = DiagnosticField(fieldcode)
        return self._changed[field] if field in self._changed else self._result.error_field(field)

    @property
    def error_message(self) -> bytes:
        return self.edited(self._result.error_message.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )

    def get_error_message(self, encoding: str = "utf-8") -> str:
        return self.edited(self._result.get_error_message(encoding))


def without_versions(detail: str, table: Table, write_id: int) -> str:
    """What is said of a row, without our columns."""
    if write_id:
        return re.sub(rf", {write_id}\b{_NUMBER if table.has_prev else ''}(?=[,)])", "", detail, count=1)
    after = ", [^,]*" * table.columns_after
    return re.sub(rf"{_NUMBER * (1 + table.has_prev)}({after}\)\.)$", r"\1", detail)


def may_be_ours(error: BaseException, plan: Plan | None) -> bool:
    """Whether the database may have refused a statement because of what we made of it, before it did anything.

    Class 42 has all that is wrong with names, rights and syntax, and 0A what the server cannot do. Where columns had to
    be named it is not: as it was written, such a statement might succeed and write to our column.
    """
    changed = plan is not None and plan.control is None and plan.text != plan.original and not plan.names_columns
    return changed and isinstance(error, e.Error) and (error.sqlstate or "")[:2] in ("42", "0A")


def as_sent(cursor: Any, query: Any, params: Any) -> Any:
    """What psycopg makes of a query: its text, and parameters with their types and formats."""
    made = cursor._query_cls(cursor._tx)
    made.convert(query, params)
    return made


def converted(cursor: Any, query: Any, params: Any) -> str:
    """The text that psycopg sends for a query."""
    return bytes(as_sent(cursor, query, params).query).decode(cursor._encoding)


def original_place(sent: str, original: str, offset: int) -> int | None:
    """Where in the original the character at `offset` of what was sent is; None if it is ours, or cannot be found."""
    try:
        sent_tokens, _ = tokenize(sent, RAW, POSTGRES)
        original_tokens, _ = tokenize(original, RAW, POSTGRES)
    except NotUnderstood:
        return None
    at = next((index for index, token in enumerate(sent_tokens) if token.start <= offset < token.end), None)
    if at is None:
        return len(original) if offset >= len(sent) else None
    sent_words, words = ([each.word or each.text or "$" for each in some] for some in (sent_tokens, original_tokens))
    for block in SequenceMatcher(None, sent_words, words, autojunk=False).get_matching_blocks():
        if block.a <= at < block.a + block.size:
            token = original_tokens[block.b + at - block.a]
            return token.start + offset - sent_tokens[at].start
    return None


def shown_line(query: str, place: int) -> str:
    """The two lines in which libpq shows a place of a query."""
    number, start, end = 1, 0, len(query)
    columns = [0]
    for index, character in enumerate(query):
        if character in "\r\n":
            if index >= place:
                end = index
                break
            if character == "\r" or index == 0 or query[index - 1] != "\r":
                number += 1
            start = index + 1
        columns.append(columns[-1] + (2 if unicodedata.east_asian_width(character) in "WF" else 1))
    cut_left = cut_right = False
    if columns[end] - columns[start] > DISPLAY_SIZE:
        if columns[start] + DISPLAY_SIZE >= columns[place] + RIGHT_CUT_MIN:
            while columns[end] - columns[start] > DISPLAY_SIZE:
                end -= 1
            cut_right = True
        else:
            while columns[place] + RIGHT_CUT_MIN < columns[end]:
                end -= 1
                cut_right = True
            while columns[end] - columns[start] > DISPLAY_SIZE:
                start += 1
                cut_left = True
    prefix = f"LINE {number}: " + ("..." if cut_left else "")
    line = query[start:end].replace("\t", " ")
    marker = " " * (len(prefix) + columns[place] - columns[start])
    return f"{prefix}{line}{'...' if cut_right else ''}\n{marker}^"
