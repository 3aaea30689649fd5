"""The command as a process: quick to help, quiet when its reader leaves, and no traceback for anything a user does."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize(("history", "code"), [("skew.mus", 1), ("none.mus", 3)])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("how", ["closed", "nobody reads"])
def test_an_exit_code_is_the_same_whether_or_not_anybody_listens(
    history: str, code: int, stream: str, how: str, write_skew: Path
) -> None:
    command = process_arguments("check", write_skew.with_name(history))
    if how == "closed":
        number = {"stdout": 1, "stderr": 2}[stream]
        ran = subprocess.run(["sh", "-c", f'exec "$@" {number}>&-', "sh", *command], check=False, timeout=SECONDS_MAX)
    else:
        read, write = os.pipe()
        os.close(read)
        ran = in_a_process("check", write_skew.with_name(history), **{stream: write})  # type: ignore[assignment]
        os.close(write)
    assert ran.returncode == code


@pytest.mark.parametrize("stuck", ["while True: pass", "numba.njit(nogil=True)(endless)()"])
def test_a_check_that_goes_on_long_after_its_timeout_is_unknown(stuck: str, serial: Path, tmp_path: Path) -> None:
    """Whatever it hangs in, a kernel included."""
    program = f"""
import sys, numba
from mussurana.verifier import cli, overtime
from mussurana.verifier.engine import check
def endless():
    count = 0
    while True:
        count += 1
        if count < 0:
            return count
def never(*arguments, **settings):
    {stuck}
check.check, overtime.OVERTIME_SECONDS = never, 0.5
sys.exit(cli.main(sys.argv[1:]))
"""
    report = tmp_path / "report.json"
    ran = subprocess.run(
        [sys.executable, "-c", program, "check", str(serial), "--timeout", "0.1", "--report", str(report)],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert not [line for line in ran.stderr.splitlines() if not line.startswith("compiling parts")]  # on a busy machine
    assert ran.stdout.startswith("UNKNOWN")
    assert "no answer within 0.1 seconds" in json.loads(report.read_text())["reason"]


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
