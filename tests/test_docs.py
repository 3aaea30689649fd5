"""The documentation: every link leads somewhere, and the quick start does what it says."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mussurana.verifier.embedded_postgres import free_port

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("[a-z]*/README.md"))]


def prose(page: Path) -> str:
    """Without blocks of code and code in a line, in which brackets are no links."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_of_the_documentation_can_be_reached_from_its_index() -> None:
    docs = ROOT / "docs"
    seen, ahead = set(), [docs / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = re.findall(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)", prose(page))
        ahead += [(page.parent / target).resolve() for target in targets if "://" not in target]
    assert set(docs.rglob("*.md")) <= seen


def test_the_quick_start_does_what_it_says(tmp_path: Path) -> None:
    """Word by word, but for the installation, which is this environment, and for ports that may be in use."""
    text = (ROOT / "docs" / "quickstart.md").read_text()
    ingest, http = free_port(), free_port()
    text = text.replace(":7701", f":{ingest}")
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.py").write_text(program)
    script = "set -em\n" + "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MUSSURANA_INGEST_LISTEN": f"127.0.0.1:{ingest}",
        "MUSSURANA_HTTP_LISTEN": f"127.0.0.1:{http}",
        "MUSSURANA_SPOOL": str(tmp_path / "spool"),
    }
    shell = ["timeout", "--kill-after=5", "300", "bash", "-c", script]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " accepted " in done.stdout
    assert "no violations" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} <= {"shop.py", "shop.db", "mussurana.log", "spool"}
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        assert shop.execute("SELECT * FROM items").fetchall() == [(1, 990)], "and nothing of ours is left in it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_of_make_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", page.read_text(), re.MULTILINE))
    assert {one or other for one, other in named} <= targets
