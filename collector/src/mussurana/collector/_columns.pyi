from collections.abc import Callable
from typing import Any, TypeAlias

from mussurana.collector.columns import Row
from mussurana.collector.extraction import Extract, Observation, Sink

class KeyNames:
    """Numbers of names, and those names that the verifier has not been told."""

    def __init__(self, hash_of: Callable[[bytes], int], full: Callable[[], None], most: int, field: int, /) -> None:
        """`full` is called when so many names are known, and has to call `forget`."""
    def __len__(self) -> int:
        """How many names are known."""
    def number(self, name: str, /) -> int:
        """The number of a name, which is to be told if it was not known."""
    def fields(self, first: int, /) -> bytes:
        """The names to be told, as fields of protobuf of that number: each with its number and itself."""
    def cut(self, length: int, /) -> None:
        """So many bytes of the fields, the first ones, were sent."""
    def forget(self) -> None:
        """No name is known any more."""

class KeyNumbers:
    """Numbers of keys, by what the database sends for them: bytes, or a tuple of them for several columns."""

    def __init__(self, make: KeyNames | Callable[[Any], int | None], prefix: str | None) -> None:
        """`make` says the number of a key that is new; None if it has none.

        With a prefix a key's name is made of that and the values as they are, and `make` knows its number.
        """
    def __len__(self) -> int: ...
    def clear(self) -> None: ...

class Columns:
    """As PlainColumns."""

    def __len__(self) -> int: ...
    def tell(self, kind: int, key: int, version: int, previous: int, statement: int, /) -> None: ...
    def extend(self, others: Columns, /) -> None: ...
    def cut(self, count: int, /) -> None: ...
    def rows(self) -> list[Row]: ...
    def content(self) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...
    def add_read(self, observations: list[Observation], first: int, /) -> int: ...

class Batch:
    """As PlainBatch, but each method is one step for all other threads."""

    operations: Columns

    def __len__(self) -> int: ...
    def add(
        self,
        session: int,
        status: int,
        isolation: int,
        begin_ns: int,
        begun_ns: int,
        commit_ns: int,
        committed_ns: int,
        epoch: int,
        operations: Columns,
        /,
    ) -> None: ...
    def absorb(self, other: Batch, /) -> None: ...
    def content(self) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]: ...

Source: TypeAlias = tuple[int, int, int, int]
Step: TypeAlias = tuple[KeyNumbers, tuple[int, ...], int, int, bool, tuple[Source, ...]]

class Reader:
    """How the results of a statement are read: an extractor that needs no Python.

    A step has the numbers of a table's keys, their columns, the column of the version that a READ saw or another kind
    replaced (-1 for none), the kind, whether each pair of key and version counts once, and of these columns the table,
    its column, and the type that they must be of. Each statement is counted at `places` in `counts`, which are 8 bytes
    each. `otherwise` is asked about results that are not psycopg's own, or of other columns.
    """

    def __init__(
        self, steps: tuple[Step, ...], statement: int, counts: Any, places: tuple[int, ...], otherwise: Extract, /
    ) -> None: ...
    def __call__(self, observation: Observation, sink: Sink, /) -> None: ...

class Answer:
    """What the server answered, with the columns that the application does not see."""

    @property
    def result(self) -> Any: ...
    @property
    def statement(self) -> bytes: ...
    @property
    def ntuples(self) -> int: ...
    @property
    def nfields(self) -> int: ...
    def get_value(self, row: int, column: int, /) -> bytes | None: ...
    def fname(self, column: int, /) -> bytes: ...
    def ftable(self, column: int, /) -> int: ...
    def ftablecol(self, column: int, /) -> int: ...
    def ftype(self, column: int, /) -> int: ...
    def fformat(self, column: int, /) -> int: ...

def narrow(result: Any, columns: int, visible: int, quiet: bool, statement: bytes, /) -> Answer | None:
    """Leave the application only the first columns of a result, or no rows at all if it is to be quiet.

    None if it has not that many columns, or is an error. Pre: the application has not seen it.
    """

def bind(path: str, result_class: type) -> bool:
    """Find libpq from psycopg's extension module; whether its results are as they are expected to be."""
