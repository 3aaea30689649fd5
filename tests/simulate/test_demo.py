"""The demo shows what it says it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier.demo import main


def test_demo_accepts_locks_and_rejects_snapshots_with_a_page_that_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("ACCEPTED") == 3
    assert printed.count("REJECTED") == 1
    assert "write skew" in printed
    (page,) = (tmp_path / "demo").glob("*.html")
    assert str(page) in printed
    assert "write skew" in page.read_text(encoding="utf-8")
