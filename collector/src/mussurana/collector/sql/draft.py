"""A plan in the making: the statement's text and tokens, what its names mean, and the edits so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mussurana.collector.catalog import PREVIOUS_WID, WID, Catalog, Table
from mussurana.collector.coverage import FULL, PARTIAL, UNOBSERVED_READ, UNOBSERVED_WRITE, Key
from mussurana.collector.sql.keys import is_nameable, key_expression
from mussurana.collector.sql.query import Item, Select, Source, cte_scopes
from mussurana.collector.sql.splice import Splice
from mussurana.collector.sql.tokens import SQLITE, Placeholder, Token

XMIN = "xmin"

NAMES_OF_OURS = frozenset({WID, PREVIOUS_WID})


class Draft:
    def __init__(
        self,
        text: str,
        tokens: list[Token],
        placeholders: list[Placeholder],
        style: str,
        dialect: str,
        catalog: Catalog,
        tainted: Iterable[tuple[str, str]],
        version_column: str,
    ) -> None:
        self.text = text
        self.tokens = tokens
        self.placeholders = placeholders
        self.style = style
        self.dialect = dialect
        self.catalog = catalog
        self.tainted = tainted
        self.version_column = version_column  # WID, or XMIN where the schema must stay as it is
        self.splice = Splice(text)
        self.ctes = cte_scopes(tokens)
        self.unqualified = False
        self.expanded: set[int] = set()  # SELECTs, by the index of their first token, whose stars are done
        self.names_columns = False  # an INSERT without a list of columns was given one
        self.joined: set[int] = set()  # NATURAL JOINs, by the index of their first token, that are done
        self.recorded: set[tuple[str, str]] = set()
        self.passes: set[tuple[str | None, str]] = set()  # what is written to that is not adopted

    @property
    def is_sqlite(self) -> bool:
        return self.dialect == SQLITE

    def adopted(self, name: str, schema: str | None) -> Table | None:
        """A table with our columns in it, tainted or not."""
        table = self.catalog.table(name.lower() if self.is_sqlite else name, schema)
        if table is not None and schema is None:
            self.unqualified = True
        return table

    def recordable(self, table: Table | None) -> bool:
        return (
            table is not None
            and not table.tainted
            and (table.schema, table.name) not in self.tainted
            and is_nameable(table, self.is_sqlite)
        )

    def source_table(self, source: Source) -> Table | None:
        return self.adopted(source.name, source.schema) if source.name and not self.is_cte(source) else None

    def is_cte(self, source: Source) -> bool:
        """Whether a name in FROM means a CTE, whichever tables there are."""
        if source.schema is not None:
            return False
        return any(name == source.name and start < source.end <= end for name, start, end in self.ctes)

    def key_columns(self, alias: str, table: Table) -> list[str]:
        """Expressions for the primary key of a table in FROM."""
        types = table.key_types or ("text",) * len(table.key_columns)
        pairs = zip(table.key_columns, types, strict=True)
        owner = f"{alias}." if alias else ""
        expressions = [key_expression(f"{owner}{quoted(column)}", kind, self.is_sqlite) for column, kind in pairs]
        return [expression for expression in expressions if expression is not None]

    def version_of(self, alias: str) -> str:
        """An expression for the version of a row."""
        if self.version_column == XMIN:
            return f"{alias}.xmin::text::bigint"
        owner = f"{alias}." if alias else ""
        # In SQLite a plus sign takes the declared type away, and with it converters of the application's.
        return f"+{owner}{WID}" if self.is_sqlite else f"{owner}{WID}"

    def expand_stars(self, select: Select) -> None:
        """Write out the stars of a SELECT, so that our columns are not among what they stand for."""
        self.fix_natural_joins(select)
        if select.start in self.expanded or self.version_column == XMIN:
            return
        self.expanded.add(select.start)
        tables = [self.source_table(source) for source in select.sources]
        for item in select.items:
            if item.star:
                columns = self._star_columns(select, item, tables)
                if columns:
                    self.splice.replace(self.tokens[item.first].start, self.tokens[item.last - 1].end, columns)

    def _star_columns(self, select: Select, item: Item, tables: list[Table | None]) -> str:
        if not item.qualifier and not any(tables):
            return ""
        if not item.qualifier and select.merged_columns:
            return self._merged_columns(select)
        qualifier = item.qualifier
        if qualifier == "(" and not any(table is None or self._inside(item) in table.columns for table in tables):
            qualifier = self._inside(item)  # (t).* is t.*, unless t is a column
        parts = []
        for source, table in zip(select.sources, tables, strict=True):
            if qualifier and qualifier != source.alias_name:
                continue
            if table is None or len(source.columns) > len(table.columns):
                parts.append(f"{source.alias}.*")
            else:
                columns = (*source.columns, *table.columns[len(source.columns) :])
                parts += [f"{source.alias}.{quoted(column)}" for column in columns]
        return ", ".join(parts)

    def _inside(self, item: Item) -> str:
        """The name in the parentheses before a star."""
        return self.tokens[item.first + 1].name

    def _merged_columns(self, select: Select) -> str:
        """What a star stands for where joins show some columns once; nothing if that cannot be told."""
        before: list[
            tuple[str, str]
        ] = []  # the columns left of the last comma: their names, and what to write for them
        shown: list[tuple[str, str]] = []  # those after it
        for source in select.sources:
            table = self.source_table(source)
            if table is None or source.columns or select.nested_joins:
                return ""
            if source.separate:
                before, shown = before + shown, []
            left = [name for name, _ in shown]
            common = self._common_columns(source, table, left)
            if any(name not in table.columns or left.count(name) != 1 for name in common):
                return ""
            rest = [each for each in shown if each[0] not in common]
            own = [(name, f"{source.alias}.{quoted(name)}") for name in table.columns if name not in common]
            shown = [*((name, quoted(name)) for name in common), *rest, *own]
        columns = before + shown
        names = [name for name, _ in columns]
        if any(written == quoted(name) and names.count(name) > 1 for name, written in columns):
            return ""  # without a table it could mean either
        return ", ".join(written for _, written in columns)

    def _common_columns(self, source: Source, table: Table, left: list[str]) -> Sequence[str]:
        """The columns that a join shows once, in the order in which it does."""
        return [name for name in left if name in table.columns] if source.natural >= 0 else source.using

    def fix_natural_joins(self, select: Select) -> None:
        """NATURAL JOIN would also compare our columns; say which ones are meant."""
        if self.version_column == XMIN:
            return
        left: list[str] = []
        for source in select.sources:
            table = self.source_table(source)
            if table is None:
                return
            if source.separate:
                left = []
            common = self._common_columns(source, table, left)
            left = [*common, *(name for name in (*left, *table.columns) if name not in common)]
            if source.natural < 0 or source.natural in self.joined:
                continue
            self.joined.add(source.natural)
            token = self.tokens[source.natural]
            self.splice.replace(token.start, token.end, "")
            using = ", ".join(map(quoted, common))
            self.splice.insert(source.end, f" USING ({using})" if common else " ON true")

    def coverage(self, shape: str, seen: Iterable[Table], unseen: Iterable[Table], unseen_is: int) -> tuple[Key, ...]:
        seen, unseen = set(seen), set(unseen) - set(seen)
        keys = [(_label(table), shape, PARTIAL if unseen or table.weakened else FULL) for table in seen]
        keys += [(_label(table), shape, unseen_is) for table in unseen]
        return tuple(sorted(keys))

    def mentioned(self) -> set[Table]:
        """Adopted tables whose name stands anywhere in the statement, also behind views."""
        found: set[Table] = set()
        for index, token in enumerate(self.tokens):
            if not token.is_name:
                continue
            schema = None
            if index >= 2 and self.tokens[index - 1].word == "." and self.tokens[index - 2].is_name:
                schema = self.tokens[index - 2].name
            for place in {schema, None}:
                table = self.adopted(token.name, place)
                if table is not None:
                    found.add(table)
                found.update(self.catalog.tables_behind(token.name, place))
        return found

    def written_by_functions(self) -> set[Table]:
        """Adopted tables that functions called in the statement write to."""
        found: set[Table] = set()
        for token, following in zip(self.tokens, self.tokens[1:], strict=False):
            if following.word == "(" and (token.is_name or token.word):
                found.update(self.catalog.written_by(token.name))
        return found


def _label(table: Table) -> str:
    return table.key_space or table.name


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def unobserved_write_keys(tables: Iterable[Table], shape: str) -> tuple[Key, ...]:
    return tuple(sorted((_label(table), shape, UNOBSERVED_WRITE) for table in tables))


def unobserved_read_keys(tables: Iterable[Table], shape: str) -> tuple[Key, ...]:
    return tuple(sorted((_label(table), shape, UNOBSERVED_READ) for table in tables)) or (("", shape, UNOBSERVED_READ),)
