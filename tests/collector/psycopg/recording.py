"""A database whose tables are recorded, connections to it with the collector, and what the checker says afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.collector import recorder as recorder_module
from mussurana.collector.__main__ import main
from mussurana.collector.coverage import CoverageRow
from mussurana.collector.database import forget_all
from mussurana.collector.psycopg_adapter import AsyncConnection, Connection
from mussurana.collector.recorder import Recorder, recorder_for
from mussurana.collector.settings import Settings
from mussurana.verifier.engine.check import check
from mussurana.verifier.formats.spool import read, recordings
from mussurana.verifier.history import History
from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.verifier.verdict import Settings as CheckSettings
from mussurana.verifier.verdict import Verdict
from mussurana.wire import history_pb2, segments
from tests.collector.postgres import Database

NEWEST = pytest.mark.parametrize("postgres", [18], indirect=True)

FLUSH_SECONDS = 10


class Recording:
    """One process' recording of one database."""

    def __init__(self, database: Database, spool: Path, **settings: Any) -> None:
        self.database = database
        self.spool = spool
        self.settings = Settings.load(spool=str(spool), database="test", **settings)
        self.recorder: Recorder = recorder_for(self.settings)

    def connect(self, **options: Any) -> Any:
        return Connection.connect(self.database.conninfo, mussurana=self.settings, **options)

    async def connect_async(self, **options: Any) -> Any:
        return await AsyncConnection.connect(self.database.conninfo, mussurana=self.settings, **options)

    def finish(self) -> None:
        """Everything that has ended is in the spool after this, and nothing more will be."""
        for recorder in recorders_of(self.settings):
            assert recorder.flush(FLUSH_SECONDS)
            recorder.close()

    def history(self) -> History:
        self.finish()
        return read(self.spool)

    def verdict(self, level: str = "serializable") -> Verdict:
        return check(self.history(), CheckSettings(level), timeout_seconds=60).verdict

    def operations(self) -> list[list[tuple[str, str, str, bool]]]:
        """Kind, key, status and whether something was replaced, of each transaction that is no fence."""
        history = self.history()
        found = []
        for txn in range(history.txn_count):
            own = []
            for op in range(int(history.op_start[txn]), int(history.op_start[txn + 1])):
                key = history.key_names[int(history.key[op])]
                kind = "read" if int(history.kind[op]) == 0 else "write"
                status = ("committed", "aborted", "in doubt")[int(history.status[txn])]
                own.append((kind, key, status, int(history.previous[op]) > 0))
            if own and own[0][1] != "fence":
                found.append(own)
        return found

    @property
    def coverage(self) -> list[CoverageRow]:
        return self.recorder.coverage.rows()

    @property
    def failures(self) -> int:
        return self.recorder.metrics.hook_failures + self.recorder.metrics.extraction_failures


def recorders_of(settings: Settings) -> list[Recorder]:
    """One for each database."""
    return list(recorder_module._shared.get(settings, ()))


def adopt(database: Database, *statements: str) -> None:
    """Make tables, and give them to the collector."""
    database.run(*statements)
    assert main(["adopt", database.url()]) == 0


@contextmanager
def recording(database: Database, spool: Path, **settings: Any) -> Iterator[Recording]:
    made = Recording(database, spool, **settings)
    try:
        yield made
    finally:
        for recorder in recorders_of(made.settings):
            recorder.close()
        forget_all()


def plain(database: Database, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.conninfo) as connection:
        return connection.execute(query.encode()).fetchall()


def online(spool: Path, *levels: str) -> list[RoundOutcome]:
    """What daemons say of a spool, one for each database."""
    return [outcome for each in recordings(spool) for outcome in rounds_of(each.folders, *levels)]


def alarms(spool: Path, *levels: str) -> list[AlarmChange]:
    """What they tell of the same, and take back."""
    return [change for each in recordings(spool) for change in _told_of(each.folders, *levels)[1]]


def rounds_of(folders: Iterable[Path], *levels: str) -> list[RoundOutcome]:
    """What the daemon's rounds say: one round for each fragment, and one when nobody waits any more."""
    return _told_of(folders, *levels)[0]


def _told_of(folders: Iterable[Path], *levels: str) -> tuple[list[RoundOutcome], list[AlarmChange]]:
    machine = Verifier([CheckSettings(level) for level in levels])
    fragments = []
    for folder in folders:
        collector = b""
        for found in segments.read_from(folder):
            assert not isinstance(found, segments.Damage)
            upload = history_pb2.Upload.FromString(found.payload)
            if upload.WhichOneof("message") == "hello":
                collector = upload.hello.collector
            else:
                fragments.append((upload.fragment.sealed_ns, collector, upload.fragment))
    outcomes: list[RoundOutcome] = []
    changes: list[AlarmChange] = []
    sealed_ns = 0
    for sealed_ns, collector, fragment in sorted(fragments, key=lambda each: each[0]):
        machine.feed(collector, fragment, sealed_ns)
        outcomes += machine.step(sealed_ns, force=True)
        changes += machine.decide_alarms(sealed_ns)
    end_ns = sealed_ns + machine.limits.wait_ns_max + 1
    outcomes += machine.step(end_ns, force=True)
    changes += machine.decide_alarms(end_ns + machine.limits.alarm_wait_ns_max)
    return outcomes, changes
