"""INSERT, UPDATE and DELETE: the write id goes into the row, and RETURNING says which rows and which version was there.

Where a trigger may leave a row as it was, RETURNING also says which version the row has afterwards.

From PostgreSQL 18 on, RETURNING itself knows the old row. Before, and in SQLite, the row keeps the version it
replaced in a column of its own, where 0 stands for a version from before anybody recorded and null for no version at
all.
"""

from __future__ import annotations

from dataclasses import replace

from mussurana.collector.catalog import PREVIOUS_WID, Table
from mussurana.collector.catalog import WID as WID_COLUMN
from mussurana.collector.coverage import PARTIAL, UNOBSERVED_READ
from mussurana.collector.sql.absence import find_absence
from mussurana.collector.sql.draft import NAMES_OF_OURS, XMIN, Draft, quoted
from mussurana.collector.sql.plan import DELETE, INSERT, PREFIX, UPDATE, Place, Plan, Read, Write
from mussurana.collector.sql.query import (
    Select,
    Source,
    inserted_query,
    is_clause_from,
    parse_query,
    parse_sources,
    skip_with,
    split_items,
)
from mussurana.collector.sql.select import expand_nested_stars, more
from mussurana.collector.sql.splice import WID
from mussurana.collector.sql.tokens import NotUnderstood, Token

_MARKER = WID + "::bigint"


_BEFORE_INTO = frozenset({"INSERT", "REPLACE", "ABORT", "FAIL", "IGNORE", "ROLLBACK"})
"""The word before INTO in an INSERT; in SQLite it may say what to do with a conflict."""


class Target:
    """The table that a statement writes to, and the name by which the statement knows it."""

    def __init__(self, draft: Draft, index: int, takes_alias: bool) -> None:
        tokens = draft.tokens
        if tokens[index].word == "ONLY":
            index += 1
        self.schema: str | None = None
        if not tokens[index].is_name:
            raise NotUnderstood("a name")
        self.name, start = tokens[index].name, index
        index += 1
        if index + 1 < len(tokens) and tokens[index].word == ".":
            self.schema, self.name, start = self.name, tokens[index + 1].name, index + 1
            index += 2
        if index < len(tokens) and tokens[index].word == "*":
            index += 1
        token = tokens[start]
        self.alias_name = self.name
        if index < len(tokens) and tokens[index].word == "AS":
            token, self.alias_name = tokens[index + 1], tokens[index + 1].name
            index += 2
        elif (
            takes_alias and index < len(tokens) and tokens[index].is_name and tokens[index].word not in ("SET", "USING")
        ):
            token, self.alias_name = tokens[index], tokens[index].name
            index += 1
        self.alias = quoted(token.text) if token.quoted else token.text
        self.end = index
        self.table = draft.adopted(self.name, self.schema)


def find_word(tokens: list[Token], word: str, index: int, end: int) -> int:
    """The index of the first such word in tokens [index, end) outside of parentheses, or the end."""
    while index < end:
        token = tokens[index]
        if token.closing >= 0:
            index = token.closing + 1
            continue
        if token.word == word and (word != "FROM" or is_clause_from(tokens, index)):
            return index
        index += 1
    return end


def joined(draft: Draft, kind: str, target: Target, end: int) -> Select:
    """What the FROM of an UPDATE or the USING of a DELETE names, and the condition. Its NATURAL JOINs are seen to."""
    tokens, start = draft.tokens, target.end
    returning = find_word(tokens, "RETURNING", start, end)
    where_at = find_word(tokens, "WHERE", start, returning)
    more_at = find_word(tokens, "FROM" if kind == UPDATE else "USING", start, where_at)
    select = Select(0, where=(where_at + 1, returning) if where_at < returning else (0, 0))
    if more_at < where_at:
        parse_sources(tokens, more_at + 1, where_at, select)
        draft.fix_natural_joins(select)
    return select


def show_nothing_of_ours(draft: Draft, kind: str, target: Target, end: int) -> None:
    """For a statement that is not recorded: what it takes from tables of ours is to be as it was."""
    if kind == INSERT:
        for arm in inserted_query(draft.tokens, target.end, end).arms:
            draft.expand_stars(arm)
    else:
        joined(draft, kind, target, end)
    expand_nested_stars(draft, end)


def plan_write(draft: Draft, end: int) -> Plan:
    """The plan of an INSERT, UPDATE or DELETE in tokens [0, end). Raises NotUnderstood."""
    tokens = draft.tokens
    index = 0
    if tokens[0].word == "WITH":
        _, writes, index = skip_with(tokens, 0)
        if writes:
            raise NotUnderstood("DML in a CTE")
    word = tokens[index].word
    if any(token.is_name and token.name in NAMES_OF_OURS for token in tokens):
        raise NotUnderstood("a statement that names our columns")
    if word == "INSERT":
        if tokens[index + 1].word != "INTO":
            raise NotUnderstood(f"INSERT {tokens[index + 1].word}")
        target = Target(draft, index + 2, takes_alias=False)
    elif word == "UPDATE":
        if tokens[index + 1].word == "OR":
            raise NotUnderstood("UPDATE OR")
        target = Target(draft, index + 1, takes_alias=True)
    else:
        target = Target(draft, index + 2, takes_alias=True)
    table = target.table
    if table is None:
        if draft.catalog.tables_behind(target.name, target.schema):
            raise NotUnderstood(f"{word} of a view")
        show_nothing_of_ours(draft, word, target, end)
        plan = Plan(draft.text, draft.text, strips=True, unqualified=draft.unqualified)
        plan.coverage = ((target.name, "not adopted", UNOBSERVED_READ),)
        plan.passes = frozenset({(target.schema, target.name)})
        return plan
    if not draft.recordable(table):
        raise NotUnderstood(f"{word} of a table that is not recorded")
    draft.recorded.add((table.schema, table.name))
    writer = _Writer(draft, target, table, end)
    if word == "INSERT":
        plan = writer.insert()
    elif word == "UPDATE":
        plan = writer.update()
    else:
        plan = writer.delete()
    expand_nested_stars(draft, end)
    others = draft.mentioned() - {table}
    plan.takes_id = draft.version_column != XMIN
    plan.unqualified = draft.unqualified
    plan.coverage = tuple(
        (key[0], word, PARTIAL if others else key[2]) for key in draft.coverage(word, [table], (), UNOBSERVED_READ)
    )
    return plan


def name_inserted_columns(draft: Draft, end: int) -> None:
    """For INSERTs that go as they are, also inside of other statements."""
    tokens = draft.tokens
    stops = [end]
    for index in range(end):
        while index >= stops[-1]:
            stops.pop()
        if tokens[index].closing >= 0:
            stops.append(tokens[index].closing)
        is_insert = tokens[index].word == "INTO" and index > 0 and tokens[index - 1].word in _BEFORE_INTO
        if not is_insert or draft.version_column == XMIN:
            continue
        try:
            target = Target(draft, index + 1, takes_alias=False)
            if target.table is not None:
                _Writer(draft, target, target.table, stops[-1]).name_columns()
        except (NotUnderstood, IndexError):
            continue


def expand_returned_stars(draft: Draft, end: int) -> None:
    """Write out the stars that statements in parentheses return: those of CTEs that write, and of COPY."""
    tokens = draft.tokens
    for index in range(end):
        opening, word = tokens[index], tokens[index + 1].word if index + 1 < end else ""
        if opening.word != "(" or word not in (INSERT, UPDATE, DELETE):
            continue
        try:
            target = Target(draft, index + (2 if word == UPDATE else 3), takes_alias=word != INSERT)
            if target.table is not None:
                _Writer(draft, target, target.table, opening.closing).expand_returned(word)
        except NotUnderstood:
            continue


class _Writer:
    def __init__(self, draft: Draft, target: Target, table: Table, end: int) -> None:
        self.draft = draft
        self.tokens = draft.tokens
        self.target = target
        self.table = table
        self.end = end
        self.old = draft.catalog.returning_old and not (draft.version_column != XMIN and table.has_prev)
        self.tags = draft.version_column != XMIN
        self.returned = "" if draft.is_sqlite else target.alias  # SQLite's RETURNING knows no alias

    def find(self, word: str, index: int) -> int:
        return find_word(self.tokens, word, index, self.end)

    # INSERT

    def insert(self) -> Plan:
        draft, tokens, index = self.draft, self.tokens, self.target.end
        columns_start = columns_end = -1
        if (
            index < self.end
            and tokens[index].word == "("
            and tokens[index + 1].word not in ("SELECT", "WITH", "VALUES")
        ):
            columns_start, columns_end = index, tokens[index].closing
            index = columns_end + 1
        before_source = tokens[index - 1].end
        if index < self.end and tokens[index].word == "OVERRIDING":
            index += 3
        conflict = self._conflict(index)
        returning = self.find("RETURNING", index)
        source_end = min(conflict, returning)
        width, in_front = self._source(index, source_end)
        if self.tags:
            if columns_end < 0:
                names = [quoted(column) for column in self.table.columns[:width]]
                named = [WID_COLUMN, *names] if in_front else [*names, WID_COLUMN]
                draft.splice.insert(before_source, f" ({', '.join(named)})")
                draft.names_columns = True
            elif in_front:
                draft.splice.insert(tokens[columns_start].end, f"{WID_COLUMN}, ")
            else:
                draft.splice.insert(tokens[columns_end].start, f", {WID_COLUMN}")
        updates = conflict < returning and self._on_conflict(conflict, returning)
        previous: str | None = None
        old_keys: list[str] = []
        if updates and self.old:
            previous = draft.version_of("old")
            old_keys = draft.key_columns("old", self.table)
        elif updates and self.tags:
            previous = self._returned(PREVIOUS_WID)
        elif updates:
            raise NotUnderstood("INSERT ON CONFLICT DO UPDATE with xmin before PostgreSQL 18")
        plan = self._finish(INSERT, returning, [], previous, old_keys)
        if updates and not self.old and plan.write is not None:
            write = plan.write
            plan.write = replace(write, previous_tells=True)
        return plan

    def name_columns(self) -> None:
        """Say which columns an INSERT means that does not say so; by their order, one of ours may be among them."""
        tokens, index = self.tokens, self.target.end
        listed = tokens[index].word == "(" and tokens[index + 1].word not in ("SELECT", "WITH", "VALUES")
        arms = inserted_query(tokens, index, self.end).arms
        for arm in arms:
            self.draft.expand_stars(arm)
        if arms and not listed:
            names = [quoted(column) for column in self.table.columns[: max(map(self._width, arms))]]
            self.draft.splice.insert(tokens[index - 1].end, f" ({', '.join(names)})")
            self.draft.names_columns = True

    def _conflict(self, index: int) -> int:
        while (index := self.find("ON", index)) < self.end:
            if index + 1 < self.end and self.tokens[index + 1].word == "CONFLICT":
                return index
            index += 1
        return self.end

    def _source(self, index: int, end: int) -> tuple[int, bool]:
        """Add the write id to the rows that are inserted.

        Returns how many columns they have without it, and whether it comes first. In front of VALUES it leaves errors
        about too few or too many of them where they were; in a SELECT it would change what ORDER BY 1 means, unless
        there are too many.
        """
        tokens, splice = self.tokens, self.draft.splice
        if tokens[index].word == "DEFAULT":
            if self.tags:
                splice.replace(tokens[index].start, tokens[end - 1].end, f"VALUES ({WID})")
            return 0, True
        query = parse_query(tokens, index, end)
        for arm in query.arms:
            self.draft.expand_stars(arm)
        if not self.tags:
            return 0, True
        width = max(self._width(arm) for arm in query.arms)
        in_front = all(arm.rows for arm in query.arms) or width > len(self.table.columns)
        marker = WID if self.draft.is_sqlite else _MARKER
        for arm in query.arms:
            for opening, closing in arm.rows:
                if in_front:
                    splice.insert(tokens[opening].end, f"{WID}, ")
                else:
                    splice.insert(tokens[closing].start, f", {WID}")
            if not arm.rows and in_front:
                splice.insert(tokens[arm.items[0].first].start, f"{marker}, ")
            elif not arm.rows:
                splice.insert(arm.items_end, more(arm) + marker)
        return width, in_front

    def _width(self, arm: Select) -> int:
        if not any(item.star for item in arm.items):
            return len(arm.items)
        tables = [self.draft.source_table(source) for source in arm.sources]
        if len(arm.items) == 1 and not arm.items[0].qualifier and None not in tables and not arm.merged_columns:
            return sum(len(table.columns) for table in tables if table is not None)
        raise NotUnderstood("INSERT of a star")

    def _on_conflict(self, index: int, end: int) -> bool:
        """Add the write id to DO UPDATE; returns whether there is one."""
        set_at = self.find("SET", index)
        if set_at >= end:
            return False
        if not self.old and self._changes_key(set_at + 1, end):
            raise NotUnderstood("ON CONFLICT DO UPDATE of a key")
        if self.tags:
            piece = f" {WID_COLUMN} = excluded.{WID_COLUMN},"
            if not self.old:
                piece += f" {PREVIOUS_WID} = COALESCE({self.target.alias}.{WID_COLUMN}, 0),"
            self.draft.splice.insert(self.tokens[set_at].end, piece)
        return True

    def _changes_key(self, first: int, last: int) -> bool:
        """Whether the assignments in tokens [first, last), or what a trigger adds to them, may change the key."""
        if self.table.before.move:
            return True
        sources = self.table.key_sources
        for item in split_items(self.tokens, first, last):
            head = self.tokens[item.first]
            names = [head]
            if head.word == "(":
                names = [token for token in self.tokens[item.first : head.closing] if token.is_name]
            if any(token.is_name and token.name in sources for token in names):
                return True
        return False

    # UPDATE and DELETE

    def update(self) -> Plan:
        draft, tokens = self.draft, self.tokens
        set_at = self.find("SET", self.target.end)
        if set_at != self.target.end:
            raise NotUnderstood("UPDATE")
        from_at = self.find("FROM", set_at)
        where_at = self.find("WHERE", set_at)
        returning = self.find("RETURNING", set_at)
        changes_key = self._changes_key(set_at + 1, min(from_at, where_at, returning))
        if changes_key and not self.old:
            raise NotUnderstood("UPDATE of a key")
        if changes_key and self.table.is_whole and INSERT in self.table.before.skip:
            raise NotUnderstood("UPDATE that a trigger may end halfway between two partitions")
        if self.tags:
            piece = f" {WID_COLUMN} = {WID},"
            if not self.old:
                piece += f" {PREVIOUS_WID} = COALESCE({self._own(WID_COLUMN)}, 0),"
            draft.splice.insert(tokens[set_at].end, piece)
        select = joined(draft, UPDATE, self.target, self.end)
        previous = draft.version_of("old") if self.old else self._returned(PREVIOUS_WID) if self.tags else None
        old_keys = draft.key_columns("old", self.table) if changes_key else []
        plan = self._finish(UPDATE, returning, select.sources, previous, old_keys)
        if not select.sources and not changes_key and UPDATE not in self.table.before.skip:
            plan.notice_absence(find_absence(tokens, select.where, self.table, self.target.alias_name))
        return plan

    def delete(self) -> Plan:
        tokens = self.tokens
        using_at = self.find("USING", self.target.end)
        where_at = self.find("WHERE", self.target.end)
        returning = self.find("RETURNING", self.target.end)
        if self.target.end not in (using_at, where_at, returning, self.end):
            raise NotUnderstood("DELETE")
        select = joined(self.draft, DELETE, self.target, self.end)
        plan = self._finish(DELETE, returning, select.sources, self.draft.version_of(self.returned), [])
        if not select.sources and DELETE not in self.table.before.skip:
            plan.notice_absence(find_absence(tokens, select.where, self.table, self.target.alias_name))
        return plan

    def expand_returned(self, kind: str) -> None:
        """Write out the stars of RETURNING."""
        returning = self.find("RETURNING", self.target.end)
        if returning >= self.end:
            return
        items = split_items(self.tokens, returning + 1, self.end)
        select = Select(returning, self.end, items, nested_joins=True)
        select.sources = [Source(self.target.alias, self.target.alias_name, self.target.name, self.target.schema)]
        if kind != INSERT:
            select.sources += joined(self.draft, kind, self.target, self.end).sources
        self.draft.expand_stars(select)

    def _returned(self, column: str) -> str:
        return f"+{column}" if self.draft.is_sqlite else f"{self.target.alias}.{column}"

    def _own(self, column: str) -> str:
        return f"{self.target.alias}.{column}"

    def _finish(
        self, kind: str, returning: int, sources: list[Source], previous: str | None, old_keys: list[str]
    ) -> Plan:
        """Add to RETURNING, or add one."""
        draft, tokens = self.draft, self.tokens
        alias = "new" if kind == UPDATE and old_keys else self.returned
        columns = [f"{key} AS {PREFIX}k{number}" for number, key in enumerate(draft.key_columns(alias, self.table))]
        keys: list[Place] = list(range(len(columns)))
        old_places: list[Place] = []
        for number, key in enumerate(old_keys):
            old_places.append(len(columns))
            columns.append(f"{key} AS {PREFIX}o{number}")
        previous_at: Place | None = None
        if previous is not None:
            previous_at = len(columns)
            columns.append(f"{previous} AS {PREFIX}p")
        version_at: Place | None = None
        if self.tags and self.table.before.keep and (kind == UPDATE or (kind == INSERT and previous is not None)):
            version_at = len(columns)
            columns.append(f"{draft.version_of(alias)} AS {PREFIX}v")
        elif not self.tags:
            version_at = len(columns)
            version = "pg_current_xact_id()::text::bigint & 4294967295" if kind == DELETE else draft.version_of(alias)
            columns.append(f"{version} AS {PREFIX}v")
        reads = [] if draft.is_sqlite else self._reads(sources, columns)
        total = len(columns)
        quiet = returning >= self.end
        items_count = -1
        if quiet:
            draft.splice.insert(tokens[self.end - 1].end, " RETURNING " + ", ".join(columns))
        else:
            items = split_items(tokens, returning + 1, self.end)
            if not items or tokens[returning + 1].word == "WITH":
                raise NotUnderstood("RETURNING WITH")
            draft.splice.insert(tokens[self.end - 1].end, ", " + ", ".join(columns))
            if not any(item.star for item in items):
                items_count = len(items)

        def place(at: Place | None) -> Place | None:
            return at - total if isinstance(at, int) else None

        write = Write(
            kind,
            self.table,
            tuple(at - total for at in keys if isinstance(at, int)),
            place(previous_at),
            tuple(at - total for at in old_places if isinstance(at, int)),
            version=place(version_at),
        )
        return Plan(
            draft.text,
            draft.text,
            write=write,
            reads=tuple(Read(table, tuple(range(first - total, at - total)), at - total) for table, first, at in reads),
            quiet=quiet,
            strips=True,
            visible_count=0 if quiet else items_count,
        )

    def _reads(self, sources: list[Source], columns: list[str]) -> list[tuple[Table, int, int]]:
        """Add the tables of FROM or USING to `columns`: each table, where its key starts, and where its version is."""
        reads = []
        for source in sources:
            table = self.draft.source_table(source)
            if table is None or source.columns or not self.draft.recordable(table):
                continue
            self.draft.recorded.add((table.schema, table.name))
            first = len(columns)
            for key in self.draft.key_columns(source.alias, table):
                columns.append(f"{key} AS {PREFIX}r{len(columns)}")
            reads.append((table, first, len(columns)))
            columns.append(f"{self.draft.version_of(source.alias)} AS {PREFIX}s{len(columns)}")
        return reads
