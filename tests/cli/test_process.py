"""The command as a process: quick to help, quiet when its reader leaves, and no traceback for anything a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mussurana.verifier import cli
from tests.cli.command import SERIAL, WRITE_SKEW, in_a_process, process_arguments, written

SECONDS_MAX = 60.0


@pytest.fixture(autouse=True, scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The kernels are in the cache, so that nothing is said about compiling them."""
    for text in (SERIAL, WRITE_SKEW):
        cli.main(["check", str(written(tmp_path_factory.mktemp("compiled") / "h.mus", text))])


@pytest.mark.parametrize(
    "arguments", [["--help"], ["check", "--help"], ["--version"], ["check"], ["serve", "--help"], ["replay"]]
)
def test_help_waits_for_neither_numpy_nor_numba(arguments: list[str]) -> None:
    program = (
        "import sys; from mussurana.verifier.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted({'numpy', 'numba'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_installed_command_is_the_same(serial: Path) -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("mussurana"), "check", serial], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("ACCEPTED")


def test_reader_that_leaves_changes_nothing_about_the_verdict(write_skew: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    ran = in_a_process("check", write_skew, stdout=write)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_full_disk_behind_standard_output_is_said(serial: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = in_a_process("check", serial, stdout=full)
    assert (ran.returncode, ran.stderr) == (3, "mussurana check: standard output: No space left on device\n")


def test_names_that_the_terminal_cannot_show_are_spelled_out(tmp_path: Path) -> None:
    path = written(tmp_path / "h.mus", "[ключ==_ y:=1] | [y==_ ключ:=2]")
    ran = in_a_process("check", path, environment={"PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stderr) == (1, "")
    assert r"\u043a\u043b\u044e\u0447" in ran.stdout


def test_interrupt_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "h.txt"
    os.mkfifo(path)  # a history that never comes
    running = subprocess.Popen(
        process_arguments("check", path, "--format", "text"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever starts the tests in the background has interrupts ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with open(_writer(path), "wb"):
        time.sleep(0.5)  # until it waits for data: Python does not see a signal that comes just before
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=SECONDS_MAX)
    assert (running.returncode, out, err) == (130, "", "mussurana check: interrupted\n")


def _writer(fifo: Path) -> int:
    """The writing end, as soon as somebody reads."""
    until = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < until, "nobody reads the history"
            time.sleep(0.01)
