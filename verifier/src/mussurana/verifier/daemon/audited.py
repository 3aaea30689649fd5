"""Which database a data directory is about: the first one that was heard, for good.

Versions of two databases in one history would look like a promise that was broken, so whatever a collector of another
one sends is refused before it is acknowledged. Which one it is stands in `database.json`, made durable before the first
of its fragments can be acknowledged. Collectors that do not tell, as older ones, may be of any.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from mussurana.verifier.daemon.files import write_atomically
from mussurana.wire.databases import is_place, may_be_one
from mussurana.wire.history_pb2 import Database

FILE = "database.json"

REFUSAL = (
    "this verifier is about the database {own}, and {other} is another one: run a second `mussurana serve` for it, "
    "with a data directory of its own, and give these collectors its address. If it took the place of the first one, "
    "which was restored or moved, begin anew: start this verifier with a new data directory"
)


class AuditedError(Exception):
    """The data directory is about another database than it should be, or does not tell. The message says what to do."""


class Audited:
    """One for all streams. Thread-safe."""

    def __init__(self, data: Path, expected: str = "") -> None:
        """`expected` is the identity or the name of the database, or the end of its name."""
        self._path, self._expected = data / FILE, expected
        self._keeping = threading.Lock()
        self._kept = _read(self._path)
        if self._kept.identity and not self._is_expected(self._kept):
            raise AuditedError(
                f"{data} is about the database {described(self._kept)}, and not about {expected}. "
                "Use another data directory"
            )

    @property
    def title(self) -> str:
        """For people; empty as long as nothing is known."""
        return described(self._kept) if self._kept.identity else self._expected

    def refusal(self, told: Database) -> str:
        """Why nothing of this database is taken; empty if it is."""
        if not told.identity:
            return ""
        if self._is_expected(told) and may_be_one(self._kept.identity, told.identity):
            return ""
        return REFUSAL.format(own=self.title, other=described(told))

    def is_kept(self, told: Database) -> bool:
        """Whether there is nothing in this that should be kept."""
        known = self._kept.identity
        return not told.identity or bool(known and (not is_place(known) or is_place(told.identity)))

    def keep(self, told: Database) -> str:
        """From now on this is the database, on disk as well, unless another one has come first.

        Returns what `refusal` would. If it raises OSError nothing has changed.
        """
        with self._keeping:
            refusal = self.refusal(told)
            if not refusal and not self.is_kept(told):
                content = json.dumps({"identity": told.identity, "name": told.name})
                write_atomically(self._path, [content.encode()])
                self._kept = told
            return refusal

    def _is_expected(self, told: Database) -> bool:
        names = (told.identity, told.name, told.name.rpartition("/")[2])
        return not self._expected or self._expected in names or may_be_one(self._expected, told.identity)


def described(database: Database) -> str:
    name, identity = database.name, database.identity
    return f"{name} ({identity})" if name and name != identity else identity


def _read(path: Path) -> Database:
    try:
        found = json.loads(path.read_bytes())
        return Database(identity=str(found["identity"]), name=str(found["name"]))
    except FileNotFoundError:
        return Database()
    except (ValueError, KeyError, TypeError) as error:
        raise AuditedError(
            f"{path}: it does not say which database this is about ({type(error).__name__}: {error}). If you delete "
            "it, the next one that is heard counts"
        ) from None
