"""SELECT: columns of ours at the end of the list, for the key and the version of each row that a table gave.

Tables in subqueries and CTEs are followed as far as each SELECT in between gives its rows on one by one; through
anything that merges rows (DISTINCT, GROUP BY, an aggregate, a set operation) nothing can be followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from mussurana.collector.catalog import Table
from mussurana.collector.coverage import UNOBSERVED_READ
from mussurana.collector.sql.absence import find_absence
from mussurana.collector.sql.draft import NAMES_OF_OURS, XMIN, Draft, unobserved_read_keys
from mussurana.collector.sql.functions import AGGREGATE, SCALAR, UNDONE
from mussurana.collector.sql.keys import PLAIN, base_type
from mussurana.collector.sql.plan import PREFIX, Place, Plan, Read
from mussurana.collector.sql.query import Query, Select, parse_query, split_items
from mussurana.collector.sql.tokens import NotUnderstood, Token

WHOLE_ROW = "whole-row reference"

_BEFORE_PARENTHESIS = frozenset(
    {"FROM", "JOIN", "LATERAL", "USING", "WHERE", "OVER", "BY", "UNION", "EXCEPT", "INTERSECT"}
)


_BEFORE_A_NAME = frozenset({".", "AS", "::", ")", "FROM", "JOIN", "ONLY", "LATERAL", "OF"})
"""After these a name is not a value."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A table whose rows a subquery gives on, and the names of the columns that say which ones."""

    table: Table
    keys: tuple[str, ...]
    version: str


def plan_select(draft: Draft, end: int) -> Plan:
    """The plan of a query in tokens [0, end). Raises NotUnderstood."""
    query = parse_query(draft.tokens, 0, end)
    if query.writes:
        raise NotUnderstood("DML in a CTE")
    if query.arms[0].into:
        raise NotUnderstood("SELECT INTO")
    shape = _obstacle(draft, query)
    mentioned = draft.mentioned()
    selects = all_selects(draft, query, end)
    pure = _is_pure(draft, selects)
    if not mentioned:
        table = query.arms[0].sources[0].name if query.arms[0].sources else ""
        plan = Plan(draft.text, draft.text, coverage=((table, "not adopted", UNOBSERVED_READ),), pure=pure)
        if any(item.star for arm in query.arms for item in arm.items):
            plan.strips = True  # the table may be adopted before the catalog is read again
        else:
            plan.strips = plan.looks_once = bool(draft.catalog.row_types)  # a function may return rows of a table
        return plan
    reads: list[Read] = []
    select = query.arms[0]
    has_star = any(item.star for item in select.items)
    if not shape:
        reads = _Tagger(draft, query).top(select)
    if not reads and (len(query.arms) > 1 or select.distinct):
        for arm in query.arms:
            draft.expand_stars(arm)
    for each in selects:
        if each is not select or len(query.arms) > 1:
            draft.expand_stars(each)
        draft.fix_natural_joins(each)
    seen = {read.table for read in reads}
    plan = Plan(draft.text, draft.text, unqualified=draft.unqualified, pure=pure)
    plan.reads = tuple(reads)
    plan.locks = any(each.locks for each in selects)
    plan.strips = bool(reads) or has_star
    if not plan.strips:
        plan.strips = plan.looks_once = bool(draft.catalog.row_types)
    if reads and not has_star:
        plan.visible_count = len(select.items)
    if seen:
        plan.coverage = draft.coverage("SELECT", seen, mentioned, UNOBSERVED_READ)
    else:
        plan.coverage = unobserved_read_keys(mentioned, shape or "SELECT")
    if len(reads) == 1 and len(select.sources) == 1 and _counts_all(draft, select):
        source = select.sources[0]
        if source.query is None and not draft.is_cte(source):
            plan.notice_absence(find_absence(draft.tokens, select.where, reads[0].table, source.alias_name))
    return plan


def _is_pure(draft: Draft, selects: list[Select]) -> bool:
    """Whether nothing but adopted tables and well-known functions is in a query: then it has no effect of its own."""
    for select in selects:
        for source in select.sources:
            known = source.query is not None or draft.is_cte(source)
            if not known and draft.source_table(source) is None:
                return False
    for token, following in zip(draft.tokens, draft.tokens[1:], strict=False):
        if following.word == "(" and (token.quoted or token.word) and not _is_operator(token.word):
            name = token.name
            if name not in SCALAR and name not in AGGREGATE and token.word not in _BEFORE_PARENTHESIS:
                return False
            if name in UNDONE:
                return False
    return True


def _counts_all(draft: Draft, select: Select) -> bool:
    """Whether every row that fits the condition is returned."""
    if select.offset or select.skips_locked:
        return False
    first, last = select.limit
    limit = draft.tokens[first:last]
    return not limit or (len(limit) == 1 and limit[0].text.isdecimal() and int(limit[0].text) > 0)


def _obstacle(draft: Draft, query: Query) -> str:
    """Why a query cannot be given more columns; empty if it can."""
    if len(query.arms) > 1:
        return "set operation"
    return select_obstacle(draft, query.arms[0])


def more(select: Select) -> str:
    """What stands before columns that are added. A SELECT may have none of its own."""
    return ", " if select.items else " "


def select_obstacle(draft: Draft, select: Select) -> str:
    if select.rows:
        return "VALUES"
    if select.distinct:
        return "SELECT DISTINCT"
    if select.grouped:
        return "SELECT with GROUP BY"
    if select.windowed:
        return "SELECT with WINDOW"
    parts = [(item.first, item.last) for item in select.items if not item.star]
    for first, last in [*parts, select.order]:
        found = _expression_obstacle(draft, first, last)
        if found:
            return found
    if _orders_by_number_beyond(draft, select):
        return "ORDER BY a column that is not there"  # and shall not be one of ours
    return WHOLE_ROW if has_whole_row(draft, select) else ""


def _orders_by_number_beyond(draft: Draft, select: Select) -> bool:
    if any(item.star for item in select.items):
        return False
    first, last = select.order
    firsts = [draft.tokens[item.first].text for item in split_items(draft.tokens, first, last)]
    return any(text.isdecimal() and int(text) > len(select.items) for text in firsts)


def _expression_obstacle(draft: Draft, first: int, last: int) -> str:
    tokens = draft.tokens
    index = first
    while index < last:
        token = tokens[index]
        following = tokens[index + 1].word if index + 1 < last else ""
        if token.word == "(" and following in ("SELECT", "WITH", "VALUES"):
            index = token.closing + 1  # a query of its own
            continue
        if token.word == "OVER":
            return "SELECT with a window function"
        if following == "(" and (token.word or token.quoted) and not _is_operator(token.word):
            name = token.name
            if name not in SCALAR:
                return f"SELECT with {name}()"
        index += 1
    return ""


def _is_operator(word: str) -> bool:
    return bool(word) and not (word[0].isalpha() or word[0] == "_")


def names_no_value(before: Token) -> bool:
    """Whether a name after this token is that of a table, a type or a column, or an alias."""
    return before.word in _BEFORE_A_NAME or before.is_name or before.literal or before.placeholder is not None


def has_whole_row(draft: Draft, select: Select) -> bool:
    """Whether the name of a subquery or a CTE stands where a value is expected: `row_to_json(s)`, `s IS NULL`.

    What is added to its columns would be in that value. What is added beside a row of a table is not in the row.
    """
    tokens = draft.tokens
    aliases = {source.alias_name for source in select.sources if draft.source_table(source) is None}
    named = {source.at for source in select.sources}
    stars = {item.first for item in select.items if item.star}
    columns = {column for source in select.sources if (table := draft.source_table(source)) for column in table.columns}
    for index in range(select.start, select.end):
        token = tokens[index]
        if not token.is_name or token.name not in aliases or index in named or index in stars:
            continue
        if names_no_value(tokens[index - 1]):
            continue
        following = tokens[index + 1].word if index + 1 < len(tokens) else ""
        if following == ".":
            if index + 2 < select.end and tokens[index + 2].word == "*":
                return True
        elif following != "(" and token.name not in columns:
            return True
    return False


def all_selects(draft: Draft, query: Query, end: int) -> list[Select]:
    """Every SELECT that can be found, also those in conditions."""
    found = list(query.arms)
    known = {select.start for select in found}
    for index in range(end):
        token = draft.tokens[index]
        if token.word == "(" and draft.tokens[index + 1].word in ("SELECT", "WITH"):
            try:
                inner = parse_query(draft.tokens, index + 1, token.closing)
            except NotUnderstood:
                continue
            for select in inner.arms:
                if select.start not in known:
                    known.add(select.start)
                    found.append(select)
    return found


def expand_nested_stars(draft: Draft, end: int) -> None:
    """Write out the stars of all queries in parentheses."""
    for select in all_selects(draft, Query([]), end):
        draft.expand_stars(select)


class _Tagger:
    """Adds columns to the SELECTs of one query, from the inside out."""

    def __init__(self, draft: Draft, query: Query) -> None:
        self.draft = draft
        self.ctes = query.ctes
        self.numbers = count(1)
        self.shown_by_cte: dict[str, list[Shown]] = {}
        self.reserved = {token.name for token in draft.tokens if token.is_name} & NAMES_OF_OURS

    def top(self, select: Select) -> list[Read]:
        draft = self.draft
        if self.reserved:
            raise NotUnderstood("a statement that names our columns")
        star = any(item.star for item in select.items)
        alone = len(select.sources) == 1 and star and len(select.items) == 1
        alone = alone and select.items[0].qualifier in ("", select.sources[0].alias_name)
        if alone and draft.version_column != XMIN and not draft.is_sqlite:
            table = self._table(select, 0)
            if table is not None and all(base_type(kind) in PLAIN for kind in table.key_types):
                return [Read(table, table.key_columns, "mussurana_wid")]  # the star has it all
        columns: list[str] = []
        reads: list[tuple[Table, list[Place], int]] = []
        for index, source in enumerate(select.sources):
            table = self._table(select, index)
            if table is not None:
                keys = draft.key_columns(source.alias, table)
                places: list[Place] = []
                for position, expression in enumerate(keys):
                    visible = None if star else self._visible(select, index, table, position)
                    if visible is None:
                        places.append(-1 - len(columns))  # counted from the first for now
                        columns.append(f"{expression} AS {PREFIX}k{next(self.numbers)}")
                    else:
                        places.append(visible)
                reads.append((table, places, len(columns)))
                columns.append(f"{draft.version_of(source.alias)} AS {PREFIX}w{next(self.numbers)}")
                continue
            for shown in self._shown(select, index):
                places = []
                for name in shown.keys:
                    places.append(-1 - len(columns))
                    columns.append(f"{source.alias}.{name} AS {PREFIX}k{next(self.numbers)}")
                reads.append((shown.table, places, len(columns)))
                columns.append(f"{source.alias}.{shown.version} AS {PREFIX}w{next(self.numbers)}")
        if columns:
            draft.splice.insert(select.items_end, more(select) + ", ".join(columns))
        total = len(columns)
        return [
            Read(
                table,
                tuple(-total + (-1 - place) if isinstance(place, int) and place < 0 else place for place in places),
                version - total,
            )
            for table, places, version in reads
        ]

    def nested(self, query: Query) -> list[Shown]:
        """Add columns to a subquery, and say which; nothing if it merges rows."""
        if len(query.arms) != 1 or query.writes or query.ctes:
            return []
        select = query.arms[0]
        if select_obstacle(self.draft, select):
            return []
        stars = [item for item in select.items if item.star]
        if stars and select.merged_columns:
            return []
        self.draft.expand_stars(select)
        shown: list[Shown] = []
        columns: list[str] = []
        for index, source in enumerate(select.sources):
            table = self._table(select, index)
            if table is not None:
                keys = []
                for expression in self.draft.key_columns(source.alias, table):
                    keys.append(f"{PREFIX}k{next(self.numbers)}")
                    columns.append(f"{expression} AS {keys[-1]}")
                version = f"{PREFIX}w{next(self.numbers)}"
                columns.append(f"{self.draft.version_of(source.alias)} AS {version}")
                shown.append(Shown(table, tuple(keys), version))
                continue
            passed = any(item.qualifier in ("", source.alias_name) for item in stars)
            for inner in self._shown(select, index):
                if passed:
                    shown.append(inner)
                    continue
                renamed = Shown(
                    inner.table,
                    tuple(f"{PREFIX}k{next(self.numbers)}" for _ in inner.keys),
                    f"{PREFIX}w{next(self.numbers)}",
                )
                pairs = zip((*inner.keys, inner.version), (*renamed.keys, renamed.version), strict=True)
                columns += [f"{source.alias}.{old} AS {new}" for old, new in pairs]
                shown.append(renamed)
        if columns:
            self.draft.splice.insert(select.items_end, more(select) + ", ".join(columns))
        return shown

    def _table(self, select: Select, index: int) -> Table | None:
        """The table that a source is, if its rows can be recorded."""
        source = select.sources[index]
        if not source.name or source.columns:
            return None
        table = self.draft.source_table(source)
        if table is None or not self.draft.recordable(table):
            return None
        self.draft.recorded.add((table.schema, table.name))
        return table

    def _shown(self, select: Select, index: int) -> list[Shown]:
        """What a source that is a subquery or a CTE gives on."""
        source = select.sources[index]
        if source.query is not None:
            return self.nested(source.query)
        if not self.draft.is_cte(source) or source.columns:
            return []
        query = self.ctes.get(source.name)
        if query is None or self._uses(source.name) != 1:
            return []  # written out in more than one place; one of them may not stand more columns
        return self.nested(query)

    def _uses(self, cte: str) -> int:
        """How often a CTE is referred to, beside its definition and as a qualifier."""
        tokens = self.draft.tokens
        uses = 0
        for index, token in enumerate(tokens):
            if token.is_name and token.name == cte:
                following = tokens[index + 1].word if index + 1 < len(tokens) else ""
                uses += following != "." and not (index > 0 and tokens[index - 1].word == ".")
        return uses - 1

    def _visible(self, select: Select, index: int, table: Table, position: int) -> int | None:
        """Where the application itself asked for a column of the key."""
        kind = table.key_types[position] if table.key_types else "text"
        if base_type(kind) not in PLAIN or self.draft.is_sqlite:
            return None
        source = select.sources[index]
        for number, item in enumerate(select.items):
            if item.column == table.key_columns[position] and (
                item.qualifier == source.alias_name or (not item.qualifier and len(select.sources) == 1)
            ):
                return number
        return None
