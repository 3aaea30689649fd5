"""The syntax trees of all that is shipped, read once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {
    "wire": ROOT / "proto/src/mussurana/wire",
    "collector": ROOT / "collector/src/mussurana/collector",
    "verifier": ROOT / "verifier/src/mussurana/verifier",
}


@cache
def trees() -> dict[str, ast.Module]:
    """By path below the packages: "verifier/rounds/machine.py"."""
    return {
        f"{package}/{path.relative_to(folder)}": ast.parse(path.read_text())
        for package, folder in SOURCES.items()
        for path in sorted(folder.rglob("*.py"))
        if "_pb2" not in path.name
    }


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            yield path, node


def imported(path: str) -> set[str]:
    """The modules of ours that a file imports, also late, as paths without ".py": "verifier/rounds/machine"."""
    found = set()
    for node in ast.walk(trees()[path]):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("mussurana."):
                found.add(name.removeprefix("mussurana.").replace(".", "/"))
    known = {each.removesuffix(".py").removesuffix("/__init__") for each in trees()}
    known |= {"wire/history_pb2", "wire/query_pb2"}
    return found & known
