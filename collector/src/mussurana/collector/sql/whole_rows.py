"""Whole rows as arguments of functions: `row_to_json(t)` would show our columns, so the row is written out.

A record of the same names and values takes its place, which is as good for a function that makes JSON or counts. Where
the row itself is returned (`SELECT t FROM t`) it is not: a record has another type than a row of the table. Such
statements stay as they are, as do those with GROUP BY, in which single columns may not be named.
"""

from __future__ import annotations

from mussurana.collector.catalog import Table
from mussurana.collector.sql.draft import XMIN, Draft, quoted
from mussurana.collector.sql.query import Query, Source, parse_query
from mussurana.collector.sql.select import all_selects
from mussurana.collector.sql.splice import Splice
from mussurana.collector.sql.tokens import NotUnderstood
from mussurana.collector.sql.writes import Target

FUNCTIONS = frozenset(
    {"row_to_json", "to_json", "to_jsonb", "json_agg", "jsonb_agg", "json_build_array", "jsonb_build_array"}
    | {"json_build_object", "jsonb_build_object", "concat", "concat_ws"}
)


def without_whole_rows(draft: Draft, end: int) -> str:
    """The text with records in place of whole rows, where that makes no other difference; else the text as it is."""
    tokens, text = draft.tokens, draft.text
    if draft.is_sqlite or draft.version_column == XMIN:
        return text
    if not any(token.name in FUNCTIONS for token in tokens) or any(
        token.word in ("GROUP", "GROUP BY") for token in tokens
    ):
        return text
    try:
        rows = _rows(draft, end)
    except (NotUnderstood, IndexError):
        return text
    splice = Splice(text)
    opened: list[int] = []  # the parentheses around the token at hand
    for index in range(1, end):
        while opened and tokens[opened[-1]].closing < index:
            opened.pop()
        token = tokens[index]
        if token.closing >= 0:
            opened.append(index)
            continue
        row = rows.get(token.name) if token.is_name and opened and tokens[index - 1].word in ("(", ",") else None
        called = [tokens[at - 1].name for at in opened[-2:]]  # to_json(array_agg(t)) is as good as json_agg(t)
        if row is None or (called[-1] not in FUNCTIONS and (called[-1] != "array_agg" or called[0] not in FUNCTIONS)):
            continue
        starred = [each.word for each in tokens[index + 1 : index + 3]] == [".", "*"]
        last = index + 2 if starred else index
        if tokens[last + 1].word in (")", ",", "ORDER BY"):
            splice.replace(token.start, tokens[last].end, row)
    return splice.apply(draft.placeholders, draft.style, draft.dialect)[0] if splice else text


def _rows(draft: Draft, end: int) -> dict[str, str]:
    """By the names that tables go by in a statement: an expression for a row of it, without our columns."""
    tokens = draft.tokens
    found: dict[str, tuple[str, Table]] = {}
    columns: set[str] = set()

    def add(name: str, alias: str, table: Table | None) -> None:
        if table is None or found.get(name, (alias, table)) != (alias, table):
            raise NotUnderstood("a name that may mean something else")
        found[name] = alias, table
        columns.update(table.columns)

    word = tokens[0].word
    query = parse_query(tokens, 0, end) if word == "SELECT" else Query([])
    if word in ("INSERT", "UPDATE", "DELETE"):
        target = Target(draft, 1 if word == "UPDATE" else 2, takes_alias=word != "INSERT")
        add(target.alias_name, target.alias, target.table)
    elif word != "SELECT":
        raise NotUnderstood(word)
    sources: list[Source] = [source for select in all_selects(draft, query, end) for source in select.sources]
    for source in sources:
        add(source.alias_name, source.alias, None if source.query is not None else draft.source_table(source))
    return {
        name: f"(SELECT mussurana_row FROM (SELECT {', '.join(f'{alias}.{quoted(each)}' for each in table.columns)}) "
        f"AS mussurana_row WHERE {alias} IS DISTINCT FROM NULL)"
        for name, (alias, table) in found.items()
        if name not in columns
    }
