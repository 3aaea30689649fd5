"""The alerts: each is complete, asks for what the daemon exports, and does what its unit tests say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from tests.deploy.names import names, selectors, series
from tests.deploy.servers import program

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = {
    "MussuranaViolation",
    "MussuranaLagHigh",
    "MussuranaStalled",
    "MussuranaHistoryGap",
    "MussuranaPartFailed",
    "MussuranaErrors",
    "MussuranaCollectorSilent",
    "MussuranaUnobservedStatements",
    "MussuranaReadsUnchecked",
}


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((DIRECTORY / "rules.yaml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *arguments], cwd=DIRECTORY, capture_output=True, text=True)


def test_all_alerts_are_there_and_complete() -> None:
    assert {rule["alert"] for rule in rules()} == ALERTS
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"].endswith(f"/{rule['alert']}.md")


def test_every_alert_has_a_runbook_that_says_what_it_means_what_to_look_at_and_what_to_do() -> None:
    assert {page.stem for page in RUNBOOKS.glob("Mussurana*.md")} == ALERTS
    for alert in ALERTS:
        page = (RUNBOOKS / f"{alert}.md").read_text()
        assert page.startswith(f"# {alert}\n")
        assert re.findall(r"^## (.*)$", page, re.MULTILINE)[:3] == ["What it means", "What to look at", "What to do"]


def test_runbooks_name_only_metrics_that_exist(exported: list[Metric]) -> None:
    known = set(series(exported)) | {metric.name for metric in exported}
    for page in RUNBOOKS.glob("*.md"):
        assert names(page.read_text()) <= known, page.name


def test_rules_ask_only_for_what_is_exported_from_the_start(exported: list[Metric]) -> None:
    known = series(exported)
    for rule in rules():
        assert names(rule["expr"]) <= set(known), rule["alert"]
        for metric, label, value in selectors(rule["expr"]):
            assert any(labels.get(label) == value for labels in known[metric]), f"{metric}: {label}={value}"


def test_promtool_accepts_rules_and_configuration() -> None:
    for what, file in (("rules", "rules.yaml"), ("config", "prometheus.yaml")):
        checked = promtool("check", what, file)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_rules_fire_and_keep_still_as_their_unit_tests_say() -> None:
    tested = promtool("test", "rules", "rules_test.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_amtool_accepts_the_configuration() -> None:
    config = ROOT / "deploy" / "alertmanager" / "alertmanager.yaml"
    checked = subprocess.run([program("amtool"), "check-config", str(config)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "MussuranaViolation", "severity": "critical"}, "violations"),
        ({"alertname": "MussuranaStalled", "severity": "critical"}, "pager"),
        ({"alertname": "MussuranaHistoryGap", "severity": "warning"}, "tickets"),
    ],
)
def test_alerts_go_where_they_should(labels: dict[str, str], receiver: str) -> None:
    config = ROOT / "deploy" / "alertmanager" / "alertmanager.yaml"
    command = [program("amtool"), "config", "routes", "test", f"--config.file={config}"]
    routed = subprocess.run([*command, *(f"{k}={v}" for k, v in labels.items())], capture_output=True, text=True)
    assert routed.stdout.split() == [receiver], routed.stderr


@pytest.mark.live
@pytest.mark.parametrize("expr", ["vector(1) > 2", "label_replace(vector(1), 'instance', 'x', '', '')"])
@pytest.mark.parametrize("at", range(len(rules())))
def test_the_unit_tests_notice_a_rule_that_never_or_always_fires(at: int, expr: str, tmp_path: Path) -> None:
    content = yaml.safe_load((DIRECTORY / "rules.yaml").read_text())
    content["groups"][0]["rules"][at]["expr"] = expr
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(content))
    shutil.copy(DIRECTORY / "rules_test.yaml", tmp_path)
    command = [program("promtool"), "test", "rules", "rules_test.yaml"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0
