"""The fuzzers themselves: they find what is planted, and a few cases of each find nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from mussurana.verifier.kernels import kernel
from tests.inputs import __main__ as fuzzing
from tests.inputs.__main__ import READERS, main
from tests.inputs.confined import Confined, End
from tests.inputs.damage import damaged, spoiled, with_placeholders
from tests.inputs.reader import Files, Reader

CASES = 12  # of each reader: a few seconds in all
CPU_SECONDS, MEMORY_BYTES = 0.5, 200 << 20


class Refusal(Exception):
    pass


@kernel
def count_for_ever(numbers):  # type: ignore[no-untyped-def]
    """Where no exception and no signal handler of Python's gets to."""
    while numbers[0] < 1 << 62:
        numbers[0] = (numbers[0] + 1) % 1_000_003
    return numbers[0]


def loop(files: Files, folder: Path, rng: Random) -> str:
    while True:
        pass


def loop_in_a_kernel(files: Files, folder: Path, rng: Random) -> str:
    return str(count_for_ever(np.zeros(1, np.int64)))


def hog(files: Files, folder: Path, rng: Random) -> str:
    kept = []
    while True:
        kept.append(bytes(10 << 20))


def hog_and_refuse(files: Files, folder: Path, rng: Random) -> str:
    try:
        return hog(files, folder, rng)
    except MemoryError as error:
        raise Refusal from error


def wait_for_ever(files: Files, folder: Path, rng: Random) -> str:
    time.sleep(10**6)
    return ""


def crash(files: Files, folder: Path, rng: Random) -> str:
    os.abort()


def stumble(files: Files, folder: Path, rng: Random) -> str:
    return files["not there"].decode()


def refuse(files: Files, folder: Path, rng: Random) -> str:
    raise Refusal("no, thank you")


PLANTED: dict[Callable[[Files, Path, Random], str], tuple[End, str]] = {
    loop: ("slow", "in loop"),
    loop_in_a_kernel: ("slow", "in loop_in_a_kernel"),
    wait_for_ever: ("slow", "in wait_for_ever"),
    hog: ("memory", "MemoryError"),
    hog_and_refuse: ("memory", "MemoryError"),
    crash: ("died", "in crash"),
    stumble: ("failed", "KeyError: 'not there'"),
    lambda files, folder, rng: "wrong": ("failed", "wrong"),
    refuse: ("refused", "no, thank you"),
    lambda files, folder, rng: "": ("read", ""),
}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Puts a reader among the others that does what it is told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tests.inputs.confined.WALL_SECONDS_MAX", 2.0)
    monkeypatch.setattr("tests.inputs.confined.COMPILE_SECONDS_MAX", CPU_SECONDS)
    monkeypatch.setattr("tests.inputs.confined.CPU_SECONDS_MAX", CPU_SECONDS)
    monkeypatch.setattr(fuzzing, "WARM_UP_CASES", 0)

    def plant(read: Callable[[Files, Path, Random], str]) -> None:
        reader = Reader("planted", lambda rng: {"file": rng.randbytes(8)}, read, (Refusal,))
        monkeypatch.setitem(READERS, "planted", reader)

    return plant


@pytest.mark.parametrize(("read", "expected"), PLANTED.items(), ids=[read.__name__ for read in PLANTED])
def test_the_watchdog_sees_what_becomes_of_a_case(
    planted: Callable[..., None], read: Callable[[Files, Path, Random], str], expected: tuple[End, str]
) -> None:
    if read is loop_in_a_kernel:
        count_for_ever(np.full(1, 1 << 62))  # compiled
    planted(read)
    confined = Confined(fuzzing.work, MEMORY_BYTES)
    outcome = confined.run("planted 5", CPU_SECONDS)
    confined.end()
    end, message = expected
    assert outcome.end == end
    assert message in outcome.message
    assert outcome.is_failure == (end not in ("read", "refused"))


def test_the_watchdog_goes_on_with_the_next_case(planted: Callable[..., None]) -> None:
    planted(lambda files, folder, rng: hog(files, folder, rng) if files["file"][0] % 2 else "")
    confined = Confined(fuzzing.work, MEMORY_BYTES)
    ends = [confined.run(f"planted {seed}", CPU_SECONDS).end for seed in range(12)]
    confined.end()
    assert set(ends) == {"memory", "read"}


def test_a_failure_is_stored_told_and_replayed(
    planted: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    planted(lambda files, folder, rng: "it ends in an even byte" if files["file"][-1] % 2 == 0 else "")
    assert main(["--only", "planted", "--seed", "70", "--cases", "20"]) == 1
    told = capsys.readouterr().out
    assert told.count("FAILED") == 1  # of all that fail in one place
    commands = [line.partition("python -m tests.inputs ")[2] for line in told.splitlines() if "-m tests" in line]
    assert len(commands) == 2
    for command in commands:
        assert main(command.split()) == 1
        assert "it ends in an even byte" in capsys.readouterr().out
    planted(lambda files, folder, rng: "")
    for command in commands:
        assert main(command.split()) == 0


@pytest.mark.parametrize("name", READERS)
def test_a_case_follows_from_its_number(name: str) -> None:
    reader = READERS[name]
    assert reader.case(3) == reader.case(3)
    assert len({json.dumps(sorted((k, v.hex()) for k, v in reader.case(seed).items())) for seed in range(5)}) == 5


def test_damage_is_of_every_kind_and_never_fails() -> None:
    rng, tree = Random(0), {"a": [1, {"b": "x"}], "c": None}
    bytes_made = {damaged(rng, content) for content in (b"", b"x", b"some more bytes") for _ in range(300)}
    assert len(bytes_made) > 300
    texts = [with_placeholders(rng, json.dumps(spoiled(rng, tree)), json.dumps) for _ in range(500)]
    assert any("[" * 100 in text for text in texts)
    assert any("9" * 400 in text for text in texts)
    assert any("NaN" in text for text in texts)
    assert tree == {"a": [1, {"b": "x"}], "c": None}


def test_a_few_cases_of_each_reader_find_nothing_and_get_beyond_the_first_check() -> None:
    """In a process of its own, as by hand: workers are forked."""
    command = [sys.executable, "-m", "tests.inputs", "--cases", str(CASES), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    told = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert told.keys() == READERS.keys()
    assert all(" read" in line for line in told.values()), told
    assert all(" refused" in told[name] for name, reader in READERS.items() if reader.refusals), told
