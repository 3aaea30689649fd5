"""The dashboard: it is what the code says, asks for what the daemon exports, and is built as Grafana expects."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from deploy.grafana.dashboard import COLUMNS, ROWS, dashboard
from tests.deploy.names import names, selectors, series

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"

NOT_SHOWN = {
    "mussurana_build_info",  # names the instances
    "mussurana_steps_rerun_total",  # of every start, and no sign of anything
    "mussurana_verification_heartbeat_timestamp_seconds",  # for an alert
}


def written() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "mussurana.json").read_text())
    return content


def expressions() -> Iterator[str]:
    for row in ROWS.values():
        for panel in row:
            yield from (query.expr for query in panel.queries)


def test_the_file_is_what_the_code_makes() -> None:
    assert written() == dashboard(), "make docs"


def test_it_asks_only_for_what_is_exported_from_the_start(exported: list[Metric]) -> None:
    known = series(exported)
    for expr in expressions():
        assert names(expr) <= set(known), expr
        for metric, label, value in selectors(expr):
            assert any(labels.get(label) == value for labels in known[metric]), expr


def test_it_leaves_out_no_metric_of_ours(exported: list[Metric]) -> None:
    shown = {name for expr in expressions() for name in names(expr)}
    for metric in exported:
        own = {sample.name for sample in metric.samples if not sample.name.endswith("_created")}
        if metric.name.startswith("mussurana_") and not own & NOT_SHOWN:
            assert own & shown, metric.name


def test_counters_are_only_shown_as_rates(exported: list[Metric]) -> None:
    counters = {f"{metric.name}_total" for metric in exported if metric.type == "counter"}
    for expr in expressions():
        for name in names(expr) & counters:
            assert f"rate({name}" in expr or f"increase({name}" in expr, expr


def test_panels_lie_side_by_side() -> None:
    boxes = [(panel["id"], panel["gridPos"]) for panel in written()["panels"]]
    assert len({id for id, _ in boxes}) == len(boxes)
    for _, box in boxes:
        assert 0 <= box["x"] <= box["x"] + box["w"] <= COLUMNS
    for (_, a), (_, b) in itertools.combinations(boxes, 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_y = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_x or apart_y


def test_grafanas_own_schema_knows_every_field() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="`make manifests` installs it")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    read = models.Dashboard.from_json(written())
    again = json.loads(JSONEncoder().encode(read))
    # The fields of an annotation's query belong to the data source, and `definition` is for the page that edits it.
    theirs = {"step", "textFormat", "titleFormat", "useValueForTime", "definition"}
    assert set(missing(written(), again)) == theirs


def missing(a: Any, b: Any) -> Iterator[str]:
    """The fields of `a` that `b` has not, or has another value for."""
    if isinstance(a, dict):
        for name, value in a.items():
            if isinstance(value, dict | list) and name in b:
                yield from missing(value, b[name])
            elif name not in b or b[name] != value:
                yield name
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            if isinstance(one, dict):
                yield from missing(one, other)


def test_provisioning_finds_the_data_source_and_the_dashboard() -> None:
    source = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())
    assert [each["type"] for each in source["datasources"]] == ["prometheus"]
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "mussurana.yaml").read_text())
    folder = provider["providers"][0]["options"]["path"]
    compose = yaml.safe_load((GRAFANA.parent / "compose.yaml").read_text())
    volumes = compose["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{folder}:ro" in volumes
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in volumes
