"""Which fragments of each collector the log holds, so that none is taken twice and a start need not read the log.

When a segment of the log is full, the table as it then is goes into a file beside it, `00000007.idx`. A start takes the
newest one that is whole and reads only the segments after it. Little-endian:

    0   8  magic 89 4D 55 53 49 0D 0A 1A
    8   4  CRC-32 of what follows
    12  4  number of collectors
    16     for each: id (16), last sequence (8), when it was received, nanoseconds since 1970 (8)

Version 2, with another magic (its last byte is 1B), has for each also the digest of its secret (32), zeros for none.

The files are not synced: a damaged one only makes a start slower.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from mussurana.verifier.daemon.files import write_atomically
from mussurana.verifier.rounds.bounds import SEQUENCE_MAX, TIME_NS_MAX

MAGIC, MAGIC_2 = b"\x89MUSI\r\n\x1a", b"\x89MUSI\r\n\x1b"
HEADER = struct.Struct("<8sII")
ENTRY, ENTRY_2 = struct.Struct("<16sQq"), struct.Struct("<16sQq32s")
NO_SECRET = b""

MEMORY_NS = 30 * 24 * 3600 * 10**9
"""A collector that was silent for a month is forgotten, since every process of an application is a new one. What it
spooled before is older than anything that could still be verified."""


@dataclass(frozen=True)
class Last:
    sequence: int
    received_ns: int
    secret: bytes = NO_SECRET  # the digest of what the collector identified itself with first, if it did

    @property
    def is_possible(self) -> bool:
        return 0 <= self.sequence <= SEQUENCE_MAX and 0 <= self.received_ns <= TIME_NS_MAX


class Sequences:
    """The last sequence number of each collector. Not thread-safe."""

    def __init__(self, last: dict[bytes, Last] | None = None) -> None:
        self._last = dict(last or {})

    def __len__(self) -> int:
        return len(self._last)

    def last(self, collector: bytes) -> int:
        """The last one that is there; 0 for none."""
        found = self._last.get(collector)
        return found.sequence if found else 0

    def note(self, collector: bytes, sequence: int, received_ns: int) -> None:
        before = self._last.get(collector)
        if sequence > (before.sequence if before else 0):
            self._last[collector] = Last(sequence, received_ns, before.secret if before else NO_SECRET)

    def bind(self, collector: bytes, secret: bytes, received_ns: int) -> None:
        """Remember the digest of a collector's secret, unless something is known of it already."""
        self._last.setdefault(collector, Last(0, received_ns, secret))

    def take_in(self, other: Sequences) -> None:
        for collector, last in other.items():
            self.bind(collector, last.secret, last.received_ns)
            self.note(collector, last.sequence, last.received_ns)

    def items(self) -> list[tuple[bytes, Last]]:
        return sorted(self._last.items())

    def latest_ns(self) -> int:
        return max((last.received_ns for last in self._last.values()), default=0)

    def forget(self, now_ns: int) -> int:
        """Drop collectors that were silent for too long, and return how many."""
        gone = [collector for collector, last in self._last.items() if last.received_ns < now_ns - MEMORY_NS]
        for collector in gone:
            del self._last[collector]
        return len(gone)

    def copy(self) -> Sequences:
        return Sequences(self._last)

    def to_bytes(self) -> bytes:
        body = struct.pack("<I", len(self._last)) + b"".join(
            ENTRY_2.pack(collector, last.sequence, last.received_ns, last.secret) for collector, last in self.items()
        )
        return MAGIC_2 + struct.pack("<I", zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, content: bytes) -> Sequences | None:
        """None if it is not what was written."""
        if len(content) < HEADER.size:
            return None
        magic, crc32, count = HEADER.unpack_from(content)
        entry = {MAGIC: ENTRY, MAGIC_2: ENTRY_2}.get(magic)
        if entry is None or zlib.crc32(content[12:]) != crc32 or len(content) != HEADER.size + count * entry.size:
            return None
        entries = entry.iter_unpack(content[HEADER.size :])
        found = {id: Last(number, at_ns, *map(_or_none, secret)) for id, number, at_ns, *secret in entries}
        return cls(found) if all(last.is_possible for last in found.values()) else None


def _or_none(secret: bytes) -> bytes:
    return secret if any(secret) else NO_SECRET


def index_path(directory: Path, segment: int) -> Path:
    return directory / f"{segment:08d}.idx"


def write_index(directory: Path, segment: int, sequences: Sequences) -> None:
    write_atomically(index_path(directory, segment), [sequences.to_bytes()], durably=False)


def read_index(directory: Path, segment: int) -> Sequences | None:
    try:
        return Sequences.from_bytes(index_path(directory, segment).read_bytes())
    except OSError:
        return None
