"""The names of metrics in PromQL, found without a parser: whatever starts like one of ours or like a process's."""

from __future__ import annotations

import re

from prometheus_client import Metric

METRIC = re.compile(r"\b(?:mussurana|process)_\w+")


def names(expr: str) -> set[str]:
    return set(METRIC.findall(expr))


def series(exported: list[Metric]) -> dict[str, list[dict[str, str]]]:
    """What can be asked for: by full name, with the labels of each series."""
    found: dict[str, list[dict[str, str]]] = {}
    for metric in exported:
        for sample in metric.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def selectors(expr: str) -> list[tuple[str, str, str]]:
    """(metric, label, value) of every comparison with one value."""
    found = re.findall(r"\b((?:mussurana|process)_\w+)\{([^}]*)\}", expr)
    return [
        (name, label, value)
        for name, inside in found
        for label, value in re.findall(r'(\w+)\s*=\s*"([^"]*)"', inside)
        if label not in ("job", "instance")
    ]
