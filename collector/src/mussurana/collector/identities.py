"""What a table is called in the names of its rows' keys, whatever its own name is by now.

Names change hands: a table is renamed, two are swapped, one is dropped and made anew, a copy takes over. The rows that
a name stands for are then others. So `adopt` writes down, in a comment on our hidden column, what the keys of the table
are called and what makes it this table: its database, its oid, and its key's columns. The comment goes where the table
goes, through every renaming. Where it goes without the table (`LIKE ... INCLUDING ALL`, a dump that is restored), and
where the key is another one, what it says is not so any more: then the rows have names of their own, which begin with
the name in the comment and end with a number that only this table with this key has.

A table without a comment goes by its own name. Collectors and `adopt` of earlier versions know nothing else, and a
table that was never renamed is called the same by all of them. Once a database has such comments, a table without one
is younger than they are, and gets a number as well: its name may have been another table's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from xxhash import xxh3_64_hexdigest

_PREFIX = "mussurana "

DIGITS = 8
"""Of the number behind a name. Tables of one name are few, so that two will not have the same."""

UNKNOWN_SYSTEM = "/"
"""What begins the identity of a table if the user may not ask for the server's."""

SAME_NAMES = {
    "smallint": "integer",
    "bigint": "integer",
    "character varying": "text",
}
"""Types whose values are named as those of another type: a key that becomes one of them keeps its rows' names."""


@dataclass(frozen=True, slots=True)
class Identity:
    key_space: str  # what the names of keys begin with
    current: str  # what makes it this table
    is_written: bool  # the comment says just that


def plain_kind(kind: str) -> str:
    """A type, or the one that names its values alike."""
    return SAME_NAMES.get(kind, kind)


def written_down(system: str, database: int, oid: int, key: Iterable[tuple[int, str]]) -> str:
    """What makes a table this one. The key is the numbers and types of its columns.

    The type of a column that is generated is followed by what stands for its expression: another expression gives rows
    other keys.
    """
    columns = ",".join(f"{number} {plain_kind(kind)}" for number, kind in key)
    return f"{system}/{database}/{oid}({columns})"


def identify(plain: str, current: str, comment: str | None, is_new: bool) -> Identity:
    """What a table is called. `plain` is its name; `is_new` if it cannot be known who had that before."""
    known = read_comment(comment)
    if known is None:
        return Identity(numbered(plain, current) if is_new else plain, current, False)
    name, table = known
    if current.startswith(UNKNOWN_SYSTEM):  # then it is believed to be the same
        table = UNKNOWN_SYSTEM + table.partition("/")[2]
    return Identity(name, current, True) if table == current else Identity(numbered(name, current), current, False)


def numbered(name: str, current: str) -> str:
    """A name that only this table has. One that has a number already gets another."""
    base = name.rpartition("@")[0] if is_numbered(name) else name
    return f"{base}@{xxh3_64_hexdigest(current.encode())[:DIGITS]}"


def is_numbered(name: str) -> bool:
    """Whether a table began anew under this name."""
    base, _, digits = name.rpartition("@")
    return bool(base) and len(digits) == DIGITS and all(digit in "0123456789abcdef" for digit in digits)


def read_comment(comment: str | None) -> tuple[str, str] | None:
    """What the keys of a table are called and which table that was said of; None if it is no comment of ours."""
    if comment is None or not comment.startswith(_PREFIX):
        return None
    try:
        content = json.loads(comment.removeprefix(_PREFIX))
        name, table = content["keys"], content["table"]
    except (ValueError, KeyError, TypeError):
        return None
    return (name, table) if isinstance(name, str) and isinstance(table, str) and name else None
