"""Spools of processes that are gone: found by their free lock, completed, shipped under their own name, deleted.

A process that was closed has left a complete history. One that was killed has not: what it had in memory is lost, and
its sessions were never closed. Its last fragment says up to which write ids all was spooled, so everything above is
declared as a gap: whoever read one of those cannot be checked, and nobody is accused. A folder without any fragment is
that of a process killed in its first tenth of a second; its name tells the tag, all of which is the gap.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import time, time_ns

from mussurana.collector.spool import FOLDER, SEGMENT_BYTES_MAX, UNFINISHED, folders, try_lock
from mussurana.collector.write_ids import COUNTER_END
from mussurana.wire import PROTOCOL, history_pb2, segments

UNFINISHED_SECONDS_MAX = 60.0
"""A folder is complete after a millisecond. One that is not after so long never will be."""

KILLED = "process killed"
DAMAGED = "spool damaged"


class AbandonedSpool:
    """A spool whose lock we hold, as a source for the sender."""

    is_complete = True

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock_file = lock
        match = FOLDER.fullmatch(folder.name)
        assert match is not None
        self._hello = history_pb2.Hello(
            protocol=PROTOCOL, collector=bytes.fromhex(match[1]), name="killed at its start"
        )
        self._first: int | None = None
        self.last_sequence = 0
        self.durable_sequence = 0
        self._settled = {int(match[2], 16): 1}
        self._open: set[int] = set()
        self._look_through()
        self._complete()

    @property
    def first_sequence(self) -> int:
        return 1 if self._first is None else self._first

    def hello(self, first_sequence: int, /) -> bytes:
        self._hello.first_sequence = first_sequence
        return history_pb2.Upload(hello=self._hello).SerializeToString()

    def read(self, after: int) -> Iterator[tuple[int, bytes] | None]:
        """The fragments after a sequence number. What is missing in between is declared to be."""
        expected = max(after + 1, self.first_sequence)
        settled: dict[int, int] = {}
        for found in segments.read_from(self.folder):
            if isinstance(found, segments.Damage):
                continue
            upload = history_pb2.Upload.FromString(found.payload)
            sequence = upload.fragment.sequence
            if upload.WhichOneof("message") == "fragment":
                while expected < sequence:
                    yield expected, _gap(expected, DAMAGED, settled or dict.fromkeys(self._settled, 1))
                    expected += 1
                if sequence == expected:
                    yield expected, found.payload
                    expected += 1
                settled = {ids.tag: ids.settled for ids in upload.fragment.write_ids}
        while True:
            yield None

    def wait(self, sequence: int, timeout_seconds: float) -> None:
        """There is nothing to wait for but acknowledgements, which are looked for after this."""

    def acknowledge(self, sequence: int) -> None:
        self.durable_sequence = max(self.durable_sequence, sequence)

    def close(self) -> None:
        """Let go of it; if all of it is durable elsewhere, it goes."""
        if self.durable_sequence >= self.last_sequence:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock_file)

    def _look_through(self) -> None:
        for found in segments.read_from(self.folder):
            if isinstance(found, segments.Damage):
                continue
            upload = history_pb2.Upload.FromString(found.payload)
            if upload.WhichOneof("message") == "hello":
                self._hello = upload.hello
                if self._first is None:
                    self._first = upload.hello.first_sequence
                    self.last_sequence = self._first - 1
                    self._open.update(_sessions_at(self.folder, found.position.segment))
                continue
            fragment = upload.fragment
            if self._first is None:
                self._first = fragment.sequence
            self.last_sequence = fragment.sequence
            self._settled = {ids.tag: ids.settled for ids in fragment.write_ids}
            for event in fragment.session_event:
                if event.what == history_pb2.SessionEvent.CLOSE:
                    self._open.discard(event.session)
                elif event.what == history_pb2.SessionEvent.OPEN:
                    self._open.add(event.session)

    def _complete(self) -> None:
        """Append what the process would have said at its end. Done before, it is not needed again."""
        if not self._open and all(counter == COUNTER_END for counter in self._settled.values()):
            return
        sequence = self.last_sequence + 1
        payload = _gap(sequence, KILLED, self._settled, sorted(self._open))
        appender = segments.Appender(self.folder, SEGMENT_BYTES_MAX)
        try:
            if self._first is None:
                appender.append([self.hello(sequence), payload])
                self._first = sequence
            else:
                appender.append([payload])
        finally:
            appender.close()
        self.last_sequence = sequence


def find_abandoned(root: Path) -> Iterator[AbandonedSpool]:
    """Take over what nobody holds, one at a time."""
    for folder in folders(root):
        lock = try_lock(folder)
        if lock is None:
            continue
        try:
            spool = AbandonedSpool(folder, lock)
        except Exception:
            os.close(lock)
            raise
        yield spool


def remove_unfinished(root: Path) -> None:
    """Folders of processes that were killed before they had made them; nothing is in them."""
    for path in root.glob(UNFINISHED + "*"):
        if time() - path.stat().st_mtime > UNFINISHED_SECONDS_MAX:
            shutil.rmtree(path, ignore_errors=True)


def _sessions_at(folder: Path, segment: int) -> list[int]:
    try:
        text = segments.segment_path(folder, segment).with_suffix(".sessions").read_text()
    except FileNotFoundError:
        return []
    return [int(word) for word in text.split() if word.isdecimal()]


def _gap(sequence: int, reason: str, settled: dict[int, int], sessions: list[int] | None = None) -> bytes:
    """A fragment that says that all write ids from here on may be lost, and that these sessions are over."""
    fragment = history_pb2.Fragment(
        sequence=sequence,
        sealed_ns=time_ns(),
        session_event=[
            history_pb2.SessionEvent(what=history_pb2.SessionEvent.CLOSE, session=number) for number in sessions or ()
        ],
        write_ids=[
            history_pb2.WriteIds(tag=tag, settled=COUNTER_END if sessions is not None else counter)
            for tag, counter in settled.items()
        ],
        gap=[
            history_pb2.Gap(
                reason=reason,
                session=sessions,
                write_ids=[
                    history_pb2.WriteIdRange(tag=tag, first=counter, end=COUNTER_END)
                    for tag, counter in settled.items()
                    if counter < COUNTER_END
                ],
            )
        ],
    )
    return history_pb2.Upload(fragment=fragment).SerializeToString()
