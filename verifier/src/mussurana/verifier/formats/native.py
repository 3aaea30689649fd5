"""Our own format, `.mus`: columns in checked blocks. docs/format.md has every byte; this is the same in short.

Little-endian. A file is a header, then blocks. Each block can be checked and understood as soon as it has arrived,
given the blocks before it, and can be written with nothing but `struct` and `zlib`.

    header, 16 bytes                       block, 24 bytes and its payload
    0   8  magic 89 4D 55 53 0D 0A 1A 0A   0   4  kind, ASCII
    8   4  version, 1                      4   4  number of the block, from 0
    12  4  CRC-32 of bytes 0 .. 12         8   8  bytes in the payload, a multiple of 8
                                           16  4  CRC-32 of the payload
                                           20  4  CRC-32 of bytes 0 .. 20 of this block

Two checksums, because a wrong length would have the payload checked in the wrong place. The number finds blocks that
are missing, repeated or swapped. Every column is filled up to a multiple of 8 bytes with zeros.

    SESS, KEYS, TXNN   names of sessions, keys, transactions: count (8), length of each (4), all in UTF-8
    VALS               names of values: count (8), values (8 each), lengths (4 each), all in UTF-8
    NOTE               what was left out: count (8), how many of each (8), lengths (4 each), all in UTF-8
    TXNS               transactions, see `TXNS_HEADER` and `_transactions_payload`
    DONE               last: transactions, operations, list elements, sessions, keys (8 each)

Names continue the numbering of the blocks of their kind before them, and come before their first use.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mussurana.verifier.formats.names import PackedNames, join_names
from mussurana.verifier.formats.places import bad_byte
from mussurana.verifier.history import (
    INITIAL,
    NO_ISOLATION,
    NO_ROW,
    NO_VALUE,
    UNKNOWN_TIME,
    History,
    HistoryError,
    Ints,
    Isolation,
    Kind,
    LeftOut,
    Status,
    offsets,
)

MAGIC = b"\x89MUS\r\n\x1a\n"
"""Not text (first byte), and damaged visibly by whoever converts line ends or stops at an end-of-file character."""
VERSION = 1

FILE_HEADER = struct.Struct("<8sII")
BLOCK_HEADER = struct.Struct("<4sIQII")
DONE = struct.Struct("<5Q")

TXNS_HEADER = struct.Struct("<IIQQ")
"""Transactions, which optional columns follow (a sum of the bits below), operations, list elements."""
BEGIN, BEGUN, COMMIT, COMMITTED, PREVIOUS, LISTS, ISOLATION = (1 << bit for bit in range(7))
TIMES = (BEGIN, BEGUN, COMMIT, COMMITTED)

TXNS_PER_BLOCK = 65_536
PIECE_BYTES = 1 << 24  # read at once; blocks are seldom larger
"""Large enough for the header to cost nothing, small enough for a reader to hold one block of any history."""

Column = npt.NDArray[Any]


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 8)


def _column(values: npt.ArrayLike, dtype: str) -> bytes:
    return _padded(np.ascontiguousarray(values, dtype).tobytes())


def _names_payload(names: Sequence[str], numbers: Ints | None = None) -> bytes:
    try:
        encoded = [name.encode("utf-8") for name in names]
    except UnicodeEncodeError as error:
        raise HistoryError(f"mussurana has no way to write the name {error.object!r}: it is not Unicode text") from None
    parts = [struct.pack("<Q", len(encoded))]
    if numbers is not None:
        parts.append(_column(numbers, "<i8"))
    parts.append(_column([len(name) for name in encoded], "<u4"))
    parts.append(_padded(b"".join(encoded)))
    return b"".join(parts)


def _transactions_payload(history: History, first: int, last: int) -> bytes:
    """The columns of transactions first .. last. Optional ones are left out where they would say nothing.

    session (4), status (1), number of operations (4), the four times (8 each, where any is known);
    kind (1), key (4), value (8), replaced version (8, where any is known), list length (4, where there are lists);
    list elements (8); isolation (1, where any is known).
    """
    op_first, op_last = int(history.op_start[first]), int(history.op_start[last])
    list_first, list_last = int(history.list_start[op_first]), int(history.list_start[op_last])
    txns, ops = slice(first, last), slice(op_first, op_last)
    times = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
    present = sum(bit for bit, time in zip(TIMES, times, strict=True) if np.any(time[txns] != UNKNOWN_TIME))
    present |= PREVIOUS if np.any(history.previous[ops] != NO_VALUE) else 0
    present |= LISTS if np.any(history.kind[ops] == Kind.READ_LIST) else 0
    present |= ISOLATION if np.any(history.isolation[txns]) else 0
    parts = [
        TXNS_HEADER.pack(last - first, present, op_last - op_first, list_last - list_first),
        _column(history.session[txns], "<u4"),
        _column(history.status[txns], "u1"),
        _column(np.diff(history.op_start[first : last + 1]), "<u4"),
        *(_column(time[txns], "<i8") for bit, time in zip(TIMES, times, strict=True) if present & bit),
        _column(history.kind[ops], "u1"),
        _column(history.key[ops], "<u4"),
        _column(history.value[ops], "<i8"),
    ]
    if present & PREVIOUS:
        parts.append(_column(history.previous[ops], "<i8"))
    if present & LISTS:
        parts.append(_column(np.diff(history.list_start[op_first : op_last + 1]), "<u4"))
    parts.append(_column(history.list_value[list_first:list_last], "<i8"))
    if present & ISOLATION:
        parts.append(_column(history.isolation[txns], "u1"))
    return b"".join(parts)


def _blocks(history: History) -> Iterator[tuple[bytes, bytes]]:
    yield b"SESS", _names_payload(history.session_names)
    yield b"KEYS", _names_payload(history.key_names)
    if history.txn_names:
        yield b"TXNN", _names_payload(history.txn_names)
    if history.value_names:
        numbers = np.fromiter(history.value_names, np.int64, len(history.value_names))
        yield b"VALS", _names_payload(list(history.value_names.values()), numbers)
    if history.left_out:
        counts = np.array([note.count for note in history.left_out], np.int64)
        yield b"NOTE", _names_payload([note.what for note in history.left_out], counts)
    for first in range(0, history.txn_count, TXNS_PER_BLOCK):
        yield b"TXNS", _transactions_payload(history, first, min(first + TXNS_PER_BLOCK, history.txn_count))
    yield (
        b"DONE",
        _padded(
            DONE.pack(
                history.txn_count,
                history.op_count,
                len(history.list_value),
                len(history.session_names),
                len(history.key_names),
            )
        ),
    )


def write(history: History, path: Path) -> tuple[LeftOut, ...]:
    for names in (history.session_names, history.key_names):
        if len(set(names)) < len(names):
            raise HistoryError("mussurana has no way to write two sessions or two keys of the same name")
    start = FILE_HEADER.pack(MAGIC, VERSION, 0)[:12]
    with path.open("wb") as file:
        file.write(start + struct.pack("<I", zlib.crc32(start)))
        for number, (kind, payload) in enumerate(_blocks(history)):
            head = BLOCK_HEADER.pack(kind, number, len(payload), zlib.crc32(payload), 0)[:20]
            file.write(head + struct.pack("<I", zlib.crc32(head)))
            file.write(payload)
    return ()


class Payload:
    """Takes columns off a block, and knows where in the file they are."""

    def __init__(self, path: Path, kind: str, content: bytes, offset: int) -> None:
        self.path = path
        self.kind = kind
        self.offset = offset
        self._content = content
        self._at = 0

    def error(self, message: str, place: int | None = None) -> HistoryError:
        return bad_byte(self.path, self.offset if place is None else place, f"{self.kind} block: {message}")

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        if self._at + layout.size > len(self._content):
            raise self.error("it is too short for its counts")
        values: tuple[int, ...] = layout.unpack_from(self._content, self._at)
        self._at += layout.size
        return values

    def column(self, dtype: str, count: int) -> tuple[Column, int]:
        """The next column, and the place where it starts."""
        size = np.dtype(dtype).itemsize
        if self._at + count * size > len(self._content):
            raise self.error(f"it is too short for {count} entries of {size} bytes", self.offset + self._at)
        column = np.frombuffer(self._content, dtype, count, self._at)
        place = self.offset + self._at
        self._at += count * size + -count * size % 8
        return column, place

    def names(self, count: int) -> PackedNames:
        lengths, place = self.column("<u4", count)
        start = offsets(lengths)
        content, text_place = self.column("u1", int(start[-1]))
        packed = content.tobytes()
        try:
            packed.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error("expected names in UTF-8", text_place + error.start) from None
        inside = start[:-1][start[:-1] < len(packed)]
        split = np.flatnonzero((content[inside] & 0xC0) == 0x80)  # a name that starts within a character
        if len(split):
            raise self.error("a name ends within a character", place + 4 * int(split[0]))
        return PackedNames(packed, start)

    def finish(self) -> None:
        if self._at != len(self._content):
            raise self.error(f"expected {self._at} bytes, found {len(self._content)}")

    def check(self, bad: Column, place: int, size: int, message: str) -> None:
        """Raise for the first entry of a column that is marked as bad."""
        if bad.any():
            raise self.error(message, place + int(np.argmax(bad)) * size)


class Reader:
    """Takes blocks one by one and holds what they have said so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = False
        self._names: dict[str, list[PackedNames]] = {"SESS": [], "KEYS": [], "TXNN": []}
        self._named = dict.fromkeys(self._names, 0)
        self._value_names: dict[int, str] = {}
        self._left_out: list[LeftOut] = []
        self._columns: dict[str, list[Column]] = {}
        self._totals = [0, 0, 0]  # transactions, operations, list elements

    def take(self, block: Payload) -> None:
        if self.done:
            raise block.error("expected nothing after the DONE block")
        if block.kind in self._names:
            self._take_names(block)
        elif block.kind == "VALS":
            self._take_value_names(block)
        elif block.kind == "NOTE":
            (count,) = block.numbers(struct.Struct("<Q"))
            counts, _ = block.column("<u8", count)
            names = block.names(count)
            self._left_out.extend(LeftOut(what, int(n)) for what, n in zip(names, counts, strict=True))
        elif block.kind == "TXNS":
            self._take_transactions(block)
        elif block.kind == "DONE":
            self._take_done(block)
        else:
            raise block.error("expected SESS, KEYS, TXNN, VALS, NOTE, TXNS or DONE")
        block.finish()

    def _take_names(self, block: Payload) -> None:
        (count,) = block.numbers(struct.Struct("<Q"))
        if block.kind == "TXNN" and self._named["TXNN"] < self._totals[0]:
            raise block.error("names of transactions come before the transactions")
        names = block.names(count)
        self._names[block.kind].append(names)
        self._named[block.kind] += count

    def _take_value_names(self, block: Payload) -> None:
        (count,) = block.numbers(struct.Struct("<Q"))
        values, place = block.column("<i8", count)
        for i, (value, name) in enumerate(zip(values.tolist(), block.names(count), strict=True)):
            if value in self._value_names:
                raise block.error(f"value {value} is named twice", place + 8 * i)
            self._value_names[value] = name

    def _take_transactions(self, block: Payload) -> None:
        txns, present, ops, elements = block.numbers(TXNS_HEADER)
        if present >= ISOLATION << 1:
            raise block.error(f"expected a sum of the bits 1 to {ISOLATION} for the optional columns, found {present}")
        if self._named["TXNN"] and self._named["TXNN"] < self._totals[0] + txns:
            raise block.error("names of transactions are missing: either all have one or none")

        session, place = block.column("<u4", txns)
        block.check(session >= self._named["SESS"], place, 4, "this session has no name")
        status, place = block.column("u1", txns)
        block.check(status > max(Status), place, 1, "expected a status from 0 to 2")
        op_count, place = block.column("<u4", txns)
        if int(op_count.sum(dtype=np.int64)) != ops:
            raise block.error(f"the transactions have other than {ops} operations", place)
        times = [block.column("<i8", txns)[0] if present & bit else np.full(txns, UNKNOWN_TIME) for bit in TIMES]

        kind, place = block.column("u1", ops)
        block.check(kind > max(Kind), place, 1, "expected a kind of operation from 0 to 3")
        key, place = block.column("<u4", ops)
        block.check(key >= self._named["KEYS"], place, 4, "this key has no name")
        value, value_place = block.column("<i8", ops)
        is_write = (kind == Kind.WRITE) | (kind == Kind.APPEND)
        reserved = (value == NO_VALUE) | (value == NO_ROW) | (is_write & (value == INITIAL))
        block.check(reserved, value_place, 8, "this number cannot be a version")
        previous: Column = np.full(ops, NO_VALUE, np.int64)
        if present & PREVIOUS:
            previous, place = block.column("<i8", ops)
            block.check(~is_write & (previous != NO_VALUE), place, 8, "only a write can replace a version")
            block.check((kind == Kind.APPEND) & (previous == NO_ROW), place, 8, "a list is not a row")
        length: Column = np.zeros(ops, np.int64)
        place = value_place
        if present & LISTS:
            length, place = block.column("<u4", ops)
            block.check((kind != Kind.READ_LIST) & (length > 0), place, 4, "only a read of a list can see one")
        start = offsets(length)
        if int(start[-1]) != elements:
            raise block.error(f"the reads of lists see other than {elements} elements", place)
        element, place = block.column("<i8", elements)
        block.check((element == INITIAL) | (element == NO_VALUE), place, 8, "this number cannot be a version")
        last = np.full(ops, INITIAL, np.int64)
        last[length > 0] = element[start[1:][length > 0] - 1]
        wrong = (kind == Kind.READ_LIST) & (value != last)
        block.check(wrong, value_place, 8, "expected the last element of the list that was read")

        isolation: Column = np.zeros(txns, np.uint8)
        if present & ISOLATION:
            isolation, place = block.column("u1", txns)
            block.check(isolation > max(Isolation), place, 1, "expected an isolation level from 0 to 4")

        columns = (session, status, op_count, *times, kind, key, value, previous, length, element, isolation)
        for name, column in zip(COLUMNS, columns, strict=True):
            self._columns.setdefault(name, []).append(column)
        self._totals = [total + n for total, n in zip(self._totals, (txns, ops, elements), strict=True)]

    def _take_done(self, block: Payload) -> None:
        expected = block.numbers(DONE)
        found = (*self._totals, self._named["SESS"], self._named["KEYS"])
        for what, total, n in zip(
            ("transactions", "operations", "list elements", "sessions", "keys"), expected, found, strict=True
        ):
            if total != n:
                raise block.error(f"expected {total} {what}, found {n}")
        if self._named["TXNN"] not in (0, self._totals[0]):
            raise block.error(f"expected names for {self._totals[0]} transactions, found {self._named['TXNN']}")
        for kind, what in (("SESS", "sessions"), ("KEYS", "keys")):
            names = join_names(self._names[kind])
            if len(set(names)) < len(names):
                raise block.error(f"two {what} have the same name")
        self.done = True

    def finish(self) -> History:
        columns = {
            name: np.concatenate([np.zeros(0, dtype), *self._columns.get(name, [])]).astype(dtype, copy=False)
            for name, dtype in COLUMNS.items()
        }
        return History(
            session=columns["session"],
            status=columns["status"],
            begin_ns=columns["begin_ns"],
            begun_ns=columns["begun_ns"],
            commit_ns=columns["commit_ns"],
            committed_ns=columns["committed_ns"],
            op_start=offsets(columns["op_count"]),
            kind=columns["kind"],
            key=columns["key"],
            value=columns["value"],
            previous=columns["previous"],
            list_start=offsets(columns["list_length"]),
            list_value=columns["list_value"],
            session_names=list(join_names(self._names["SESS"])),
            key_names=join_names(self._names["KEYS"]),
            txn_names=join_names(self._names["TXNN"]) if self._named["TXNN"] else (),
            value_names=self._value_names,
            left_out=tuple(self._left_out),
            source=str(self.path),
            isolation=columns["isolation"] if columns["isolation"].any() else NO_ISOLATION,
        )


COLUMNS: dict[str, Any] = {
    "session": np.int32,
    "status": np.uint8,
    "op_count": np.int64,
    "begin_ns": np.int64,
    "begun_ns": np.int64,
    "commit_ns": np.int64,
    "committed_ns": np.int64,
    "kind": np.uint8,
    "key": np.int32,
    "value": np.int64,
    "previous": np.int64,
    "list_length": np.int64,
    "list_value": np.int64,
    "isolation": np.uint8,
}


def read(path: Path) -> History:
    with path.open("rb") as file:
        return read_stream(file, path)


def read_stream(file: BinaryIO, path: Path) -> History:
    """Read block by block; `path` is for messages."""
    reader = Reader(path)
    _read_header(path, file.read(FILE_HEADER.size))
    at = FILE_HEADER.size
    number = 0
    while head := file.read(BLOCK_HEADER.size):
        kind, length = _read_block_header(path, head, at, number)
        at += BLOCK_HEADER.size
        content = _read_content(file, length)
        if len(content) < length:
            raise bad_byte(path, at, f"{kind} block: expected {length} bytes, but the file ends after {len(content)}")
        if zlib.crc32(content) != struct.unpack_from("<I", head, 16)[0]:
            raise bad_byte(path, at, f"{kind} block: the checksum of its content is wrong; the file is damaged")
        reader.take(Payload(path, kind, content, at))
        at += length
        number += 1
    if not reader.done:
        raise bad_byte(path, at, "expected another block, but the file ends without a DONE block; it is cut off")
    return reader.finish()


def _read_content(file: BinaryIO, length: int) -> bytes:
    """So many bytes, or what there is. In pieces: asked for too many at once, Python makes room for all of them."""
    content = file.read(min(length, PIECE_BYTES))
    while len(content) < length and (piece := file.read(min(length - len(content), PIECE_BYTES))):
        content += piece
    return content


def _read_header(path: Path, head: bytes) -> None:
    if not head.startswith(MAGIC[: len(head)]) or not head:
        raise bad_byte(path, 0, f"expected {MAGIC!r}, with which every mussurana file starts")
    if len(head) < FILE_HEADER.size:
        raise bad_byte(path, len(head), "the file ends within its header")
    _, version, checksum = FILE_HEADER.unpack(head)
    if zlib.crc32(head[:12]) != checksum:
        raise bad_byte(path, 12, "the checksum of the header is wrong; the file is damaged")
    if version != VERSION:
        raise bad_byte(path, 8, f"expected version {VERSION}, found {version}; read it with a newer mussurana")


def _read_block_header(path: Path, head: bytes, at: int, number: int) -> tuple[str, int]:
    if len(head) < BLOCK_HEADER.size:
        raise bad_byte(path, at, "the file ends within the header of a block")
    tag, found, length, _, checksum = BLOCK_HEADER.unpack(head)
    if zlib.crc32(head[:20]) != checksum:
        raise bad_byte(path, at + 20, "the checksum of the header of a block is wrong; the file is damaged")
    if found != number:
        raise bad_byte(path, at + 4, f"expected block {number}, found block {found}")
    if length % 8:
        raise bad_byte(path, at + 8, f"expected a multiple of 8 bytes in the block, found {length}")
    return tag.decode("ascii", "backslashreplace"), length
