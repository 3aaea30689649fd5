"""The journal: with `journal=commit` what was committed survives a kill, however recently it was.

The background spools four times a second, so a killed process loses up to a quarter of a second of work. That is
declared as a gap and accuses nobody, but it is gone. With a journal each transaction is also written by the thread
that commits it: what it did, before its COMMIT is sent, and how it ended, after the answer; one that only read is
written once, after the answer and before the application gets it. Written means handed to the operating system, as in
the spool; nothing waits for a disk. Whoever completes the spool of a killed process (abandoned.py) reads the journal
(journal_reader.py) for what the spool does not have; a transaction without an answer is in doubt, as it really is.

The price is that results are taken apart before the COMMIT is sent and not while the server is at work on it, and that
the application's threads write to a file; docs/recording.md has figures. Hence it is not the default.

A statement that commits by itself has told what it did only when it is over. If the process is killed in between, the
statement is lost, and its write id is in the gap.

Two files, `journal-0` and `journal-1`, are written in turns; one is cut to nothing when all in it has been spooled. A
record is 16 bytes and its payload, written at once, so that threads need no lock:

    0   4  magic "JRN3"
    4   4  bytes in the payload
    8   4  CRC-32 of the payload
    12  4  what it is: TXN, END or DONE
    16     payload, by the interpreter's own `marshal`, which takes half a microsecond where JSON takes four:
           TXN   number, session, its name, status, four times, isolation, operations, operations rolled back, lost
                 ids, epoch, names of keys and texts of statements that were new
           END   number, status, time of the answer
           DONE  numbers of transactions that are in the spool
"""

from __future__ import annotations

import marshal
import os
import struct
import zlib
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mussurana.collector.columns import READ, READ_ABSENT
from mussurana.collector.extraction import operations_of

if TYPE_CHECKING:
    from mussurana.collector.metrics import Metrics
    from mussurana.collector.names import Names
    from mussurana.collector.recorder import Txn

HEADER = struct.Struct("<4sIII")
MAGIC = b"JRN3"
TXN, END, DONE = range(1, 4)
READS = bytes([READ, READ_ABSENT])

FILE_BYTES_MAX = 4 << 20
"""From then on the other file is used, as soon as all in it has been spooled."""

FILE_BYTES_LIMIT = 16 << 20
"""From then on nothing is journaled until it has: the spool is full or cannot be written."""

ROWS_MAX = 1000
"""A transaction that has read more than this is not journaled: to take a result apart takes a microsecond per row, and
whoever commits is waiting."""


def path_of(folder: Path, turn: int) -> Path:
    return folder / f"journal-{turn}"


class _File:
    """One of the two. `waiting` are the numbers of its transactions that are not in the spool yet."""

    def __init__(self, path: Path) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC
        self.handle = os.open(path, flags, 0o600)
        self.size = 0  # about: threads may race
        self.waiting: set[int] = set()


Place: TypeAlias = tuple[_File, int]
"""Where the journal has a transaction: the file and the number."""


class Journal:
    """The writing end. Threads write to it, the background says what is done. Nothing here raises."""

    def __init__(self, folder: Path, names: Names, metrics: Metrics) -> None:
        self._names = names
        self._metrics = metrics
        self._files = [_File(path_of(folder, turn)) for turn in range(2)]
        self._file = self._files[0]
        self._numbers = count(1)

    def continued_in(self, folder: Path) -> Journal:
        """One in another folder, whose numbers go on. This one is still there for those who are writing to it."""
        other = Journal(folder, self._names, self._metrics)
        other._numbers = self._numbers
        return other

    def write_ahead(self, txn: Txn) -> None:
        """Write what a transaction did, if it wrote something. It has no outcome yet."""
        self._write_txn(txn, ahead=True)

    def _write_txn(self, txn: Txn, ahead: bool) -> None:
        file = self._file
        if file.size > FILE_BYTES_LIMIT or txn.rows > ROWS_MAX:
            self._metrics.txns_not_journaled += 1
            return
        try:
            extracted = txn.extracted
            if extracted is None or txn.extracted_from != txn.observations:  # in a pipeline results come after COMMIT
                extracted = txn.extracted = operations_of(txn, self._names)
                txn.extracted_from = txn.observations.copy()
            if not extracted.operations and not extracted.rolled_back:
                return
            if extracted.missed:  # of writes under one id a part would be there, and reads of the rest would be alarms
                return
            operations = extracted.operations.content()
            if ahead and not extracted.rolled_back and not operations[0].strip(READS):
                return
            number = next(self._numbers)
            content = (
                number,
                txn.session.number,
                txn.session.name,
                txn.status,
                (txn.begin_ns, txn.begun_ns, txn.commit_ns, txn.committed_ns),
                txn.isolation,
                operations,
                extracted.rolled_back.content() if extracted.rolled_back else None,
                extracted.lost,
                txn.epoch,
                *self._names.not_journaled(),
            )
            txn.journaled = (file, number)
            file.waiting.add(number)
            self._write(file, TXN, content)
        except Exception:  # values that marshal does not take, or no room
            self._metrics.journal_failures += 1

    def end(self, txn: Txn) -> None:
        """Write how a transaction ended; and what it did, if that has not been written."""
        if txn.journaled is None:
            if txn.status != ABORTED:  # nobody misses an aborted one: whoever saw it saw an id from the gap
                self._write_txn(txn, ahead=False)
            return
        try:
            self._write(self._file, END, (txn.journaled[1], txn.status, txn.committed_ns))
        except Exception:
            self._metrics.journal_failures += 1

    def done(self, places: list[Place]) -> None:
        """These are in the spool, or declared lost. Called by the background only."""
        for file, number in places:
            file.waiting.discard(number)
        try:
            if places:
                self._write(self._file, DONE, tuple(number for _, number in places))
            self._take_turns()
        except Exception:
            self._metrics.journal_failures += 1

    def close(self) -> None:
        for file in self._files:
            if file.handle >= 0:
                os.close(file.handle)
                file.handle = -1

    def _write(self, file: _File, what: int, content: Any) -> None:
        payload = marshal.dumps(content)
        record = HEADER.pack(MAGIC, len(payload), zlib.crc32(payload), what) + payload
        os.write(file.handle, record)
        file.size += len(record)

    def _take_turns(self) -> None:
        """Go on in the other file. What was said of this one's transactions is then in the other, which goes later."""
        if self._file.size < FILE_BYTES_MAX:
            return
        other = self._files[1 - self._files.index(self._file)]
        if not other.waiting:
            os.ftruncate(other.handle, 0)
            other.size = 0
            self._file = other


ABORTED = 1
"""As in recorder.py, which loads this module."""
