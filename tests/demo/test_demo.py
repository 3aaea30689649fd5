"""The demo, end to end: PostgreSQL, an application with its collector, and the verifier, as a user would start them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SECONDS = 10
LIMIT_SECONDS = 400  # with nothing compiled yet, on a busy machine


def test_serializable_is_accepted_then_a_write_skew_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mussurana.verifier", "demo", "--seconds", str(SECONDS), "--no-browser"]
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "COLUMNS": "120"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert re.search(r"\d+ rounds with [\d,]+ transactions: all accepted", said)
    assert "ALERT  webhook called: serializable: write skew" in said
    assert re.search(r"REJECTED  serializable  round \d+, epoch \d+: write skew \(G2-item\), 2 transactions", said)
    assert "UPDATE doctors SET on_call" in said
    assert "it kept the promise" in " ".join(said.split())
    assert re.search(r"http://127\.0\.0\.1:\d+/violations/\w+", said)
    assert not list(tmp_path.glob("mussurana-demo-*"))
