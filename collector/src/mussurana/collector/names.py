"""Numbers for keys and statements, and the names that go with them, which the verifier is told once.

A key's number is a hash of its name, so that all processes agree on it. Names are for people: they go out with the
fragment that has the first use of their number, or with an earlier one. Threads of the application and the background
share this; what two of them do at the same time is at worst done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_intdigest

from mussurana.wire import FENCE_KEY, history_pb2

if TYPE_CHECKING:
    from mussurana.collector._columns import KeyNumbers
    from mussurana.collector.extraction import Extract
    from mussurana.collector.metrics import Metrics

FENCE_NAME = "mussurana fence"
"""The name of the key of the fence row. No other key is called so, since those have a table and a slash."""

KEYS_MAX = 200_000
"""Names of keys that are known to have been sent. Some 30 MB; when full it starts anew, and names go out again."""

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


class PlainKeyNames:
    """Numbers of names, and those names that the verifier has not been told. As KeyNames in `_columns.c`, in Python."""

    def __init__(self, hash_of: Callable[[bytes], int], full: Callable[[], None], most: int, field: int) -> None:
        """`full` is called when so many names are known, and has to call `forget`."""
        self._numbers: dict[str, int] = {}
        self._full = full
        self._most = most
        self._fields = bytearray()

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: str) -> int:
        """The number of a name, which is to be told if it was not known."""
        number = self._numbers.get(name)
        if number is None:
            if len(self._numbers) >= self._most:
                self._full()
            number = self._numbers[name] = key_of(name)
            told = history_pb2.KeyName(key=number, name=name)
            self._fields += history_pb2.Fragment(key_name=[told]).SerializeToString()
        return number

    def fields(self, first: int) -> bytes:
        """The names to be told, as fields of a Fragment, from that byte on."""
        return bytes(self._fields[first:])

    def cut(self, length: int) -> None:
        """So many bytes of the fields, the first ones, were sent."""
        del self._fields[:length]

    def forget(self) -> None:
        """No name is known any more."""
        self._numbers = {}


try:
    from mussurana.collector._columns import KeyNames as KeyNames
except ImportError:  # there was no compiler
    if not TYPE_CHECKING:
        KeyNames = PlainKeyNames


class Names:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        field = history_pb2.Fragment.KEY_NAME_FIELD_NUMBER
        self._keys = KeyNames(xxh3_64_intdigest, self._full, KEYS_MAX, field)
        self._statements: dict[str, int] = {"": 0}
        self._statement_numbers = count(1)
        self._raw: dict[tuple[Any, ...], KeyNumbers] = {}
        self.readers: dict[Any, Extract] = {}  # by layout: what reads results of this shape, if that needs no Python
        self.new_statements: list[tuple[int, str]] = []
        self._begun: set[str] = set()
        self.new_beginnings: list[str] = []  # tables that began anew, of which the verifier has not been told
        self._journaled = (0, 0)  # how much of the new names a journal has

    def key(self, name: str) -> int:
        """The number of a key."""
        if name == FENCE_NAME:
            return FENCE_KEY
        return self._keys.number(name)

    def new_keys(self) -> bytes:
        """Names of keys that the verifier has not been told, as fields of a Fragment."""
        return self._keys.fields(0)

    def not_journaled(self) -> tuple[bytes, list[tuple[int, str]]]:
        """The new names of keys, and of statements, that were not returned here before."""
        keys_length, statement_count = self._journaled
        keys, statements = self._keys.fields(keys_length), self.new_statements[statement_count:]
        if keys or statements:
            self._journaled = keys_length + len(keys), statement_count + len(statements)
        return keys, statements

    def statement(self, text: str) -> int:
        """The number of a statement; 0 for none."""
        number = self._statements.get(text)
        if number is None:
            if len(self._statements) >= STATEMENTS_MAX:
                self._metrics.cache_evictions += 1
                self._statements = {"": 0}
            number = next(self._statement_numbers)
            self.new_statements.append((number, printable(text)))
            self._statements[text] = number
        return number

    def begins(self, tables: Iterable[str]) -> None:
        """The rows of these tables have versions that were written under other names; see `identities`."""
        new = [printable(table) for table in tables if table not in self._begun]
        self._begun.update(new)
        self.new_beginnings += new

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

            made = KeyNumbers(number_of, None) if prefix is None else KeyNumbers(self._keys, prefix)
            known = self._raw.setdefault(kind, made)
        return known

    def keep_reader(self, layout: Any, reader: Extract) -> None:
        if len(self.readers) >= READERS_MAX:
            self.readers.clear()
        self.readers[layout] = reader

    def sent(self, keys_length: int, statement_count: int) -> None:
        """So much of the new names, the first ones, is in the spool: bytes of keys and a number of statements."""
        self._keys.cut(keys_length)
        del self.new_statements[:statement_count]
        keys_journaled, statements_journaled = self._journaled
        self._journaled = max(0, keys_journaled - keys_length), max(0, statements_journaled - statement_count)

    def not_sent(self, keys_length: int, statement_count: int) -> None:
        """A fragment was dropped, for want of room: its names go out again when they are needed again."""
        self.sent(keys_length, statement_count)
        self._statements = {"": 0}
        self.readers.clear()
        self._start_anew()

    def _full(self) -> None:
        self._metrics.cache_evictions += 1
        self._start_anew()

    def _start_anew(self) -> None:
        self._keys.forget()
        for known in list(self._raw.values()):
            known.clear()
