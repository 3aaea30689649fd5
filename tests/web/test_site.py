"""What the daemon answers over HTTP: pages, data, downloads, and to whom."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.daemon import http
from mussurana.verifier.daemon.http import HttpServer
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.service import Service
from mussurana.verifier.daemon.web import documents
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.render import samples
from tests.web import stage
from tests.web.page import get

TOKEN = "a-token-for-queries-1"
DATA = [
    "overview",
    "hour",
    "rounds",
    "violations",
    *(f"violations/v1770a81c.{f}" for f in ("json", "svg", "html", "story")),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("web") / "data", stage.CalmMachine, prepare=stage.caught) as found:
        found.service.site.sampler.look()
        yield found


def test_pages_are_the_same_for_every_violation_and_hold_no_data(daemon: Running) -> None:
    overview, one, other = (get(daemon.http_port, path) for path in ("/", "/violations/v1770a81c", "/violations/none"))
    assert (overview.status, one.status) == (200, 200)
    assert one.content == other.content
    assert b"doctors" not in one.content


@pytest.mark.parametrize("path", ["/", "/violations/x", "/assets/overview.js", "/assets/report.css"])
def test_pages_allow_their_own_scripts_and_styles_only_and_no_frames(daemon: Running, path: str) -> None:
    headers = get(daemon.http_port, path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("name", DATA)
def test_data_is_never_stored_and_can_do_nothing_as_a_page(daemon: Running, name: str) -> None:
    answer = get(daemon.http_port, f"/api/{name}")
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert int(answer.headers["mussurana-time-ns"]) > 0


def test_all_files_that_a_page_names_are_served_and_none_is_elsewhere(daemon: Running) -> None:
    seen, left = set(), ["/", "/violations/x"]
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = get(daemon.http_port, path)
        assert answer.status == 200, path
        text = answer.content.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), f"{path} names another place"
        assert not re.search(r"<[^>]* (on\w+|style)=", text), f"{path} has what its own policy forbids"
        left += [f"/assets/{name}" for name in re.findall(r"""(?:\.\./)?assets/([\w.]+)""", text)]
        left += [f"/assets/{name}" for name in re.findall(r"""from "\./([\w.]+)";""", text)]
    assert {"/assets/overview.js", "/assets/violation.js", "/assets/report.js", "/assets/palette.css"} <= seen
    assert seen >= {f"/assets/{file.name}" for file in static() if file.suffix != ".html"}, "a file that nobody uses"


def static() -> Iterator[Path]:
    import mussurana.verifier.daemon.web as web

    yield from (Path(web.__path__[0]) / "static").iterdir()


def test_files_and_answers_that_are_as_before_are_not_sent_again(daemon: Running) -> None:
    for path in ("/", "/assets/page.css", "/api/violations", "/api/violations/v1770a81c.json"):
        first = get(daemon.http_port, path)
        again = get(daemon.http_port, path, If_None_Match=f'"other", W/{first.headers["etag"]}')
        assert (again.status, again.content) == (304, b""), path
        assert "content-length" not in again.headers


def test_head_says_how_long_and_sends_nothing(daemon: Running) -> None:
    answer = get(daemon.http_port, "/", "HEAD")
    assert (answer.status, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 1000


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(daemon: Running, method: str) -> None:
    answer = get(daemon.http_port, "/api/overview", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["/violations", "/violations/a/b", "/assets/", "/assets/../site.py", "/assets/%2e%2e/site.py"]
)
def test_what_is_not_there_is_not_there(daemon: Running, path: str) -> None:
    assert get(daemon.http_port, path).status == 404


@pytest.mark.parametrize(
    "path",
    ["nothing", "violations/none.json", "violations/v1770a81c", "violations/v1770a81c.exe", "violations/../x.json"],
)
def test_data_that_is_not_there_is_told_in_a_sentence(daemon: Running, path: str) -> None:
    answer = get(daemon.http_port, f"/api/{path}")
    assert answer.status == 404
    assert answer.json()["error"].endswith(".")


def test_the_overview_has_everything_at_once(daemon: Running) -> None:
    overview = get(daemon.http_port, "/api/overview").json()
    assert overview["status"]["state"] == "verifying"
    assert overview["status"]["level"][0]["level"] == "serializable"
    assert [each["number"] for each in overview["rounds"]] == list(range(1800, 1792, -1))
    assert [each["anomaly"] for each in overview["violations"]["latest"]] == ["write skew", "lost update", "long fork"]
    collectors = overview["collectors"]
    assert (collectors["connected"], collectors["silent"], collectors["known"]) == (3, 1, 4)
    assert overview["statements"]["shapes"][0] | {"seen_ns": 0} == {
        "table": "orders",
        "shape": "SELECT with GROUP BY",
        "observed": "unobserved_read",
        "statements": 8120,
        "seen_ns": 0,
    }
    assert [gap["cause"] for gap in overview["gaps"]["latest"]] == ["not kept", "declared"]


def test_the_last_hour_comes_whole_and_then_in_parts(daemon: Running) -> None:
    whole = get(daemon.http_port, "/api/hour").json()
    starts = whole["columns"]["start_seconds"]
    assert whole["interval_seconds"] == 5
    assert 600 < len(starts) <= 720
    assert starts == sorted(starts)
    assert sum(whole["columns"]["rejected"]) == 3
    part = get(daemon.http_port, f"/api/hour?since_seconds={starts[-3]}").json()["columns"]
    assert part["start_seconds"][:3] == starts[-3:]
    assert {len(column) for column in part.values()} == {len(part["start_seconds"])}


def test_rounds_by_verdict(daemon: Running) -> None:
    rejected = get(daemon.http_port, "/api/rounds?verdict=rejected&limit=2").json()
    assert [each["number"] for each in rejected["rounds"]] == [1770, 1640]
    assert rejected["more"]
    unknown = get(daemon.http_port, "/api/rounds?verdict=unknown").json()
    assert [each["number"] for each in unknown["rounds"]] == [1251]
    assert not unknown["more"]
    assert get(daemon.http_port, "/api/rounds?level=strong-si").json()["rounds"] == []


def test_violations_page_by_page(daemon: Running) -> None:
    first = get(daemon.http_port, "/api/violations?limit=2").json()
    assert [each["id"] for each in first["violations"]] == ["v1770a81c", "v1640a81c"]
    assert first["more"]
    rest = get(daemon.http_port, f"/api/violations?before={first['violations'][-1]['id']}").json()
    assert ([each["id"] for each in rest["violations"]], rest["more"]) == (["v0600a81c"], False)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("rounds?limit=-1", "limit"),
        ("rounds?limit=ten", "limit"),
        ("rounds?limit=٣", "limit"),
        ("hour?since_seconds=1e9", "since_seconds"),
        ("hour?since_seconds=" + "9" * 5000, "since_seconds"),
        ("violations?before=nobody", "before"),
        ("rounds?" + "a=1&" * 50, "fields"),
    ],
)
def test_a_question_that_makes_no_sense_is_told_why(daemon: Running, path: str, named: str) -> None:
    from urllib.parse import quote

    answer = get(daemon.http_port, "/api/" + quote(path, safe="/?=&"))
    assert answer.status == 400
    assert named in answer.json()["error"]


def test_a_violation_can_be_taken_along_in_three_forms(daemon: Running) -> None:
    for form, kind in (("json", "application/json"), ("svg", "image/svg+xml"), ("html", "text/html; charset=utf-8")):
        answer = get(daemon.http_port, f"/api/violations/v1770a81c.{form}")
        assert answer.headers["content-type"] == kind
        assert answer.headers["content-disposition"] == f'attachment; filename="mussurana-v1770a81c.{form}"'
        assert b"doctors/7" in answer.content
    violation = get(daemon.http_port, "/api/violations/v1770a81c.json").json()
    assert (violation["id"], violation["counterexample"]["adya"]) == ("v1770a81c", "G2-item")


def test_the_story_is_the_one_of_the_report(daemon: Running) -> None:
    story = get(daemon.http_port, "/api/violations/v1770a81c.story").json()
    report = get(daemon.http_port, "/api/violations/v1770a81c.html").content.decode()
    assert story["headline"] == "Write skew (G2-item)"
    assert story["story"] in report
    assert "counterexample" not in story


# Tokens


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "tokens").write_text(f"query anna {TOKEN}\n")
    with running(directory / "data", prepare=stage.caught, auth_tokens_file=str(directory / "tokens")) as found:
        yield found


@pytest.mark.parametrize("name", DATA)
def test_no_data_without_a_token(guarded: Running, name: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Cookie": TOKEN}):
        answer = get(guarded.http_port, f"/api/{name}", **headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert set(answer.json()) == {"error"}
    assert get(guarded.http_port, f"/api/{name}?token={TOKEN}").status == 401, "an address is no place for a token"
    assert get(guarded.http_port, f"/api/{name}", Authorization=f"Bearer {TOKEN}").status == 200


def test_an_etag_does_not_open_anything(guarded: Running) -> None:
    tag = get(guarded.http_port, "/api/violations", Authorization=f"Bearer {TOKEN}").headers["etag"]
    assert get(guarded.http_port, "/api/violations", If_None_Match=tag).status == 401


def test_pages_and_monitoring_need_no_token(guarded: Running) -> None:
    for path in ("/", "/violations/x", "/assets/page.css", "/metrics", "/-/healthy"):
        assert get(guarded.http_port, path).status == 200


def test_wrong_tokens_are_counted(guarded: Running) -> None:
    def refused() -> float:
        value = guarded.service.metrics.registry.get_sample_value(
            "mussurana_fragments_refused_total", {"reason": "authentication"}
        )
        return value or 0.0

    before = refused()
    get(guarded.http_port, "/api/overview", Authorization="Bearer wrong")
    get(guarded.http_port, "/api/overview")
    assert refused() == before + 1


def test_a_foreign_name_gets_no_data(daemon: Running) -> None:
    assert get(daemon.http_port, "/api/overview", Host="evil.example").status == 403
    assert get(daemon.http_port, "/", Host="evil.example").status == 200, "the page itself can say why"


# Strange names


def strange(service: Service) -> None:
    stage.tell(service.violations, [stage.a_violation('../"<b>/ü?#.%2e', samples.hostile(), 1)])


def test_strange_ids_and_names_stay_data(tmp_path: Path) -> None:
    with running(tmp_path / "data", prepare=strange) as daemon:
        path = "/api/violations/..%2F%22%3Cb%3E%2F%C3%BC%3F%23.%252e"
        answer = get(daemon.http_port, f"{path}.html")
        assert answer.status == 200
        assert answer.headers["content-disposition"] == 'attachment; filename="mussurana--b-2e.html"'
        assert samples.HOSTILE.encode() not in answer.content
        story = get(daemon.http_port, f"{path}.story")
        assert samples.HOSTILE not in story.json()["story"]
        json.loads(story.content)


# Limits


def test_who_comes_when_all_places_are_taken_gets_that_of_whoever_has_said_nothing_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    server = HttpServer("127.0.0.1:0", Metrics(["serializable"]), lambda: "")
    server.start()
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(3)]
    assert held[0].recv(1) == b"", "the first is closed"
    held[2].sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
    assert held[2].recv(100).startswith(b"HTTP/1.1 200")
    server.close()
    assert held[1].recv(1) == b"", "the end of the server is the end of its connections"
    for each in held:
        each.close()


def test_an_error_in_an_answer_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_request: http.Request) -> http.Response | None:
        raise RuntimeError("broken")

    server = HttpServer("127.0.0.1:0", Metrics(["serializable"]), lambda: "", broken)
    server.start()
    assert get(server.port, "/anything").status == 500
    assert get(server.port, "/-/ready").status == 200
    server.close()
    assert "no answer for '/anything'" in caplog.text


def test_verification_goes_on_while_a_picture_takes_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing, enough = threading.Event(), threading.Event()

    def slow(_violation: dict[str, Any]) -> str:
        drawing.set()
        enough.wait(30)
        return "<svg/>"

    monkeypatch.setitem(documents.FORMS, "svg", ("image/svg+xml", slow))
    with running(tmp_path / "data", prepare=stage.caught) as daemon:
        viewers = [
            threading.Thread(target=get, args=(daemon.http_port, "/api/violations/v1770a81c.svg")) for _ in range(5)
        ]
        for viewer in viewers:
            viewer.start()
        assert drawing.wait(10)
        before = len(daemon.service.violations.summaries())
        with TestCollector(daemon.address) as collector:
            collector.send(fragment(1, mark="found meanwhile"))
            collector.wait_durable(1)
            until = time.monotonic() + 10
            while len(daemon.service.violations.summaries()) == before:
                assert time.monotonic() < until
                time.sleep(0.02)
        assert get(daemon.http_port, "/api/violations?limit=1").json()["violations"][0]["summary"] == "found meanwhile"
        assert get(daemon.http_port, "/metrics").status == 200
        enough.set()
        for viewer in viewers:
            viewer.join()
