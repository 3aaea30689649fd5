"""From a write skew on the wire to a message: the daemon, a real Prometheus with our rules, a real Alertmanager."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.dashboard import ROWS
from tests.daemon.collector import TestCollector
from tests.deploy.scrape import value
from tests.deploy.servers import alertmanager, free_port, get, process, program, prometheus, receiver, wait_for
from tests.deploy.write_skew import fragments

START_SECONDS = 180
"""For the daemon's machine, which has to be compiled if it never was."""

pytestmark = pytest.mark.live


def said(what: str, since: float) -> None:
    print(f"{time.monotonic() - since:6.1f} s  {what}")


def ask(address: str, expr: str) -> list[dict[str, Any]]:
    answer = get(f"http://{address}/api/v1/query", query=expr)
    assert answer["status"] == "success", answer
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


def shown() -> Iterator[tuple[str, str]]:
    """(panel, query) of the dashboard, with its variables filled in."""
    for row in ROWS.values():
        for panel in row:
            for query in panel.queries:
                expr = query.expr.replace("$__rate_interval", "1m")
                yield panel.title, re.sub(r"\$(instance|level)\b", ".*", expr)


def test_a_violation_is_delivered_and_the_dashboard_has_something_to_show(tmp_path: Path) -> None:
    for name in ("prometheus", "prometheus-alertmanager"):
        program(name)
    started = time.monotonic()
    ingest, http = free_port(), free_port()
    command = [str(Path(sys.executable).parent / "mussurana"), "serve", "--data", str(tmp_path / "data")]
    command += ["--ingest-listen", f"127.0.0.1:{ingest}", "--http-listen", f"127.0.0.1:{http}"]
    with (
        receiver() as (url, came),
        process(command, tmp_path / "mussurana.log") as daemon,
        alertmanager(tmp_path, url) as manager,
        prometheus(tmp_path, f"127.0.0.1:{http}", manager) as monitor,
    ):
        wait_for("verification", lambda: value(http, "mussurana_verification_running") == 1, START_SECONDS)
        said("the daemon verifies", started)
        wait_for("a scrape", lambda: ask(monitor, "mussurana_verification_running == 1"), 30)
        assert len(ask(monitor, "mussurana_violation_timestamp_seconds == 0")) >= 16, "zeros before anything happened"
        said("Prometheus has scraped it", started)

        address = f"127.0.0.1:{ingest}"
        fine, broken = fragments(b"c" * 16)
        with TestCollector(address) as collector:
            collector.send(fine)
            collector.wait_durable(1)
        wait_for("a round", lambda: value(http, "mussurana_rounds_total", verdict="accepted") > 0, START_SECONDS)
        assert ask(monitor, 'ALERTS{alertname="MussuranaViolation"}') == []
        said("a round was accepted, and no alert", started)

        with TestCollector(address) as collector:
            collector.send(broken)
            collector.wait_durable(2)
        wait_for("a rejection", lambda: value(http, "mussurana_rejections_total") > 0, START_SECONDS)
        said("a round was rejected", started)
        message = came.get(timeout=60)
        said(f"Alertmanager told {message['receiver']}: {message['commonAnnotations']['summary']}", started)

        rules = get(f"http://{monitor}/api/v1/rules")["data"]["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} == {"ok"}, [rule.get("lastError") for rule in rules]
        said(f"{len(rules)} rules are evaluated without errors", started)
        empty = wait_for_panels(monitor)
        said(f"{len(set(shown()))} queries of the dashboard were answered; nothing to show: {empty}", started)

        labels = message["commonLabels"]
        assert message["receiver"] == "violations"
        assert message["status"] == "firing"
        assert labels["alertname"] == "MussuranaViolation"
        assert labels["severity"] == "critical"
        assert (labels["level"], labels["anomaly"]) == ("serializable", "write skew")
        assert labels["instance"] == f"127.0.0.1:{http}"
        assert message["commonAnnotations"]["runbook_url"] == "docs/runbooks/MussuranaViolation.md"

        daemon.terminate()
        assert daemon.wait(60) == 0
        pending = 'ALERTS{alertname="MussuranaStalled", cause="the daemon cannot be scraped"}'
        wait_for("MussuranaStalled", lambda: ask(monitor, pending), 30)
        said("the daemon has ended, and MussuranaStalled is pending", started)


NEVER_IN_A_TEST = {
    "Checkpoint age",  # the first one comes after a minute
    "Epoch age",  # nobody waits
    "Violations found",  # of more than a round explains
    "Share of statements fully seen",  # this collector reports none
    "Time to write",  # no checkpoint yet
}
"""Panels of which a query may find nothing in so short a life. All others have to show something."""


def wait_for_panels(monitor: str) -> list[str]:
    """The panels that have a query without an answer; those that should have one get some seconds."""
    deadline = time.monotonic() + 30
    while True:
        empty = sorted({title for title, expr in shown() if not ask(monitor, expr)})
        if set(empty) <= NEVER_IN_A_TEST or time.monotonic() > deadline:
            assert set(empty) <= NEVER_IN_A_TEST
            return empty
        time.sleep(0.5)
