"""To catch everything hides faults: only who must not fail whatever happens does so, and no more often than now.

They are the borders to the application, threads that must go on, and what asks a C extension.
"""

from __future__ import annotations

import ast
from collections import Counter

from tests.tidy.trees import nodes

BROAD = {
    "collector/adopt_command.py": 1,
    "collector/background.py": 5,
    "collector/columns.py": 2,
    "collector/extraction.py": 1,
    "collector/helper.py": 1,
    "collector/journal.py": 3,
    "collector/kv.py": 2,
    "collector/psycopg_adapter.py": 38,
    "collector/psycopg_lane.py": 7,
    "collector/psycopg_watch.py": 11,
    "collector/recorder.py": 8,
    "collector/sender.py": 1,
    "collector/shipping.py": 1,
    "collector/spool_reader.py": 1,
    "collector/sql/tokens.py": 1,
    "collector/sqlite_adapter.py": 16,
    "verifier/daemon/checkpointing.py": 1,
    "verifier/daemon/http.py": 2,
    "verifier/daemon/ingest.py": 1,
    "verifier/daemon/journal.py": 1,
    "verifier/daemon/log.py": 1,
    "verifier/daemon/post.py": 1,
    "verifier/daemon/verify.py": 1,
    "verifier/daemon/workers.py": 3,
    "verifier/demo/stage.py": 1,
    "verifier/embedded_postgres.py": 2,
    "wire/segments.py": 1,
}


def catches_everything(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "suppress":
        caught = list(node.args)
    else:
        return False
    return any(each is None or (isinstance(each, ast.Name) and each.id in BROADEST) for each in caught)


BROADEST = ("Exception", "BaseException")


def test_nobody_else_catches_everything_and_nobody_does_so_more_often() -> None:
    found = Counter(path for path, node in nodes() if catches_everything(node))
    assert dict(found) == BROAD, "fewer are fine: then lower the number here"
