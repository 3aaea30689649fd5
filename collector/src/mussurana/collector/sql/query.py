"""The skeleton of a query: its SELECTs, what they take from where, and which places in the text that is.

Only the skeleton is read; expressions are passed over by their parentheses. What does not fit raises NotUnderstood,
and the statement runs untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mussurana.collector.sql.tokens import NotUnderstood, Token

SET_OPERATIONS = frozenset({"UNION", "INTERSECT", "EXCEPT"})
_AFTER_FROM = frozenset(
    {"WHERE", "GROUP BY", "HAVING", "WINDOW", "ORDER BY", "LIMIT", "OFFSET", "FETCH", "FOR", "RETURNING", "GROUP"}
)
_JOIN_WORDS = frozenset({"JOIN", "NATURAL", "CROSS", "INNER", "LEFT", "RIGHT", "FULL", "OUTER"})
WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})


@dataclass(slots=True)
class Source:
    """An item of FROM."""

    alias: str  # as it has to be written to refer to it
    alias_name: str  # as the database stores it
    name: str = ""  # of a table, view or CTE; empty for anything else
    schema: str | None = None
    query: Query | None = None  # of a subquery
    end: int = 0  # offset after it
    natural: int = -1  # index of the token NATURAL before it
    columns: tuple[str, ...] = ()  # the names that its alias gives to the first ones
    function: bool = False
    at: int = -1  # index of the token that names it
    using: tuple[str, ...] = ()  # columns that it shares with what stands left of it
    separate: bool = False  # a comma is before it, so that it shares none


@dataclass(slots=True)
class Item:
    """An item of a SELECT list or of RETURNING, as tokens [first, last)."""

    first: int
    last: int
    star: bool = False
    qualifier: str = ""  # of a column or of a star, as the database stores it; a parenthesis: of a value's star
    column: str = ""  # if it is a column and nothing else


@dataclass(slots=True)
class Select:
    """One SELECT, or the rows of a VALUES."""

    start: int  # index of SELECT or VALUES
    end: int = 0  # index of the token after it
    items: list[Item] = field(default_factory=list)
    items_end: int = 0  # offset after the last item; where more can be added
    sources: list[Source] = field(default_factory=list)
    where: tuple[int, int] = (0, 0)
    distinct: bool = False
    grouped: bool = False
    windowed: bool = False
    into: bool = False
    merged_columns: bool = False  # JOIN USING or NATURAL JOIN: a star shows some columns once
    nested_joins: bool = False  # joins in parentheses
    skips_locked: bool = False
    locks: bool = False  # FOR UPDATE and the like
    limit: tuple[int, int] = (0, 0)
    offset: bool = False
    order: tuple[int, int] = (0, 0)
    rows: list[tuple[int, int]] = field(default_factory=list)  # of VALUES: indexes of the parentheses


@dataclass(slots=True)
class Query:
    arms: list[Select]
    ctes: dict[str, Query | None] = field(default_factory=dict)  # None: it writes, or is recursive
    writes: bool = False  # a CTE of it does
    end: int = 0  # index of the token after it


def skip_with(tokens: list[Token], index: int) -> tuple[dict[str, Query | None], bool, int]:
    """The CTEs of a WITH at `index`, whether any of them writes, and the index after them."""
    ctes: dict[str, Query | None] = {}
    writes = False
    index += 1
    recursive = _word(tokens, index) == "RECURSIVE"
    if recursive:
        index += 1
    while True:
        name = _name(tokens, index)
        index += 1
        renamed = _word(tokens, index) == "("
        if renamed:
            index = tokens[index].closing + 1
        index = _expect(tokens, index, "AS")
        while _word(tokens, index) in ("NOT", "MATERIALIZED"):
            index += 1
        if _word(tokens, index) != "(":
            raise NotUnderstood("WITH")
        closing = tokens[index].closing
        inner = _word(tokens, index + 1)
        if inner in WRITES or (inner == "WITH" and any(token.word in WRITES for token in tokens[index:closing])):
            ctes[name], writes = None, True
        else:
            query = parse_query(tokens, index + 1, closing)
            writes = writes or query.writes
            ctes[name] = None if recursive or renamed else query
        index = closing + 1
        if _word(tokens, index) in ("SEARCH", "CYCLE"):
            raise NotUnderstood("WITH RECURSIVE with SEARCH or CYCLE")
        if _word(tokens, index) != ",":
            return ctes, writes, index
        index += 1


def cte_scopes(tokens: list[Token]) -> list[tuple[str, int, int]]:
    """The names of all CTEs, each with the offsets in the text between which it hides a table of that name."""
    scopes: list[tuple[str, int, int]] = []
    opened: list[int] = []  # the parentheses around the token at hand
    for index, token in enumerate(tokens):
        while opened and tokens[opened[-1]].closing <= index:
            opened.pop()
        if token.closing >= 0:
            opened.append(index)
        if token.word != "WITH":
            continue
        end = tokens[tokens[opened[-1]].closing].start if opened else tokens[-1].end
        recursive = _word(tokens, index + 1) == "RECURSIVE"
        at = index + (2 if recursive else 1)
        while at < len(tokens) and tokens[at].is_name:
            name, at = tokens[at].name, at + 1
            if _word(tokens, at) == "(":
                at = tokens[at].closing + 1
            while _word(tokens, at) in ("AS", "NOT", "MATERIALIZED"):
                at += 1
            if _word(tokens, at) != "(":
                break  # WITH ORDINALITY, WITH TIES
            closing = tokens[at].closing
            scopes.append((name, token.start if recursive else tokens[closing].end, end))
            at = closing + 1
            if _word(tokens, at) != ",":
                break
            at += 1
    return scopes


def parse_query(tokens: list[Token], index: int, end: int) -> Query:
    """The query in tokens [index, end)."""
    ctes: dict[str, Query | None] = {}
    writes = False
    if _word(tokens, index) == "WITH":
        ctes, writes, index = skip_with(tokens, index)
    query = Query([], ctes, writes)
    while True:
        word = _word(tokens, index)
        if word == "(" and _word(tokens, index + 1) in ("SELECT", "WITH", "VALUES", "("):
            closing = tokens[index].closing
            inner = parse_query(tokens, index + 1, closing)
            if inner.ctes:
                raise NotUnderstood("WITH inside a set operation")
            query.arms += inner.arms
            query.writes = query.writes or inner.writes
            index = closing + 1
        elif word == "SELECT":
            select, index = parse_select(tokens, index, end)
            query.arms.append(select)
        elif word == "VALUES":
            select, index = parse_values(tokens, index, end)
            query.arms.append(select)
        elif word == "TABLE":
            raise NotUnderstood("TABLE")
        else:
            raise NotUnderstood("a query")
        if index < end and tokens[index].word in SET_OPERATIONS:
            index += 1
            if _word(tokens, index) in ("ALL", "DISTINCT"):
                index += 1
            continue
        if index < end and len(query.arms) > 1 and tokens[index].word in _AFTER_FROM:
            index = end  # ORDER BY and LIMIT of the whole
        query.end = index
        if index != end:
            raise NotUnderstood("a query")
        return query


def inserted_query(tokens: list[Token], index: int, end: int) -> Query:
    """The query whose rows the INSERT in tokens [index, end) inserts; without arms if there is none."""
    start = -1
    while index < end:
        word = tokens[index].word
        if start < 0 and (word in ("SELECT", "VALUES") or (word == "(" and _is_query(tokens, index))):
            start = index
        elif start >= 0 and (word == "RETURNING" or (word == "ON" and _word(tokens, index + 1) == "CONFLICT")):
            break
        index = tokens[index].closing + 1 if tokens[index].closing >= 0 else index + 1
    return parse_query(tokens, start, index) if start >= 0 else Query([])


def parse_values(tokens: list[Token], index: int, end: int) -> tuple[Select, int]:
    select = Select(index)
    index += 1
    while True:
        if _word(tokens, index) != "(":
            raise NotUnderstood("VALUES")
        closing = tokens[index].closing
        select.rows.append((index, closing))
        if len(select.rows) == 1:
            select.items = split_items(tokens, index + 1, closing)
        index = closing + 1
        if index >= end or tokens[index].word != ",":
            return select, index
        index += 1


def parse_select(tokens: list[Token], index: int, end: int) -> tuple[Select, int]:
    select = Select(index)
    index += 1
    if _word(tokens, index) == "DISTINCT":
        select.distinct = True
        index += 1
        if _word(tokens, index) == "ON":
            index = tokens[index + 1].closing + 1
    elif _word(tokens, index) == "ALL":
        index += 1
    first = index
    last = 0  # of the items, where INTO follows them
    while index < end:
        token = tokens[index]
        if token.closing >= 0:
            index = token.closing + 1
            continue
        if token.word == "INTO":
            select.into = True
            last = index
        if _ends_items(tokens, index):
            break
        index += 1
    last = last or index
    if last > first and tokens[last - 1].word == ",":
        raise NotUnderstood("a list that ends with a comma")
    select.items = split_items(tokens, first, last)
    select.items_end = tokens[last - 1].end
    if index < end and tokens[index].word == "FROM":
        index = parse_sources(tokens, index + 1, end, select)
    while index < end and tokens[index].word not in SET_OPERATIONS:
        index = _clause(tokens, index, end, select)
    select.end = index
    return select, index


def _clause(tokens: list[Token], index: int, end: int, select: Select) -> int:
    word = tokens[index].word
    first = index + 1
    last = clause_end(tokens, first, end)
    if word == "WHERE":
        select.where = (first, last)
    elif word in ("GROUP BY", "HAVING"):
        select.grouped = True
    elif word == "WINDOW":
        select.windowed = True
    elif word == "ORDER BY":
        select.order = (first, last)
    elif word in ("LIMIT", "FETCH"):
        select.limit = (first, last)
    elif word == "OFFSET":
        select.offset = True
    elif word == "FOR":
        # FOR UPDATE OF t SKIP LOCKED; UPDATE and the others are not clauses here.
        last = first
        while last < end and tokens[last].word not in SET_OPERATIONS | {"LIMIT", "OFFSET", "FETCH", "FOR"}:
            last += 1
        select.locks = True
        select.skips_locked = select.skips_locked or any(token.word == "SKIP" for token in tokens[first:last])
    else:
        raise NotUnderstood(f"SELECT with {word or 'something'} after FROM")
    return last


def clause_end(tokens: list[Token], index: int, end: int) -> int:
    """The index of the token that starts the next clause of the same SELECT."""
    while index < end:
        token = tokens[index]
        if token.closing >= 0:
            index = token.closing + 1
        elif (token.word in _AFTER_FROM and not token.quoted) or token.word in SET_OPERATIONS:
            return index
        else:
            index += 1
    return end


def is_clause_from(tokens: list[Token], index: int) -> bool:
    """FROM, but not that of IS DISTINCT FROM."""
    if tokens[index].word != "FROM":
        return False
    return not (index >= 2 and tokens[index - 1].word == "DISTINCT" and tokens[index - 2].word in ("IS", "NOT"))


def _ends_items(tokens: list[Token], index: int) -> bool:
    word = tokens[index].word
    return is_clause_from(tokens, index) or (word in _AFTER_FROM and word != "FROM") or word in SET_OPERATIONS


def split_items(tokens: list[Token], first: int, last: int) -> list[Item]:
    """The items of a list that is divided by commas."""
    items: list[Item] = []
    start = index = first
    while index <= last:
        if index == last or tokens[index].word == ",":
            if index > start:
                items.append(_item(tokens, start, index))
            start = index + 1
        elif tokens[index].closing >= 0:
            index = tokens[index].closing
        index += 1
    return items


def _item(tokens: list[Token], first: int, last: int) -> Item:
    item = Item(first, last)
    part = tokens[first:last]
    if part[-1].word == "*" and len(part) in (1, 3, 5):
        item.star = len(part) == 1 or part[-2].word == "."
        item.qualifier = "" if len(part) == 1 else part[-3].name if part[-3].is_name else "("
        return item
    if len(part) > 1 and part[-1].is_name and part[-2].word != ".":  # an alias, with or without AS
        part = part[: -2 if part[-2].word == "AS" else -1]
    if len(part) == 1 and part[0].is_name:
        item.column = part[0].name
    elif len(part) == 3 and part[0].is_name and part[1].word == "." and part[2].is_name:
        item.qualifier, item.column = part[0].name, part[2].name
    return item


def parse_sources(tokens: list[Token], index: int, end: int, select: Select) -> int:
    """The items of FROM, added to `select`; returns the index after them."""
    natural, separate = -1, False
    while True:
        index, source = _source(tokens, index, end, select)
        if source is not None:
            source.natural, source.separate = natural, separate
            select.sources.append(source)
        natural, separate = -1, False
        while index < end:
            word = tokens[index].word
            if word == "ON":
                index = _join_condition_end(tokens, index + 1, end)
            elif word == "USING":
                select.merged_columns = True
                closing = tokens[index + 1].closing
                select.sources[-1].using = tuple(each.name for each in tokens[index + 2 : closing] if each.is_name)
                index = closing + 1
                if _word(tokens, index) == "AS":
                    index += 2
            elif word == ",":
                separate = True
                index += 1
                break
            elif word in _JOIN_WORDS:
                if word == "NATURAL":
                    natural = index
                    select.merged_columns = True
                index += 1
                if word == "JOIN":
                    break
            elif word in _AFTER_FROM or word in SET_OPERATIONS:
                return index
            else:
                raise NotUnderstood("FROM")
        else:
            return index


def _join_condition_end(tokens: list[Token], index: int, end: int) -> int:
    while index < end:
        token = tokens[index]
        if token.closing >= 0:
            index = token.closing + 1
            continue
        # LEFT and RIGHT are also functions, which a parenthesis follows.
        is_join = token.word in _JOIN_WORDS and _word(tokens, index + 1) != "("
        if is_join or token.word == "," or token.word in _AFTER_FROM or token.word in SET_OPERATIONS:
            return index
        index += 1
    return index


def _source(tokens: list[Token], index: int, end: int, select: Select) -> tuple[int, Source | None]:
    while _word(tokens, index) in ("LATERAL", "ONLY"):
        index += 1
    if _word(tokens, index) == "(":
        closing = tokens[index].closing
        if _word(tokens, index + 1) in ("SELECT", "WITH", "VALUES") or _is_query(tokens, index + 1):
            query = parse_query(tokens, index + 1, closing)
            index, alias, alias_name, renamed = _alias(tokens, closing + 1, end)
            # Names given to its columns take the place of the first ones, so what is added keeps its own.
            return index, Source(alias, alias_name, query=query, end=tokens[index - 1].end, columns=renamed)
        # A join in parentheses: its tables can be referred to from outside, unless it has an alias of its own.
        select.nested_joins = True
        if parse_sources(tokens, index + 1, closing, select) != closing:
            raise NotUnderstood("FROM")
        if closing + 1 < end and (tokens[closing + 1].word == "AS" or tokens[closing + 1].is_name):
            raise NotUnderstood("a join with an alias")
        return closing + 1, None
    return parse_source(tokens, index, end)


def parse_source(tokens: list[Token], index: int, end: int) -> tuple[int, Source]:
    """A table or a function in FROM, and the index after it."""
    first = _name(tokens, index)
    start = index
    schema: str | None = None
    index += 1
    if _word(tokens, index) == ".":
        schema, first = first, _name(tokens, index + 1)
        start = index + 1
        index += 2
        if _word(tokens, index) == ".":
            raise NotUnderstood("a name with a catalog")
    if _word(tokens, index) == "(":
        index = tokens[index].closing + 1
        if _word(tokens, index) == "WITH":
            index += 2
        index, alias, alias_name, _ = _alias(tokens, index, end)
        return index, Source(alias, alias_name, end=tokens[index - 1].end, function=True)
    if _word(tokens, index) == "*":
        index += 1
    own = _written(tokens[start])
    index, alias, alias_name, renamed = _alias(tokens, index, end)
    if _word(tokens, index) == "TABLESAMPLE":
        raise NotUnderstood("TABLESAMPLE")
    return index, Source(
        alias or own, alias_name or first, first, schema, end=tokens[index - 1].end, columns=renamed, at=start
    )


def _is_query(tokens: list[Token], index: int) -> bool:
    """Whether opening parentheses lead to a query rather than to a join."""
    while _word(tokens, index) == "(":
        index += 1
    return _word(tokens, index) in ("SELECT", "WITH", "VALUES")


def _alias(tokens: list[Token], index: int, end: int) -> tuple[int, str, str, tuple[str, ...]]:
    alias = alias_name = ""
    if index < end and tokens[index].word == "AS":
        alias, alias_name = _written(tokens[index + 1]), tokens[index + 1].name
        index += 2
    elif index < end and tokens[index].is_name and tokens[index].word not in ("SET", "VALUES"):
        alias, alias_name = _written(tokens[index]), tokens[index].name
        index += 1
    columns: tuple[str, ...] = ()
    if alias and index < end and tokens[index].word == "(":
        columns = tuple(token.name for token in tokens[index : tokens[index].closing] if token.is_name)
        index = tokens[index].closing + 1
    return index, alias, alias_name, columns


def _written(token: Token) -> str:
    return '"' + token.text.replace('"', '""') + '"' if token.quoted else token.text


def _word(tokens: list[Token], index: int) -> str:
    return tokens[index].word if index < len(tokens) else ""


def _name(tokens: list[Token], index: int) -> str:
    if index >= len(tokens) or not tokens[index].is_name:
        raise NotUnderstood("a name")
    return tokens[index].name


def _expect(tokens: list[Token], index: int, word: str) -> int:
    if _word(tokens, index) != word:
        raise NotUnderstood(f"something without {word}")
    return index + 1
