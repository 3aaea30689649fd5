"""docs/metrics.md, and the metrics themselves, as Prometheus' conventions want them."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import Metric

from deploy.metrics_reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
UNITS = ("_seconds", "_bytes", "_transactions", "_keys", "_epoch", "_info")
COUNTED = ("_connected", "_silent", "_open", "_idle", "_waiting")
FLAGS = ("_running", "_acknowledging")


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "make docs"


def test_every_family_has_a_series_from_the_start(exported: list[Metric]) -> None:
    for metric in exported:
        assert metric.samples, metric.name
        assert metric.documentation.endswith(".") or not metric.name.startswith("mussurana_"), metric.name


def test_gauges_and_histograms_end_in_what_they_count(exported: list[Metric]) -> None:
    for metric in exported:
        if metric.name.startswith("mussurana_") and metric.type != "counter":
            assert metric.name.endswith((*UNITS, *COUNTED, *FLAGS)), metric.name


def test_what_counts_is_zero_before_anything_happened(exported: list[Metric]) -> None:
    for metric in exported:
        if metric.name.startswith("mussurana_") and metric.type in ("counter", "histogram"):
            for sample in metric.samples:
                assert sample.value == 0 or sample.name.endswith("_created"), sample
