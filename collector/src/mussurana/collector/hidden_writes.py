"""What the body of a function, trigger or rule writes, from its text.

Static SQL names its target right after the verb, so a few patterns find it, once comments and string literals are gone.
What no text tells (dynamic SQL, other languages) counts as writing anything. Errs on the side of finding too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

READABLE_LANGUAGES = ("sql", "plpgsql")

# Trigger functions of PostgreSQL's own extensions that change nothing but the row at hand.
HARMLESS_TRIGGERS = frozenset(
    {"autoinc", "insert_username", "moddatetime", "tsvector_update_trigger_column", "lo_manage"}
)

WRITES = {
    "insert": "inserts into it",
    "replace": "replaces its rows",
    "merge": "merges into it",
    "copy": "copies into it",
    "delete": "deletes from it",
    "update": "updates it",
    "truncate": "truncates it",
}

_NOISE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)
NAME = r'(?:"(?:[^"]|"")+"|`[^`]+`|\[[^\]]+\]|[a-zA-Z_][\w$]*)'  # the last two quotes are SQLite's
_PLACE = rf"(?:(?P<schema>{NAME})\s*\.\s*)?(?P<name>{NAME})"
_WRITE = re.compile(
    rf"\b(?P<verb>insert\s+(?:or\s+\w+\s+)?into|replace\s+into|update(?:\s+or\s+\w+)?|delete\s+from|merge\s+into|copy)"
    rf"\s+(?:only\s+)?{_PLACE}(?P<rest>[^;]*)",
    re.IGNORECASE,
)
_TRUNCATE = re.compile(r"\btruncate\s+(?:table\s+)?(?P<places>[^;]*)", re.IGNORECASE)
_ONE_PLACE = re.compile(rf"(?:only\s+)?{_PLACE}", re.IGNORECASE)
_ASSIGNED = re.compile(r"\bset\b(.*?)(?:\bwhere\b|\bfrom\b|\breturning\b|$)", re.IGNORECASE | re.DOTALL)
_CALL = re.compile(rf"({NAME})\s*\(")
_DYNAMIC = re.compile(r"\bexecute\b(?!\s+(?:function|procedure)\b)", re.IGNORECASE)
_WORD = re.compile(NAME)
_FIRST_OF_BOTH = re.compile(r"coalesce ?\( ?(?:new|old) ?, ?(?:new|old) ?\)", re.IGNORECASE)
# NEW or OLD that is neither followed by a column nor just returned.
_WHOLE_ROW = re.compile(rf"(?<!return )\b(?:new|old)\b(?!\s*\.\s*{NAME})", re.IGNORECASE)


@dataclass(frozen=True)
class Write:
    """One target. `assigned` has the columns that an UPDATE sets; None for everything else, which may do anything."""

    schema: str | None
    name: str
    verb: str  # "insert", "update", ...
    assigned: frozenset[str] | None = None


@dataclass(frozen=True)
class Effects:
    writes: frozenset[Write] = frozenset()
    calls: frozenset[str] = frozenset()  # names of what may be functions
    unreadable: str = ""  # why it may write anything


def effects(source: str, language: str) -> Effects:
    """What `source` does by its own text; what it calls may do more."""
    if language not in READABLE_LANGUAGES:
        return Effects(unreadable=f"is written in {language}")
    text = without_noise(source)
    if language == "plpgsql" and _DYNAMIC.search(text):
        return Effects(unreadable="executes dynamic SQL")
    return Effects(frozenset(_writes(text)), frozenset(folded(call[1]) for call in _CALL.finditer(text)))


def _writes(text: str) -> Iterable[Write]:
    position = 0
    while found := _WRITE.search(text, position):
        verb = found["verb"].split()[0].lower()
        assigned = None
        if verb == "update":
            clause = _ASSIGNED.search(found["rest"])
            assigned = frozenset(folded(word) for word in _WORD.findall(clause[1])) if clause else None
        yield Write(folded(found["schema"]) if found["schema"] else None, folded(found["name"]), verb, assigned)
        position = found.start("rest")  # not its end: INSERT ... SELECT and CTEs may hold another verb
    for truncate in _TRUNCATE.finditer(text):
        for place in _ONE_PLACE.finditer(truncate["places"]):
            yield Write(folded(place["schema"]) if place["schema"] else None, folded(place["name"]), "truncate")


def all_effects(names: Iterable[str], functions: Mapping[str, Effects]) -> Effects:
    """What calling functions of these names leads to, including what they call in turn."""
    writes: set[Write] = set()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        if functions[name].unreadable:
            return Effects(unreadable=f"{name} {functions[name].unreadable}")
        writes |= functions[name].writes
        waiting += functions[name].calls
    return Effects(frozenset(writes), frozenset(seen))


def without_noise(source: str) -> str:
    """A text without comments and string literals."""
    return _NOISE.sub(" '' ", source)


def uses_whole_rows(source: str) -> bool:
    """Whether a trigger looks at NEW or OLD as a whole, and so at columns that are added to the table."""
    text = re.sub(r"\s+", " ", without_noise(source))
    return _WHOLE_ROW.search(_FIRST_OF_BOTH.sub("", text)) is not None


def words_in(text: str) -> frozenset[str]:
    """All that may be a name in a text, as the catalog has it."""
    return frozenset(folded(word) for word in _WORD.findall(text))


def folded(name: str) -> str:
    """A name in SQL as the catalog has it."""
    return name[1:-1].replace('""', '"') if name[0] in '"`[' else name.lower()
