"""Numbers for keys and statements, and the names that go with them, which the verifier is told once.

A key's number is a hash of its name, so that all processes agree on it. Names are for people: they go out with the
fragment that has the first use of their number, or with an earlier one. Threads of the application and the background
share this; what two of them do at the same time is at worst done twice.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_intdigest

from mussurana.wire import FENCE_KEY

if TYPE_CHECKING:
    from mussurana.collector._columns import KeyNumbers
    from mussurana.collector.extraction import Extract
    from mussurana.collector.metrics import Metrics

FENCE_NAME = "mussurana fence"
"""The name of the key of the fence row. No other key is called so, since those have a table and a slash."""

KEYS_MAX = 200_000
"""Names of keys that are known to have been sent. Some 50 MB; when full it starts anew, and names go out again."""

READERS_MAX = 10_000
"""Plans are bounded, and so are their layouts; but those that are gone stay here until it is full."""

STATEMENTS_MAX = 10_000
"""Statement texts, likewise. Shapes of statements are few, unless an application writes values into its SQL."""


def key_of(name: str) -> int:
    """A key's number. Never 0, which is the fence row."""
    return xxh3_64_intdigest(name.encode()) or 1


def printable(text: str) -> str:
    """The same text, fit for a field of protobuf: any Unicode but halves of a character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Names:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._keys: dict[str, int] = {FENCE_NAME: FENCE_KEY}
        self._statements: dict[str, int] = {"": 0}
        self._statement_numbers = count(1)
        self._raw: dict[tuple[Any, ...], KeyNumbers] = {}
        self.readers: dict[Any, Extract] = {}  # by layout: what reads results of this shape, if that needs no Python
        self.key_names: dict[int, str] | None = None  # by number; only a journal needs these two
        self.statement_texts: dict[int, str] = {}
        self.new_keys: list[tuple[int, str]] = []
        self.new_statements: list[tuple[int, str]] = []

    def key(self, name: str) -> int:
        """The number of a key."""
        number = self._keys.get(name)
        if number is None:
            if len(self._keys) >= KEYS_MAX:
                self._metrics.cache_evictions += 1
                self._start_anew()
            number = key_of(name)
            self.new_keys.append((number, name))
            if self.key_names is not None:
                self.key_names[number] = name
            self._keys[name] = number
        return number

    def statement(self, text: str) -> int:
        """The number of a statement; 0 for none."""
        number = self._statements.get(text)
        if number is None:
            if len(self._statements) >= STATEMENTS_MAX:
                self._metrics.cache_evictions += 1
                self._statements = {"": 0}
                self.statement_texts = {}
            number = next(self._statement_numbers)
            self.new_statements.append((number, printable(text)))
            self.statement_texts[number] = text
            self._statements[text] = number
        return number

    def raw_keys(self, kind: tuple[Any, ...], name_of: Callable[[Any], str | None], prefix: str | None) -> KeyNumbers:
        """Numbers of keys by what a database sends for them. `kind` says which table and format.

        A name is this prefix and the values as they are; if that is None, ask `name_of`.
        """
        known = self._raw.get(kind)
        if known is None:
            from mussurana.collector._columns import KeyNumbers

            def number_of(value: Any) -> int | None:
                name = name_of(value)
                return None if name is None else self.key(name)

            made = KeyNumbers(number_of, None) if prefix is None else KeyNumbers(self.key, prefix)
            known = self._raw.setdefault(kind, made)
        return known

    def keep_reader(self, layout: Any, reader: Extract) -> None:
        if len(self.readers) >= READERS_MAX:
            self.readers.clear()
        self.readers[layout] = reader

    def sent(self, key_count: int, statement_count: int) -> None:
        """So many of the new names, the first ones, are in the spool."""
        del self.new_keys[:key_count]
        del self.new_statements[:statement_count]

    def not_sent(self) -> None:
        """A fragment was dropped, for want of room: its names go out again when they are needed again."""
        self.new_keys.clear()
        self.new_statements.clear()
        self._statements = {"": 0}
        self.readers.clear()
        self._start_anew()

    def _start_anew(self) -> None:
        self._keys = {FENCE_NAME: FENCE_KEY}
        if self.key_names is not None:
            self.key_names = {}
        for known in list(self._raw.values()):
            known.clear()
