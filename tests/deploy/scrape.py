"""What a daemon exports at this moment, read as Prometheus would."""

from __future__ import annotations

import urllib.request

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


def families(http_port: int) -> dict[str, Metric]:
    """By name, that of counters without _total."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=10) as answer:
        return {each.name: each for each in text_string_to_metric_families(answer.read().decode())}


def value(http_port: int, name: str, **labels: str) -> float:
    """The sum over all series that have the labels, of a gauge or a counter with its _total."""
    family = families(http_port)[name.removesuffix("_total")]
    found = [each.value for each in family.samples if each.name == name and labels.items() <= each.labels.items()]
    assert found, f"{name}{labels} is not there"
    return sum(found)
