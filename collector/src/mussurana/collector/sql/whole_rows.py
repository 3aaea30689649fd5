"""Whole rows that are not returned themselves: `row_to_json(t)` would show our columns, so the row is written out.

A record of the same names and values takes its place, which is as good for a function that makes JSON or counts, for
`t IS NULL` and for `t::text`. Where the row itself is returned (`SELECT t FROM t`) it is not: a record has another type
than a row of the table. Such statements stay as they are, as do those with GROUP BY, in which single columns may not
be named. `TABLE t` is written out as a SELECT.
"""

from __future__ import annotations

from dataclasses import dataclass

from mussurana.collector.catalog import Table
from mussurana.collector.sql.draft import XMIN, Draft, quoted
from mussurana.collector.sql.query import Query, Source, inserted_query, parse_query, parse_source
from mussurana.collector.sql.select import all_selects, names_no_value
from mussurana.collector.sql.splice import Splice
from mussurana.collector.sql.tokens import NotUnderstood, Token
from mussurana.collector.sql.writes import Target

FUNCTIONS = frozenset(
    {"row_to_json", "to_json", "to_jsonb", "json_agg", "jsonb_agg", "json_build_array", "jsonb_build_array"}
    | {"json_build_object", "jsonb_build_object", "concat", "concat_ws"}
)


_TEXT = frozenset({"TEXT", "VARCHAR"})

_BEFORE_A_TABLE = frozenset({"(", "AS", "UNION", "EXCEPT", "INTERSECT", "ALL", "DISTINCT"})


def without_whole_rows(draft: Draft, end: int) -> str:
    """The text with records in place of whole rows, where that makes no other difference; else the text as it is."""
    text = draft.text
    if draft.is_sqlite or draft.version_column == XMIN:
        return text
    splice = Splice(text)
    _write_out_tables(draft, end, splice)
    if _may_have_rows(draft, end):
        try:
            rows = _rows(draft, end)
        except (NotUnderstood, IndexError):
            rows = {}
        _write_out_rows(draft, end, rows, splice)
    return splice.apply(draft.placeholders, draft.style, draft.dialect)[0] if splice else text


def _write_out_tables(draft: Draft, end: int, splice: Splice) -> None:
    """`TABLE t`, where it is a query."""
    tokens = draft.tokens
    for index in range(end):
        if tokens[index].word != "TABLE":
            continue
        inserts = tokens[0].word == "INSERT" and (tokens[index - 1].is_name or tokens[index - 1].word == ")")
        if index and tokens[index - 1].word not in _BEFORE_A_TABLE and not inserts:
            continue
        _, source = parse_source(tokens, index + 1, end)
        table = draft.source_table(source)
        if table is not None:
            columns = ", ".join(f"{source.alias}.{quoted(column)}" for column in table.columns)
            splice.replace(tokens[index].start, tokens[index].end, f"SELECT {columns} FROM")


def _may_have_rows(draft: Draft, end: int) -> bool:
    """Whether it is worth to look further."""
    words = {token.word for token in draft.tokens[:end]}
    if words & {"GROUP", "GROUP BY"}:
        return False
    return bool(words & {"IS", "::", "ROW"}) or any(token.name in FUNCTIONS for token in draft.tokens[:end])


def _write_out_rows(draft: Draft, end: int, rows: dict[str, Row], splice: Splice) -> None:
    tokens = draft.tokens
    opened: list[int] = []  # the parentheses around the token at hand
    for index in range(1, end):
        while opened and tokens[opened[-1]].closing < index:
            opened.pop()
        token = tokens[index]
        if token.closing >= 0:
            opened.append(index)
            continue
        row = rows.get(token.name) if token.is_name else None
        if row is None or names_no_value(tokens[index - 1]):
            continue
        starred = [each.word for each in tokens[index + 1 : index + 3]] == [".", "*"]
        last = index + 2 if starred else index
        called = [tokens[at - 1].name for at in opened[-2:]]
        if starred and called and called[-1] == "row" and _is_argument(tokens, index, last):
            splice.replace(token.start, tokens[last].end, row.columns)
        elif _is_cast(tokens, last + 1):
            splice.replace(token.start, tokens[last].end, row.named)
        elif (_is_argument(tokens, index, last) and _stands_records(called)) or _is_tested(tokens, last + 1):
            splice.replace(token.start, tokens[last].end, row.record)


def _is_argument(tokens: list[Token], first: int, last: int) -> bool:
    return tokens[first - 1].word in ("(", ",") and tokens[last + 1].word in (")", ",", "ORDER BY")


def _stands_records(called: list[str]) -> bool:
    """Whether a record is as good for the innermost function, or for what is around it: to_json(array_agg(t))."""
    return bool(called) and (called[-1] in FUNCTIONS or (called[-1] == "array_agg" and called[0] in FUNCTIONS))


def _is_tested(tokens: list[Token], index: int) -> bool:
    words = [token.word for token in tokens[index : index + 3]]
    return words[:2] == ["IS", "NULL"] or words == ["IS", "NOT", "NULL"]


def _is_cast(tokens: list[Token], index: int) -> bool:
    words = [token.word for token in tokens[index : index + 2]]
    return words[:1] == ["::"] and words[1] in _TEXT


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table without our columns."""

    columns: str
    record: str
    named: str  # the same as a record that gives a column of a result the name of the table


def _rows(draft: Draft, end: int) -> dict[str, Row]:
    """By the names that tables go by in a statement: a row of it."""
    tokens = draft.tokens
    found: dict[str, tuple[str, Table]] = {}
    columns: set[str] = set()

    def add(name: str, alias: str, table: Table | None) -> None:
        if table is None or found.get(name, (alias, table)) != (alias, table):
            raise NotUnderstood("a name that may mean something else")
        found[name] = alias, table
        columns.update(table.columns)

    word = tokens[0].word
    query = Query([])
    if word == "SELECT":
        query = parse_query(tokens, 0, end)
    elif word == "INSERT":
        query = inserted_query(tokens, 0, end)
    if word in ("INSERT", "UPDATE", "DELETE"):
        target = Target(draft, 1 if word == "UPDATE" else 2, takes_alias=word != "INSERT")
        if word != "INSERT" or target.table is not None:  # what is inserted cannot refer to it
            add(target.alias_name, target.alias, target.table)
    elif word not in ("SELECT", "COPY"):
        raise NotUnderstood(word)
    sources: list[Source] = [source for select in all_selects(draft, query, end) for source in select.sources]
    for source in sources:
        add(source.alias_name, source.alias, None if source.query is not None else draft.source_table(source))
    return {name: _row(alias, table) for name, (alias, table) in found.items() if name not in columns}


def _row(alias: str, table: Table) -> Row:
    columns = ", ".join(f"{alias}.{quoted(each)}" for each in table.columns)
    # An outer join may have no row; then there is no key, which cannot be null otherwise.
    key = quoted(table.key_columns[0] if table.key_columns else "ctid")

    def record(name: str) -> str:
        return f"(SELECT {name} FROM (SELECT {columns}) AS {name} WHERE {alias}.{key} IS NOT NULL)"

    return Row(columns, record("mussurana_row"), record(alias))
