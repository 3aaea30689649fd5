"""A checkpoint is whole or is not there, and a damaged one costs time, not verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier.daemon.checkpoint import Checkpoint, Checkpoints
from mussurana.verifier.daemon.sequences import Last, Sequences
from mussurana.wire.segments import Position


def checkpoint(step: int) -> Checkpoint:
    fed = Sequences({b"c" * 16: Last(step, 5)})
    return Checkpoint(
        Position(step, 100), Position(step, 50), step, 10 * step, 9 * step, ["serializable"], fed, b"state %d" % step
    )


def steps(directory: Path) -> int | None:
    found = Checkpoints(directory).load()
    return found.step if found else None


def test_the_newest_one_is_loaded_with_all_that_it_had(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load() is None
    for step in (1, 2, 3):
        checkpoints.write(checkpoint(step))
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert (found.log, found.journal, found.step, found.now_ns) == (Position(3, 100), Position(3, 50), 3, 30)
    assert (found.levels, found.fed.last(b"c" * 16), found.state) == (["serializable"], 3, b"state 3")


def test_the_one_before_is_kept_with_the_log_that_it_needs(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.load()
    checkpoints.write(checkpoint(1))
    assert checkpoints.log_needed == Position(0, 0)
    for step in (2, 3, 4):
        checkpoints.write(checkpoint(step))
        assert checkpoints.log_needed == Position(step - 1, 100)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("at", [0, 9, 13, 18, 40, -1])
def test_any_damage_falls_back_to_the_one_before(tmp_path: Path, at: int) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.write(checkpoint(step))
    path = max(tmp_path.iterdir())
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    damaged = Checkpoints(tmp_path)
    found = damaged.load()
    assert found is not None
    assert found.step == 1
    assert str(path) in damaged.damaged[0]
    damaged.write(checkpoint(5))
    assert steps(tmp_path) == 5


@pytest.mark.parametrize("length", [0, 5, 30])
def test_a_short_one_falls_back_too(tmp_path: Path, length: int) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.write(checkpoint(step))
    path = max(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:length])
    assert steps(tmp_path) == 1


def test_a_newer_version_is_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(checkpoint(1))
    path = max(tmp_path.iterdir())
    content = bytearray(path.read_bytes())
    content[8] = 2
    path.write_bytes(content)
    again = Checkpoints(tmp_path)
    assert again.load() is None
    assert "it has version 2, and this program knows 1" in again.damaged[0]


def test_what_was_left_by_an_interrupted_write_is_not_looked_at(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(checkpoint(1))
    (tmp_path / "00000002.ckpt.new").write_bytes(b"half")
    assert steps(tmp_path) == 1


def test_a_full_disk_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(checkpoint(1))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            checkpoints.write(checkpoint(2))
    assert steps(tmp_path) == 1
    assert len(list(tmp_path.iterdir())) == 1
