"""Whether two recordings may be of one database, by the identities that history.proto's `Database` has.

An identity is "kind:server/database". Two that differ are two databases, but for one thing: where what the server is
could not be asked, there stands where it was reached, after an @. Such a one may be any database of the same number.
"""

from __future__ import annotations

IDENTITY_CHARACTERS_MAX = 500
"""A path of a file may be long. What is longer tells no database apart that anybody has."""


def may_be_one(identity: str, other: str) -> bool:
    """Whether to take both for the same database: if they are, or if one of them does not know."""
    if not identity or not other or identity == other:
        return True
    return is_place(identity) != is_place(other) and not are_two(identity, other)


def are_two(identity: str, other: str) -> bool:
    """Whether these are two databases for certain. One may be reached at two places, so that places prove nothing."""
    (kind, server, database), (other_kind, other_server, other_database) = _parts(identity), _parts(other)
    is_asked = not is_place(identity) and not is_place(other)
    is_other = (kind, database) != (other_kind, other_database) or (is_asked and server != other_server)
    return bool(identity) and bool(other) and is_other


def is_place(identity: str) -> bool:
    """Whether it only says where the server was reached."""
    return _parts(identity)[1].startswith("@")


def _parts(identity: str) -> tuple[str, str, str]:
    kind, _, rest = identity.partition(":")
    server, _, database = rest.rpartition("/")
    return kind, server, database
