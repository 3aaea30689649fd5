"""The demo, end to end: PostgreSQL, an application with its collector, and the verifier, as a user would start them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mussurana.verifier.demo.tally import Count

SECONDS = 10
LIMIT_SECONDS = 400  # with nothing compiled yet, on a busy machine
END_SECONDS_MAX = 20  # from being asked to end; one or two are usual


def started(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mussurana.verifier", "demo", "--no-browser", *options]
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "COLUMNS": "80"}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_signals,
    )


def heed_signals() -> None:
    """Also where the tests run in the background or under nohup, which ignore them, and so would their children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def left_behind(tmp_path: Path) -> list[str]:
    """Files of the demo, processes that it started, and the database's directory, which is not below $TMPDIR."""
    found = [str(path) for path in tmp_path.glob("mussurana-demo-*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={tmp_path}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has ended meanwhile, or is not ours
            continue
    return found


def test_serializable_is_accepted_then_a_write_skew_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    demo = started(tmp_path, "--seconds", str(SECONDS))
    said, _ = demo.communicate(timeout=LIMIT_SECONDS)
    assert demo.returncode == 0, said
    assert re.search(r"\d+ rounds with [\d,]+ transactions: all accepted", said)
    assert re.search(r"ALERT  \d+\.\d s after the start, by webhook: serializable: write skew", said)
    assert re.search(r"REJECTED  serializable  round \d+, epoch \d+: write skew \(G2-item\), 2", said)
    assert re.search(r"T1  web-\d / conn \d+ / txn \d+", said)
    assert "SELECT … FROM doctors" in said
    assert "UPDATE doctors SET on_call" in said
    assert re.search(r"strong-session-si, the same traffic was accepted in all of \d+ rounds", " ".join(said.split()))
    assert "it kept the promise" in " ".join(said.split())
    assert re.search(r"The same as a page: http://127\.0\.0\.1:\d+/violations/\w+$", said, re.MULTILINE)
    assert max(map(len, said.splitlines())) <= 80
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("moment", "asked"),
    [
        pytest.param("starting PostgreSQL", [signal.SIGINT], id="Ctrl-C while it is set up"),
        pytest.param("waiting for the verifier", [signal.SIGTERM], id="kill while the verifier starts"),
        pytest.param("1  SERIALIZABLE", [signal.SIGHUP], id="the window is closed in the first act"),
        pytest.param("2  REPEATABLE READ", [signal.SIGINT] * 3, id="somebody impatient in the second act"),
    ],
)
def test_it_ends_soon_when_asked_to_and_nothing_is_left(
    tmp_path: Path, moment: str, asked: list[signal.Signals]
) -> None:
    demo = started(tmp_path, "--seconds", "6")
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if moment in line:
            break
    time.sleep(0.5)
    for each in asked:
        demo.send_signal(each)
        time.sleep(0.2)
    began = time.monotonic()
    rest, _ = demo.communicate(timeout=LIMIT_SECONDS)
    assert time.monotonic() - began < END_SECONDS_MAX
    assert demo.returncode == 130, "".join(said) + rest
    assert "Traceback" not in rest
    assert rest.splitlines()[-1] == "ended before there was a result"
    assert left_behind(tmp_path) == []


def test_rounds_without_an_answer_are_not_called_accepted() -> None:
    assert Count(accepted=3).all_accepted
    assert not Count(accepted=3, unknown=1).all_accepted
    assert not Count(accepted=3, rejected=1).all_accepted
    assert not Count().all_accepted
    assert Count(accepted=3, rejected=1, unknown=2).others == "1 rejected and 2 unknown"
    assert Count().others == "none verified"
