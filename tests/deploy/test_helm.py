"""The chart: it renders, what it renders is what Kubernetes and the daemon understand, and bad values are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mussurana.verifier.daemon.config import Config
from mussurana.verifier.daemon.configured import load

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "mussurana"

PLAIN = ("tls.insecure=true",)
FULL = (
    "tls.secretName=certificate",
    "tls.clientAuthority=true",
    "auth.secretName=tokens",
    "webhook.url=https://hooks.example.com/x",
    "webhook.secretName=hook",
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "prometheusRule.runbooks=https://wiki.example.com/runbooks",
    "dashboard.enabled=true",
)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
    if not found:
        pytest.skip("there is no helm here; `make manifests` installs one")
    return subprocess.run([found, *arguments], capture_output=True, text=True)


def sets(values: tuple[str, ...]) -> list[str]:
    return [argument for value in values for argument in ("--set", value)]


@cache
def rendered(values: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """By kind; there is one of each, but for config maps."""
    made = helm("template", "audit", str(CHART), "--namespace", "shop", *sets(values))
    assert made.returncode == 0, made.stderr
    documents = [each for each in yaml.safe_load_all(made.stdout) if each]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in documents}


def pod(values: tuple[str, ...]) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(values)["StatefulSet audit-mussurana"]["spec"]["template"]["spec"]
    return spec


def test_the_defaults_fit_the_schema_but_for_the_choice_about_tls() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(values))
    assert [list(error.path) for error in errors] == [["tls"]]
    values["tls"]["insecure"] = True
    jsonschema.validate(values, schema)
    assert set(values) <= set(schema["properties"])


@pytest.mark.parametrize(
    "value",
    [
        "tls.insecure=false",
        "tls.secretName=also",
        "persistence.size=much",
        "webhook.url=ftp://x",
        "replicas=2",
        "networkPolicy.enabled=maybe",
    ],
)
def test_values_that_make_no_sense_are_refused(value: str) -> None:
    made = helm("template", "audit", str(CHART), *sets((*PLAIN, value)))
    assert made.returncode != 0
    assert "schema" in made.stderr


def test_the_chart_passes_lint() -> None:
    linted = helm("lint", "--strict", str(CHART), *sets(PLAIN))
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("values", [PLAIN, FULL])
@pytest.mark.parametrize("version", ["1.27", "1.34"])
def test_kubernetes_schemas_accept_what_is_rendered(values: tuple[str, ...], version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="`make manifests` installs it")
    kinds = [each for each in rendered(values).values() if not each["apiVersion"].startswith("monitoring.coreos.com")]
    assert len(kinds) >= 5
    for each in kinds:
        validator.validate(each, version, strict=True)


@pytest.mark.parametrize("values", [PLAIN, FULL])
def test_the_daemon_understands_its_options(values: tuple[str, ...], tmp_path: Path) -> None:
    config = configured(values, tmp_path)
    assert config.ingest.listen == "0.0.0.0:7701"
    assert config.http.listen == "0.0.0.0:7702"
    assert config.ingest.insecure == (values is PLAIN)
    if values is FULL:
        assert config.tls.client_authority_file
        assert config.auth.tokens_file
        assert config.webhook.secret_file


def configured(values: tuple[str, ...], directory: Path) -> Config:
    """As the container would read it, with the mounted files in a directory of the test's."""
    container = pod(values)["containers"][0]
    environment = {each["name"]: each["value"] for each in container["env"]}
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    for name, value in environment.items():
        if name.endswith("_FILE"):
            assert str(Path(value).parent) in mounts, value
            (directory / Path(value).name).touch()
            environment[name] = str(directory / Path(value).name)
    file = directory / "mussurana.toml"
    file.write_text(rendered(values)["ConfigMap audit-mussurana"]["data"]["mussurana.toml"])
    assert container["args"] == ["serve", "--config", f"/etc/mussurana/{file.name}"]
    environment["MUSSURANA_DATA"] = str(directory / "data")
    return load(file, environment, {})


@pytest.mark.parametrize("values", [PLAIN, FULL])
def test_the_pod_is_confined(values: tuple[str, ...]) -> None:
    spec = pod(values)
    container = spec["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    volumes = {each["name"] for each in spec["volumes"]} | {"data"}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    assert {probe for probe in container if probe.endswith("Probe")} == {
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
    }


def test_nobody_gets_in_or_out_unless_named() -> None:
    policy = rendered(PLAIN)["NetworkPolicy audit-mussurana"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    assert [rule["ports"][0]["port"] for rule in policy["ingress"]] == ["ingest", "http"]
    closed = (*PLAIN, "networkPolicy.collectors=null", "networkPolicy.monitoring=null")
    assert rendered(closed)["NetworkPolicy audit-mussurana"]["spec"]["ingress"] == []


def test_rules_and_dashboard_are_those_of_the_repository() -> None:
    rules = yaml.safe_load((CHART.parents[1] / "prometheus" / "rules.yaml").read_text())["groups"]
    inside = rendered(FULL)["PrometheusRule audit-mussurana"]["spec"]["groups"]
    for group, other in zip(rules, inside, strict=True):
        for rule, rendered_rule in zip(group["rules"], other["rules"], strict=True):
            link = f"https://wiki.example.com/runbooks/{rule['alert']}.md"
            rule["annotations"]["runbook_url"] = link
            assert rendered_rule == rule
    dashboard = rendered(FULL)["ConfigMap audit-mussurana-dashboard"]["data"]["mussurana.json"]
    assert json.loads(dashboard)["uid"] == "mussurana"
    monitor = rendered(FULL)["ServiceMonitor audit-mussurana"]["spec"]
    assert {"targetLabel": "job", "replacement": "mussurana", "action": "replace"} in monitor["endpoints"][0][
        "relabelings"
    ]
