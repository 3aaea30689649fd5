"""The spool: where fragments are before and until a verifier has them, and where they stay without one.

    <spool>/                                   one per user or application; ours alone: see spool_folder.py
        shipper.lock                           held by the process that ships, if there is one: see shipper.py
        <collector>-<tag>/                     one per process: 32 and 8 hexadecimal digits
            lock                               held (flock) as long as the process lives
            destination                        where it shall be shipped, as JSON: see `Destination`
            secret                             32 random bytes, mode 0600, which prove to the verifier who this is
            database                           which one is recorded, as a serialized Database; not there if not known
            refused                            a sentence, if the verifier does not take what comes from here
            shipped                            what the shipper tells the process: see `Shipped`
            journal-0, journal-1               what is not in the segments yet: see journal.py
            00000001.seg                       checked records (wire/segments.py), each a serialized Upload;
            00000002.seg                       the first of each segment is a Hello, the others are fragments
            00000002.sessions                  numbers of the sessions that were open when segment 2 began

The folder's name declares the first tag of the process before any of its write ids can reach the database, and it
appears complete, with its lock held, by a rename. A folder whose lock is free is that of a process that is gone: see
abandoned.py.

What is appended has been handed to the operating system: it survives the end of the process. It survives the end of
the machine once its segment is full, since only full segments are synced; what is lost then is found by its absence.

Folders of several databases may stand in one spool; the limit of its size is for those of each.

Somebody may delete all of it while the process lives. That is noticed before the next fragment (`is_there`), which
then goes into a folder of the same name, and has the sequence number that it would have had: what was not shipped is
missed by its number.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from mussurana.collector.settings import Settings
from mussurana.collector.spool_folder import own_folder, write_private
from mussurana.collector.which_database import NOT_KNOWN_YET, RecordedDatabase
from mussurana.wire import history_pb2, segments

SEGMENT_BYTES_MAX = 1 << 20
"""A segment is the unit of deletion, and what the shipper reads at a time."""

GAP_BYTES_RESERVED = 64 << 10
"""A full spool still has room for fragments that declare what was dropped, and as much again for the last one."""

FRAGMENT_BYTES_MAX = 32 << 20
"""One transaction may be large, but not larger than what segments and verifiers take."""

FOLDER = re.compile(r"([0-9a-f]{32})-([0-9a-f]{8})")
LOCK, DESTINATION, SHIPPED, SECRET = "lock", "destination", "shipped", "secret"
DATABASE, REFUSED = "database", "refused"
SECRET_BYTES = 32
UNFINISHED = ".new-"
SUFFIX = ".seg"


class SpoolFull(Exception):
    """There is no room; nothing was written."""


@dataclass(frozen=True)
class Destination:
    """Where fragments go: those settings that a shipper needs, with absolute paths."""

    verifier: str
    token_file: str
    tls: bool
    tls_ca_file: str
    tls_certificate_file: str
    tls_key_file: str

    @classmethod
    def of(cls, settings: Settings) -> Destination:
        def absolute(path: str) -> str:
            return os.path.abspath(path) if path else ""

        return cls(
            settings.verifier,
            absolute(settings.token_file),
            settings.tls,
            absolute(settings.tls_ca_file),
            absolute(settings.tls_certificate_file),
            absolute(settings.tls_key_file),
        )

    @classmethod
    def read(cls, folder: Path) -> Destination:
        """Raises OSError, ValueError or TypeError where it cannot be read."""
        try:
            return cls(**json.loads((folder / DESTINATION).read_text()))
        except RecursionError:
            raise ValueError(f"{folder / DESTINATION}: nested too deeply") from None


@dataclass
class Shipped:
    """How far the shipper is with a folder. 32 bytes, written in place: four int64, in this order."""

    durable_sequence: int = 0
    bytes_sent: int = 0
    connections_failed: int = 0
    is_connected: int = 0

    LAYOUT = struct.Struct("<4q")

    def write(self, folder: Path) -> None:
        handle = os.open(folder / SHIPPED, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            content = (self.durable_sequence, self.bytes_sent, self.connections_failed, self.is_connected)
            os.pwrite(handle, self.LAYOUT.pack(*content), 0)
        finally:
            os.close(handle)

    @classmethod
    def read(cls, folder: Path) -> Shipped:
        try:
            content = (folder / SHIPPED).read_bytes()
        except OSError:
            return cls()
        return cls(*cls.LAYOUT.unpack(content)) if len(content) == cls.LAYOUT.size else cls()


def make_folder(
    settings: Settings, collector: bytes, tag: int, database: RecordedDatabase = NOT_KNOWN_YET
) -> tuple[Path, int]:
    """Make the folder of this process, with its lock held; return it and the lock's file descriptor."""
    root = own_folder(Path(settings.spool))
    unfinished = root / (UNFINISHED + collector.hex())
    unfinished.mkdir(mode=0o700)
    lock = os.open(unfinished / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_private(unfinished / DESTINATION, json.dumps(asdict(Destination.of(settings))))
        _write_private_bytes(unfinished / SECRET, os.urandom(SECRET_BYTES))
        if database.identity:
            _write_private_bytes(unfinished / DATABASE, database_message(database).SerializeToString())
        folder = root / f"{collector.hex()}-{tag:08x}"
        unfinished.rename(folder)
    except OSError:
        os.close(lock)
        raise
    return folder, lock


def _write_private_bytes(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)


def database_message(database: RecordedDatabase) -> history_pb2.Database:
    return history_pb2.Database(identity=database.identity, name=database.name)


def read_database(folder: Path) -> history_pb2.Database:
    """Which one the collector of a folder records; empty if it does not say, or cannot be read."""
    try:
        return history_pb2.Database.FromString((folder / DATABASE).read_bytes())
    except (OSError, DecodeError):
        return history_pb2.Database()


def read_secret(folder: Path) -> bytes:
    """What the collector of a folder comes to a verifier with; empty for one of before there were secrets."""
    try:
        with open(folder / SECRET, "rb") as file:
            return file.read(SECRET_BYTES)
    except FileNotFoundError:
        return b""


def read_refusal(folder: Path) -> str:
    """What the verifier says against all that comes from a folder; empty if it takes it."""
    try:
        return (folder / REFUSED).read_text(errors="replace")
    except OSError:
        return ""


def try_lock(path: Path) -> int | None:
    """The lock in a file that nobody holds, or None: somebody does, or it has vanished."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
                if entry.name.endswith(SUFFIX):  # the others are small, or have limits of their own
                    size += entry.stat().st_size
    except FileNotFoundError:
        pass  # shipped and deleted while we looked
    return size


class Spool:
    """The writing end: the fragments of this process. The shipper reads, and deletes segments that it has shipped."""

    def __init__(
        self, folder: Path, lock: int, hello: Callable[[int], bytes], bytes_max: int, segment_bytes_max: int
    ) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self.size = 0  # bytes below the root, all folders: as measured last, and what was appended since
        self.last_sequence = 0
        self._database = read_database(folder)
        self._hello = hello  # makes the Hello of a segment, given its first fragment
        self._lock_file = lock
        self._appender = segments.Appender(folder, segment_bytes_max)
        self._is_new = False  # the next fragment is the first of a segment, though there is room

    def append(self, payload: bytes, open_sessions: list[int], reserve: int = 0) -> None:
        """Add the fragment with the next sequence number. SpoolFull or OSError: it was not added."""
        room = self.bytes_max + reserve - self.size
        if len(payload) > min(room, FRAGMENT_BYTES_MAX):
            raise SpoolFull
        number = self._appender.number
        framed = len(payload) + segments.RECORD_HEADER.size
        if self._is_new:
            self._appender.abandon()
        if number == 0 or self._is_new or self._appender.size + framed > self._appender.segment_bytes_max:
            path = segments.segment_path(self.folder, number + 1).with_suffix(".sessions")
            write_private(path, " ".join(map(str, open_sessions)))
            self._appender.append([self._hello(self.last_sequence + 1), payload])
        else:
            self._appender.append([payload])
        self._is_new = False
        self.size += framed
        self.last_sequence += 1

    def is_there(self) -> bool:
        """Whether what was appended last can still be found where it was put."""
        return self.has_folder() and not self._appender.is_deleted

    def has_folder(self) -> bool:
        try:
            held, found = os.fstat(self._lock_file), os.stat(self.folder / LOCK)
        except OSError:
            return False
        return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)

    def begin_segment(self) -> None:
        """The next fragment goes into a new segment."""
        self._is_new = True

    def begin_anew(self, folder: Path, lock: int) -> None:
        """Go on in another folder."""
        self.close()
        self.folder, self._lock_file = folder, lock
        self._appender = segments.Appender(folder, self._appender.segment_bytes_max)

    def measure(self) -> None:
        """See how much there is: the limit is for all processes that share the root and record the same database.

        Not for all databases together, or one that no verifier takes would leave no room for the others.
        """
        same = (each for each in folders(self.folder.parent) if read_database(each).identity == self._database.identity)
        self.size = sum(map(bytes_in, same))

    def close(self) -> None:
        """Close the files. In a forked child they belong to the parent, which keeps the lock."""
        self._appender.close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1
