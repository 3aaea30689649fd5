"""A name is one thing, and each is used. The exceptions are what was there when this was written: they may only go."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache

from tests.tidy.trees import ROOT, nodes, trees

CLASS_NAMES_USED_TWICE = {
    *("Batch", "Clock", "Collector", "ConnectionMixin", "CursorMixin", "Found", "Handler", "Ingest"),
    *("Journal", "Layout", "Link", "Metrics", "Names", "Progress", "Query", "Reader", "Refused", "Round", "Sender"),
    *("Sent", "Session", "Settings", "Source", "Step", "Target", "Watch", "Webhook", "Write", "_Transaction"),
}

CALLED_BY_OTHERS = {
    *("MussuranaPlugin", "update_url", "engine_created"),  # by SQLAlchemy
    "fetchone",  # by applications
    "intercept_service",  # by gRPC
    *("do_GET", "do_HEAD", "do_POST", "send_error", "handle_error", "service_actions"),  # by http.server
    *("redirect_request", "http_open", "https_open"),  # by urllib
    *("on_start", "on_end"),  # by numba
}

ONLY_DEFINED = {"INT8", "flags_from"}


@cache
def words() -> Counter[str]:
    """How often each word stands in what is shipped, measured and deployed; tests do not count as a use."""
    found = Counter[str]()
    for folder, ending in (("proto/src", "py"), ("collector/src", "[pc]*"), ("verifier/src", "py"), ("bench", "py")):
        for path in (ROOT / folder).rglob(f"*.{ending}"):
            if path.suffix in (".py", ".c"):
                found.update(re.findall(r"\w+", path.read_text()))
    for path in (ROOT / "deploy").rglob("*.py"):
        found.update(re.findall(r"\w+", path.read_text()))
    return found


def defined() -> list[str]:
    """Functions, methods and classes, and what modules assign to."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [node.name for _, node in nodes() if isinstance(node, kinds)]
    for tree in trees().values():
        for node in tree.body:
            targets = list(node.targets) if isinstance(node, ast.Assign) else []
            targets += [node.target] if isinstance(node, ast.AnnAssign) else []
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def test_a_class_name_occurs_once() -> None:
    counts = Counter(node.name for _, node in nodes() if isinstance(node, ast.ClassDef))
    assert {name for name, count in counts.items() if count > 1} == CLASS_NAMES_USED_TWICE


def test_every_limit_is_used() -> None:
    limits = {name for name in defined() if name.endswith("_MAX")}
    assert len(limits) > 50
    assert not {name for name in limits if words()[name] == 1}


def test_no_name_stands_only_where_it_is_defined() -> None:
    unused = {name for name in defined() if words()[name] == 1 and not name.startswith("__")}  # Python calls those
    assert unused - CALLED_BY_OTHERS == ONLY_DEFINED
    assert unused >= CALLED_BY_OTHERS
