"""Records survive what they should, and damage is found, placed and passed over."""

from __future__ import annotations

import os
import random
import struct
import zlib
from pathlib import Path

import pytest

from mussurana.wire import segments
from mussurana.wire.segments import (
    Appender,
    Damage,
    Position,
    Record,
    frame,
    read_from,
    records_in,
    segment_numbers,
    segment_path,
)


def written(directory: Path, payloads: list[bytes], segment_bytes_max: int = 1 << 20) -> None:
    appender = Appender(directory, segment_bytes_max)
    for payload in payloads:
        appender.append([payload])
    appender.sync()
    appender.close()


def contents(directory: Path) -> list[bytes]:
    found = list(read_from(directory))
    assert all(isinstance(record, Record) for record in found), found
    return [record.payload for record in found if isinstance(record, Record)]


def test_what_was_appended_is_read_in_order_across_segments(tmp_path: Path) -> None:
    payloads = [bytes([n]) * n for n in range(100)]
    written(tmp_path, payloads, segment_bytes_max=500)
    assert len(segment_numbers(tmp_path)) > 5
    assert contents(tmp_path) == payloads


def test_reading_goes_on_from_the_end_of_any_record(tmp_path: Path) -> None:
    written(tmp_path, [b"%d" % n for n in range(50)], segment_bytes_max=200)
    records = [record for record in read_from(tmp_path) if isinstance(record, Record)]
    for n, record in enumerate(records):
        rest = [later.payload for later in read_from(tmp_path, record.end) if isinstance(later, Record)]
        assert rest == [b"%d" % m for m in range(n + 1, 50)]


@pytest.mark.parametrize("seed", range(200))
def test_a_torn_tail_costs_only_the_last_record_and_appending_goes_on(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    payloads = [rng.randbytes(rng.randrange(40)) for _ in range(1 + rng.randrange(6))]
    written(tmp_path, payloads)
    path = segment_path(tmp_path, 1)
    last = len(payloads[-1]) + 16
    os.truncate(path, path.stat().st_size - 1 - rng.randrange(last))
    assert contents(tmp_path) == payloads[:-1]
    written(tmp_path, [b"more"])
    assert contents(tmp_path) == [*payloads[:-1], b"more"]


@pytest.mark.parametrize("seed", range(300))
def test_damage_in_the_middle_is_reported_with_its_place_and_loses_nothing_else(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    payloads = [rng.choice([rng.randbytes(rng.randrange(60)), b"REC1" * rng.randrange(9)]) for _ in range(8)]
    written(tmp_path, payloads)
    records = [record for record in read_from(tmp_path) if isinstance(record, Record)]
    victim = rng.randrange(7)
    at = rng.randrange(records[victim].position.offset, records[victim].end.offset)
    path = segment_path(tmp_path, 1)
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)

    found = list(read_from(tmp_path))
    damages = [item for item in found if isinstance(item, Damage)]
    assert [(d.position, d.end) for d in damages] == [(records[victim].position, records[victim].end)]
    assert str(path) in str(damages[0])
    assert [r.payload for r in found if isinstance(r, Record)] == payloads[:victim] + payloads[victim + 1 :]


def test_an_interrupted_start_of_a_segment_is_repaired(tmp_path: Path) -> None:
    written(tmp_path, [b"a"])
    segment_path(tmp_path, 2).write_bytes(b"\x89MU")
    assert contents(tmp_path) == [b"a"]
    written(tmp_path, [b"b"])
    assert contents(tmp_path) == [b"a", b"b"]


def test_a_full_disk_leaves_no_part_of_a_record(tmp_path: Path) -> None:
    appender = Appender(tmp_path, 1 << 20)
    appender.append([b"before"])
    size = appender.size

    class Full:
        def __init__(self, inner: object) -> None:
            self.inner, self.calls = inner, 0

        def write(self, content: memoryview) -> int:
            self.calls += 1
            if self.calls == 1:
                return int(self.inner.write(content[:7]))  # type: ignore[attr-defined]
            raise OSError(28, "No space left on device")

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    real = appender._file
    appender._file = Full(real)  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space"):
        appender.append([b"x" * 100])
    appender._file = real
    assert appender.end == Position(1, size)
    appender.append([b"after"])
    appender.close()
    assert contents(tmp_path) == [b"before", b"after"]


def test_old_segments_can_go_but_the_current_one_stays(tmp_path: Path) -> None:
    appender = Appender(tmp_path, 64)
    for n in range(10):
        appender.append([b"%d" % n * 30])
    assert appender.remove_before(appender.number + 5) == appender.number - 1
    appender.append([b"end"])
    appender.close()
    assert contents(tmp_path)[-1] == b"end"


def claiming(count: int, following: int) -> bytes:
    """Headers that check out, each of which claims all that comes after it for its payload."""
    content = b""
    for left in range(count - 1, -1, -1):
        start = struct.pack("<4sII", b"REC1", left * segments.RECORD_HEADER.size + following, 0)
        content += start + struct.pack("<I", zlib.crc32(start))
    return content


def test_headers_that_claim_all_that_follows_do_not_make_a_reader_read_it_for_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = frame(b"good")
    few, many = claiming(5, len(good)) + good, claiming(4_000, len(good)) + good
    assert [type(found) for found in records_in(tmp_path, 1, few, 0)] == [Damage, Record]
    read: list[int] = []
    checksum = zlib.crc32

    def counted(content: bytes) -> int:
        read.append(len(content))
        return checksum(content)

    monkeypatch.setattr(zlib, "crc32", counted)
    (damage,) = records_in(tmp_path, 1, many, 0)
    assert damage.end.offset == len(many)
    assert sum(read) < 2 * segments.SEARCH_TIMES_MAX * len(many)


def test_what_is_called_by_a_number_that_no_segment_has_is_none(tmp_path: Path) -> None:
    for name in (f"{segments.SEGMENT_MAX + 1}.seg", "99999999999999999999.seg", "00000002.seg"):
        (tmp_path / name).write_bytes(b"")
    assert segment_numbers(tmp_path) == [2]
