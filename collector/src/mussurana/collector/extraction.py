"""From observations to operations: what a transaction saw and wrote, taken out of results after the fact.

The hot path only appends `(extract, ...)` to `txn.observations`. Each `extract(observation, sink)` is called later and
tells the sink what there was: by `catch_up` while the server is at work on a COMMIT, or else by `operations_of` in the
background. Most are `Reader`s of `_columns.c`, which need no Python (columns.py). Extractors of adapters may fail: a
failure costs that observation and is counted. Since a write may have been in it, the write ids that the transaction may
have drawn are then declared lost, so that whoever reads them is not checked against nothing. Where versions are the
database's own ids nobody knows which one that is, and the table counts as written to unseen (`Sink.miss`).

Writes that were rolled back to a savepoint become versions of an aborted transaction of their own. Reads in that part
were real and stay, except for those that saw what was rolled back: only this transaction could see it. Keys that two
rows may have for a while are settled last (unsettled.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mussurana.collector.columns import DELETE, INSERT, READ, READ_ABSENT, UPDATE, WRITE, WRITES, Batch, Columns, Row
from mussurana.collector.coverage import UNOBSERVED_WRITE, Key
from mussurana.collector.sql.draft import unobserved_write_keys
from mussurana.collector.unsettled import settled

if TYPE_CHECKING:
    from mussurana.collector.catalog import Table
    from mussurana.collector.journal_reader import Journaled
    from mussurana.collector.names import Names
    from mussurana.collector.recorder import Txn

Observation: TypeAlias = tuple[Any, ...]
Extract: TypeAlias = "Callable[[Observation, Sink], None]"


ROWS_IN_PYTHON_MAX = 100
"""Of a transaction that is read by extractors in Python while the application waits for the server; some microseconds
for each."""

ANSWER_LOST = "answer lost"
"""The shape, in coverage, of a write whose answer nobody could read."""


class Sink:
    """What an extractor talks to: the operations of a transaction, in the order in which they are told."""

    __slots__ = ("columns", "failures", "lost", "missed", "names", "statement_number", "unsettled")

    def __init__(self, names: Names) -> None:
        self.names = names
        self.columns = Columns()
        self.lost: list[int] = []
        self.missed: list[Key] = []
        self.failures = 0  # observations whose extractor failed
        self.statement_number = 0
        self.unsettled: set[int] = set()  # keys that two rows may have until the transaction is committed

    def statement(self, text: str) -> None:
        """The operations that follow belong to this SQL, with placeholders and never with values."""
        self.statement_number = self.names.statement(text)

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
        self.columns.tell(kind, self.names.key(key_name), version, previous, self.statement_number)

    def lose(self, version: int) -> None:
        """This write id may be in the database, but it is not known where: reads of it cannot be checked."""
        self.lost.append(version)

    def miss(self, table: Table | None) -> None:
        """A write whose version is the database's own id may be in this table; None: in any of them."""
        self.missed += unobserved_write_keys([table], ANSWER_LOST) if table else [("", ANSWER_LOST, UNOBSERVED_WRITE)]


class Extracted(NamedTuple):
    """What a transaction did."""

    operations: Columns
    rolled_back: Columns  # writes that a savepoint took back
    lost: list[int]
    failures: int  # observations whose extractor failed
    missed: Sequence[Key] = ()  # unobserved writes, for coverage


def catch_up(txn: Txn, names: Names) -> None:
    """Ask the observations now, up to one that has something to declare, and let go of them.

    A result that is freed at once costs the least. Pre: no observation will be replaced by another one.
    """
    if txn.rolled_back:
        return
    observations = txn.observations
    columns = Columns()
    place = columns.add_read(observations, 0)
    if place < len(observations) and txn.rows <= ROWS_IN_PYTHON_MAX:
        sink = Sink(names)
        sink.columns = columns
        while place < len(observations):
            so_far = len(columns)
            _ask_one(observations[place], sink)
            if sink.failures or sink.lost or sink.missed:
                columns.cut(so_far)
                break
            place = columns.add_read(observations, place + 1)
        txn.unsettled = sink.unsettled
        if txn.unsettled and place == len(observations):
            columns = columns_of(settled(columns.rows(), txn.unsettled))
    txn.caught_up, txn.observations = columns, observations[place:]


def operations_of(txn: Txn, names: Names) -> Extracted:
    """Ask every observation. Never raises for what an extractor does."""
    if txn.rolled_back:
        return _without_rolled_back(txn.observations, names, txn.rolled_back)
    if txn.caught_up is not None and not txn.observations:
        return Extracted(txn.caught_up, _NONE, [], 0)
    sink = Sink(names)
    if txn.caught_up is not None:
        sink.columns.extend(txn.caught_up)
    _ask(txn.observations, sink)
    unsettled = txn.unsettled | sink.unsettled
    columns = columns_of(settled(sink.columns.rows(), unsettled)) if unsettled else sink.columns
    return Extracted(columns, _NONE, sink.lost, sink.failures, sink.missed)


_NONE = Columns()


def columns_of(rows: Iterable[Row]) -> Columns:
    columns = Columns()
    for row in rows:
        columns.tell(*row)
    return columns


def written(columns: Columns) -> list[int]:
    return [version for kind, _, version, _, _ in columns.rows() if kind in WRITES]


def _ask(observations: list[Observation], sink: Sink) -> None:
    columns, place = sink.columns, 0
    while (place := columns.add_read(observations, place)) < len(observations):
        _ask_one(observations[place], sink)
        place += 1


def _ask_one(observation: Observation, sink: Sink) -> None:
    so_far = len(sink.columns)
    try:
        observation[0](observation, sink)
    except Exception:  # then nothing of it counts
        sink.columns.cut(so_far)
        sink.failures += 1
        write = getattr(observation[1], "write", None) if len(observation) > 4 and not observation[4] else None
        if write is not None:  # of a plan (sql/plan.py), without a write id
            sink.miss(write.table)
    sink.statement_number = 0


def _without_rolled_back(
    observations: list[Observation], names: Names, rolled_back: list[tuple[int, int]]
) -> Extracted:
    """As if nothing had been written in the parts that savepoints took back."""
    kept: list[Row] = []
    undone: list[Row] = []
    lost: list[int] = []
    missed: list[Key] = []
    failures = 0
    unsettled: set[int] = set()
    for index, observation in enumerate(observations):
        sink = Sink(names)
        _ask_one(observation, sink)
        own = sink.columns.rows()
        lost += sink.lost
        missed += sink.missed
        failures += sink.failures
        unsettled |= sink.unsettled
        if any(first <= index < last for first, last in rolled_back):
            kept += [row for row in own if row[0] not in WRITES]
            undone += [row for row in own if row[0] in WRITES]
        else:
            kept += own
    gone = {version for _, _, version, _, _ in undone}
    stays = [row for row in kept if row[0] != READ or row[2] not in gone]
    return Extracted(columns_of(settled(stays, unsettled)), columns_of(undone), lost, failures, missed)


def add_ended(batch: Batch, txn: Txn | Journaled, session: int, status: int, operations: Columns) -> None:
    """Add a transaction that has ended, under the number that the verifier knows its session by."""
    batch.add(
        session,
        status,
        txn.isolation,
        txn.begin_ns,
        txn.begun_ns,
        txn.commit_ns,
        txn.committed_ns,
        txn.epoch,
        operations,
    )
