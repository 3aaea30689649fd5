"""Recording for stores that are not SQL: the application tells what it read and wrote.

The store has to keep a version, a 64-bit number, with each value. That is all:

    store = KeyValueRecorder(Settings.load(database="redis/0"))     # two that have one name are one store
    session = store.session("worker 3")                 # one for each connection or thread
    with session.transaction() as txn:
        value, version = redis_get(key)                 # the version that is stored with it, None if there is none
        txn.read(key, version)
        new = txn.write(key, previous=version)          # the version to store with the new value
        redis_set(key, changed(value), new)
    session.close()

A transaction that ends without an exception was committed, with one it was aborted; where the outcome is not known call
`txn.in_doubt()`. A write is reported before it is sent, so that nobody can read a version that was never announced.
Nothing here raises for reasons of its own.

Online verification wants fences: pass `swap_fence(version) -> previous`, which stores a version under a key of the
application's choice, in a transaction of its own, and returns the one that was there before (None if there was none);
and `read_fence() -> version`, which only reads it, for the end of a session. If the store also counts how often the
fence was swapped, let both return that version and the count, the latter as it is then: it tells the order of fences
where some are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time_ns
from types import TracebackType
from typing import TypeAlias

from mussurana.collector.extraction import Observation, Sink
from mussurana.collector.names import FENCE_NAME
from mussurana.collector.recorder import ABORTED, COMMITTED, IN_DOUBT, Recorder, Session, Txn, recorder_for
from mussurana.collector.settings import Settings
from mussurana.collector.which_database import key_value_database

FenceRow: TypeAlias = int | tuple[int | None, int] | None
"""A version, None if there is none yet; perhaps with the count of swaps."""

ReadFence: TypeAlias = Callable[[], FenceRow]
SwapFence: TypeAlias = Callable[[int], FenceRow]


def _fence(row: FenceRow) -> tuple[int | None, int]:
    """Version and epoch, 0 if it is not known."""
    return row if isinstance(row, tuple) else (row, 0)


def _read(observation: Observation, sink: Sink) -> None:
    _, key, version = observation
    if version is None:
        sink.absent(key)
    else:
        sink.read(key, version)


def _write(observation: Observation, sink: Sink) -> None:
    _, key, version, previous = observation
    if previous is None:
        sink.write(key, version)
    else:
        sink.update(key, version, previous)


def _delete(observation: Observation, sink: Sink) -> None:
    _, key, version, previous = observation
    if previous is None:
        sink.write(key, version)
    else:
        sink.delete(key, version, previous)


class KeyValueTransaction:
    """One transaction, to be used in a `with` statement."""

    __slots__ = ("_fence", "_recorder", "_session", "_status", "_txn")

    def __init__(self, recorder: Recorder, session: Session, fence: Callable[[], None]) -> None:
        self._recorder = recorder
        self._session = session
        self._fence = fence
        self._status = COMMITTED
        self._txn: Txn | None = None

    def read(self, key: str, version: int | None) -> None:
        """Saw a version of a key: None if there is no such key, 0 if it has no version."""
        if self._txn is not None:
            self._txn.observations.append((_read, key, version))

    def write(self, key: str, previous: int | None = None) -> int:
        """Is about to write a key; returns the version to store.

        `previous` is the version that it replaces, if the store makes sure of that (compare and set).
        """
        version = self._recorder.write_id()
        if self._txn is not None:
            self._txn.observations.append((_write, key, version, previous))
        return version

    def delete(self, key: str, previous: int | None = None) -> None:
        """Is about to delete a key."""
        if self._txn is not None:
            self._txn.observations.append((_delete, key, self._recorder.write_id(), previous))

    def in_doubt(self) -> None:
        """Whether it was committed is not known."""
        self._status = IN_DOUBT

    def __enter__(self) -> KeyValueTransaction:
        self._fence()
        self._txn = self._session.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._txn is None:
            return
        status = self._status if kind is None or self._status == IN_DOUBT else ABORTED
        self._session.end(self._txn, status)


class KeyValueSession:
    """The transactions of one connection or thread, one after the other."""

    def __init__(
        self, recorder: Recorder, name: str, swap_fence: SwapFence | None, read_fence: ReadFence | None
    ) -> None:
        self._recorder = recorder
        self._swap_fence = swap_fence
        self._read_fence = read_fence
        self._session = recorder.open_session(name, fenced=swap_fence is not None)

    def transaction(self) -> KeyValueTransaction:
        return KeyValueTransaction(self._recorder, self._session, self._fence_if_due)

    def close(self) -> None:
        if self._read_fence is not None and self._session.txn is None and self._session.closing_fence_due():
            self._closing_fence(self._read_fence)
        self._session.close()

    def _closing_fence(self, read_fence: ReadFence) -> None:
        started = perf_counter()
        txn = self._session.begin()
        try:
            version, txn.epoch = _fence(read_fence())
        except Exception:  # the application's own code
            self._session.end(txn, ABORTED)
            self._session.fence_failed(perf_counter() - started)
            return
        txn.observations.append((_read, FENCE_NAME, version or 0))
        self._session.end(txn, COMMITTED)
        self._session.fenced(wrote=False, seconds=perf_counter() - started)

    def _fence_if_due(self) -> None:
        if self._swap_fence is None or not self._session.fence_due(time_ns()):
            return
        started = perf_counter()
        txn = self._session.begin()
        version = self._recorder.write_id()
        try:
            previous, txn.epoch = _fence(self._swap_fence(version))
        except Exception:  # the application's own code; whether it wrote is not known
            txn.observations.append((_write, FENCE_NAME, version, None))
            self._session.end(txn, IN_DOUBT)
            self._session.fence_failed(perf_counter() - started)
            return
        txn.observations.append((_write, FENCE_NAME, version, previous or 0))
        self._session.end(txn, COMMITTED)
        self._session.fenced(wrote=True, seconds=perf_counter() - started)


class KeyValueRecorder:
    """Records what an application does to one store, which `settings.database` names for all who use it."""

    def __init__(
        self, settings: Settings, swap_fence: SwapFence | None = None, read_fence: ReadFence | None = None
    ) -> None:
        self._recorder = recorder_for(settings, key_value_database(settings.database))
        self._swap_fence = swap_fence
        self._read_fence = read_fence

    def session(self, name: str) -> KeyValueSession:
        return KeyValueSession(self._recorder, name, self._swap_fence, self._read_fence)
