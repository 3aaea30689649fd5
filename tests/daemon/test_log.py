"""What was committed is there after any end, is read once and in order, and damage becomes a gap that says whose."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from mussurana.verifier.daemon.log import FRAGMENT, START, Entry, IngestLog, Tail
from mussurana.verifier.daemon.sequences import MEMORY_NS, Last, Sequences, index_path
from mussurana.wire.segments import Damage, Position, Record, segment_numbers, segment_path

A, B = b"a" * 16, b"b" * 16


def entry(collector: bytes, sequence: int, size: int = 20) -> Entry:
    return Entry(FRAGMENT, collector, sequence, 10**18 + sequence, bytes([sequence % 256]) * size)


def filled(directory: Path, count: int = 40, segment_bytes_max: int = 600) -> list[Entry]:
    log = IngestLog(directory, segment_bytes_max)
    entries = [entry((A, B)[n % 2], n // 2 + 1) for n in range(count)]
    for each in entries:
        log.commit([each])
    log.close()
    return entries


def read(directory: Path, end: Position | None = None, position: Position = START) -> list[Entry]:
    found = list(Tail(directory, position).read_all(end or IngestLog(directory).durable))
    assert all(isinstance(item, Record) for item in found)
    return [Entry.from_bytes(item.payload) for item in found if isinstance(item, Record)]


def test_entries_are_read_as_they_were_committed(tmp_path: Path) -> None:
    entries = filled(tmp_path)
    assert len(segment_numbers(tmp_path)) > 3
    assert read(tmp_path) == entries


def test_lost_fragments_say_which_and_why() -> None:
    lost = Entry.from_bytes(Entry.lost(A, 3, 9, "gone for good", 7).to_bytes())
    assert (lost.lost_range(), lost.sequence, lost.received_ns) == ((3, 9, "gone for good"), 9, 7)


def test_tail_follows_a_log_that_grows_across_segments(tmp_path: Path) -> None:
    log, tail, seen = IngestLog(tmp_path, 600), Tail(tmp_path), []
    for n in range(1, 60):
        log.commit([entry(A, n), entry(B, n)])
        if n % 7 == 0:
            seen += [item for item in tail.read_all(log.durable) if isinstance(item, Record)]
            assert tail.position == log.durable
    seen += [item for item in tail.read_all(log.durable) if isinstance(item, Record)]
    assert [Entry.from_bytes(item.payload).sequence for item in seen] == [n for n in range(1, 60) for _ in "ab"]


def test_tail_reads_in_pieces_smaller_than_a_record(tmp_path: Path) -> None:
    log = IngestLog(tmp_path)
    log.commit([entry(A, 1, 5000), entry(A, 2, 10), entry(A, 3, 3000)])
    tail, found = Tail(tmp_path), []
    while piece := tail.read(log.durable, bytes_max=100):
        found += piece
    assert [Entry.from_bytes(item.payload).sequence for item in found if isinstance(item, Record)] == [1, 2, 3]


def test_tail_goes_no_further_than_what_is_durable(tmp_path: Path) -> None:
    log = IngestLog(tmp_path)
    log.commit([entry(A, 1)])
    durable = log.durable
    log.commit([entry(A, 2)])
    assert [each.sequence for each in read(tmp_path, durable)] == [1]


def test_start_reads_only_what_no_index_knows(tmp_path: Path) -> None:
    filled(tmp_path)
    log = IngestLog(tmp_path)
    assert (log.read_at_start, log.sequences.last(A), log.sequences.last(B)) == (1, 20, 20)


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped"])
def test_a_damaged_index_makes_a_start_slower_and_nothing_else(tmp_path: Path, damage: str) -> None:
    filled(tmp_path)
    newest = index_path(tmp_path, segment_numbers(tmp_path)[-2])
    content = bytearray(newest.read_bytes())
    content[-3] ^= 1
    newest.write_bytes({"missing": b"", "torn": bytes(content[:20]), "flipped": bytes(content)}[damage])
    log = IngestLog(tmp_path)
    assert (log.read_at_start, log.sequences.last(A), log.sequences.last(B)) == (2, 20, 20)


def test_a_checkpoint_is_as_good_as_an_index(tmp_path: Path) -> None:
    filled(tmp_path)
    for path in tmp_path.glob("*.idx"):
        path.unlink()
    last_segment = segment_numbers(tmp_path)[-1]
    known = Sequences({A: Last(17, 0), B: Last(17, 0)})
    log = IngestLog(tmp_path, base=(Position(last_segment - 1, 0), known))
    assert (log.read_at_start, log.sequences.last(A)) == (2, 20)


@pytest.mark.parametrize("seed", range(40))
def test_a_torn_tail_costs_only_what_was_never_acknowledged(tmp_path: Path, seed: int) -> None:
    entries = filled(tmp_path)
    path = segment_path(tmp_path, segment_numbers(tmp_path)[-1])
    with path.open("ab") as file:
        file.write(random.Random(seed).randbytes(seed))
    log = IngestLog(tmp_path, 600)
    log.commit([entry(A, 21)])
    assert read(tmp_path, log.durable) == [*entries, entry(A, 21)]


def test_damage_in_the_middle_is_reported_with_its_place_and_passed_over(tmp_path: Path) -> None:
    entries = filled(tmp_path)
    path = segment_path(tmp_path, 2)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    found = list(Tail(tmp_path).read_all(IngestLog(tmp_path).durable))
    damages = [item for item in found if isinstance(item, Damage)]
    assert len(damages) == 1
    assert str(path) in str(damages[0])
    assert len(found) == len(entries)


def test_a_segment_that_is_gone_is_damage_too(tmp_path: Path) -> None:
    filled(tmp_path)
    segment_path(tmp_path, 2).unlink()
    found = list(Tail(tmp_path).read_all(IngestLog(tmp_path).durable))
    assert [item.what for item in found if isinstance(item, Damage)] == ["segments before 3 are missing"]


def test_a_failed_sync_is_followed_by_a_new_segment_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = IngestLog(tmp_path)
    log.commit([entry(A, 1)])
    durable = log.durable

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            log.commit([entry(A, 2)])
    assert log.durable == durable
    assert log.sequences.last(A) == 1
    log.commit([entry(A, 2)])
    assert log.durable.segment == durable.segment + 1
    assert [each.sequence for each in read(tmp_path, log.durable)] == [1, 2, 2]


def test_old_segments_go_with_their_indexes_but_what_is_to_be_kept_stays(tmp_path: Path) -> None:
    filled(tmp_path)
    log = IngestLog(tmp_path, 600)
    last = segment_numbers(tmp_path)[-1]
    assert log.remove_before(START, 0) == 0
    assert log.remove_before(Position(last, 0), 10_000) == 0
    assert log.remove_before(Position(last, 0), 1000) == last - 2
    assert log.remove_before(Position(last, 0), 0) == 1
    assert segment_numbers(tmp_path) == [last]
    assert log.known_before(last).last(A) > 10
    assert len(list(tmp_path.glob("*.idx"))) == 1


def test_collectors_that_were_silent_for_long_are_forgotten() -> None:
    sequences = Sequences({A: Last(5, 0), B: Last(7, MEMORY_NS)})
    assert sequences.forget(MEMORY_NS + 1) == 1
    assert (sequences.last(A), sequences.last(B)) == (0, 7)
