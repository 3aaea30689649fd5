"""From observations to operations: what a transaction saw and wrote, taken out of results after the fact.

The hot path only appends `(extract, ...)` to `txn.observations`. Later, and mostly in another thread, `operations_of`
calls each `extract(observation, sink)`, which tells the sink what there was. Extractors are code of the adapters and
may fail: a failure costs that observation and is counted. Since a write may have been in it, the write ids that the
transaction may have drawn are then declared lost, so that whoever reads them is not checked against nothing.

Where there is time for it before, `catch_up` does the same.

Writes that were rolled back to a savepoint become versions of an aborted transaction of their own. Reads in that part
were real and stay, except for those that saw what was rolled back: only this transaction could see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from mussurana.collector.recorder import Txn

READ, WRITE, UPDATE, DELETE, READ_ABSENT, INSERT = range(6)
"""As OpKind in history.proto; repeated here because this module must not load protobuf into the hot path."""

WRITES = (WRITE, UPDATE, DELETE, INSERT)

Observation: TypeAlias = tuple[Any, ...]
Extract: TypeAlias = "Callable[[Observation, Sink], None]"


class Operations:
    """Columns over operations, in the order in which they happened.

    Whoever has many of them adds to each column at once, by loops that the interpreter runs in C.
    """

    __slots__ = ("kinds", "names", "previous", "texts", "versions")

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.names: list[str] = []  # of keys
        self.versions: list[int] = []
        self.previous: list[int] = []  # the versions replaced: 0 but for UPDATE and DELETE
        self.texts: list[str] = []  # of their statements

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, other: Operations) -> None:
        self.kinds += other.kinds
        self.names += other.names
        self.versions += other.versions
        self.previous += other.previous
        self.texts += other.texts

    def select(self, chosen: Iterable[int]) -> Operations:
        """Some of them, by their places."""
        found, places = Operations(), list(chosen)
        found.kinds = bytearray(map(self.kinds.__getitem__, places))
        found.names = list(map(self.names.__getitem__, places))
        found.versions = list(map(self.versions.__getitem__, places))
        found.previous = list(map(self.previous.__getitem__, places))
        found.texts = list(map(self.texts.__getitem__, places))
        return found

    def cut(self, count: int) -> None:
        """Only the first ones stay."""
        del self.kinds[count:], self.names[count:], self.versions[count:], self.previous[count:], self.texts[count:]

    def written(self) -> list[int]:
        return [version for kind, version in zip(self.kinds, self.versions, strict=True) if kind in WRITES]


class Sink(Operations):
    """What an extractor talks to: the operations of a transaction, in the order in which they are told."""

    __slots__ = ("ends", "failures", "lost", "text")

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []  # where those of each observation end
        self.lost: list[int] = []
        self.failures = 0  # observations whose extractor failed
        self.text = ""

    def copy(self) -> Sink:
        other = Sink()
        other.add(self)
        other.ends, other.lost, other.failures = self.ends.copy(), self.lost.copy(), self.failures
        return other

    def statement(self, text: str) -> None:
        """The operations that follow belong to this SQL, with placeholders and never with values."""
        self.text = text

    def read(self, key_name: str, version: int) -> None:
        """Saw `version` of a row; 0 if it has none, because it was there before anybody recorded."""
        self.tell(READ, key_name, version)

    def write(self, key_name: str, version: int) -> None:
        """Wrote `version`; what it replaced, if anything, is not known."""
        self.tell(WRITE, key_name, version)

    def insert(self, key_name: str, version: int) -> None:
        """Wrote `version` where there was no row, by the database's own word."""
        self.tell(INSERT, key_name, version)

    def update(self, key_name: str, version: int, previous: int) -> None:
        """Wrote `version` in place of `previous`, by the database's own word."""
        self.tell(UPDATE, key_name, version, previous)

    def delete(self, key_name: str, version: int, previous: int) -> None:
        """Removed the row, whose version was `previous`; `version` is a write id that names its absence."""
        self.tell(DELETE, key_name, version, previous)

    def absent(self, key_name: str) -> None:
        """Saw that there is no such row."""
        self.tell(READ_ABSENT, key_name, 0)

    def tell(self, kind: int, key_name: str, version: int, previous: int = 0) -> None:
        self.kinds.append(kind)
        self.names.append(key_name)
        self.versions.append(version)
        self.previous.append(previous)
        self.texts.append(self.text)

    def tell_all(self, kind: int, key_names: Sequence[str], versions: Sequence[int], previous: Sequence[int]) -> None:
        """As many operations of one kind. Pre: the columns are equally long."""
        count = len(key_names)
        self.kinds += bytes((kind,)) * count
        self.names += key_names
        self.versions += versions
        self.previous += previous
        self.texts += [self.text] * count

    def lose(self, version: int) -> None:
        """This write id may be in the database, but it is not known where: reads of it cannot be checked."""
        self.lost.append(version)


class Extracted(NamedTuple):
    """What a transaction did."""

    operations: Operations
    rolled_back: Operations  # writes that a savepoint took back
    lost: list[int]
    failures: int  # observations whose extractor failed


def catch_up(txn: Txn) -> None:
    """Ask the observations now, and let go of them: a result that is freed at once costs the least.

    Pre: no observation will be replaced by another one, and no part of the transaction be rolled back any more.
    """
    sink = Sink()
    _ask(txn.observations, sink)
    if not sink.failures:
        txn.caught_up, txn.observations = sink, []


def operations_of(txn: Txn) -> Extracted:
    """Ask every observation. Never raises for what an extractor does."""
    sink = txn.caught_up
    if sink is None or txn.observations:
        sink = Sink() if sink is None else sink.copy()
        _ask(txn.observations, sink)
    if not txn.rolled_back:
        return Extracted(sink, _NONE, sink.lost, sink.failures)
    kept, undone = _without_rolled_back(sink, txn.rolled_back)
    return Extracted(kept, undone, sink.lost, sink.failures)


_NONE = Operations()


def _ask(observations: list[Observation], sink: Sink) -> None:
    kinds, ends = sink.kinds, sink.ends
    for observation in observations:
        try:
            observation[0](observation, sink)
        except Exception:  # then nothing of it counts
            sink.cut(ends[-1] if ends else 0)
            sink.failures += 1
        sink.text = ""
        ends.append(len(kinds))


def _without_rolled_back(sink: Sink, rolled_back: list[tuple[int, int]]) -> tuple[Operations, Operations]:
    """Those that stay, and the writes that savepoints took back."""
    kept: list[int] = []
    undone: list[int] = []
    start = 0
    for index, end in enumerate(sink.ends):
        own = range(start, end)
        start = end
        if any(first <= index < last for first, last in rolled_back):
            kept += [place for place in own if sink.kinds[place] not in WRITES]
            undone += [place for place in own if sink.kinds[place] in WRITES]
        else:
            kept += own
    gone = {sink.versions[place] for place in undone}
    kept = [place for place in kept if sink.kinds[place] != READ or sink.versions[place] not in gone]
    return sink.select(kept), sink.select(undone)
