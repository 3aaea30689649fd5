"""To catch everything hides faults: only who must not fail whatever happens does so.

They are the borders to the application, threads that must go on, what asks a C extension, and what goes on after one
piece of input has shown a fault in the program.
"""

from __future__ import annotations

import ast

from tests.tidy.trees import nodes

BROADEST = ("Exception", "BaseException")

FILES = {
    "wire/segments.py",
    *(
        f"collector/{name}.py"
        for name in ("__main__", "adopt_command", "background", "columns", "extraction", "helper")
    ),
    *(f"collector/{name}.py" for name in ("journal", "kv", "recorder", "sender", "shipping")),
    *(f"collector/psycopg_{name}.py" for name in ("adapter", "lane", "pipelines", "watch")),
    *("collector/sqlite_adapter.py", "collector/sql/tokens.py"),
    *(f"verifier/daemon/{name}.py" for name in ("checkpointing", "http", "ingest", "journal", "log", "post")),
    *(f"verifier/daemon/{name}.py" for name in ("verify", "workers")),
    *("verifier/cli.py", "verifier/demo/stage.py", "verifier/embedded_postgres.py", "verifier/rounds/machine.py"),
}


def catches_everything(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "suppress":
        caught = list(node.args)
    else:
        return False
    return any(each is None or (isinstance(each, ast.Name) and each.id in BROADEST) for each in caught)


def test_nobody_else_catches_everything() -> None:
    assert {path for path, node in nodes() if catches_everything(node)} == FILES, "fewer are fine: then take them out"
