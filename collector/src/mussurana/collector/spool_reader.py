"""The reading end of a spool: the fragments of a process that may still be writing, as a source for the sender.

What is damaged on disk leaves a hole in the sequence numbers, which a generated fragment fills that declares the loss:
a verifier never waits for a fragment that will not come.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from time import time_ns

from google.protobuf.message import DecodeError

from mussurana.collector.spool import FOLDER, read_database, read_secret
from mussurana.collector.write_ids import COUNTER_END
from mussurana.wire import PROTOCOL, TAG_MAX, counter_of, history_pb2, segments, tag_of

DAMAGED = "spool damaged"
REFUSED = "refused by the verifier"
REASON_CHARACTERS_MAX = 300

MISSING_MAX = 100_000
"""Fragments that are declared lost because their numbers are missing: more than a spool has room for. A number that is
further ahead is damage itself."""

SEQUENCE_MAX = 1 << 62
"""A verifier takes no larger ones either."""

CLOSED_MAX = 10_000
"""Sessions that ended in a fragment that was refused. Of further ones the verifier hears nothing any more, and after a
while takes them for silent."""


class SpoolReader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._identity = _identity(folder)
        self.durable_sequence = 0
        self.is_complete = False  # nothing will be added any more, and all of it has been read once: `last_sequence`
        self.last_sequence = 0  # that has been seen so far
        self._refused: dict[int, list[str]] = {}  # fragments that the verifier will not take, and why, each time

    @property
    def is_gone(self) -> bool:
        """Whether the folder was deleted. Its process may have made another one of that name."""
        return self._identity is None or _identity(self.folder) != self._identity

    @property
    def has_begun(self) -> bool:
        """Whether it says already who its collector is."""
        return next(self._hellos(), None) is not None

    @property
    def first_sequence(self) -> int:
        """The oldest fragment that is still here."""
        return next((hello.first_sequence for hello in self._hellos()), 1)

    def hello(self, first_sequence: int) -> bytes:
        hello = next(self._hellos(), None)
        if hello is None:
            collector, _ = name_of(self.folder)
            hello = history_pb2.Hello(protocol=PROTOCOL, collector=collector, recorded=read_database(self.folder))
        hello.first_sequence = first_sequence
        hello.secret = read_secret(self.folder)
        return history_pb2.Upload(hello=hello).SerializeToString()

    def read(self, after: int) -> Iterator[tuple[int, bytes] | None]:
        """The fragments after a sequence number, with theirs; None where the next one is not there yet."""
        expected = after + 1
        numbers = Numbers()
        _, tag = name_of(self.folder)
        settled = {tag: 1}
        position: segments.Position | None = None
        while True:
            if self._has_more(position):
                for found in segments.read_from(self.folder, position):
                    position = found.end
                    if isinstance(found, segments.Damage):
                        continue
                    upload = upload_in(found)
                    if upload is None or not numbers.take(upload) or not upload.HasField("fragment"):
                        continue
                    sequence = upload.fragment.sequence
                    self.last_sequence = max(self.last_sequence, sequence)
                    while expected < sequence:
                        yield expected, gap(expected, DAMAGED, settled)
                        expected += 1
                    if expected == sequence:
                        refused = self._refused.get(sequence)
                        yield sequence, gap_for(upload.fragment, refused, settled) if refused else found.payload
                        expected += 1
                    settled = {ids.tag: ids.settled for ids in upload.fragment.write_ids}
            yield None

    def refuse(self, sequence: int, why: str) -> None:
        """The verifier will never take this fragment: from now on a gap stands in its place."""
        self._refused.setdefault(sequence, []).append(f"{REFUSED}: {why}"[:REASON_CHARACTERS_MAX])

    def acknowledge(self, sequence: int) -> None:
        """Everything up to here is durable elsewhere: delete the segments that hold nothing else."""
        self.durable_sequence = max(self.durable_sequence, sequence)
        for number, following in pairwise(segments.segment_numbers(self.folder)):
            first_of_following = self._first_of(following)
            if first_of_following is None or first_of_following > self.durable_sequence + 1:
                return
            path = segments.segment_path(self.folder, number)
            path.unlink(missing_ok=True)
            path.with_suffix(".sessions").unlink(missing_ok=True)

    def _has_more(self, position: segments.Position | None) -> bool:
        if self.is_gone:
            raise FileNotFoundError(self.folder)
        if position is not None:
            with contextlib.suppress(FileNotFoundError):
                if segments.segment_path(self.folder, position.segment).stat().st_size > position.offset:
                    return True
        numbers = segments.segment_numbers(self.folder)
        return bool(numbers) and (position is None or numbers[-1] != position.segment)

    def _hellos(self) -> Iterator[history_pb2.Hello]:
        for found in segments.read_from(self.folder):
            upload = upload_in(found)
            if upload is not None and upload.WhichOneof("message") == "hello":
                yield upload.hello

    def _first_of(self, number: int) -> int | None:
        """The first fragment of a segment, which its Hello names; None if that cannot be read (yet)."""
        with open(segments.segment_path(self.folder, number), "rb") as file:
            head = file.read(segments.FILE_HEADER.size + segments.RECORD_HEADER.size)
            if len(head) < segments.FILE_HEADER.size + segments.RECORD_HEADER.size:
                return None
            _, length, _, _ = segments.RECORD_HEADER.unpack_from(head, segments.FILE_HEADER.size)
            payload = file.read(min(length, segments.RECORD_BYTES_MAX))
        try:
            return int(history_pb2.Upload.FromString(payload).hello.first_sequence) or None
        except DecodeError:
            return None


class Numbers:
    """The numbers of the fragments in a folder, as far as they may be those of its process: in order, and not too many
    of them missing."""

    def __init__(self) -> None:
        self.last = 0
        self._missing = 0
        self._begun = False

    def take(self, upload: history_pb2.Upload) -> bool:
        """Whether this comes next, or says what does."""
        is_hello = upload.HasField("hello")
        last = upload.hello.first_sequence - 1 if is_hello else upload.fragment.sequence
        is_first = is_hello and not self._begun  # which begins anywhere: what was before is durable elsewhere
        missing = 0 if is_first else max(0, last - self.last - (not is_hello))
        if self._missing + missing > MISSING_MAX:
            return False
        self._begun = True
        self._missing += missing
        self.last = max(self.last, last)
        return True


def upload_in(found: segments.Record | segments.Damage) -> history_pb2.Upload | None:
    """What a record holds; None for damage, and for a record that no process has spooled."""
    if isinstance(found, segments.Damage):
        return None
    try:
        upload = history_pb2.Upload.FromString(found.payload)
    except DecodeError:
        return None
    if upload.fragment.sequence > SEQUENCE_MAX or upload.hello.first_sequence > SEQUENCE_MAX // 2:  # room behind it
        return None
    return upload


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def name_of(folder: Path) -> tuple[bytes, int]:
    """The collector and its first tag, which a folder's name tells."""
    match = FOLDER.fullmatch(folder.name)
    if match is None:
        raise ValueError(f"{folder}: not the folder of a collector")
    return bytes.fromhex(match[1]), int(match[2], 16)


def gap(
    sequence: int,
    reason: str,
    settled: dict[int, int],
    ended: list[int] | None = None,
    kept: Collection[int] = (),
) -> bytes:
    """A fragment that says that all write ids from here on may be lost, but for those `kept`.

    With `ended` these sessions are over, and so is the collector.
    """
    fragment = history_pb2.Fragment(
        sequence=sequence,
        sealed_ns=time_ns(),
        session_event=[
            history_pb2.SessionEvent(what=history_pb2.SessionEvent.CLOSE, session=number) for number in ended or ()
        ],
        write_ids=[
            history_pb2.WriteIds(tag=tag, settled=counter if ended is None else COUNTER_END)
            for tag, counter in settled.items()
        ],
        gap=[
            history_pb2.Gap(
                reason=reason,
                session=ended,
                write_ids=[
                    history_pb2.WriteIdRange(tag=tag, first=first, end=end)
                    for tag, counter in settled.items()
                    for first, end in _between(counter, sorted(counter_of(k) for k in kept if tag_of(k) == tag))
                ],
            )
        ],
    )
    return history_pb2.Upload(fragment=fragment).SerializeToString()


def gap_for(refused: history_pb2.Fragment, reasons: list[str], settled: dict[int, int]) -> bytes:
    """A fragment in place of one that the verifier does not take: all write ids that may be in it are lost.

    `settled` is how far the one before it was with each tag. What ended in it has still ended. If this was refused as
    well, all that the process ever writes under its tags counts as lost, which needs nothing else of the fragment.
    """
    tags = [ids for ids in refused.write_ids if 0 < ids.tag <= TAG_MAX]
    closed = [event for event in refused.session_event if event.what == history_pb2.SessionEvent.CLOSE]
    is_first = len(reasons) == 1
    ranges = [
        history_pb2.WriteIdRange(
            tag=ids.tag,
            first=settled.get(ids.tag, 1) if is_first else 0,
            end=max(ids.drawn, ids.settled) if is_first and ids.drawn else COUNTER_END,
        )
        for ids in tags
    ]
    fragment = history_pb2.Fragment(
        sequence=refused.sequence,
        sealed_ns=refused.sealed_ns,
        session_event=closed[:CLOSED_MAX] if is_first else (),
        write_ids=tags if is_first else [history_pb2.WriteIds(tag=ids.tag) for ids in tags],
        gap=[
            history_pb2.Gap(reason=reasons[0], txn_count=refused.txn_count, write_ids=ranges),
            *(refused.gap if is_first else ()),
        ],
        collector_name=refused.collector_name,
    )
    return history_pb2.Upload(fragment=fragment).SerializeToString()


def _between(counter: int, kept: list[int]) -> Iterator[tuple[int, int]]:
    """The ranges from a counter to the last one that spare some."""
    for spared in kept:
        if spared > counter:
            yield counter, spared
        counter = max(counter, spared + 1)
    if counter < COUNTER_END:
        yield counter, COUNTER_END
