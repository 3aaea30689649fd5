"""The ingest log: everything that was acknowledged, in the order in which the machine is fed.

Records in segments (see `mussurana.wire.segments`); the payload of each, little-endian:

    0   1  kind: 1 a fragment, 2 fragments that are lost, 3 the log was not written for a while, 4 a secret
    1   16 id of the collector; zeros for kind 3
    17  8  sequence number; of the last one, where several are lost; 0 for kind 4
    25  8  when it was received, nanoseconds since 1970 by the daemon's clock
    33     kind 1: the Fragment as in history.proto
           kind 2: sequence number of the first one (8), then why, in UTF-8
           kind 3: nothing; between the record before and this one nobody could be heard
           kind 4: SHA-256 of the secret that the collector has to come with; it stands before its first fragment

The log may hold a fragment twice, after a sync that failed; readers go by the sequence number. It never has a hole in
the numbers of a collector unless a segment is damaged, so a hole *is* the damage, and says whose fragments were hit.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mussurana.verifier.daemon.files import size_bytes
from mussurana.verifier.daemon.sequences import Last, Sequences, read_index, write_index
from mussurana.wire.segments import (
    FILE_HEADER,
    LATER,
    MAGIC,
    RECORD_BYTES_MAX,
    RECORD_HEADER,
    VERSION,
    Appender,
    Damage,
    Position,
    Record,
    is_later,
    records_in,
    segment_numbers,
    segment_path,
)

FRAGMENT, LOST, RESUMED, SECRET = 1, 2, 3, 4
ENTRY = struct.Struct("<B16sQq")
FIRST_LOST = struct.Struct("<Q")

SEGMENT_BYTES_MAX = 64 << 20
"""What a start reads at most beyond the indexes, in a tenth of a second; and the smallest piece that is deleted."""

READ_BYTES = 4 << 20
"""Of the log at a time: some tens of fragments, so that a reader that catches up takes little memory."""

START = Position(0, 0)
"""Before everything."""


@dataclass(frozen=True)
class Entry:
    kind: int
    collector: bytes
    sequence: int
    received_ns: int
    content: bytes

    @staticmethod
    def lost(collector: bytes, first: int, last: int, reason: str, received_ns: int) -> Entry:
        return Entry(LOST, collector, last, received_ns, FIRST_LOST.pack(first) + reason.encode())

    @staticmethod
    def resumed(now_ns: int) -> Entry:
        return Entry(RESUMED, bytes(16), 0, now_ns, b"")

    @staticmethod
    def secret(collector: bytes, digest: bytes, received_ns: int) -> Entry:
        return Entry(SECRET, collector, 0, received_ns, digest)

    def note_in(self, sequences: Sequences) -> None:
        """What this says of its collector."""
        if self.kind == SECRET:
            sequences.bind(self.collector, self.content, self.received_ns)
        elif self.kind != RESUMED:
            sequences.note(self.collector, self.sequence, self.received_ns)

    def lost_range(self) -> tuple[int, int, str]:
        """First, last and why, of an entry about lost fragments."""
        (first,) = FIRST_LOST.unpack_from(self.content)
        return first, self.sequence, self.content[FIRST_LOST.size :].decode(errors="replace")

    def to_bytes(self) -> bytes:
        return ENTRY.pack(self.kind, self.collector, self.sequence, self.received_ns) + self.content

    @staticmethod
    def from_bytes(payload: bytes) -> Entry:
        """Raises ValueError where the bytes are none that `to_bytes` makes."""
        if len(payload) < ENTRY.size:
            raise ValueError("an entry is longer than this")
        kind, collector, sequence, received_ns = ENTRY.unpack_from(payload)
        if not Last(sequence, received_ns).is_possible:
            raise ValueError("an entry has other numbers than these")
        entry = Entry(kind, collector, sequence, received_ns, payload[ENTRY.size :])
        if kind == LOST and (len(entry.content) < FIRST_LOST.size or not 0 < entry.lost_range()[0] <= sequence):
            raise ValueError("an entry of lost fragments says which")
        return entry


class IngestLog:
    """Appends entries and knows what is durable. One thread appends; `durable` may be read by any."""

    def __init__(
        self,
        directory: Path,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        base: tuple[Position, Sequences] = (START, Sequences()),
        been_at: Position = START,
    ) -> None:
        """Repair the tail, if it is torn, and find out what is there. `base` is what a checkpoint knew, and where.

        `been_at` is the last place of which it is known that the log reached it. If it does not any more, what was
        there is lost, and `cut_at` says where the log ends instead; what comes from now on stands beyond that place,
        so that a position never means two things.
        """
        self.directory = directory
        self._appender = Appender(directory, segment_bytes_max)
        self.cut_at: Position | None = None
        if self._appender.end < max(base[0], been_at):
            self.cut_at = self._appender.end
            self._appender.skip_to(max(base[0], been_at))
        self.sequences, self.read_at_start, self.is_known_from_start = _known(directory, self._appender.end, base)
        # What a process wrote and did not sync before it was killed is read from now on, so it has to be made durable.
        self._appender.sync()
        self.durable = self._appender.end
        # Interruptions are counted: one that comes while the end of another is being noted must not be forgotten.
        self._interruptions = int(len(self.sequences) > 0)  # nobody can have been heard since the last record
        self._resumed = 0
        self._interrupting = threading.Lock()

    @property
    def is_interrupted(self) -> bool:
        """Whether nobody could be heard for a while, and the log does not say so yet."""
        return self._interruptions != self._resumed

    def interrupt(self) -> None:
        """Nobody could be heard until now. From any thread; `resume` has to follow before anything else is appended."""
        with self._interrupting:
            self._interruptions += 1

    def resume(self, now_ns: int) -> None:
        """After an interruption, note that collectors are heard again. If it raises OSError they are not."""
        interruptions = self._interruptions
        if interruptions != self._resumed:
            self.commit([Entry.resumed(now_ns)])
            self._resumed = interruptions

    def commit(self, entries: Sequence[Entry]) -> None:
        """Append and sync. If it raises OSError none of them is durable, and they can be committed again."""
        before = self._appender.number
        self._appender.append([entry.to_bytes() for entry in entries])
        if before and self._appender.number != before:
            self.sequences.forget(entries[-1].received_ns)
            with suppress(OSError):  # without it a start reads the segment instead
                write_index(self.directory, before, self.sequences)
        try:
            self._appender.sync()
        except BaseException:  # also where the thread is ended, and another one goes on
            self._appender.abandon()
            raise
        for entry in entries:
            entry.note_in(self.sequences)
        self.durable = self._appender.end

    def remove_before(self, position: Position, bytes_kept_min: int) -> int:
        """Delete whole segments before a position, but keep as much as this of the log. Returns how many went."""
        kept = 0
        numbers = segment_numbers(self.directory)
        first = numbers[0] if numbers else 0
        for number in reversed(numbers):
            if number < position.segment and kept >= bytes_kept_min:
                first = number + 1
                break
            kept += segment_path(self.directory, number).stat().st_size
        gone = self._appender.remove_before(first)
        for path in self.directory.glob("*.idx"):
            if path.stem.isdecimal() and int(path.stem) < first - 1:  # the last one tells what was before the first
                path.unlink(missing_ok=True)
        return gone

    def known_before(self, segment: int) -> Sequences:
        """What was known when this segment began, as far as an index tells."""
        return read_index(self.directory, segment - 1) or Sequences()

    def segment_sizes(self, first: int, end: int) -> list[int]:
        """Bytes of each segment from `first` to before `end`, as far as they are there."""
        sizes = []
        for number in range(max(first, 1), end):
            with suppress(FileNotFoundError):
                sizes.append(segment_path(self.directory, number).stat().st_size)
        return sizes

    def size_bytes(self) -> int:
        return size_bytes(self.directory)

    def close(self) -> None:
        self._appender.close()


def _known(directory: Path, end: Position, base: tuple[Position, Sequences]) -> tuple[Sequences, int, bool]:
    """What the log holds of each collector, how many segments had to be read to know, and whether that is all.

    It is not if the log has lost its beginning, and neither a checkpoint nor an index tells what that was.
    """
    start, sequences = base[0], base[1].copy()
    numbers = segment_numbers(directory)
    first = numbers[0] if numbers else 1
    for number in [*reversed(numbers), first - 1]:
        if number < start.segment:
            break
        indexed = read_index(directory, number) if number < end.segment else None
        if indexed is not None:
            sequences.take_in(indexed)
            start = Position(number + 1, 0)
            break
    is_complete = start != START or first == 1
    tail = Tail(directory, start)
    for found in tail.read_all(end):
        if isinstance(found, Record):
            Entry.from_bytes(found.payload).note_in(sequences)
    return sequences, tail.segments_read, is_complete


class Tail:
    """Reads the log from a position on, as far as it is durable, a piece at a time. One reader, one thread.

    All records that it returns are entries.
    """

    def __init__(self, directory: Path, position: Position = START) -> None:
        self.directory = directory
        self.position = position
        self.segments_read = 0
        self._handle = -1
        self._number = 0

    def read_all(self, end: Position) -> Iterator[Record | Damage]:
        while found := self.read(end):
            yield from found

    def read(self, end: Position, bytes_max: int = READ_BYTES) -> list[Record | Damage]:
        """The next records before `end`, about as many as fit in `bytes_max`; empty if there are none."""
        while self.position < end:
            if self._handle < 0 or self._number != self.position.segment:
                damage = self._open(end)
                if damage:
                    return damage
                if self._handle < 0:
                    break
            limit = end.offset if self._number == end.segment else os.fstat(self._handle).st_size
            if self.position.offset < limit:
                return self._piece(limit, bytes_max)
            if self._number == end.segment:
                break
            self.position = Position(self._number + 1, 0)
        return []

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _open(self, end: Position) -> list[Record | Damage]:
        """Open the segment at the position, or the next one that is there. Returns what is wrong with the way there."""
        self.close()
        number = next((n for n in segment_numbers(self.directory) if n >= self.position.segment), None)
        if number is None or number > end.segment:
            return []
        path = segment_path(self.directory, number)
        self._handle, self._number = os.open(path, os.O_RDONLY), number
        self.segments_read += 1
        missing_from, self.position = self.position, Position(number, max(self.position.offset, FILE_HEADER.size))
        if number > missing_from.segment and missing_from != START:
            self.position = Position(number, FILE_HEADER.size)
            return [Damage(path, Position(number, 0), Position(number, 0), f"segments before {number} are missing")]
        header = os.pread(self._handle, FILE_HEADER.size, 0)
        if is_later(header):
            before, self.position = self.position, Position(number + 1, 0)
            length = os.fstat(self._handle).st_size
            self.close()
            return [Damage(path, before, max(before, Position(number, length)), LATER)]
        if header != FILE_HEADER.pack(MAGIC, VERSION, number):
            return [Damage(path, Position(number, 0), Position(number, FILE_HEADER.size), "not a segment header")]
        return []

    def _piece(self, limit: int, bytes_max: int) -> list[Record | Damage]:
        path, at = segment_path(self.directory, self._number), self.position.offset
        length = bytes_max
        while True:
            content = os.pread(self._handle, min(length, limit - at), at)
            found = list(records_in(path, self._number, content, at))
            if not found:  # the file is shorter than it was: nothing more will come of this segment
                self.position = Position(self._number, limit)
                return []
            is_cut = isinstance(found[-1], Damage) and at + len(content) < limit
            if is_cut and len(found) > 1:
                found.pop()  # to be read whole with the next piece
            elif is_cut and length < RECORD_BYTES_MAX + RECORD_HEADER.size:
                length = min(4 * length, RECORD_BYTES_MAX + RECORD_HEADER.size)
                continue
            self.position = found[-1].end
            return [_entry_or_damage(path, item) for item in found]


def _entry_or_damage(path: Path, item: Record | Damage) -> Record | Damage:
    """A record that is whole and no entry was not written here."""
    if isinstance(item, Record):
        try:
            Entry.from_bytes(item.payload)
        except ValueError as error:
            return Damage(path, item.position, item.end, f"not an entry: {error}")
    return item
