"""The spool: where fragments are before and until a verifier has them, and where they stay without one.

    <spool>/                                   one per machine or application; mode 0700
        <collector>-<tag>/                     one per process: 32 and 8 hexadecimal digits
            lock                               held (flock) as long as the process lives
            00000001.seg                       checked records (wire/segments.py), each a serialized Upload;
            00000002.seg                       the first of each segment is a Hello, the others are fragments
            00000002.sessions                  numbers of the sessions that were open when segment 2 began

The folder's name declares the first tag of the process before any of its write ids can reach the database, and it
appears complete, with its lock held, by a rename. Whoever finds a folder whose lock is free has found the spool of a
process that is gone: see abandoned.py.

What is appended has been handed to the operating system: it survives the end of the process. It survives the end of
the machine once its segment is full, since only full segments are synced; what is lost then is found by its absence.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mussurana.wire import segments

SEGMENT_BYTES_MAX = 4 << 20
"""A segment is the unit of deletion: small enough not to keep much that is acknowledged, large enough to be few."""

GAP_BYTES_RESERVED = 64 << 10
"""A full spool still has room for fragments that declare what was dropped: with gaps at most RANGES_MAX long."""

FRAGMENT_BYTES_MAX = 32 << 20
"""One transaction may be large, but not larger than what segments and verifiers take."""

FOLDER = re.compile(r"([0-9a-f]{32})-([0-9a-f]{8})")
LOCK = "lock"
UNFINISHED = ".new-"


class SpoolFull(Exception):
    """There is no room; nothing was written."""


@dataclass(frozen=True)
class Segment:
    number: int
    first_sequence: int
    size: int


def folder_name(collector: bytes, tag: int) -> str:
    return f"{collector.hex()}-{tag:08x}"


def make_folder(root: Path, collector: bytes, tag: int) -> tuple[Path, int]:
    """Make the folder of this process, with its lock held; return it and the lock's file descriptor."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = root / (UNFINISHED + collector.hex())
    unfinished.mkdir(mode=0o700)
    lock = os.open(unfinished / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = root / folder_name(collector, tag)
        unfinished.rename(folder)
    except OSError:
        os.close(lock)
        raise
    return folder, lock


def try_lock(folder: Path) -> int | None:
    """The lock of a folder whose process is gone, or None: somebody has it, or the folder has vanished."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink:  # else somebody shipped and deleted it in the meantime
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if FOLDER.fullmatch(path.name))
    except FileNotFoundError:
        return []


def bytes_in(folder: Path) -> int:
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                size += entry.stat().st_size
    except FileNotFoundError:
        pass
    return size


def _next_record(file: BinaryIO, skip: bool = False) -> bytes:
    head = file.read(segments.RECORD_HEADER.size)
    if len(head) < segments.RECORD_HEADER.size:
        raise OSError(f"{file.name}: cut off")
    _, length, checksum, _ = segments.RECORD_HEADER.unpack(head)
    if skip:
        file.seek(length, os.SEEK_CUR)
        return b""
    payload = file.read(length)
    if zlib.crc32(payload) != checksum:
        raise OSError(f"{file.name}: damaged")
    return payload


class Spool:
    """The fragments of one collector. One thread appends, another reads and acknowledges."""

    def __init__(
        self,
        folder: Path,
        lock: int,
        hello: Callable[[int], bytes],
        bytes_max: int,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self.folder = folder
        self.hello = hello  # makes the Hello, given the oldest fragment that there is
        self.bytes_max = bytes_max
        self.bytes_elsewhere = 0  # in other folders below the same root: the limit is for all of them
        self._lock_file = lock
        self._appender = segments.Appender(folder, segment_bytes_max)
        self._segments: deque[Segment] = deque()
        self._guard = threading.Lock()
        self.appended = threading.Condition(self._guard)
        self.last_sequence = 0
        self.durable_sequence = 0
        self.is_complete = False  # nothing will be appended any more

    @property
    def size(self) -> int:
        with self._guard:
            return sum(segment.size for segment in self._segments)

    @property
    def first_sequence(self) -> int:
        """The oldest fragment that is still here; the next one if there is none."""
        with self._guard:
            return self._segments[0].first_sequence if self._segments else self.last_sequence + 1

    def append(self, payload: bytes, open_sessions: list[int], is_gap: bool = False) -> None:
        """Add the fragment with the next sequence number. SpoolFull or OSError: it was not added."""
        room = self.bytes_max - self.bytes_elsewhere + (GAP_BYTES_RESERVED if is_gap else 0)
        if len(payload) > FRAGMENT_BYTES_MAX or self.size + len(payload) > room:
            raise SpoolFull
        sequence = self.last_sequence + 1
        before = self._appender.number
        framed = len(payload) + segments.RECORD_HEADER.size
        if before == 0 or self._appender.size + framed > self._appender.segment_bytes_max:
            path = segments.segment_path(self.folder, before + 1).with_suffix(".sessions")
            path.write_text(" ".join(map(str, open_sessions)))
            self._appender.append([self.hello(sequence), payload])
        else:
            self._appender.append([payload])
        with self._guard:
            if self._appender.number != before:
                self._segments.append(Segment(self._appender.number, sequence, self._appender.size))
            else:
                last = self._segments.pop()
                self._segments.append(Segment(last.number, last.first_sequence, self._appender.size))
            self.last_sequence = sequence
            self.appended.notify_all()

    def acknowledge(self, sequence: int) -> None:
        """Everything up to here is durable elsewhere: delete the segments that hold nothing else."""
        gone = []
        with self._guard:
            self.durable_sequence = max(self.durable_sequence, min(sequence, self.last_sequence))
            while len(self._segments) > 1 and self._segments[1].first_sequence <= self.durable_sequence + 1:
                gone.append(self._segments.popleft())
        for segment in gone:
            path = segments.segment_path(self.folder, segment.number)
            path.unlink(missing_ok=True)
            path.with_suffix(".sessions").unlink(missing_ok=True)

    def read(self, after: int) -> Iterator[tuple[int, bytes] | None]:
        """The fragments after a sequence number, with theirs; None where the next one has not been appended yet.

        Reads each record when it is asked for: the page cache is the memory in which fragments wait.
        """
        sequence = after + 1
        while True:
            with self._guard:
                holding = [segment for segment in self._segments if segment.first_sequence <= sequence]
            if sequence > self.last_sequence or not holding:
                yield None
                continue
            segment = holding[-1]
            with open(segments.segment_path(self.folder, segment.number), "rb") as file:
                file.seek(segments.FILE_HEADER.size)
                _next_record(file)  # the Hello
                for _ in range(segment.first_sequence, sequence):
                    _next_record(file, skip=True)
                while self._holds(segment.number, sequence):
                    if sequence > self.last_sequence:
                        yield None
                    else:
                        yield sequence, _next_record(file)
                        sequence += 1

    def _holds(self, number: int, sequence: int) -> bool:
        """Whether a fragment is, or will be, in this segment."""
        with self._guard:
            later = [segment.first_sequence for segment in self._segments if segment.number > number]
        return not later or sequence < later[0]

    def wait(self, sequence: int, timeout_seconds: float) -> None:
        """Until there is more than this, or the time is over."""
        with self.appended:
            if self.last_sequence <= sequence:
                self.appended.wait(timeout_seconds)

    def complete(self) -> None:
        with self.appended:
            self.is_complete = True
            self.appended.notify_all()

    def close(self, delete: bool = False) -> None:
        """Release the folder. With `delete` all of it has been acknowledged and it goes."""
        self._appender.close()
        if delete:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Close the files without a trace: in a forked child they belong to the parent."""
        self._appender.close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1
