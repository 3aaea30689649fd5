"""A folder that is damaged, or made by somebody else, is completed and read to its end: whatever is in it."""

from __future__ import annotations

import marshal
import zlib
from pathlib import Path
from typing import Any

import pytest

from mussurana.collector import journal, marshalled
from mussurana.collector.abandoned import complete
from mussurana.collector.journal_reader import read_journal
from mussurana.collector.shipping import _has_destination
from mussurana.collector.spool import DESTINATION
from mussurana.collector.spool_reader import MISSING_MAX, SpoolReader
from mussurana.wire.history_pb2 import Fragment, Hello, Upload
from mussurana.wire.segments import Appender

ID, TAG = bytes(range(16)), 7
COLUMNS = (b"\1", (5).to_bytes(8, "little"), (TAG << 32 | 9).to_bytes(8, "little"), b"", bytes(4))
TXN = (3, 1, "conn 1", 2, (4, 5, 6, 0), 1, COLUMNS, None, [TAG << 32 | 8], 944, b"", [(1, "SELECT é")])


def folder_with(root: Path, *uploads: Upload | bytes) -> Path:
    folder = root / f"{ID.hex()}-{TAG:08x}"
    appender = Appender(folder, 1 << 20)
    appender.append([each if isinstance(each, bytes) else each.SerializeToString() for each in uploads])
    appender.close()
    return folder


def hello(first_sequence: int = 1) -> Upload:
    return Upload(hello=Hello(protocol=1, collector=ID, first_sequence=first_sequence))


def fragment(sequence: int) -> Upload:
    made = Fragment(sequence=sequence)
    made.write_ids.add(tag=TAG, settled=1)
    return Upload(fragment=made)


def shipped(folder: Path) -> list[int]:
    """The numbers of all fragments that the shipper would send."""
    reader = SpoolReader(folder)
    found: list[int] = []
    for each in reader.read(reader.first_sequence - 1):
        if each is None:
            return found
        found.append(each[0])
    raise AssertionError


@pytest.mark.parametrize("sequence", [MISSING_MAX + 3, 1 << 62, (1 << 64) - 1])
def test_a_number_that_is_far_ahead_is_damage_and_not_as_many_gaps(tmp_path: Path, sequence: int) -> None:
    folder = folder_with(tmp_path, hello(), fragment(1), fragment(sequence), fragment(2))
    assert complete(folder) == 3
    assert shipped(folder) == [1, 2, 3]


def test_missing_fragments_are_declared_but_not_without_end(tmp_path: Path) -> None:
    half = MISSING_MAX // 2
    folder = folder_with(tmp_path, hello(), fragment(half), fragment(2 * half), fragment(3 * half))
    assert complete(folder) == 2 * half + 1
    assert shipped(folder) == list(range(1, 2 * half + 2))


@pytest.mark.parametrize("first", [1 << 62, (1 << 64) - 1])
def test_a_hello_with_a_number_that_nobody_reaches_is_none(tmp_path: Path, first: int) -> None:
    folder = folder_with(tmp_path, hello(first), fragment(1))
    complete(folder)
    assert complete(folder) == shipped(folder)[-1] < 10


def test_records_that_are_no_uploads_are_passed_over(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, b"\xff\xff", hello(), b"\x0a", fragment(1))
    (folder / "00000001.sessions").write_bytes(b"5 \xff " + b"9" * 5_000 + b" 99999999999 4294967296")
    assert complete(folder) == 2
    assert shipped(folder) == [1, 2]


def test_a_fragment_with_half_a_version_is_completed(tmp_path: Path) -> None:
    odd = fragment(1)
    odd.fragment.op_version = b"\1\2\3"
    assert complete(folder_with(tmp_path, hello(), odd)) == 2


def record(what: int, payload: bytes) -> bytes:
    return journal.HEADER.pack(journal.MAGIC, len(payload), zlib.crc32(payload), what) + payload


ODD: dict[int, Any] = {
    0: -1,
    1: 1 << 31,
    2: b"conn",
    3: 7,
    4: (1, 2, 3),
    5: "x",
    6: (b"\1", b"", b"", b"", b""),
    7: (b"",) * 4,
}
ODD |= {8: [1 << 64], 9: None, 10: b"\xff", 11: [(1, 2)]}

PAYLOADS = [
    *(marshal.dumps((*TXN[:at], odd, *TXN[at + 1 :])) for at, odd in ODD.items()),
    marshal.dumps((*TXN[:6], (b"\2", *COLUMNS[1:]), *TXN[7:])),  # it replaced a version, and not which
    marshal.dumps(TXN[:-1]),
    marshal.dumps(7),
    b"(\xff\xff\xff\x7f",
    b"s\xff\xff\xff\x7f",
    b"l\xff\xff\xff\x7f",
    b"\xa9\x01r\x00\x00\x00\x00",
    b")\x01" * 100_000 + b"N",
    marshal.dumps(compile("1", "", "eval")),
    b"",
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_records_that_this_program_did_not_write_are_passed_over(tmp_path: Path, payload: bytes) -> None:
    folder = folder_with(tmp_path, hello())
    good = marshal.dumps((4, *TXN[1:]))
    records = [record(journal.TXN, payload), record(journal.END, payload), record(journal.DONE, payload)]
    journal.path_of(folder, 0).write_bytes(b"".join([*records, record(journal.TXN, good)]))
    (rescued,) = read_journal(folder)
    assert (rescued.session_name, rescued.epoch, rescued.statement_texts) == ("conn 1", 944, [(1, "SELECT é")])
    assert complete(folder) == 2
    assert shipped(folder) == [1, 2]


VALUES: list[Any] = [
    TXN, None, True, False, 0, -1, 2**31, -(2**31) - 1, 2**63 - 1, 2**64 - 1, -(2**64), b"", b"x" * 70_000, "",
    "x" * 300, "conn", "\xe9", "\ud800", "\u20ac" * 300, (), [], [()],
    ((1, "a"), "a", "a", b"b", b"b"), list(range(300)), tuple(range(300)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("version", range(5))
def test_what_marshal_writes_is_read_as_marshal_reads_it(value: Any, version: int) -> None:
    for each in (value, (value, value, [value])):
        written = marshal.dumps(each, version)
        assert marshalled.loads(written) == each
        for end in range(min(len(written), 100)):
            with pytest.raises(ValueError, match=r"it ends too early|no record"):
                marshalled.loads(written[:end])


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 5_000, b"\xff", b"[]", b'{"verifier": 1}'], ids=range(5))
def test_a_destination_that_says_nothing_keeps_only_its_own_folder_back(tmp_path: Path, content: bytes) -> None:
    folder = folder_with(tmp_path, hello())
    (folder / DESTINATION).write_bytes(content)
    assert not _has_destination(folder)
