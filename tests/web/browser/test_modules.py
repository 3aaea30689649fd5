"""The page's own modules, one by one: what they say for which values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mussurana.verifier.render.words import duration
from tests.daemon.conftest import running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Any]:
    with running(tmp_path_factory.mktemp("modules") / "data") as daemon:
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{daemon.http_port}/")
        yield page
        page.close()


def test_durations_are_those_of_the_reports(page: Any) -> None:
    values = [0.0004, 0.0132, 0.4, 0.9996, 1.25, 9.5, 92.0]
    said = page.evaluate("(all) => import('/assets/format.js').then((format) => all.map(format.duration))", values)
    assert said == [duration(value) for value in values]
    longer = page.evaluate(
        "(all) => import('/assets/format.js').then((format) => all.map(format.duration))", [0, 130, 9000]
    )
    assert longer == ["0 s", "2 min", "3 h"]


def test_numbers_and_shares(page: Any) -> None:
    said = page.evaluate(
        "() => import('/assets/format.js').then(({ number, percent, rate, size, plural, ago }) => "
        "[number(1234567), percent(0), percent(0.00001), percent(0.0043), rate(1240.4), rate(0.44), size(1536000), "
        "plural(1, 'round'), plural(2, 'round'), ago(0.3), ago(12), ago(600), ago(8000)])"
    )
    assert said == [
        *("1,234,567", "0", "< 0.01", "0.43", "1,240", "0.44", "1.5 MB", "1 round", "2 rounds"),
        *("just now", "12 s ago", "10 min ago", "2 h ago"),
    ]


ROUND = {"number": 7, "verdict": "accepted", "reason": "", "finished_ns": 100e9}
FOUND = {"anomaly": "write skew", "level": "serializable", "found_ns": 100e9}
FINE: dict[str, Any] = {
    "status": {
        "state": "verifying",
        "trouble": [],
        "lag_seconds": 0.1,
        "log_behind_bytes": 0,
        "level": [{"level": "serializable", "last_round": ROUND}],
    },
    "violations": {"stored": 0, "latest": []},
    "collectors": {"connected": 2},
}


def status(**changes: Any) -> dict[str, Any]:
    return {**FINE, "status": {**FINE["status"], **changes}}


@pytest.mark.parametrize(
    ("overview", "kind", "title"),
    [
        (FINE, "accepted", "No violation in the last hour"),
        (status(trouble=["the disk is full"]), "trouble", "Verification is held up"),
        (status(state="stopped"), "trouble", "Verification has stopped"),
        (status(state="starting"), "waiting", "Starting"),
        (status(state="catching up", log_behind_bytes=2e6), "waiting", "Catching up"),
        (status(lag_seconds=45), "unknown", "Verification is 45 s behind"),
        (status(level=[{"level": "serializable"}]), "waiting", "Nothing verified yet"),
        (
            status(level=[{"level": "strong-si", "last_round": {**ROUND, "verdict": "unknown", "reason": "budget"}}]),
            "unknown",
            "No answer for round 7",
        ),
        ({**FINE, "collectors": {"connected": 0}}, "waiting", "Nothing new to verify"),
        ({**FINE, "violations": {"stored": 1, "latest": [FOUND]}}, "rejected", "1 violation in the last hour"),
        (
            {**FINE, "violations": {"stored": 9, "latest": [FOUND] * 2}},
            "rejected",
            "More than 2 violations in the last hour",
        ),
    ],
)
def test_only_what_was_verified_counts_as_fine(page: Any, overview: dict[str, Any], kind: str, title: str) -> None:
    said = page.evaluate(
        "(overview) => import('/assets/headline.js')"
        ".then(({ headline }) => headline(overview, (ns) => 160 - ns / 1e9))",
        overview,
    )
    assert (said["kind"], said["title"]) == (kind, title)
