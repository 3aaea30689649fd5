"""Whole rows in expressions: `row_to_json(t)` would show our columns and `t = u` compare them, so they are written out.

A record of the same names and values takes its place, which is as good for a function that makes JSON or counts, for
`t IS NULL` and for `t::text`, and compares as the row did. Where the row itself is the value (`SELECT t FROM t`) it is
not, since a record has another type than a row of the table; such values are cut when they have come (composites.py).
Rows of one table that are ordered or grouped with each other need nothing: they have a key, and with the key our
columns are the same as well. `TABLE t` is written out as a SELECT.
"""

from __future__ import annotations

from dataclasses import dataclass

from mussurana.collector.catalog import Table
from mussurana.collector.sql.draft import XMIN, Draft, quoted
from mussurana.collector.sql.functions import AGGREGATE
from mussurana.collector.sql.query import (
    Query,
    Select,
    Source,
    inserted_query,
    is_clause_from,
    parse_query,
    parse_source,
    skip_with,
    split_items,
)
from mussurana.collector.sql.select import all_selects, names_no_value
from mussurana.collector.sql.splice import Splice
from mussurana.collector.sql.tokens import NotUnderstood, Token
from mussurana.collector.sql.writes import Target, find_word

_FUNCTION_WORDS = """
    array_to_json concat concat_ws format hstore json_agg json_agg_strict json_build_array json_build_object
    json_object_agg json_object_agg_strict jsonb_agg jsonb_agg_strict jsonb_build_array jsonb_build_object
    jsonb_object_agg jsonb_object_agg_strict row_to_json to_json to_jsonb
"""
FUNCTIONS = frozenset(_FUNCTION_WORDS.split())
"""For which a record is as good as a row."""

_AGGREGATES = AGGREGATE | FUNCTIONS & frozenset(name for name in FUNCTIONS if "_agg" in name)

_TEXT = frozenset({"TEXT", "VARCHAR"})

_BEFORE_A_TABLE = frozenset({"(", "AS", "UNION", "EXCEPT", "INTERSECT", "ALL", "DISTINCT"})

_COMPARISONS = frozenset({"=", "<>", "!=", "<", ">", "<=", ">="})
_AFTER_COMPARED = _COMPARISONS | {"IN", "BETWEEN"}
_SUBQUERY_COMPARES = frozenset({"IN", "ANY", "SOME", "ALL"})
_BEFORE_CONDITION = frozenset({"WHERE", "ON", "HAVING", "WHEN", "SELECT", "RETURNING", "CASE"})

_BEFORE_TABLES = frozenset({"FROM", "JOIN", "INTO", "UPDATE", "USING"})


ROWS_HAVE_A_MAXIMUM_SINCE = 18
"""From this version of PostgreSQL on max and min take records."""


def without_whole_rows(draft: Draft, end: int) -> str:
    """The text with records in place of whole rows, where that makes no other difference; else the text as it is."""
    text = draft.text
    if draft.is_sqlite or draft.version_column == XMIN:
        return text
    splice = Splice(text)
    _write_out_tables(draft, end, splice)
    if _may_have_rows(draft, end):
        try:
            rows, named_at = _rows(draft, end)
        except (NotUnderstood, IndexError):
            rows, named_at = {}, set()
        if rows:
            _write_out_rows(draft, end, rows, named_at, splice)
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
    """Whether it is worth to look further: a name stands for a value, and also where a table is named."""
    tokens = draft.tokens
    values: set[str] = set()
    tables: set[str] = set()
    lists_tables = False
    for index in range(1, end):
        token, before = tokens[index], tokens[index - 1]
        if token.word in ("FROM", "USING"):
            lists_tables = True
        if not token.is_name:
            continue
        if before.word in _BEFORE_TABLES or names_no_value(before):
            tables.add(token.name)
            if before.word != "FROM" or is_clause_from(tokens, index - 1):
                continue
        elif lists_tables and before.word in (",", "("):
            tables.add(token.name)
        words = [each.word for each in tokens[index + 1 : index + 3]]
        if words[:1] not in (["."], ["("]) or words == [".", "*"]:
            values.add(token.name)
    return bool(values & tables)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table without our columns."""

    columns: str
    record: str
    named: str  # the same as a record that gives a column of a result the name of the table
    compared: str  # the same without names of its fields, which are not compared


def _write_out_rows(draft: Draft, end: int, rows: dict[str, Row], named_at: set[int], splice: Splice) -> None:
    tokens = draft.tokens
    grouped = any(token.word in ("GROUP", "GROUP BY", "HAVING") for token in tokens[:end])
    opened: list[int] = []  # the parentheses around the token at hand
    for index in range(1, end):
        while opened and tokens[opened[-1]].closing < index:
            opened.pop()
        token = tokens[index]
        if token.closing >= 0:
            opened.append(index)
            continue
        row = rows.get(token.name) if token.is_name and index not in named_at else None
        if row is None or (grouped and not _is_aggregated(tokens, opened)):
            continue
        starred = [each.word for each in tokens[index + 1 : index + 3]] == [".", "*"]
        last = index + 2 if starred else index
        piece = _piece(draft, row, index, last, opened)
        if piece:
            splice.replace(token.start, tokens[last].end, piece)


def _piece(draft: Draft, row: Row, index: int, last: int, opened: list[int]) -> str:
    """What to write for a row in tokens [index, last]; nothing if it is to stay."""
    tokens = draft.tokens
    before = tokens[index - 1]
    after = tokens[last + 1].word if last + 1 < len(tokens) else ""
    starred = last > index
    if before.word == "FROM" and not is_clause_from(tokens, index - 1):  # IS DISTINCT FROM
        return row.compared if after not in (".", "(") else ""
    if names_no_value(before) or (after in (".", "(") and not starred):
        return ""
    called = [tokens[at - 1].name for at in opened[-2:]]
    is_argument = before.word in ("(", ",") and after in (")", ",", "ORDER BY")
    if is_argument and called and called[-1] == "row":
        return row.columns if starred else row.record
    if is_argument and opened and not starred and _is_row_constructor(tokens, opened[-1]):
        return row.record
    if _is_cast(tokens, index, last):
        return row.named
    if is_argument and called and called[-1] in ("max", "min") and draft.catalog.version >= ROWS_HAVE_A_MAXIMUM_SINCE:
        return row.record
    if (is_argument and _stands_records(called)) or _is_tested(tokens, last + 1) or _is_joined(tokens, index, last):
        return row.record
    if _is_compared(tokens, index, last, opened):
        return row.compared
    if tokens[0].word == "COPY" and opened[:1] == [1] and not starred and _is_copied(tokens, index, last, opened):
        return row.named  # what a value is copied as does not tell its type
    return ""


def _is_aggregated(tokens: list[Token], opened: list[int]) -> bool:
    """Whether a parenthesis around it is that of an aggregate: only there may columns be named that are not grouped."""
    for at in opened:
        closing = tokens[at].closing
        over = closing + 1 < len(tokens) and tokens[closing + 1].word == "OVER"
        if tokens[at - 1].name in _AGGREGATES and not over:
            return True
    return False


def _stands_records(called: list[str]) -> bool:
    """Whether a record is as good for the innermost function, or for what is around it: to_json(array_agg(t))."""
    return bool(called) and (called[-1] in FUNCTIONS or (called[-1] == "array_agg" and called[0] in FUNCTIONS))


def _is_row_constructor(tokens: list[Token], opening: int) -> bool:
    """`(t, 1)`"""
    before = tokens[opening - 1].word
    has_comma = len(split_items(tokens, opening + 1, tokens[opening].closing)) > 1
    return has_comma and (before in ("SELECT", ",", "IN") or before in _COMPARISONS)


def _is_joined(tokens: list[Token], index: int, last: int) -> bool:
    """`t || 'text'`"""
    if tokens[index - 1].word == "||":
        return tokens[index - 2].literal
    return tokens[last + 1].word == "||" and tokens[last + 2].literal if last + 2 < len(tokens) else False


def _is_tested(tokens: list[Token], index: int) -> bool:
    words = [token.word for token in tokens[index : index + 3]]
    return words[:2] == ["IS", "NULL"] or words == ["IS", "NOT", "NULL"]


def _is_cast(tokens: list[Token], index: int, last: int) -> bool:
    words = [token.word for token in tokens[last + 1 : last + 3]]
    if words[:1] == ["AS"]:
        return index >= 2 and tokens[index - 2].word == "CAST" and tokens[index - 1].word == "(" and words[1] in _TEXT
    return words[:1] == ["::"] and words[1] in _TEXT


def _is_compared(tokens: list[Token], index: int, last: int, opened: list[int]) -> bool:
    """`t = u`, `t IN (...)`, `t IS DISTINCT FROM u`, or what `u IN (SELECT t ...)` compares with."""
    before = tokens[index - 1].word
    words = [token.word for token in tokens[last + 1 : last + 4]]
    if before in _COMPARISONS or (words[:1] and words[0] in _COMPARISONS):
        return not _is_assigned(tokens, index)
    if (words[:1] and words[0] in _AFTER_COMPARED) or words[:2] == ["NOT", "IN"] or words[:2] == ["NOT", "BETWEEN"]:
        return True
    if words[:3] == ["IS", "DISTINCT", "FROM"] or words == ["IS", "NOT", "DISTINCT"]:
        return True
    compares = bool(opened) and tokens[opened[-1] - 1].word in _SUBQUERY_COMPARES
    if compares and before == "SELECT":
        return bool(words) and words[0] in ("FROM", "WHERE", ")")
    return compares and before in ("(", ",") and bool(words) and words[0] in (")", ",")


def _is_assigned(tokens: list[Token], index: int) -> bool:
    """Whether an equals sign before or after it is that of SET rather than of a condition."""
    inner = 0
    for token in reversed(tokens[:index]):
        inner += (token.word == ")") - (token.word == "(")
        if inner < 0 or (inner == 0 and token.word in _BEFORE_CONDITION):
            return False
        if inner == 0 and token.word == "SET":
            return True
    return False


def _is_copied(tokens: list[Token], index: int, last: int, opened: list[int]) -> bool:
    """Whether it is a column of what is copied, or an array of such."""
    if len(opened) == 2 and tokens[opened[1] - 1].name == "array_agg":
        return tokens[index - 1].word == "("
    begins = tokens[index - 1].word in ("SELECT", ",")
    return len(opened) == 1 and begins and tokens[last + 1].word in (",", "FROM", "AS", ")")


def _rows(draft: Draft, end: int) -> tuple[dict[str, Row], set[int]]:
    """By the names that tables go by in a statement: a row of it; and the indexes of the tokens that name tables."""
    tokens = draft.tokens
    rows: dict[str, Row | None] = {}
    named_at: set[int] = set()
    columns: set[str] = set()  # what a name may mean instead
    ctes: dict[str, Query | None] = {}
    statement = tokens[0].word
    index = 0
    if statement == "DECLARE":
        index = find_word(tokens, "FOR", 0, end) + 1
    elif statement == "COPY" and tokens[1].word == "(":
        index, end = 2, tokens[1].closing
    if tokens[index].word == "WITH":
        ctes, _, index = skip_with(tokens, index)

    def add(name: str, row: Row | None) -> None:
        if rows.get(name, row) != row:
            raise NotUnderstood("a name that may mean something else")
        rows[name] = row

    word = tokens[index].word
    query = Query([])
    if word == "SELECT":
        query = parse_query(tokens, index, end)
    elif word == "INSERT":
        query = inserted_query(tokens, index, end)
    if word in ("INSERT", "UPDATE", "DELETE"):
        target = Target(draft, index + (1 if word == "UPDATE" else 2), takes_alias=word != "INSERT")
        if target.table is not None:
            add(target.alias_name, _row(target.alias, target.table, target.table.columns))
            columns.update(target.table.columns)
        elif word != "INSERT":  # what is inserted cannot refer to it
            raise NotUnderstood("columns that are not known")
    elif word != "SELECT":
        raise NotUnderstood(word)
    for select in all_selects(draft, query, end):
        for source in select.sources:
            found = _columns_of(draft, source, ctes)
            columns.update(found)
            named_at.add(source.at)
            table = draft.source_table(source)
            add(source.alias_name, _row(source.alias, table, found) if table is not None else None)
    return {name: row for name, row in rows.items() if row is not None and name not in columns}, named_at


def _columns_of(draft: Draft, source: Source, ctes: dict[str, Query | None]) -> tuple[str, ...]:
    """The names of what an item of FROM gives, as the statement knows them. Raises NotUnderstood."""
    table = draft.source_table(source)
    query = source.query
    if table is not None:
        found = table.columns
    else:
        if query is None and draft.is_cte(source):
            query = ctes.get(source.name)
        if query is None:
            raise NotUnderstood("columns that are not known")
        found = _columns_of_select(draft, query.arms[0], {**ctes, **query.ctes})
    if len(source.columns) > len(found):
        raise NotUnderstood("more names than columns")
    return (*source.columns, *found[len(source.columns) :])


def _columns_of_select(draft: Draft, select: Select, ctes: dict[str, Query | None]) -> tuple[str, ...]:
    found: list[str] = []
    for number, item in enumerate(select.items):
        tokens = draft.tokens[item.first : item.last]
        if select.rows:
            found.append(f"column{number + 1}")
        elif item.star:
            sources = [each for each in select.sources if item.qualifier in ("", each.alias_name)]
            if not sources:
                raise NotUnderstood("columns that are not known")
            found += [name for each in sources for name in _columns_of(draft, each, ctes)]
        else:
            found.append(tokens[-1].name if tokens[-1].is_name else tokens[0].name)
    return tuple(found)


def _row(alias: str, table: Table, names: tuple[str, ...]) -> Row:
    """A row of a table whose columns go by these names."""
    written = dict(zip(table.columns, (f"{alias}.{quoted(each)}" for each in names), strict=True))
    columns = ", ".join(written.values())
    # As a value a row has the names that the table gives, whichever the statement does.
    named = ", ".join(f"{column} AS {quoted(name)}" for name, column in written.items())
    # An outer join may have no row; then there is no key, which cannot be null otherwise.
    key = written[table.key_columns[0]] if table.key_columns else f"{alias}.ctid"

    def record(name: str) -> str:
        return f"(SELECT {name} FROM (SELECT {named}) AS {name} WHERE {key} IS NOT NULL)"

    # Not a ROW by itself, which = would take apart and compare one by one.
    compared = f"CASE WHEN {key} IS NOT NULL THEN ROW({columns}) END"
    return Row(columns, record("mussurana_row"), record(alias), compared)
