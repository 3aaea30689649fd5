"""Forks and kills: every process is a collector of its own, and what a killed one leaves is shipped by the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from mussurana.collector.abandoned import complete
from mussurana.collector.recorder import Recorder
from mussurana.collector.spool import DESTINATION, LOCK, Destination, folders, make_folder, try_lock
from mussurana.wire import counter_of, segments, tag_of
from tests.collector.recording.ingest import Ingest, eventually
from tests.collector.recording.observed import (
    column,
    commit,
    events,
    fragments,
    is_lost,
    lost_of,
    quick,
    settled,
    uploads,
)

ROOT = Path(__file__).parents[3]


def program(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.collector.recording.processes", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def send_to(folder: Path, verifier: Ingest) -> None:
    """What was recorded without a verifier is to be shipped after all."""
    destination = Destination.of(quick(folder.parent, verifier=verifier.address))
    (folder / DESTINATION).write_text(json.dumps(asdict(destination)))


def kill_after(process: subprocess.Popen[str], seconds: float) -> list[int]:
    """Kill it in the middle of its work; return the versions that it had told."""
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    told = (first + process.stdout.read()).splitlines(keepends=True)
    process.wait()
    return [int(line) for line in told if line.endswith("\n")]


def test_forked_processes_record_as_collectors_of_their_own(spool: Path) -> None:
    with Ingest() as verifier:
        process = program("fork_while_recording", spool, verifier.address)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert err == ""  # nothing of ours is written to the host's output
        drawn = [int(line) for line in out.split()]
        assert len(drawn) == len(set(drawn)) == 8 * 101 + 8
        assert len(verifier.kept) == 9
        written = {version for f in verifier.fragments() for version in column(f.op_version, 8)}
        assert set(drawn) <= written
        assert len(written) == len(drawn) + 2
        for kept in verifier.kept.values():  # all ids of a collector have its own tag
            tags = {tag_of(version) for f in kept for version in column(f.op_version, 8)}
            assert len(tags) == 1
            assert tags <= set(settled(kept[0]))
        assert eventually(lambda: not folders(spool))


def test_a_killed_process_declares_what_it_had_in_memory(spool: Path) -> None:
    told = kill_after(program("write_until_killed", spool), 0.3)
    found = fragments(spool)
    spooled = {version for f in found for version in column(f.op_version, 8)}
    complete(folders(spool)[0])
    found = fragments(spool)
    missing = [version for version in told if version not in spooled]
    assert lost_of(missing, found) == set(missing)
    assert not lost_of(spooled, found)
    assert found[-1].gap[0].reason == "process killed"
    assert events(found)[-1][0] == "CLOSE"
    assert len(spooled) > 100


def test_the_next_process_ships_what_a_killed_one_left(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    kill_after(program("write_until_killed", spool), 0.3)
    collector = next(collector for collector, _ in uploads(spool))
    left = {version for f in fragments(spool) for version in column(f.op_version, 8)}
    with Ingest() as verifier:
        send_to(folders(spool)[0], verifier)
        recorder = make_recorder(verifier=verifier.address)
        commit(recorder, recorder.open_session("conn", fenced=False), "a/1")
        assert eventually(lambda: len(folders(spool)) == 1)
        assert recorder.flush(10)
        recorder.close()
        assert {v for f in verifier.kept[collector] for v in column(f.op_version, 8)} == left
        assert len(verifier.kept) == 2
        assert list(settled(verifier.kept[collector][-1]).values()) == [1 << 32]
        assert eventually(lambda: not folders(spool))


def test_what_a_killed_process_left_is_shipped_even_if_no_other_comes(spool: Path) -> None:
    with Ingest() as verifier:
        told = kill_after(program("write_until_killed", spool, f"verifier={verifier.address}"), 1.0)
        assert eventually(lambda: not folders(spool))
        found = verifier.fragments()
        kept = {version for f in found for version in column(f.op_version, 8)}
        assert len(kept) > 100
        assert set(told) <= kept | lost_of(told, found)


def test_a_process_killed_before_its_first_fragment_has_declared_its_tag(spool: Path) -> None:
    folder, lock = make_folder(quick(spool), os.urandom(16), tag=77)
    os.close(lock)  # the end of the process
    assert complete(folder) == 1
    assert is_lost((77 << 32) + 1, fragments(spool))
    assert is_lost((77 << 32) + 12345, fragments(spool))
    assert not is_lost((78 << 32) + 1, fragments(spool))


def test_a_living_process_keeps_its_spool(recorder: Recorder, spool: Path) -> None:
    commit(recorder, recorder.open_session("conn", fenced=False), "a/1")
    assert [try_lock(folder / LOCK) for folder in folders(spool)] == [None]


@pytest.mark.parametrize("killed_at_start", [False, True])
def test_completing_a_spool_twice_adds_nothing(spool: Path, killed_at_start: bool) -> None:
    kill_after(program("write_until_killed", spool), 0.1)
    if killed_at_start:  # when the segment had its header and no record yet
        os.truncate(next(spool.glob("*/*.seg")), segments.FILE_HEADER.size)
    counts = []
    for _ in range(2):
        complete(folders(spool)[0])
        counts.append(len(fragments(spool)))
    assert counts[0] == counts[1]


def test_fragments_that_are_damaged_on_disk_are_declared(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    recorder = make_recorder(batch_txns_max=1)
    session = recorder.open_session("conn", fenced=False)
    versions = [commit(recorder, session, "a/1")[0] for _ in range(5)]
    recorder.close()
    segment = next(spool.glob("*/*.seg"))
    content = bytearray(segment.read_bytes())
    content[content.index(versions[2].to_bytes(8, "little"))] ^= 255
    segment.write_bytes(content)
    with Ingest() as verifier:
        send_to(segment.parent, verifier)
        other = make_recorder(verifier=verifier.address)
        other.open_session("conn")
        assert eventually(lambda: len(folders(spool)) == 1)
        other.close()
        found = next(kept for kept in verifier.kept.values() if len(kept) > 4)
        assert [f.sequence for f in found] == list(range(1, len(found) + 1))
        assert is_lost(versions[2], found)
        assert counter_of(versions[1]) < settled(found[1])[tag_of(versions[1])]


def test_folders_that_were_never_finished_go(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    spool.mkdir()
    (spool / ".new-0123").mkdir()
    os.utime(spool / ".new-0123", (0, 0))
    (spool / ".new-4567").mkdir()
    with Ingest() as verifier:
        recorder = make_recorder(verifier=verifier.address)
        recorder.open_session("conn")
        assert eventually(lambda: not (spool / ".new-0123").exists())
        assert (spool / ".new-4567").exists()
        recorder.close()
