"""The page on trust names tests, and each of them is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.tidy.trees import ROOT

NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "security.md").read_text())))


def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_each_test_that_the_page_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()
    assert {name for file, name in NAMED if file == path} <= functions(path)


def test_the_page_names_a_test_of_each_file_of_attacks() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "attack").glob("test_*.py")}
    assert files == {path for path, _ in NAMED if path.startswith("tests/attack/")}


def test_every_test_in_its_tables_was_found() -> None:
    """A name that is written in another way would not be looked for."""
    text = (ROOT / "docs" / "security.md").read_text()
    assert len(re.findall(r"`tests/[^`]*::[^`]*`", text)) == len(re.findall(r"`tests/[\w/]+\.py::\w+`", text))
    assert len(NAMED) > 40
