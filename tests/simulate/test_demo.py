"""The demo shows what it says it shows."""

from __future__ import annotations

from pathlib import Path

from mussurana.verifier.demo import demo


def test_demo_accepts_locks_and_rejects_snapshots_with_a_page_that_it_names(tmp_path: Path) -> None:
    said: list[str] = []
    assert demo(tmp_path / "demo", said.append) == 0
    printed = "".join(said)
    assert printed.count("ACCEPTED") == 3
    assert printed.count("REJECTED") == 1
    assert "write skew" in printed
    (page,) = (tmp_path / "demo").glob("*.html")
    assert str(page) in printed
    assert "write skew" in page.read_text(encoding="utf-8")
