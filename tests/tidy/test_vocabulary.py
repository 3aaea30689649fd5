"""Kinds of operations and how transactions end are declared more than once; all say the same."""

from __future__ import annotations

import ast
import re

from mussurana.collector import columns, recorder
from mussurana.collector.sql import plan
from mussurana.verifier import kernels
from mussurana.verifier.history import Status
from mussurana.wire import history_pb2
from tests.tidy.trees import ROOT, nodes

KINDS = dict(history_pb2.OpKind.items())


def test_the_collector_counts_kinds_as_the_wire_does() -> None:
    assert {name: getattr(columns, name) for name in KINDS} == KINDS


def test_the_extension_counts_kinds_as_the_wire_does() -> None:
    source = (ROOT / "collector/src/mussurana/collector/_columns.c").read_text()
    (listed,) = re.findall(r"^enum \{ (READ[^}]*), KINDS \};", source, re.MULTILINE)
    assert {name: at for at, name in enumerate(listed.split(", "))} == KINDS


def test_plans_have_kinds_that_the_wire_has() -> None:
    assert {plan.INSERT, plan.UPDATE, plan.DELETE} < set(KINDS)


def test_transactions_end_alike_everywhere() -> None:
    here = {status.name: status.value for status in Status}
    assert {name: getattr(recorder, name) for name in here} == here


def test_every_file_with_a_kernel_is_in_the_digest() -> None:
    """What is not would go on running as it was compiled once."""
    with_kernels = {
        path.removeprefix("verifier/")
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef) and any("kernel" in ast.unparse(each) for each in node.decorator_list)
    }
    assert len(with_kernels) > 5
    assert with_kernels <= set(kernels._sources())
