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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from mussurana.collector.recorder import Txn

READ, WRITE, UPDATE, DELETE, READ_ABSENT, INSERT = range(6)
"""As OpKind in history.proto; repeated here because this module must not load protobuf into the hot path."""

WRITES = (WRITE, UPDATE, DELETE, INSERT)

Operation: TypeAlias = tuple[int, str, int, int, str]
"""Kind, name of the key, version, version replaced (0 but for UPDATE and DELETE), text of the statement."""

Observation: TypeAlias = tuple[Any, ...]
Extract: TypeAlias = "Callable[[Observation, Sink], None]"


class Sink:
    """What an extractor talks to. The operations of a transaction, in the order in which they are told."""

    __slots__ = ("ends", "failures", "lost", "operations", "text")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.ends: list[int] = []  # where those of each observation end
        self.lost: list[int] = []
        self.failures = 0  # observations whose extractor failed
        self.text = ""

    def copy(self) -> Sink:
        other = Sink()
        other.operations, other.ends, other.lost = self.operations.copy(), self.ends.copy(), self.lost.copy()
        other.failures = self.failures
        return other

    def written(self) -> list[int]:
        return [version for kind, _, version, _, _ in self.operations if kind in WRITES]

    def statement(self, text: str) -> None:
        """The operations that follow belong to this SQL, with placeholders and never with values."""
        self.text = text

    def read(self, key_name: str, version: int) -> None:
        """Saw `version` of a row; 0 if it has none, because it was there before anybody recorded."""
        self.operations.append((READ, key_name, version, 0, self.text))

    def write(self, key_name: str, version: int) -> None:
        """Wrote `version`; what it replaced, if anything, is not known."""
        self.operations.append((WRITE, key_name, version, 0, self.text))

    def insert(self, key_name: str, version: int) -> None:
        """Wrote `version` where there was no row, by the database's own word."""
        self.operations.append((INSERT, key_name, version, 0, self.text))

    def update(self, key_name: str, version: int, previous: int) -> None:
        """Wrote `version` in place of `previous`, by the database's own word."""
        self.operations.append((UPDATE, key_name, version, previous, self.text))

    def delete(self, key_name: str, version: int, previous: int) -> None:
        """Removed the row, whose version was `previous`; `version` is a write id that names its absence."""
        self.operations.append((DELETE, key_name, version, previous, self.text))

    def absent(self, key_name: str) -> None:
        """Saw that there is no such row."""
        self.operations.append((READ_ABSENT, key_name, 0, 0, self.text))

    def lose(self, version: int) -> None:
        """This write id may be in the database, but it is not known where: reads of it cannot be checked."""
        self.lost.append(version)


class Extracted(NamedTuple):
    """What a transaction did."""

    operations: list[Operation]
    rolled_back: list[Operation]  # writes that a savepoint took back
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
        return Extracted(sink.operations, [], sink.lost, sink.failures)
    kept, undone = _without_rolled_back(sink.operations, sink.ends, txn.rolled_back)
    return Extracted(kept, undone, sink.lost, sink.failures)


def _ask(observations: list[Observation], sink: Sink) -> None:
    operations = sink.operations
    for observation in observations:
        so_far = len(operations)
        try:
            observation[0](observation, sink)
        except Exception:  # then nothing of it counts
            del operations[so_far:]
            sink.failures += 1
        sink.text = ""
        sink.ends.append(len(operations))


def _without_rolled_back(
    operations: list[Operation], bounds: list[int], rolled_back: list[tuple[int, int]]
) -> tuple[list[Operation], list[Operation]]:
    """Those that stay, and the writes that savepoints took back."""
    kept: list[Operation] = []
    undone: list[Operation] = []
    start = 0
    for index, end in enumerate(bounds):
        own = operations[start:end]
        start = end
        if any(first <= index < last for first, last in rolled_back):
            kept += [operation for operation in own if operation[0] in (READ, READ_ABSENT)]
            undone += [operation for operation in own if operation[0] not in (READ, READ_ABSENT)]
        else:
            kept += own
    gone = {operation[2] for operation in undone}
    return [operation for operation in kept if operation[0] != READ or operation[2] not in gone], undone
