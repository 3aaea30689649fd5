"""From observations to operations: what a transaction saw and wrote, taken out of results after the fact.

The hot path only appends `(extract, ...)` to `txn.observations`. Later, and mostly in another thread, `operations_of`
calls each `extract(observation, sink)`, which tells the sink what there was. Extractors are code of the adapters and
may fail: a failure costs that observation and is counted. Since a write may have been in it, the write ids that the
transaction may have drawn are then declared lost, so that whoever reads them is not checked against nothing.

Writes that were rolled back to a savepoint become versions of an aborted transaction of their own. Reads in that part
were real and stay, except for those that saw what was rolled back: only this transaction could see it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from mussurana.collector.recorder import Txn

READ, WRITE, UPDATE, DELETE, READ_ABSENT = range(5)
"""As OpKind in history.proto; repeated here because this module must not load protobuf into the hot path."""

Operation: TypeAlias = tuple[int, str, int, int, str]
"""Kind, name of the key, version, version replaced (0 but for UPDATE and DELETE), text of the statement."""

Observation: TypeAlias = tuple[Any, ...]
Extract: TypeAlias = "Callable[[Observation, Sink], None]"

VERSION_MAX = (1 << 63) - 1
"""A version has to fit into a signed column of a database."""


class Sink:
    """What an extractor talks to. The operations of one observation, in the order in which they are told."""

    __slots__ = ("lost", "operations", "text")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.lost: list[int] = []
        self.text = ""

    def statement(self, text: str) -> None:
        """The operations that follow belong to this SQL, with placeholders and never with values."""
        self.text = text

    def read(self, key_name: str, version: int) -> None:
        """Saw `version` of a row; 0 if it has none, because it was there before anybody recorded."""
        self.operations.append((READ, key_name, version, 0, self.text))

    def write(self, key_name: str, version: int) -> None:
        """Wrote `version`; what it replaced, if anything, is not known."""
        self.operations.append((WRITE, key_name, version, 0, self.text))

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


@dataclass(slots=True)
class Extracted:
    """What a transaction did."""

    operations: list[Operation]
    rolled_back: list[Operation] = field(default_factory=list)  # writes that a savepoint took back
    lost: list[int] = field(default_factory=list)
    failures: int = 0  # observations whose extractor failed


def operations_of(txn: Txn) -> Extracted:
    """Ask every observation. Never raises for what an extractor does."""
    sink = Sink()
    failures = 0
    if not txn.rolled_back:
        for observation in txn.observations:
            failures += not _ask(observation, sink)
        return Extracted(sink.operations, lost=sink.lost, failures=failures)
    kept: list[Operation] = []
    undone: list[Operation] = []
    for index, observation in enumerate(txn.observations):
        sink.operations = []
        failures += not _ask(observation, sink)
        if any(first <= index < end for first, end in txn.rolled_back):
            for operation in sink.operations:
                (kept if operation[0] in (READ, READ_ABSENT) else undone).append(operation)
        else:
            kept += sink.operations
    gone = {operation[2] for operation in undone}
    kept = [operation for operation in kept if operation[0] != READ or operation[2] not in gone]
    return Extracted(kept, undone, sink.lost, failures)


def _ask(observation: Observation, sink: Sink) -> bool:
    """Whether the extractor told everything. If it failed, nothing of the observation counts."""
    so_far = len(sink.operations)
    sink.text = ""
    try:
        observation[0](observation, sink)
        for _, name, version, previous, _ in sink.operations[so_far:]:
            if not name.isascii():
                name.encode()  # a name that is not Unicode text cannot be sent
            if not (0 <= version <= VERSION_MAX and 0 <= previous <= VERSION_MAX):
                raise ValueError("not a version")
    except Exception:
        del sink.operations[so_far:]
        return False
    return True
