"""Which database is recorded: what tells it from all others, and what people call it.

A recording is of one database, and whoever reads it has to know of which: versions of two databases in one history
would look like a broken promise. What it is comes with the catalog. PostgreSQL tells a number that its cluster was made
with, and each of its databases has one; a role that may not ask for the first gets it from what `adopt` wrote down.
`adopt` writes a number into an SQLite file, which goes where the file goes; the file's number in its file system
tells a copy from it. For a key-value store the application says it.

If none of that is there, it is where the database was reached: better than nothing, and it begins with an @, so that
nobody takes it for more (wire/databases.py).
"""

from __future__ import annotations

import os
from itertools import count
from typing import NamedTuple

from mussurana.wire.databases import IDENTITY_CHARACTERS_MAX


class RecordedDatabase(NamedTuple):
    """Empty where nobody knows."""

    identity: str = ""
    name: str = ""  # for people


NOT_KNOWN_YET = RecordedDatabase()

_HERE = ("", "localhost", "127.0.0.1", "::1")
_MEMORY = os.urandom(8).hex()  # of this process
_memories = count(1)


def postgres_database(told: tuple[str, str], host: str, port: str, name: str) -> RecordedDatabase:
    """`told` is what the catalog has: the server, if it is known, and the number of the database."""
    server, number = told
    if host.startswith(("/", "@")):  # a socket, on this machine
        shown, place = f"postgresql:///{name}", f"{os.uname().nodename}{host}:{port}"
    else:
        shown, place = f"postgresql://{host}:{port}/{name}", f"{os.uname().nodename if host in _HERE else host}:{port}"
    return _recorded(f"postgresql:{server or '@' + place}/{number}", shown)


def sqlite_database(told: tuple[str, str], path: str) -> RecordedDatabase:
    """`told` is what the catalog has: the number that `adopt` wrote into the file, if it did."""
    number, _ = told
    if not path:
        server = number or f"@{_MEMORY}-{next(_memories)}"
        return _recorded(f"sqlite:{server}/memory-{_MEMORY}", "sqlite in memory")
    path = os.path.realpath(path)
    try:
        file = os.stat(path).st_ino
    except OSError:  # deleted, or replaced this moment
        file = 0
    return _recorded(f"sqlite:{number or f'@{os.uname().nodename}{path}'}/{file}", f"sqlite:{path}")


def key_value_database(name: str) -> RecordedDatabase:
    return _recorded(f"key-value:/{name}", name or "a key-value store")


def _recorded(identity: str, name: str) -> RecordedDatabase:
    """As protobuf takes them. One that is too long is cut in front: what differs is at the end."""
    return RecordedDatabase(*(_text(text)[-IDENTITY_CHARACTERS_MAX:] for text in (identity, name)))


def _text(text: str) -> str:
    """A path may have bytes that are no letters."""
    return text.encode("utf-8", "backslashreplace").decode()
