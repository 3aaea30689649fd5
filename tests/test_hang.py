"""The watchdog of hang.py notices a run that stands still, and shows where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hang import ROOT

DEADLOCK = """
import subprocess, sys, threading
from tests.collector.postgres import postgres

held = threading.Lock()

def take_it_twice():
    with held:
        with held:
            pass

def test_that_stands_still(postgres):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # a child of its own"])
    take_it_twice()
"""


FINE, BAD = "def test_fine(): pass", "def test_bad(): 1 / 0"


@pytest.mark.parametrize(("body", "code", "seconds"), [(DEADLOCK, 1, 8), (FINE, 0, 100), (BAD, 2, 100)])
def test_a_planted_deadlock_is_caught_and_shown(tmp_path: Path, body: str, code: int, seconds: int) -> None:
    planted = tmp_path / "test_planted.py"
    planted.write_text(body)
    options = ["--runs", "1", "--quiet-seconds", str(seconds), "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "tests.hang", str(planted), *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, ran.stdout + ran.stderr
    reports = list(tmp_path.glob("*.report"))
    assert len(reports) == (code == 1)
    for report in reports:
        assert "in take_it_twice" in report.with_suffix(".log").read_text()
        shown = report.read_text()
        assert "# a child of its own" in shown
        child = Path("/proc", next(line for line in shown.splitlines() if "# a child" in line).split()[1], "cmdline")
        assert "SELECT pid, state" in shown  # what the server does
        assert not child.exists() or not child.read_bytes()  # it is gone, or will be when somebody has waited for it
