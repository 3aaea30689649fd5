"""Append-only records in checksummed files: the collector's spool and the verifier's log are both this.

A directory holds segments, `00000001.seg`, `00000002.seg`, ... Only the last one grows; a full one is never written
again and is deleted as a whole. Little-endian:

    segment                                record
    0   8  magic 89 4D 55 53 47 0D 0A 1A   0   4  magic "REC1"
    8   4  version, 1                      4   4  bytes in the payload
    12  4  number of the segment           8   4  CRC-32 of the payload
    16     records                         12  4  CRC-32 of bytes 0 .. 12
                                           16     payload

A process or machine that dies leaves a *torn tail*: the last record is incomplete. Opening for writing cuts it off; it
was never synced, so nobody was told that it is safe. Anything else that does not fit is *damage*: readers skip to the
next record header that checks out, and report where and how much. The magic and two checksums are for that search.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"\x89MUSG\r\n\x1a"
VERSION = 1
FILE_HEADER = struct.Struct("<8sII")
RECORD_MAGIC = b"REC1"
RECORD_HEADER = struct.Struct("<4sIII")
HEADER_CHECKED = 12  # bytes of the record header that its own checksum covers

SEARCH_TIMES_MAX = 16
"""How often, on the average, a byte is read again to find where damage ends. Headers may have been made such that each
of them claims all that follows; behind more of them than this the rest of the segment is damage."""

LATER = "written by a later version of this program"

SEGMENT_MAX = 1 << 31
"""The number of a segment has 32 bits in its header. A file that is called by a larger one is none."""

RECORD_BYTES_MAX = 64 << 20
"""No fragment is near this. A larger length is damage, and a reader must not try to allocate it."""


@dataclass(frozen=True, order=True)
class Position:
    """A place in a directory of segments: where a record starts, or where the next one will."""

    segment: int
    offset: int

    @property
    def is_possible(self) -> bool:
        """Whether a directory may come to have this place, and go on behind it."""
        return 0 <= self.segment <= SEGMENT_MAX // 2 and 0 <= self.offset < 1 << 63


@dataclass(frozen=True)
class Record:
    position: Position
    end: Position
    payload: bytes


@dataclass(frozen=True)
class Damage:
    """Bytes that are not a record, in the middle of a segment or instead of its header."""

    path: Path
    position: Position
    end: Position
    what: str

    def __str__(self) -> str:
        length = self.end.offset - self.position.offset
        return f"{self.path}: byte {self.position.offset}: {self.what}; {length} bytes passed over"


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.seg"


def segment_numbers(directory: Path) -> list[int]:
    """Of the segments that are there, in order; none if the directory is not."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = (int(name[:-4]) for name in names if name.endswith(".seg") and name[:-4].isdecimal())
    return sorted(number for number in numbers if number <= SEGMENT_MAX)


def frame(payload: bytes) -> bytes:
    """A record, ready to be written."""
    start = struct.pack("<4sII", RECORD_MAGIC, len(payload), zlib.crc32(payload))
    return start + struct.pack("<I", zlib.crc32(start)) + payload


def is_later(header: bytes) -> bool:
    """Whether a segment that begins with these bytes has a format that a later version of this program wrote."""
    if len(header) < FILE_HEADER.size:
        return False
    magic, version, _ = FILE_HEADER.unpack_from(header)
    return bool(magic == MAGIC and version > VERSION)


class Appender:
    """Writes records to the end of a directory of segments. Not thread-safe; one per directory.

    `append` hands records to the operating system, so they survive the end of this process; `sync` makes them survive
    the end of the machine. A failed append (disk full) leaves no part of a record behind and raises OSError.
    """

    def __init__(self, directory: Path, segment_bytes_max: int) -> None:
        self.directory = directory
        self.segment_bytes_max = segment_bytes_max
        directory.mkdir(parents=True, exist_ok=True)
        numbers = segment_numbers(directory)
        self.number = numbers[-1] if numbers else 0
        self._file: BinaryIO | None = None
        self.size = 0
        if numbers:
            path = segment_path(directory, self.number)
            if self._is_later(self.number):  # it is not ours to write to: the next one is
                self.size = path.stat().st_size
                return
            self.size = repair(path, self.number)
            self._file = open(path, "r+b", buffering=0)  # noqa: SIM115, closed in close()
            self._file.seek(self.size)

    @property
    def end(self) -> Position:
        """Where the next record goes, unless it starts a new segment."""
        return Position(self.number, self.size)

    def append(self, payloads: Iterable[bytes]) -> Position:
        """Write records and return the position after the last one."""
        content = b"".join(map(frame, payloads))
        is_full = self.size > FILE_HEADER.size and self.size + len(content) > self.segment_bytes_max
        if self._file is None or is_full:
            self._next_segment()
        assert self._file is not None
        try:
            written = 0
            while written < len(content):
                written += self._file.write(memoryview(content)[written:])
        except BaseException:  # also where the thread is ended, and another one goes on
            os.ftruncate(self._file.fileno(), self.size)
            self._file.seek(self.size)
            raise
        self.size += len(content)
        return self.end

    @property
    def is_deleted(self) -> bool:
        """Whether somebody has deleted the segment that is being written."""
        return self._file is not None and os.fstat(self._file.fileno()).st_nlink == 0

    def sync(self) -> None:
        if self._file is not None:
            os.fdatasync(self._file.fileno())

    def remove_before(self, number: int) -> int:
        """Delete the segments before this one and return how many there were. The one being written stays.

        So do those of a later version: who has not understood them cannot know that nobody needs them.
        """
        gone = [n for n in segment_numbers(self.directory) if n < min(number, self.number)]
        gone = [n for n in gone if not self._is_later(n)]
        for n in gone:
            segment_path(self.directory, n).unlink(missing_ok=True)
        return len(gone)

    def _is_later(self, number: int) -> bool:
        try:
            with open(segment_path(self.directory, number), "rb") as file:
                return is_later(file.read(FILE_HEADER.size))
        except OSError:
            return False

    def abandon(self) -> None:
        """Go on in a new segment. For a sync that failed: what it left of the records since the last one is not known,
        and asking again may get a yes that means nothing, so whoever still has them appends them anew."""
        self.close()

    def skip_to(self, position: Position) -> None:
        """Go on in a new segment beyond a position: the directory reached it before, and what was there is gone."""
        self.close()
        self.number, self.size = max(self.end, position).segment, max(self.end, position).offset

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_segment(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None
        number = self.number + 1
        path = segment_path(self.directory, number)
        file = open(path, "x+b", buffering=0, opener=_private)  # noqa: SIM115, closed in close()
        try:
            file.write(FILE_HEADER.pack(MAGIC, VERSION, number))
            sync_directory(self.directory)
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        self._file, self.number, self.size = file, number, FILE_HEADER.size


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_directory(directory: Path) -> None:
    """Make the names of new files in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def repair(path: Path, number: int) -> int:
    """Cut off a torn tail and return the size that is left. Damage further up stays for readers to report."""
    size = FILE_HEADER.size
    with open(path, "r+b") as file:
        content = file.read()
        if is_later(content):
            return len(content)
        header = FILE_HEADER.pack(MAGIC, VERSION, number)
        if len(content) <= FILE_HEADER.size and content != header:  # it died while making the file
            file.seek(0)
            file.truncate()
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
            return size
        for record in records_in(path, number, content[FILE_HEADER.size :], FILE_HEADER.size):
            if isinstance(record, Record):
                size = record.end.offset
        if size < len(content):
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())
    return size


def read_from(directory: Path, position: Position | None = None) -> Iterator[Record | Damage]:
    """All records from a position on, in order, as far as they are written; damage is reported and passed over.

    The incomplete end of the last segment is not damage: it may be on its way.
    """
    numbers = segment_numbers(directory)
    for number in numbers:
        if position is not None and number < position.segment:
            continue
        path = segment_path(directory, number)
        start = FILE_HEADER.size
        if position is not None and number == position.segment:
            start = max(start, position.offset)
        try:
            with open(path, "rb", buffering=0) as file:
                header = file.read(FILE_HEADER.size)
                file.seek(start)
                content = file.read()
        except FileNotFoundError:  # deleted since
            continue
        is_last = number == numbers[-1]
        if is_later(header):
            yield Damage(path, Position(number, start), Position(number, start + len(content)), LATER)
            continue
        if header != FILE_HEADER.pack(MAGIC, VERSION, number):
            if is_last and len(header) < FILE_HEADER.size:
                return
            yield Damage(path, Position(number, 0), Position(number, FILE_HEADER.size), "not a segment header")
        for found in records_in(path, number, content, start):
            if is_last and isinstance(found, Damage) and found.end.offset == start + len(content):
                return
            yield found


def records_in(path: Path, number: int, content: bytes, base: int) -> Iterator[Record | Damage]:
    """The records in a piece of a segment that starts at byte `base`, where a record starts too.

    Bytes that are none, up to the next record or the end, are one Damage.
    """
    offset = 0
    left = SEARCH_TIMES_MAX * len(content)
    while offset < len(content):
        what, length = _check(content, offset)
        if not what:
            payload = content[offset + RECORD_HEADER.size : offset + RECORD_HEADER.size + length]
            end = offset + RECORD_HEADER.size + length
            yield Record(Position(number, base + offset), Position(number, base + end), payload)
        else:
            end = content.find(RECORD_MAGIC, offset + 1)
            while end >= 0 and left > 0:
                wrong, claimed = _check(content, end)
                if not wrong:
                    break
                left -= claimed
                end = content.find(RECORD_MAGIC, end + 1)
            else:
                end = -1
            if end < 0:
                end = len(content)
            yield Damage(path, Position(number, base + offset), Position(number, base + end), what)
        offset = end


def _check(content: bytes, offset: int) -> tuple[str, int]:
    """What is wrong with the record at an offset (empty if nothing is), and how long its payload is.

    The length is 0 where the payload was not looked at.
    """
    if offset + RECORD_HEADER.size > len(content):
        return "an incomplete record header", 0
    magic, length, payload_crc, header_crc = RECORD_HEADER.unpack_from(content, offset)
    if magic != RECORD_MAGIC or zlib.crc32(content[offset : offset + HEADER_CHECKED]) != header_crc:
        return "not a record header", 0
    if length > RECORD_BYTES_MAX or offset + RECORD_HEADER.size + length > len(content):
        return "an incomplete record", 0
    start = offset + RECORD_HEADER.size
    if zlib.crc32(memoryview(content)[start : start + length]) != payload_crc:
        return "a record whose content does not match its checksum", length
    return "", length
