"""The transactions that a round works on, as a `History` that the engine understands.

Those of the past that were kept stand first. What was seen of versions that have been forgotten is the initial version
now if it was the last one (the version table says so), and otherwise cannot be explained; what was seen of lost
versions is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mussurana.verifier.history import INITIAL, NO_VALUE, History, Ints, Kind, Named
from mussurana.verifier.rounds.batch import PAST_VERSION, Batch
from mussurana.verifier.rounds.fences import UNKNOWN_EPOCH, Border, link
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.table import VersionTable
from mussurana.verifier.rounds.xids import Flags, is_from_before
from mussurana.wire import BEFORE_RECORDING, FENCE_KEY


class VersionNames(dict[int, str]):
    """The same for versions; a history only ever asks with `get`."""

    def __init__(self, name: Callable[[int], str]) -> None:
        super().__init__()
        self._name = name

    def get(self, version: int, default: str | None = None) -> str:  # type: ignore[override]
        return self._name(version)


@dataclass(frozen=True)
class Names:
    """How to call what a counterexample shows."""

    key: Callable[[int], str]
    session: Callable[[int], str]
    version: Callable[[int], str]
    statement: Callable[[int, int], str]  # of a session, by its collector's number for it
    known_key: Callable[[int], str | None]  # None: its name was never heard, or is forgotten


@dataclass(frozen=True)
class Window:
    """A round's transactions and the history made of them; both have the same transactions and operations."""

    batch: Batch
    past: int
    keys: Ints  # the wire's names of the history's keys
    history: History
    unchecked_reads: int  # of versions that are lost
    doubtful: Ints  # operations that saw a version of several writers, of whom one is forgotten


def make_window(
    batch: Batch,
    past: int,
    table: VersionTable,
    border: Border,
    lost: LostVersions,
    closed: list[int],
    names: Names,
    horizons: tuple[int, ...] = (),
    repeated: LostVersions | None = None,
) -> Window:
    """`closed` are the keys that stand for closed ones; see `LevelRounds._closed`. `horizons`: see `is_from_before`.

    `repeated` are versions that several transactions wrote of whom one is forgotten.
    """
    unchecked = 0
    batch = link(batch, border, lost, repeated)
    if len(lost):
        is_lost = lost_ops(batch, lost)
        unchecked = int(np.count_nonzero(is_lost))
        batch = batch.without_reads(is_lost)
    keys, key = np.unique(batch.key, return_inverse=True)
    initial = table.get(keys)
    current = initial[key]
    initial[np.isin(keys, closed)] = PAST_VERSION
    is_read = batch.kind == Kind.READ
    not_initial = _own_again(batch, current)
    doubtful = np.zeros(0, np.int64)
    if repeated:
        doubtful = np.flatnonzero(repeated.has(batch.seen))
        not_initial[doubtful] = True

    def as_value(version: Ints) -> Ints:
        initial = (version == current) | (version == PAST_VERSION)
        initial |= (current == BEFORE_RECORDING) & is_from_before(version, horizons)
        return np.where(initial & ~not_initial, INITIAL, version)

    def statement(op: int) -> str:
        txn = int(np.searchsorted(batch.op_start, op, side="right")) - 1
        return names.statement(int(batch.session[txn]), int(batch.statement[op]))

    sessions, session = np.unique(batch.session, return_inverse=True)
    history = History(
        session=session.astype(np.int32),
        status=batch.status,
        begin_ns=batch.begin_ns,
        begun_ns=batch.begun_ns,
        commit_ns=batch.commit_ns,
        committed_ns=batch.committed_ns,
        op_start=batch.op_start,
        kind=batch.kind,
        key=key.astype(np.int32),
        value=np.where(is_read, as_value(batch.version), batch.version),
        previous=np.where(batch.previous == NO_VALUE, NO_VALUE, as_value(batch.previous)),
        list_start=np.zeros(len(batch.kind) + 1, np.int64),
        list_value=np.zeros(0, np.int64),
        session_names=Named(sessions.astype(np.int64), names.session),
        key_names=Named(keys, names.key),
        value_names=VersionNames(names.version),
        isolation=batch.isolation,
        initial_names=Named(initial, lambda version: names.version(version) if version else ""),
        statements=Named(range(len(batch.kind)), statement),
        past=past,
    )
    return Window(batch, past, keys, history, unchecked, doubtful)


def _own_again(batch: Batch, current: Ints) -> Flags:
    """The operations that saw their own transaction's write where it has the name of the version before the window."""
    own, op_txn = np.zeros(len(batch.kind), bool), batch.op_txn
    again = np.flatnonzero((batch.kind == Kind.WRITE) & (batch.version == current))
    for write in again.tolist():
        rest = np.arange(write + 1, batch.op_start[op_txn[write] + 1])
        own[rest[(batch.key[rest] == batch.key[write]) & (batch.seen[rest] == batch.version[write])]] = True
    return own


def lost_ops(batch: Batch, lost: LostVersions) -> Flags:
    """The operations that saw a lost version. Of fences that were linked it is certain whom they follow."""
    is_linked = (batch.key == FENCE_KEY) & (batch.epoch != UNKNOWN_EPOCH)[batch.op_txn]
    return np.asarray(lost.has(batch.seen) & ~is_linked)
