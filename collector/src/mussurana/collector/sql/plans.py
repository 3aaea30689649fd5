"""From SQL texts to plans, cached; and the taint that an unobserved write leaves on a table.

One `Plans` per database and process. Texts are few in most applications; one that builds values into its texts makes
a new one each time, so the cache is bounded and keeps what is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy

from mussurana.collector.catalog import WID, Catalog, Table
from mussurana.collector.coverage import UNOBSERVED_READ
from mussurana.collector.sql.batches import Batch, find_batch
from mussurana.collector.sql.control import ASK, SET_DEFAULT, Control, parse_control
from mussurana.collector.sql.draft import Draft, unobserved_write_keys
from mussurana.collector.sql.other import plan_copy, plan_other
from mussurana.collector.sql.plan import Plan
from mussurana.collector.sql.query import skip_with
from mussurana.collector.sql.select import plan_select
from mussurana.collector.sql.splice import ONE_FOR_ALL, PARAMETER_NAME, PARAMETERS_MAX, AtPlaces
from mussurana.collector.sql.tokens import FORMAT, NONE, QMARK, RAW, SQLITE, NotUnderstood, Token, tokenize
from mussurana.collector.sql.whole_rows import without_whole_rows
from mussurana.collector.sql.writes import plan_write

PLANS_MAX = 2000
"""Per style of parameters. A plan takes some kilobytes, so this is a few megabytes at most."""

CACHED_LENGTH_MAX = 100_000
"""Longer texts are batches of thousands of rows; to plan them takes a fraction of the time that they run."""

_ADDITIONS = (f"%({PARAMETER_NAME})s, ", "%s, ", "?, ", f":{PARAMETER_NAME}, ", "")
"""What may have been added in front of a row of VALUES; nothing if the rows are not those that are inserted."""

SOUGHT_MAX = 1_000
"""Names of temporary tables and the like. Whoever has more of them has the catalog read once a minute, as ever."""

STATEMENT_LENGTH_MAX = 2000
"""Of the text for people."""


class Plans:
    """No lock is held here: the collector of garbage may run statements in the middle of anything, and a forked child
    would find it taken for ever. Each step leaves the caches right; a plan is looked at again once it is among them.
    """

    def __init__(self, catalog: Catalog, dialect: str, version_column: str = WID) -> None:
        self.catalog = catalog
        self.dialect = dialect
        self.version_column = version_column
        self.tainted: set[tuple[str, str]] = set()
        self.everything_tainted = False
        self.passed: set[tuple[str | None, str]] = set()  # what was written to since then that is not adopted there
        self._sought: set[tuple[str | None, str]] = set()  # what is not in the catalog, also not when it was read anew
        self.caches: dict[str, dict[str, Plan]] = {style: {} for style in (NONE, FORMAT, RAW, QMARK)}
        self._refused: set[str] = set()  # texts that the database did not take as we would have sent them

    def find(self, text: str, style: str) -> Plan:
        """The plan of a text. Does not raise for any text."""
        plan = self.caches[style].get(text)
        if plan is None:
            catalog = self.catalog
            refused = text in self._refused
            plan = self._unmodified(text, style, "refused by the database") if refused else self._make(text, style)
            plan.row_types = catalog.row_types or None
            if len(text) <= CACHED_LENGTH_MAX:
                self._keep(text, style, plan, catalog)
        else:
            plan.used = True
        return plan

    def renew(self, catalog: Catalog) -> tuple[Table, ...]:
        """The catalog was read again. Plans that were made from another one are forgotten.

        Returns the tables that may have been written to unseen meanwhile: those that got the name of something else,
        and those that are not written any more as their statements say, since nobody knows since when.
        """
        found: dict[tuple[str, str], Table] = {}
        passed, self.passed = self.passed, set()
        if catalog != self.catalog:
            found = _written_otherwise(self.catalog, catalog)
            known = {table.oid for table in self.catalog.tables.values()}
            self.catalog = catalog
            self._refused.clear()
            self._sought.clear()
            self._forget(lambda plan: True)
            for schema, name in passed:
                table = catalog.table(name, schema)
                if table is not None and (table.oid in known or table.key_space in catalog.began_anew):
                    found[table.schema, table.name] = table
        if found:
            self.taint(found.values())
        return tuple(found.values())

    def is_strange(self, plan: Plan) -> bool:
        """Whether a statement writes to something that was not there when the catalog was read. Says so once."""
        strange = {place for place in plan.passes - self._sought if not self.catalog.has(place[1], place[0])}
        if strange and len(self._sought) < SOUGHT_MAX:
            self._sought |= strange
            return True
        return False

    def passed_strange(self) -> bool:
        """Whether something was written to, since the catalog was read, that is not in it."""
        return any(not self.catalog.has(name, schema) for schema, name in self.passed)

    def taint(self, tables: Iterable[Table]) -> None:
        """Somebody is about to write to these tables unseen: record nothing of them any more.

        Also not what is under way: a result that arrives later may already show what was written.
        """
        places = {(table.schema, table.name) for table in tables} - self.tainted
        if places:
            self.tainted |= places
            self._forget(lambda plan: bool(plan.tables & places))

    def taint_everything(self) -> None:
        """Somebody wrote, nobody knows where."""
        if not self.everything_tainted:
            self.everything_tainted = True
            self.taint(self.catalog.tables.values())

    def disable(self, plan: Plan) -> None:
        """A rewritten text was refused by the database: from now on it goes as the application wrote it.

        What it writes to is tainted when it is sent, as with any other statement that goes as it is.
        """
        if len(self._refused) < PLANS_MAX:
            self._refused.add(plan.original)
        for cache in self.caches.values():
            cache.pop(plan.original, None)

    def _forget(self, is_old: Callable[[Plan], bool]) -> None:
        for cache in self.caches.values():
            for text, plan in list(cache.items()):
                if is_old(plan):
                    plan.live = False
                    cache.pop(text, None)

    def _keep(self, text: str, style: str, plan: Plan, catalog: Catalog) -> None:
        cache = self.caches[style]
        if len(cache) >= PLANS_MAX:
            # Those that were used since the last time stay, at most half of all.
            used = [(key, each) for key, each in list(cache.items()) if each.used][-PLANS_MAX // 2 :]
            for _, each in used:
                each.used = False
            kept = dict(used)
            for key in list(cache):
                if key not in kept:
                    cache.pop(key, None)
        cache[text] = plan
        # A table may have been tainted, or the catalog renewed, while the plan was made. Whoever did that either found
        # the plan in the cache, or is noticed here.
        if plan.tables & self.tainted or catalog is not self.catalog:
            plan.live = False
            cache.pop(text, None)

    def _unmodified(self, text: str, style: str, shape: str) -> Plan:
        draft = self._draft(text, style)
        end, _ = _statements(draft.tokens)[0]
        plan = plan_other(draft, end, shape)
        plan.names_columns = draft.names_columns
        plan.text, _ = draft.splice.apply(draft.placeholders, style, self.dialect)
        return plan

    def _draft(self, text: str, style: str) -> Draft:
        tokens, placeholders = tokenize(text, style, self.dialect)
        return Draft(text, tokens, placeholders, style, self.dialect, self.catalog, self.tainted, self.version_column)

    def _make(self, text: str, style: str) -> Plan:
        try:
            batch = find_batch(text)
            plan = self._make_whole(text, style) if batch is None else self._make_batch(batch, text, style)
            return self._unmodified(text, style, "too many parameters") if self._too_many_parameters(plan) else plan
        except NotUnderstood as error:
            return self._make_opaque(text, style, str(error))
        except (IndexError, RecursionError):  # a text that ends in the middle, or nests beyond sense
            return self._make_opaque(text, style, "incomplete text")

    def _make_opaque(self, text: str, style: str, shape: str) -> Plan:
        """A text that cannot be divided into tokens: everything that it names may be written."""
        draft = Draft(text, [], [], style, self.dialect, self.catalog, self.tainted, self.version_column)
        return plan_other(draft, 0, shape)

    def _make_whole(self, text: str, style: str) -> Plan:
        draft = self._draft(text, style)
        parts = _statements(draft.tokens)
        if not parts:
            return Plan(text, text, coverage=(("", "empty", UNOBSERVED_READ),))
        if len(parts) > 1:
            return self._several(draft, parts)
        end = parts[0][0]
        written_out = without_whole_rows(draft, end)
        if written_out != text:
            plan = self._make_whole(written_out, style)
            plan.original, plan.statement = text, _for_people(text, draft.tokens)
            return plan
        tokens = draft.tokens[:end]
        control = parse_control(tokens)
        if control is not None and tokens[0].word not in ("CREATE", "SELECT"):
            return Plan(text, text, control=control, coverage=())
        plan = self._one(draft, end)
        plan.control = control
        if control is None and tokens[0].word == "DO" and "isolation" in text.lower():
            plan.control = Control(SET_DEFAULT, isolation=ASK)
        written = draft.written_by_functions()
        if written:
            plan.taints = tuple({*plan.taints, *written})
            plan.coverage = (*plan.coverage, *unobserved_write_keys(written, "function"))
        plan.names_columns = draft.names_columns
        plan.statement = _for_people(text, draft.tokens)
        plan.tables = frozenset(draft.recorded) if plan.observes else frozenset()
        plan.quick = plan.observes and not plan.taints and control is None
        if draft.splice:
            plan.text, plan.injection = draft.splice.apply(draft.placeholders, style, self.dialect)
        return plan

    def _one(self, draft: Draft, end: int) -> Plan:
        """The plan of the one statement in tokens [0, end), without what is the same for all."""
        tokens = draft.tokens
        word = tokens[0].word
        shape = word
        try:
            if word == "WITH":
                _, _, index = skip_with(tokens, 0)
                word = tokens[index].word
            if word in ("SELECT", "VALUES", "("):
                return plan_select(draft, end)
            if word in ("INSERT", "UPDATE", "DELETE"):
                return plan_write(draft, end)
            if word == "COPY":
                return plan_copy(draft, end)
        except NotUnderstood as error:
            shape = str(error)
            draft.splice = type(draft.splice)(draft.text)
            draft.expanded.clear()
            draft.joined.clear()
            draft.recorded.clear()
        return plan_other(draft, end, shape)

    def _several(self, draft: Draft, parts: list[tuple[int, int]]) -> Plan:
        """More than one statement in a text: none is rewritten."""
        controls: list[Control | None] = []
        taints: dict[tuple[str, str], Table] = {}
        for end, start in parts:
            tokens = draft.tokens[start:end]
            control = parse_control(tokens)
            controls.append(control)
            if control is None:
                # Parentheses know each other by their place in the whole text, so each is analysed on its own.
                first, last = tokens[0].start, tokens[-1].end
                inner = self._make_opaque_part(draft.text[first:last], draft.style)
                taints.update({(table.schema, table.name): table for table in inner.taints})
        plan = Plan(draft.text, draft.text, strips=True, varies=True)
        plan.controls, plan.unqualified = tuple(controls), draft.unqualified
        plan.taints = tuple(taints.values())
        shape = "several statements in one text"
        if taints:
            plan.coverage = unobserved_write_keys(taints.values(), shape)
        elif all(controls):
            plan.coverage = ()
        else:
            plan.coverage = (("", shape, UNOBSERVED_READ),)
        return plan

    def _make_opaque_part(self, text: str, style: str) -> Plan:
        draft = self._draft(text, style)
        plan = plan_other(draft, len(draft.tokens), "")
        written = draft.written_by_functions()
        if written:
            plan.taints = tuple({*plan.taints, *written})
        return plan

    def _make_batch(self, batch: Batch, text: str, style: str) -> Plan:
        """From the plan of one row to that of many: what was added to the row is added to each."""
        one = self.find(batch.one, style)
        if one.text == batch.one or one.write is None or style not in (NONE, FORMAT, QMARK):
            return self._make_whole(text, style)
        for addition in _ADDITIONS:
            row = f"({addition}{batch.row[1:]}"
            if row in one.text:
                break
        else:
            return self._make_whole(text, style)
        head, _, tail = one.text.partition(row)
        if addition == "?, " and isinstance(one.injection, AtPlaces) and one.injection.places == (0,):
            addition = f"{ONE_FOR_ALL}, "
        rows = batch.shape.sub(lambda match: f"({addition}{match[0][1:]}", batch.rows) if addition else batch.rows
        plan = copy(one)
        plan.text = head + rows + tail
        plan.original = text
        injection = one.injection
        if isinstance(injection, AtPlaces):
            per_row = bool(addition) and not addition.startswith(ONE_FOR_ALL)
            plan.injection = _many_places(injection, batch, per_row)
        return plan

    def _too_many_parameters(self, plan: Plan) -> bool:
        injection = plan.injection
        if self.dialect == SQLITE or not isinstance(injection, AtPlaces):
            return False
        return injection.count <= PARAMETERS_MAX < injection.count + len(injection.places)


def _written_otherwise(before: Catalog, now: Catalog) -> dict[tuple[str, str], Table]:
    """Tables that others have given a cascade, a trigger or a rule. Those that plans were made for go by their oids."""
    known = {table.oid or place: table for place, table in before.tables.items()}
    found = {}
    for place, table in now.tables.items():
        old = known.get(table.oid or place)
        if old is not None and not old.tainted and (table.tainted or table.before != old.before):
            found[place] = table
    return found


def _many_places(one: AtPlaces, batch: Batch, per_row: bool) -> AtPlaces:
    """Where write ids go among the parameters of many rows, given where they go among those of one."""
    row_count = len(batch.shape.findall(batch.rows))
    width = batch.row.count("%s") + batch.row.count("?")
    before = batch.head.count("%s") + batch.head.count("?")
    more = (row_count - 1) * width
    places: list[int] = []
    for place in one.places:
        if per_row and place == before:
            places += [before + width * number for number in range(row_count)]
        else:
            places.append(place if place <= before else place + more)
    return AtPlaces(one.count + more, tuple(sorted(places)))


def _statements(tokens: list[Token]) -> list[tuple[int, int]]:
    """(end, start) of each statement."""
    parts = []
    start = 0
    for index, token in enumerate(tokens):
        if token.word == ";":
            if index > start:
                parts.append((index, start))
            start = index + 1
    if len(tokens) > start:
        parts.append((len(tokens), start))
    return parts


def _for_people(text: str, tokens: list[Token]) -> str:
    """The text with a question mark for each value in it."""
    chunks: list[str] = []
    done = 0
    for token in tokens:
        if token.literal:
            chunks += (text[done : token.start], "?")
            done = token.end
    chunks.append(text[done:])
    return "".join(chunks)[:STATEMENT_LENGTH_MAX]
