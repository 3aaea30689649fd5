"""Checkpoints: where the machine stood at a place in the log, so that a restart need not verify everything again.

`00000012.ckpt`, little-endian:

    0   8  magic 89 4D 55 53 43 0D 0A 1A
    8   4  version, 1
    12  4  CRC-32 of what follows
    16  8  bytes of the description
    24     the description, JSON in UTF-8 (`Checkpoint` without `state`); then the state of the machine

Each is written to a new file, synced and renamed; the one before stays, and the log and journal that it needs stay with
it. One that is damaged is passed over in favour of the one before.
"""

from __future__ import annotations

import json
import logging
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from mussurana.verifier.daemon.files import write_atomically
from mussurana.verifier.daemon.log import START
from mussurana.verifier.daemon.sequences import Last, Sequences
from mussurana.verifier.rounds.bounds import TIME_NS_MAX
from mussurana.verifier.rounds.stored import conforms
from mussurana.wire.segments import Position

MAGIC = b"\x89MUSC\r\n\x1a"
VERSION = 1
HEADER = struct.Struct("<8sIIQ")
KEPT = 2
DESCRIPTION_BYTES_MAX = 64 << 20
"""Some hundred thousand collectors. A length beyond that is damage, and must not be allocated."""

logger = logging.getLogger(__name__)


class CheckpointError(Exception):
    """A checkpoint that cannot be used. The message names the file and says why."""


@dataclass(frozen=True)
class Checkpoint:
    log: Position  # everything before has been fed
    journal: Position  # all steps before are in the state
    step: int  # the last one of them
    now_ns: int  # when it was made
    machine_ns: int  # the last time that the machine was told, which is earlier if it was behind
    levels: list[str]  # what is being verified, as text that is compared
    fed: Sequences  # what has been fed of each collector
    state: bytes  # of the machine

    @property
    def is_possible(self) -> bool:
        """Whether this program may have made it."""
        numbers, places = [self.step, self.now_ns, self.machine_ns], (self.log, self.journal)
        return (
            conforms(numbers, list[int])
            and min(numbers) >= 0
            and max(numbers[1:]) <= TIME_NS_MAX
            and conforms(self.levels, list[str])
            and conforms(places, tuple[Position, Position])
            and all(each.is_possible for each in places)
        )

    def to_bytes(self) -> list[bytes]:
        description = json.dumps(
            {
                "log": [self.log.segment, self.log.offset],
                "journal": [self.journal.segment, self.journal.offset],
                "step": self.step,
                "now_ns": self.now_ns,
                "machine_ns": self.machine_ns,
                "levels": self.levels,
                "fed": [[collector.hex(), last.sequence, last.received_ns] for collector, last in self.fed.items()],
                "secrets": {collector.hex(): last.secret.hex() for collector, last in self.fed.items() if last.secret},
            }
        ).encode()
        length = struct.pack("<Q", len(description))
        crc32 = zlib.crc32(self.state, zlib.crc32(description, zlib.crc32(length)))
        return [MAGIC, struct.pack("<II", VERSION, crc32), length, description, self.state]

    @staticmethod
    def from_bytes(content: bytes) -> Checkpoint:
        if len(content) < HEADER.size:
            raise CheckpointError("it is too short")
        magic, version, crc32, length = HEADER.unpack_from(content)
        if magic != MAGIC:
            raise CheckpointError("it is not a checkpoint")
        if version != VERSION:
            raise CheckpointError(f"it has version {version}, and this program knows {VERSION}")
        if zlib.crc32(memoryview(content)[16:]) != crc32:
            raise CheckpointError("its content does not match its checksum")
        try:
            about = json.loads(content[HEADER.size : HEADER.size + length])
            secrets = about.get("secrets", {})
            fed = {
                bytes.fromhex(collector): Last(sequence, time_ns, bytes.fromhex(secrets.get(collector, "")))
                for collector, sequence, time_ns in about["fed"]
            }
            found = Checkpoint(
                log=Position(*about["log"]),
                journal=Position(*about["journal"]),
                step=about["step"],
                now_ns=about["now_ns"],
                machine_ns=about["machine_ns"],
                levels=about["levels"],
                fed=Sequences(fed),
                state=content[HEADER.size + length :],
            )
            if not all(conforms(last, Last) and last.is_possible for last in fed.values()) or not found.is_possible:
                raise ValueError("a number in it is none")
            return found
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CheckpointError(f"its description is not one: {type(error).__name__}: {error}") from error


class Checkpoints:
    """The checkpoints in a directory. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.damaged: list[str] = []  # those that were passed over, and why
        self._passed_over: set[int] = set()
        self.written_ns = 0
        self.size_bytes = 0
        self._kept: list[tuple[int, Position, Position]] = []  # number, places in the log and in the journal

    def load(self) -> Checkpoint | None:
        """The newest one that is whole and was not passed over, if there is any."""
        numbers = sorted(set(self._numbers()) - self._passed_over)
        while numbers:
            number = numbers.pop()
            path = self._path(number)
            try:
                content = path.read_bytes()
                found = Checkpoint.from_bytes(content)
            except (OSError, CheckpointError) as error:
                self._pass_over(number, str(error))
                continue
            self.written_ns, self.size_bytes = found.now_ns, len(content)
            self._kept = [*self._places(numbers[-1:]), (number, found.log, found.journal)]
            return found
        self.written_ns, self.size_bytes, self._kept = 0, 0, []
        return None

    def before(self, why: str) -> Checkpoint | None:
        """The one before the last that was loaded, which turned out to be of no use."""
        self._pass_over(self._kept[-1][0], why)
        return self.load()

    def _pass_over(self, number: int, why: str) -> None:
        self._passed_over.add(number)
        self.damaged.append(f"{self._path(number)}: {why}")
        logger.error("checkpoint passed over: %s: %s", self._path(number), why, extra={"event": "checkpoint_damaged"})

    def _places(self, numbers: list[int]) -> list[tuple[int, Position, Position]]:
        """Of checkpoints that are only kept in case: where they stand, without reading all of them."""
        found = []
        for number in numbers:
            try:
                with self._path(number).open("rb") as file:
                    *_, length = HEADER.unpack(file.read(HEADER.size))
                    about = json.loads(file.read(min(length, DESCRIPTION_BYTES_MAX)))
                places = Position(*about["log"]), Position(*about["journal"])
                if conforms(places, tuple[Position, Position]) and all(each.is_possible for each in places):
                    found.append((number, *places))
            except (OSError, ValueError, KeyError, TypeError, RecursionError, struct.error):
                continue  # it is of no use, and goes with the next one that is written
        return found

    def write(self, checkpoint: Checkpoint) -> None:
        """Make it durable, then let go of all but the one before. OSError leaves things as they were."""
        number = max(self._numbers(), default=0) + 1
        parts = checkpoint.to_bytes()
        write_atomically(self._path(number), parts)
        self.written_ns, self.size_bytes = checkpoint.now_ns, sum(map(len, parts))
        self._kept = [*self._kept, (number, checkpoint.log, checkpoint.journal)][-KEPT:]
        for old in self._numbers():
            if all(old != kept for kept, _, _ in self._kept):
                self._path(old).unlink(missing_ok=True)

    @property
    def log_needed(self) -> Position:
        """What is before this in the log is not needed by any checkpoint that is kept."""
        return min((log for _, log, _ in self._kept), default=START) if len(self._kept) >= KEPT else START

    @property
    def journal_needed(self) -> Position:
        return min((journal for _, _, journal in self._kept), default=START) if len(self._kept) >= KEPT else START

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self.directory.glob("*.ckpt") if path.stem.isdecimal()]

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:08d}.ckpt"
