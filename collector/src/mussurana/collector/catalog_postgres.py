"""PostgreSQL's catalog: one query, one text in answer, one `Catalog` made of it.

One query, because it may have to run on the application's connection between two of its transactions; a text, because
then sync and async adapters need only pass it on. The rest is plain Python over what came back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mussurana.collector.catalog import (
    FENCE_TABLE,
    HIDDEN_COLUMNS,
    PREVIOUS_WID,
    WID,
    Catalog,
    RowType,
    Table,
    key_space,
)
from mussurana.collector.hidden_writes import (
    HARMLESS_TRIGGERS,
    WRITES,
    Effects,
    Write,
    all_effects,
    effects,
    uses_whole_rows,
    words_in,
)
from mussurana.collector.identities import Identity, identify, plain_kind, read_comment, written_down
from mussurana.collector.row_triggers import RowTriggers, events_before, row_changes, row_triggers
from mussurana.collector.sql.keys import key_expression

# Oids are sent as bigint, since json has no type for them. Everything is sorted, so that equal catalogs are equal.
_QUERY = """
WITH place AS (
  SELECT n.oid, n.nspname FROM pg_catalog.pg_namespace n
  WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast'
), relation AS (
  SELECT c.*, p.nspname, w.attname IS NOT NULL AS is_tagged, w.attnum AS tag, EXISTS (SELECT FROM pg_catalog.pg_depend d
      WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e') AS is_extension
  FROM pg_catalog.pg_class c
  JOIN place p ON p.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_attribute w ON w.attrelid = c.oid AND w.attname = 'mussurana_wid' AND NOT w.attisdropped
  WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
), routine AS (
  SELECT f.oid, f.proname, f.prosrc, f.prolang, f.provolatile, l.lanname FROM pg_catalog.pg_proc f
  JOIN place p ON p.oid = f.pronamespace
  JOIN pg_catalog.pg_language l ON l.oid = f.prolang
  WHERE f.prokind IN ('f', 'p') AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = f.oid AND d.deptype = 'e'
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgfoid = f.oid))
)
SELECT json_build_object(
  'version', current_setting('server_version_num')::int / 10000,
  'search_path', current_schemas(true),
  'database', (SELECT json_build_array(s.system_identifier::text, d.oid::bigint)
    FROM {system}, pg_catalog.pg_database d WHERE d.datname = current_database()),
  'relations', (SELECT json_agg(json_build_object(
      'oid', r.oid::bigint, 'schema', r.nspname, 'name', r.relname, 'kind', r.relkind,
      'temporary', r.relpersistence = 't', 'tagged', r.is_tagged, 'extension', r.is_extension,
      'policies', r.relrowsecurity,
      'row_types', CASE WHEN r.is_tagged THEN (
        SELECT json_build_array(t.oid::bigint, t.typarray::bigint)
        FROM pg_catalog.pg_type t WHERE t.oid = r.reltype) END,
      'row_security', CASE WHEN r.relrowsecurity THEN row_security_active(r.oid) ELSE false END,
      'columns', CASE WHEN r.relkind IN ('r', 'p') AND {wanted} THEN (
        SELECT json_agg(json_build_array(a.attnum, a.attname, format_type(a.atttypid, NULL)) ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped) END,
      'key', CASE WHEN {wanted} THEN (
        SELECT k.conkey FROM pg_catalog.pg_constraint k WHERE k.conrelid = r.oid AND k.contype = 'p') END,
      'key_types', CASE WHEN {wanted} THEN (
        SELECT json_agg(a.atttypid::bigint ORDER BY n.place) FROM pg_catalog.pg_constraint k,
          unnest(k.conkey) WITH ORDINALITY AS n (number, place), pg_catalog.pg_attribute a
        WHERE k.conrelid = r.oid AND k.contype = 'p' AND a.attrelid = r.oid AND a.attnum = n.number) END,
      'deferrable', CASE WHEN {wanted} THEN (
        SELECT k.condeferrable FROM pg_catalog.pg_constraint k WHERE k.conrelid = r.oid AND k.contype = 'p') END,
      'generated', CASE WHEN r.relkind IN ('r', 'p') AND {wanted} THEN (
        SELECT json_agg(json_build_array(a.attnum, pg_get_expr(e.adbin, e.adrelid), md5(e.adbin::text))
          ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
        WHERE a.attrelid = r.oid AND NOT a.attisdropped AND a.attgenerated <> '') END,
      'comment', CASE WHEN r.is_tagged THEN col_description(r.oid, r.tag) END,
      'privileged', NOT r.is_tagged OR (
        (NOT has_any_column_privilege(r.oid, 'SELECT') OR has_column_privilege(r.oid, 'mussurana_wid', 'SELECT'))
        AND (NOT has_any_column_privilege(r.oid, 'INSERT') OR has_column_privilege(r.oid, 'mussurana_wid', 'INSERT'))
        AND (NOT has_any_column_privilege(r.oid, 'UPDATE') OR has_column_privilege(r.oid, 'mussurana_wid', 'UPDATE'))
        AND (has_column_privilege(r.oid, 'mussurana_wid', 'SELECT') OR NOT (
          has_any_column_privilege(r.oid, 'INSERT, UPDATE') OR has_table_privilege(r.oid, 'DELETE'))))
    ) ORDER BY r.oid) FROM relation r),
  'inherits', (SELECT json_agg(json_build_array(i.inhrelid::bigint, i.inhparent::bigint, c.relispartition)
      ORDER BY i.inhrelid, i.inhparent)
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE c.relkind IN ('r', 'p', 'f')),
  'cascades', (SELECT json_agg(json_build_array(
      k.conname, k.conrelid::bigint, k.confrelid::bigint, k.confupdtype, k.confdeltype, k.conkey) ORDER BY k.oid)
    FROM pg_catalog.pg_constraint k
    WHERE k.contype = 'f' AND (k.confupdtype IN ('c', 'n', 'd') OR k.confdeltype IN ('c', 'n', 'd'))),
  'triggers', (SELECT json_agg(json_build_array(
      t.tgname, t.tgrelid::bigint, f.proname, f.pronamespace = 'pg_catalog'::regnamespace, f.prosrc,
      pg_get_triggerdef(t.oid), t.tgtype) ORDER BY t.oid)
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
    WHERE NOT t.tgisinternal AND t.tgenabled <> 'D'),
  'rules', (SELECT json_agg(json_build_array(u.rulename, u.ev_class::bigint, pg_get_ruledef(u.oid)) ORDER BY u.oid)
    FROM pg_catalog.pg_rewrite u JOIN relation r ON r.oid = u.ev_class
    WHERE u.rulename <> '_RETURN' AND u.ev_enabled <> 'D'),
  'views', (SELECT json_agg(DISTINCT jsonb_build_array(u.ev_class::bigint, d.refobjid::bigint))
    FROM pg_catalog.pg_rewrite u JOIN relation r ON r.oid = u.ev_class
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = u.oid
      AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid <> u.ev_class
    WHERE r.relkind IN ('v', 'm')),
  'functions', (SELECT json_agg(json_build_array(f.proname, f.lanname, f.prosrc, pg_get_function_sqlbody(f.oid))
      ORDER BY f.oid)
    FROM routine f WHERE f.provolatile = 'v'),
  'implicit', (SELECT json_agg(json_build_array(x.what, x.relation::bigint, f.proname)
      ORDER BY x.what, x.relation, f.oid)
    FROM routine f JOIN (
      SELECT d.refobjid, 'the default of a column' AS what, e.adrelid AS relation FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_attrdef e ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = e.oid
        WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass
      UNION SELECT d.refobjid, 'a constraint', e.conrelid FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_constraint e ON d.classid = 'pg_catalog.pg_constraint'::regclass AND d.objid = e.oid
        WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass
      UNION SELECT d.refobjid, 'a policy', e.polrelid FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_policy e ON d.classid = 'pg_catalog.pg_policy'::regclass AND d.objid = e.oid
        WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass
      UNION SELECT d.refobjid, 'the definition', e.ev_class FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_rewrite e ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = e.oid
        WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass
    ) x ON x.refobjid = f.oid WHERE f.provolatile = 'v')
)::text
"""
_SYSTEM = "pg_catalog.pg_control_system() s"
QUERY = _QUERY.format(wanted="r.is_tagged", system=_SYSTEM)
QUERY_ALL = _QUERY.format(
    wanted="true", system=_SYSTEM
)  # for adopting tables, and for using xmin, which takes no adopting


def without_system(query: str) -> str:
    """The same for a user who may not ask which server this is."""
    return query.replace(_SYSTEM, "(SELECT '' AS system_identifier) s")


_FOREIGN_KEY_ACTIONS = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


def postgres_catalog(answer: str, every_table: bool = False, by_xmin: bool = False) -> Catalog:
    """A catalog of the answer to QUERY; of all tables that have a key, with `every_table` and QUERY_ALL."""
    reader = _Reader(json.loads(answer), every_table)
    if by_xmin:
        reader.leave_out_partitions()
    return reader.catalog()


class _Reader:
    """Gathers reasons for tables to be tainted or weakened, then makes the catalog."""

    def __init__(self, answer: dict[str, Any], every_table: bool) -> None:
        self.answer = {name: value if value is not None else [] for name, value in answer.items()}
        self.relations: dict[int, dict[str, Any]] = {r["oid"]: r for r in self.answer["relations"]}
        self.places = {(r["schema"], r["name"]): r["oid"] for r in self.relations.values()}
        self.recorded = {
            oid
            for oid, r in self.relations.items()
            if r["kind"] in "rp"
            and not r["temporary"]
            and (r["tagged"] or (every_table and r["key"] and not r["extension"]))
            and r["name"] != FENCE_TABLE
        }
        self.bases = _recorded_behind(self.answer["views"], self.recorded)
        self.identities = self._identities()
        self.parents = {child: parent for child, parent, is_partition in self.answer["inherits"] if is_partition}
        self.named: defaultdict[str, list[int]] = defaultdict(list)
        for oid, r in self.relations.items():
            self.named[r["name"]].append(oid)
        self.functions: dict[str, Effects] = {}
        for name, language, source, body in self.answer["functions"]:
            found = effects(source or body or "", language)
            known = self.functions.get(name, Effects())  # an overloaded function may do what any of its forms does
            self.functions[name] = Effects(
                known.writes | found.writes, known.calls | found.calls, known.unreadable or found.unreadable
            )
        self.tainted: defaultdict[int, list[str]] = defaultdict(list)
        self.weakened: defaultdict[int, list[str]] = defaultdict(list)
        self.before: defaultdict[int, RowTriggers] = defaultdict(RowTriggers)

    def catalog(self) -> Catalog:
        self._read_shape()
        self._read_cascades()
        self._read_triggers_and_rules()
        self._read_implicit_calls()
        self._spread_over_partitions()
        tables = {oid: self._table(oid) for oid in sorted(self.recorded)}
        fences = [r["oid"] for r in self.relations.values() if r["name"] == FENCE_TABLE and r["tagged"]]
        return Catalog(
            tables={(t.schema, t.name): t for t in tables.values()},
            search_path=tuple(self.answer["search_path"]),
            version=self.answer["version"],
            fence=self._table(fences[0]) if fences else None,
            views={
                (self.relations[view]["schema"], self.relations[view]["name"]): tuple(
                    tables[base] for base in sorted(found)
                )
                for view, found in self.bases.items()
                if found
            },
            functions={
                name: found
                for name in sorted(self.functions)
                if (found := tuple(tables[oid] for oid in sorted(self._written(all_effects([name], self.functions)))))
            },
            others=frozenset(
                place for place, oid in self.places.items() if oid not in self.recorded and not self.bases.get(oid)
            ),
            database=self._database(),
            server_tells=bool(self.answer["database"][0]),
        )

    def _table(self, oid: int) -> Table:
        relation = self.relations[oid]
        names = {number: (name, kind) for number, name, kind in relation["columns"] or ()}
        keys = [names[number] for number in relation["key"] or ()]
        root = self.relations[self._root(oid)]
        return Table(
            name=relation["name"],
            schema=relation["schema"],
            key_columns=tuple(name for name, _ in keys),
            columns=tuple(name for name, _ in names.values() if name not in HIDDEN_COLUMNS),
            has_prev=any(name == PREVIOUS_WID for name, _ in names.values()),
            tainted="; ".join(dict.fromkeys(self.tainted[oid])),
            weakened="; ".join(dict.fromkeys(self.weakened[oid])),
            key_types=tuple(kind for _, kind in keys),
            key_space=self.identities[root["oid"]].key_space,
            identity=self.identities[root["oid"]].current,
            is_identified=self.identities[root["oid"]].is_written,
            is_part=oid in self.parents,
            oid=oid,
            key_places=tuple(zip(relation["key"] or (), relation["key_types"] or (), strict=True)),
            columns_after=_columns_after([name for name, _ in names.values()]),
            row_security=relation["policies"],
            generated=tuple(names[number][0] for number, *_ in relation["generated"] or ()),
            row_type=_row_type([name for name, _ in names.values()]),
            row_oids=tuple(relation["row_types"] or (0, 0)),
            key_from=frozenset(self._key_sources(oid)) - {name for name, _ in keys},
            deferrable=bool(relation["deferrable"]),
            before=self.before[oid],
            is_whole=relation["kind"] == "p",
        )

    def _key_sources(self, oid: int) -> dict[str, int]:
        """The columns that decide what the rows of a table are called, with their numbers.

        Those of the key, and what generated ones among these are computed from: all that their expressions name.
        """
        relation = self.relations[oid]
        key = relation["key"] or ()
        named = {word for number, text, _ in relation["generated"] or () if number in key for word in words_in(text)}
        return {name: number for number, name, _ in relation["columns"] or () if number in key or name in named}

    def _identities(self) -> dict[int, Identity]:
        """What each table is called in the names of keys."""
        fences = [r for r in self.relations.values() if r["name"] == FENCE_TABLE and r["tagged"]]
        is_marked = any(read_comment(fence["comment"]) for fence in fences)
        system, database = self.answer["database"]
        made = {}
        for oid, r in self.relations.items():
            kinds = {number: kind for number, _, kind in r["columns"] or ()}
            for number, _, expression in r["generated"] or ():
                kinds[number] = f"{plain_kind(kinds[number])} {expression}"
            key = ((number, kinds[number]) for number in r["key"] or ())
            current = written_down(system, database, oid, key)
            plain = key_space(r["schema"], r["name"])
            made[oid] = identify(plain, current, r["comment"], is_new=is_marked and not r["comment"])
        return made

    def _database(self) -> tuple[str, str]:
        """Server and number. If the user may not ask for the server: as `adopt` wrote it down on one of the tables."""
        server, number = self.answer["database"]
        written = (self._written_server(oid) for oid in sorted(self.relations))
        return server or next(filter(None, written), ""), str(number)

    def _written_server(self, oid: int) -> str:
        known = read_comment(self.relations[oid]["comment"])
        server, _, table = known[1].partition("/") if known is not None else ("", "", "")
        return server if table and self.identities[oid].current.partition("/")[2] == table else ""

    def _read_shape(self) -> None:
        """What the tables themselves are like."""
        homes = defaultdict(set)
        for schema, name in self.places:
            homes[name].add("pg_temp" if schema.startswith("pg_temp") else schema)
        for oid in self.recorded:
            relation = self.relations[oid]
            if not relation["key"]:
                self.tainted[oid].append("it has no primary key")
            for number, name, kind in relation["columns"] or ():
                if number in (relation["key"] or ()) and key_expression(name, kind, False) is None:
                    self.tainted[oid].append(f"its key {name} is of type {kind}, for which keys have no name")
            if relation["row_security"]:
                # RETURNING would fail where the policies for reading do not let the new row through.
                self.tainted[oid].append("row security applies to this user")
            if not relation["privileged"]:
                self.tainted[oid].append(
                    f"this user may use some of its columns, but not {WID}: grant SELECT, INSERT, UPDATE"
                )
            if len(homes[relation["name"]]) > 1:
                schemas = " and ".join(sorted(homes[relation["name"]]))
                self.tainted[oid].append(
                    f"{schemas} both have a table of this name, and one without schema may mean either"
                )
        for child, parent, is_partition in self.answer["inherits"]:
            if not is_partition:
                # Parent and child have keys of their own, so that one key may stand for two rows.
                self._taint(child, f"it inherits from {self._name(parent)}")
                self._taint(parent, f"{self._name(child)} inherits from it")

    def _read_cascades(self) -> None:
        for name, child, parent, on_update, on_delete, columns in self.answer["cascades"]:
            if child not in self.recorded:
                continue
            in_key = bool(set(columns) & set(self._key_sources(child).values()))
            for event, action in (("DELETE", on_delete), ("UPDATE", on_update)):
                if action in _FOREIGN_KEY_ACTIONS:
                    text = f"foreign key {name}: ON {event} {_FOREIGN_KEY_ACTIONS[action]} from {self._name(parent)}"
                    deletes = event == "DELETE" and action == "c"
                    (self.tainted if deletes or in_key else self.weakened)[child].append(text)

    def _read_triggers_and_rules(self) -> None:
        for name, relation, function, is_built_in, source, definition, kind in self.answer["triggers"]:
            what = f"trigger {name} on {self._name(relation)}"
            condition = definition.partition(" WHEN (")[2]
            if relation in self.recorded and (events := events_before(kind)):
                self._read_row_trigger(relation, what, source, definition, events)
            if function == "suppress_redundant_updates_trigger" and is_built_in:
                self._taint(relation, f"{what} suppresses updates that change nothing, and a new version is a change")
            elif uses_whole_rows(condition) or (not is_built_in and uses_whole_rows(source)):
                self._taint(relation, f"{what} uses whole rows, hidden columns and all")
            if not is_built_in and function not in HARMLESS_TRIGGERS:
                self._taint_written(what, all_effects([function], self.functions))
        for name, relation, definition in self.answer["rules"]:
            what = f"rule {name} on {self._name(relation)}"
            self._taint(relation, f"{what} replaces statements")
            direct = effects(definition, "sql")
            called = all_effects(direct.calls, self.functions)
            self._taint_written(what, Effects(direct.writes | called.writes, unreadable=called.unreadable))

    def _read_row_trigger(self, relation: int, what: str, source: str, definition: str, events: frozenset[str]) -> None:
        """A trigger that is called before a row is written, and may change it."""
        if any(column in source for column in HIDDEN_COLUMNS):
            self._taint(relation, f"{what} names our columns")
        changes = row_changes(source)
        if changes.other:
            self._taint(relation, f"{what} returns another row, with another version")
        if not changes.returned:  # it is written in C, and told which columns to fill
            changes = replace(changes, assigned=words_in(definition.rpartition("(")[2]))
        found = row_triggers(changes, events, frozenset(self._key_sources(relation)))
        self.before[relation] = self.before[relation].together_with(found)

    def _read_implicit_calls(self) -> None:
        for what, relation, function in self.answer["implicit"]:
            text = f"function {function}, called by {what} of {self._name(relation)},"
            self._taint_written(text, all_effects([function], self.functions))

    def _spread_over_partitions(self) -> None:
        """What holds for one partition holds for the whole, and the other way round."""
        families = defaultdict(list)
        for oid in self.recorded:
            families[self._root(oid)].append(oid)
        for root, members in families.items():
            if len(members) > 1 or members != [root]:
                before = RowTriggers()
                for member in (root, *members):
                    before = before.together_with(self.before[member])
                self.before.update(dict.fromkeys(members, before))
                for reasons in (self.tainted, self.weakened):
                    common = [reason for member in sorted({root, *members}) for reason in reasons[member]]
                    for member in members:
                        reasons[member] = common
                if not self.relations[root]["key"]:
                    for member in members:
                        self.tainted[member].append(f"{self._name(root)} as a whole has no primary key")

    def leave_out_partitions(self) -> None:
        """For xmin, which an INSERT into a partitioned table cannot return."""
        for child, parent, is_partition in self.answer["inherits"]:
            if is_partition:
                for oid in (child, parent):
                    self._taint(oid, "an INSERT into a partitioned table does not tell xmin")

    def _taint_written(self, what: str, found: Effects) -> None:
        if found.unreadable:
            for oid in self.recorded:
                self.tainted[oid].append(f"{what} may write anything: {found.unreadable}")
        for write in found.writes:
            for oid in self._targets(write):
                critical = {*self._key_sources(oid), *HIDDEN_COLUMNS}
                harmless = write.assigned is not None and not write.assigned & critical
                (self.weakened if harmless else self.tainted)[oid].append(f"{what} {WRITES[write.verb]}")

    def _written(self, found: Effects) -> set[int]:
        if found.unreadable:
            return set(self.recorded)
        return {oid for write in found.writes for oid in self._targets(write)}

    def _targets(self, write: Write) -> Iterator[int]:
        """The recorded tables that a write may mean; those behind a view, if it is one."""
        for oid in self.named[write.name]:
            if write.schema in (None, self.relations[oid]["schema"]):
                yield from ({oid} & self.recorded) | self.bases.get(oid, set())

    def _root(self, oid: int) -> int:
        """The partitioned table that this is a part of, or itself."""
        while oid in self.parents:
            oid = self.parents[oid]
        return oid

    def _taint(self, oid: int, reason: str) -> None:
        if oid in self.recorded:
            self.tainted[oid].append(reason)

    def _name(self, oid: int) -> str:
        relation = self.relations.get(oid)
        return key_space(relation["schema"], relation["name"]) if relation else "a system table"


def _recorded_behind(uses: list[list[int]], recorded: set[int]) -> dict[int, set[int]]:
    """For each view the recorded tables behind it, also through other views."""
    direct = defaultdict(set)
    for view, used in uses:
        direct[view].add(used)
    behind = {}
    for view in direct:
        seen, waiting = {view}, [view]
        while waiting:
            new = direct.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        behind[view] = seen & recorded
    return behind


def _columns_after(names: list[str]) -> int:
    """How many columns stand behind ours, if we have any."""
    ours = [index for index, name in enumerate(names) if name in HIDDEN_COLUMNS]
    return len(names) - 1 - ours[-1] if ours else 0


def _row_type(names: list[str]) -> RowType | None:
    """The type of rows with these columns, if any of them is ours."""
    ours = frozenset(index for index, name in enumerate(names) if name in HIDDEN_COLUMNS)
    return RowType(len(names), ours) if ours else None
