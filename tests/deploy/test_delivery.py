"""The violation of the demo becomes a message: its application, the daemon, Prometheus and Alertmanager, all real."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.dashboard import ROWS
from mussurana.verifier.demo.play import WORKERS
from mussurana.verifier.demo.stage import Stage
from tests.deploy.scrape import value
from tests.deploy.servers import alertmanager, get, program, prometheus, receiver, wait_for

VERDICT_SECONDS = 60
"""A second or two where nobody else needs the processor."""

SCRAPES_SECONDS = 3
"""Some scrapes and evaluations, one a second each."""

ALERT = 'ALERTS{alertname="MussuranaViolation"}'

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


def levels_of(address: str) -> list[str]:
    """Of the violations that are firing."""
    return [alert["metric"]["level"] for alert in ask(address, ALERT)]


def test_the_violation_of_the_demo_is_delivered_and_the_dashboard_has_something_to_show(tmp_path: Path) -> None:
    for name in ("prometheus", "prometheus-alertmanager"):
        program(name)
    started = time.monotonic()
    with (
        receiver() as (url, came),
        Stage(lambda text: said(text, started)) as stage,
        alertmanager(tmp_path, url) as manager,
        prometheus(tmp_path, stage.http, manager) as monitor,
    ):
        http = int(stage.http.rpartition(":")[2])
        said("the daemon verifies", started)
        wait_for("a scrape", lambda: ask(monitor, "mussurana_verification_running == 1"), 30)
        assert len(ask(monitor, "mussurana_violation_timestamp_seconds == 0")) >= 16, "zeros before anything happened"
        said("Prometheus has scraped it", started)

        with stage.workers("SERIALIZABLE", WORKERS):
            wait_for("rounds", lambda: value(http, "mussurana_rounds_total", verdict="accepted") > 10, VERDICT_SECONDS)
            time.sleep(SCRAPES_SECONDS)
        assert ask(monitor, ALERT) == []
        said("rounds at SERIALIZABLE were accepted, and no alert", started)

        with stage.workers("REPEATABLE READ", WORKERS):
            switched = time.monotonic()
            wait_for("a rejection", lambda: value(http, "mussurana_rejections_total") > 0, VERDICT_SECONDS)
            said(f"a round was rejected, {time.monotonic() - switched:.1f} s after the switch", started)
            message = came.get(timeout=60)
            alert = next(each for each in message["alerts"] if each["labels"]["anomaly"] == "write skew")
            said(f"Alertmanager told {message['receiver']}: {alert['annotations']['summary']}", started)
            rules = get(f"http://{monitor}/api/v1/rules")["data"]["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} == {"ok"}, [rule.get("lastError") for rule in rules]
            said(f"{len(rules)} rules are evaluated without errors", started)
            empty = wait_for_panels(monitor)
            said(f"{len(set(shown()))} queries of the dashboard were answered; nothing to show: {empty}", started)

        assert message["receiver"] == "violations"
        assert alert["status"] == "firing"
        assert alert["labels"]["alertname"] == "MussuranaViolation"
        assert alert["labels"]["severity"] == "critical"
        assert alert["labels"]["level"] == "serializable"
        assert alert["labels"]["instance"] == stage.http
        assert alert["annotations"]["runbook_url"] == "docs/runbooks/MussuranaViolation.md"
        assert set(levels_of(monitor)) == {"serializable"}, "strong-session-si was not broken"
        stage.daemon.terminate()
        assert stage.daemon.wait(60) == 0
        pending = 'ALERTS{alertname="MussuranaStalled", cause="the daemon cannot be scraped"}'
        wait_for("MussuranaStalled", lambda: ask(monitor, pending), 30)
        said("the daemon has ended, and MussuranaStalled is pending", started)


NEVER_IN_A_TEST = {
    "Checkpoint age",  # the first one comes after a minute
    "Epoch age",  # nobody waits
    "Violations found",  # of more than a round explains
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
