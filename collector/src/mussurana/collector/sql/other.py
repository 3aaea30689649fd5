"""Statements that are not rewritten: what they may write to, and the places where our columns would show.

Whatever may write unseen has to be found here, since it makes the tables it writes to unfit for recording. In case of
doubt everything that is named is taken to be written.
"""

from __future__ import annotations

from contextlib import suppress

from mussurana.collector.catalog import Table
from mussurana.collector.sql.draft import Draft, quoted, unobserved_read_keys, unobserved_write_keys
from mussurana.collector.sql.plan import Plan
from mussurana.collector.sql.query import parse_query
from mussurana.collector.sql.select import expand_nested_stars
from mussurana.collector.sql.tokens import NotUnderstood, Token, words_of
from mussurana.collector.sql.writes import Target, expand_returned_stars, name_inserted_columns, show_nothing_of_ours

# First words of statements that cannot write to a table, unless a word of _WRITES is in them.
_HARMLESS_WORDS = """
    ANALYZE CHECKPOINT CLOSE CLUSTER COMMENT DEALLOCATE DECLARE DESCRIBE DISCARD EXPLAIN FETCH GRANT LISTEN LOAD LOCK
    MOVE NOTIFY PRAGMA REFRESH REINDEX RESET REVOKE SECURITY SELECT SET SHOW TABLE UNLISTEN VACUUM VALUES WITH (
    CREATE ALTER DROP ATTACH DETACH
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
_OPAQUE = frozenset({"DO", "CALL", "EXECUTE", "PREPARE"})
"""Statements whose effect is not in their text, or in a string of it."""

_WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY", "REPLACE"})


def plan_copy(draft: Draft, end: int) -> Plan:
    """COPY: without a list of columns it would copy ours too."""
    tokens = draft.tokens
    if tokens[1].word == "(":
        expand_nested_stars(draft, end)
        expand_returned_stars(draft, end)
        inside = tokens[2 : tokens[1].closing]
        written = _targets(draft, inside) if _is_write(inside) else set()
        return _not_recorded(draft, "COPY TO", draft.mentioned() if written is None else written)
    index = 2
    schema: str | None = None
    name = tokens[1].name
    if index + 1 < end and tokens[index].word == ".":
        schema, name, index = name, tokens[index + 1].name, index + 2
    table = draft.adopted(name, schema)
    if table is not None and index < end and tokens[index].word in ("FROM", "TO"):
        # As without a list: what is generated is not copied.
        columns = ", ".join(quoted(column) for column in table.columns if column not in table.generated)
        draft.splice.insert(tokens[index - 1].end, f" ({columns})")
    reads = any(token.word == "TO" for token in tokens[index:end])
    if table is None and not reads:
        draft.passes.add((schema, name))
    return _not_recorded(draft, "COPY TO" if reads else "COPY FROM", set() if reads or table is None else {table})


def plan_other(draft: Draft, end: int, shape: str) -> Plan:
    """Anything else."""
    tokens = draft.tokens[:end]
    word = tokens[0].word if tokens else ""
    written: set[Table] = set()
    if word in _OPAQUE or not tokens:
        written = _tables_named(draft, words_of(draft.text))
    elif word == "EXPLAIN" and not {"ANALYZE", "ANALYSE"} & {token.word for token in tokens}:
        pass  # it is only looked at
    elif _is_write(tokens):
        targets = _targets(draft, tokens)
        written = _tables_named(draft, words_of(draft.text)) if targets is None else targets
    elif word not in _HARMLESS:
        written = draft.mentioned()
    name_inserted_columns(draft, end)
    if word == "CREATE":
        _expand_created(draft, tokens, end)
    else:
        _expand_arms(draft, end)
        expand_returned_stars(draft, end)
    if word in ("UPDATE", "DELETE"):
        with suppress(NotUnderstood):
            show_nothing_of_ours(draft, word, Target(draft, 1 if word == "UPDATE" else 2, takes_alias=True), end)
    plan = _not_recorded(draft, shape or word, written)
    plan.varies = word in _OPAQUE or word == "FETCH" or not tokens
    return plan


def _not_recorded(draft: Draft, shape: str, written: set[Table]) -> Plan:
    plan = Plan(draft.text, draft.text, strips=True, unqualified=draft.unqualified)
    plan.passes = frozenset(draft.passes)
    if written:
        plan.taints = tuple(sorted(written, key=lambda table: (table.schema, table.name)))
        plan.coverage = unobserved_write_keys(written, shape)
    else:
        plan.coverage = unobserved_read_keys(draft.mentioned(), shape)
    return plan


def _is_write(tokens: list[Token]) -> bool:
    return any(_is_write_word(tokens, index) for index in range(len(tokens)))


def _is_write_word(tokens: list[Token], index: int) -> bool:
    """A word that writes, but not the UPDATE of FOR UPDATE, ON UPDATE and DO UPDATE, nor a column's name."""
    word = tokens[index].word
    if word not in _WRITES:
        return False
    before = tokens[index - 1].word if index else ""
    after = tokens[index + 1].word if index + 1 < len(tokens) else ""
    if word in ("UPDATE", "DELETE") and before in ("FOR", "KEY", "ON", "DO", "THEN", "OR", "BEFORE", "AFTER", "OF"):
        return False
    return (
        before not in (".", ",", "AS")
        and after not in (",", ")", ".", "=")
        and not (word == "REPLACE" and (before == "OR" or after == "("))
    )


def _targets(draft: Draft, tokens: list[Token]) -> set[Table] | None:
    """The tables that are written to; None if that cannot be told."""
    found: set[Table] = set()
    for index in range(len(tokens)):
        if not _is_write_word(tokens, index):
            continue
        at = index + 1
        while at < len(tokens) and tokens[at].word in ("INTO", "FROM", "ONLY", "TABLE", "OR", "REPLACE", "IGNORE"):
            at += 1
        while at < len(tokens) and tokens[at].is_name:
            name, schema, at = tokens[at].name, None, at + 1
            if at + 1 < len(tokens) and tokens[at].word == ".":
                schema, name, at = name, tokens[at + 1].name, at + 2
            table = draft.adopted(name, schema)
            behind = {table} if table is not None else draft.catalog.tables_behind(name, schema)
            if not behind:
                draft.passes.add((schema, name))
            found.update(behind)
            if tokens[index].word != "TRUNCATE" or at >= len(tokens) or tokens[at].word != ",":
                break
            at += 1
        else:
            return None
    return found


def _tables_named(draft: Draft, words: set[str]) -> set[Table]:
    found: set[Table] = set()
    for word in words:
        table = draft.adopted(word, None)
        if table is not None:
            found.add(table)
        found.update(draft.catalog.tables_behind(word))
        found.update(draft.catalog.written_by(word))
    found.update(table for table in draft.catalog.tables.values() if table.name in words)
    return found


def _expand_created(draft: Draft, tokens: list[Token], end: int) -> None:
    """CREATE TABLE or VIEW ... AS SELECT *"""
    for index, token in enumerate(tokens):
        if token.word == "AS" and index + 1 < end and tokens[index + 1].word in ("SELECT", "WITH"):
            last = end
            if tokens[end - 1].word == "DATA":
                last -= 3 if tokens[end - 2].word == "NO" else 2
            try:
                for arm in parse_query(draft.tokens, index + 1, last).arms:
                    draft.expand_stars(arm)
            except NotUnderstood:
                pass
            break
    expand_nested_stars(draft, end)


def _expand_arms(draft: Draft, end: int) -> None:
    try:
        query = parse_query(draft.tokens, 0, end)
    except NotUnderstood:
        query = None
    if query is not None and (len(query.arms) > 1 or query.arms[0].distinct or query.arms[0].into):
        for arm in query.arms:
            draft.expand_stars(arm)
    expand_nested_stars(draft, end)
