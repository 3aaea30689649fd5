"""The end of the log is lost, or of a later version: a gap that is told, and what comes afterwards is verified."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mussurana.verifier.daemon.journal import Journal
from mussurana.verifier.daemon.log import IngestLog
from mussurana.wire.segments import MAGIC, Position, segment_numbers, segment_path
from tests.attack.collectors import Sender, real, skew
from tests.daemon.conftest import Running, running
from tests.daemon.fake_machine import FakeMachine
from tests.daemon.watching import is_verified, page, send, until


def last(data: Path) -> Path:
    return segment_path(data / "log", segment_numbers(data / "log")[-1])


def delete_log(data: Path) -> None:
    shutil.rmtree(data / "log")


def delete_last(data: Path) -> None:
    last(data).unlink()


def truncate(data: Path) -> None:
    os.truncate(last(data), last(data).stat().st_size // 2)


def empty(data: Path) -> None:
    os.truncate(last(data), 0)


def later_version(data: Path) -> None:
    content = last(data).read_bytes().replace(b"REC1", b"REC2")
    last(data).write_bytes(content[:8] + struct.pack("<I", 2) + content[12:])


DAMAGES = (delete_log, delete_last, truncate, empty, later_version)


def acknowledged(daemon: Running, id: bytes, first: int) -> None:
    with Sender(daemon, "a", id=id, first_sequence=first) as good:
        good.tell(*skew("a", 10 * first))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("small", [False, True])
def test_what_comes_after_the_lost_end_is_verified_and_the_loss_is_told(
    data: Path, damage: Callable[[Path], None], small: bool
) -> None:
    flags = {"log_segment_bytes": "4096"} if small else {}
    with real(data, **flags) as daemon, Sender(daemon, "a") as good:
        for counter in range(1, 41):
            good.tell(f"0 x:=a{counter}")
        until(lambda: is_verified(daemon), 60)
    kept = last(data) if damage is later_version else None
    damage(data)
    before = kept.read_bytes() if kept else b""
    for life in (1, 2):
        with real(data, **flags) as daemon:
            until(lambda: daemon.service.board.progress.state == "verifying", 60)
            status = daemon.service.query.status_now()
            assert status.log_behind_bytes >= 0
            if life == 1:
                assert daemon.service.board.gaps.counts()["damaged"] >= 1
                assert daemon.service.metrics.log_damages._value.get() >= 1
                assert 'mussurana_gaps_total{cause="damaged"} 0' not in page(daemon.http_port, "/metrics")[1]
            acknowledged(daemon, good.id, 40 + life)
            until(lambda: is_verified(daemon))
            until(lambda life=life: len(daemon.service.violations.summaries()) == life)  # type: ignore[misc]
            assert daemon.service.query.status_now().log_behind_bytes == 0
    assert not kept or kept.read_bytes() == before


def test_a_later_format_is_never_cut_or_overwritten(tmp_path: Path) -> None:
    log = IngestLog(tmp_path / "log")
    log.close()
    path = segment_path(tmp_path / "log", 1)
    (tmp_path / "log").mkdir(exist_ok=True)
    for content in (MAGIC + struct.pack("<II", 2, 1), MAGIC + struct.pack("<II", 9, 1) + b"anything at all" * 9):
        path.write_bytes(content)
        log = IngestLog(tmp_path / "log")
        assert log.durable == Position(1, len(content))
        log.close()
        assert path.read_bytes() == content


def test_steps_after_the_lost_end_of_the_journal_are_taken_again(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 20)
    journal = data / "journal"
    for number in segment_numbers(journal):
        os.truncate(segment_path(journal, number), 100)
    with running(data, checkpoint_interval_seconds="3600") as daemon:
        send(daemon, 21, 30)
        (data / "kept").mkdir()
        for path in (data / "checkpoints").iterdir():
            shutil.copy(path, data / "kept")
    shutil.rmtree(data / "checkpoints")
    (data / "kept").rename(data / "checkpoints")
    assert Journal(journal).newest()
    with running(data) as daemon:
        until(lambda: is_verified(daemon))
        assert daemon.service.board.progress.rerun_steps > 0
        assert daemon.service.board.progress.differences == 0


class Picky(FakeMachine):
    """Does not understand states that say so."""

    def __init__(self, state: bytes | None = None) -> None:
        if state is not None and b"later" in state:
            raise KeyError("collectors")
        super().__init__(state)


def spoil(path: Path, how: str) -> None:
    """Another state or description under a checksum that is right."""
    import zlib

    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content, 16)
    about, state = content[24 : 24 + length], content[24 + length :]
    if how == "state":
        state = b"later" + state
    else:
        about = {"no json": b"\xff{", "no object": b"[]", "other types": b'{"fed": 7, "log": {}}'}[how]
    rest = struct.pack("<Q", len(about)) + about + state
    path.write_bytes(content[:12] + struct.pack("<I", zlib.crc32(rest)) + rest)


@pytest.mark.parametrize("how", ["state", "no json", "no object", "other types"])
def test_a_checkpoint_that_cannot_be_understood_falls_back_to_the_one_before_the_log_and_a_new_beginning(
    data: Path, how: str
) -> None:
    for first in (1, 11, 21):
        with running(data, Picky) as daemon:
            send(daemon, first, first + 9)
    _, newest = sorted((data / "checkpoints").iterdir())
    spoil(newest, how)
    with running(data, Picky, checkpoint_interval_seconds="3600") as daemon:
        until(lambda: is_verified(daemon))
        assert daemon.service.board.progress.rerun_steps > 0
        assert daemon.service.board.progress.differences == 0
        assert len(daemon.service.checkpoints.damaged) == 1
        send(daemon, 31, 32)
    spoil_all(data, how)
    with running(data, Picky) as daemon:  # the log is still whole
        until(lambda: is_verified(daemon))
        assert daemon.service.board.progress.differences == 0
        assert daemon.service.board.gaps.counts() == {}
        send(daemon, 33, 34)
    spoil_all(data, how)
    segment_path(data / "log", 1).rename(segment_path(data / "log", 7))
    with running(data, Picky) as daemon:
        until(lambda: is_verified(daemon))
        send(daemon, 35, 36)


def spoil_all(data: Path, how: str) -> None:
    for path in (data / "checkpoints").iterdir():
        spoil(path, how)
