"""A violation's page in a real browser: the story, its picture, and taking it along."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mussurana.verifier.daemon.service import Service
from tests.daemon.conftest import Running, running
from tests.render import samples
from tests.web import stage
from tests.web.browser.conftest import NARROW, WIDE, Windows


def all_kinds(service: Service) -> None:
    made = [stage.a_violation(name, make(), time.time_ns()) for name, make in samples.REJECTED.items()]
    stage.tell(service.violations, made)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("violation") / "data", prepare=all_kinds) as found:
        yield found


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_well_in_light_and_dark_wide_and_narrow(
    daemon: Running, windows: Windows, scheme: str, width: int
) -> None:
    window = windows(scheme, width)
    page = window.open(daemon.http_port, "/violations/write_skew")
    window.photograph(f"violation-{scheme}-{width}")
    assert page.inner_text("h1") == "Write skew (G2-item)"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.shifts") < 0.05, "only what stands below the picture is pushed down, once"


@pytest.mark.parametrize("name", samples.REJECTED)
def test_every_kind_has_its_picture_its_sentences_and_its_transactions(
    daemon: Running, windows: Windows, name: str
) -> None:
    result = samples.REJECTED[name]()
    found = stage.a_violation(name, result, 1)["counterexample"]
    page = windows().open(daemon.http_port, f"/violations/{name}")
    assert len(page.query_selector_all(".card")) == len(found["transactions"])
    steps = sum(len(case["steps"]) for case in found["cases"])
    assert len(page.query_selector_all("ol.steps > li")) == steps
    assert len(page.query_selector_all("svg.picture .edge")) == steps
    assert page.query_selector_all("svg.picture .txn .box")
    assert page.evaluate("window.violated") == []


def test_the_sql_and_the_times_are_there(daemon: Running, windows: Windows) -> None:
    page = windows().open(daemon.http_port, "/violations/write_skew")
    text = page.inner_text("#story")
    assert "UPDATE doctors SET on_call = %s WHERE id = %s" in text
    assert "10:04:11.203 .. 10:04:11.219" in text
    assert "T1 comes before T2, because T1 read doctors/7 at v41 and T2 replaced v41 by v60." in text


def test_edges_explain_themselves_to_mouse_and_keyboard(daemon: Running, windows: Windows) -> None:
    window = windows()
    page = window.open(daemon.http_port, "/violations/write_skew")
    page.hover("#case-1-edge-2 .plate")
    assert page.inner_text(".told").startswith("T2 comes before T1, because T2 read doctors/9")
    page.focus("#case-1-edge-1")
    assert page.inner_text(".told").startswith("T1 comes before T2")
    page.keyboard.press("Enter")
    assert page.get_attribute("#case-1-edge-1", "aria-pressed") == "true"
    window.photograph("violation-edge")
    page.keyboard.press("Escape")
    assert page.get_attribute("#case-1-edge-1", "aria-pressed") == "false"


@pytest.mark.parametrize("form", ["json", "svg", "html"])
def test_it_can_be_downloaded(daemon: Running, windows: Windows, form: str, tmp_path: Path) -> None:
    window = windows()
    page = window.open(daemon.http_port, "/violations/write_skew")
    with page.expect_download() as saving:
        page.click(f"[data-form={form}]")
    file = tmp_path / saving.value.suggested_filename
    saving.value.save_as(str(file))
    assert file.name == f"mussurana-write_skew.{form}"
    if form == "json":
        assert json.loads(file.read_text())["anomaly"] == "write skew"
        return
    assert "doctors/7" in file.read_text()
    shown = file
    if form == "svg":  # as a ticket would show it; a browser cannot photograph a bare picture
        shown = tmp_path / "ticket.html"
        shown.write_text(f'<!DOCTYPE html><img src="{file.name}">')
    alone = windows()
    alone.page.goto(shown.as_uri())
    alone.photograph(f"violation-download-{form}")
    if form == "svg":
        assert alone.page.evaluate("document.images[0].naturalWidth") > 400
    else:
        alone.page.hover("#case-1-edge-1 .plate")
        assert alone.page.inner_text(".told").startswith("T1 comes before T2"), "also without a daemon"


def test_the_link_to_paste_is_the_address_without_a_place_in_it(daemon: Running, windows: Windows) -> None:
    window = windows()
    page = window.open(daemon.http_port, "/violations/write_skew#case-1-step-1")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    window.wait("document.getElementById('done').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"http://127.0.0.1:{daemon.http_port}/violations/write_skew"


def test_one_that_is_not_there_says_so(daemon: Running, windows: Windows) -> None:
    window = windows("dark")
    page = window.open(daemon.http_port, "/violations/%3Cb%3Enone")
    assert page.inner_text("h1") == "There is no such violation"
    assert "<b>none" in page.inner_text("#summary")
    assert not page.is_visible("#actions")
    window.photograph("violation-none")
    window.errors = [error for error in window.errors if "404" not in error]


def test_without_a_connection_it_waits_and_then_shows(tmp_path: Path, windows: Windows) -> None:
    window = windows()
    page = window.page
    with running(tmp_path / "data", prepare=all_kinds) as found:
        port = found.http_port
        page.route("**/api/**", lambda route: route.abort())
        window.open(port, "/violations/write_skew")
        assert page.inner_text("h1") == "No connection to the daemon"
        window.photograph("violation-disconnected")
        page.unroute("**/api/**")
        window.wait("document.querySelector('h1').textContent === 'Write skew (G2-item)'")
    window.errors = [error for error in window.errors if "ERR_FAILED" not in error]
