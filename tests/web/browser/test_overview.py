"""The overview in a real browser: what it says, in every state, and that it looks as it should."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.daemon.service import Service
from mussurana.verifier.rounds.outcome import Gauges
from tests.daemon.conftest import Running, running
from tests.daemon.fake_machine import FakeMachine
from tests.render import samples
from tests.web import stage
from tests.web.browser.conftest import NARROW, WIDE, Windows

REASON = "The budget of 2 s ended with 31 choices left; it is tried again with more."
STATES = {"caught": stage.caught, "busy": stage.busy, "empty": lambda service: None}
HEADLINES = {
    "caught": "3 violations in the last hour",
    "busy": "No violation in the last hour",
    "empty": "Nothing verified yet",
}


@pytest.fixture(scope="module", params=STATES)
def state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Running]]:
    name = request.param
    machine = FakeMachine if name == "empty" else stage.CalmMachine
    with running(tmp_path_factory.mktemp(name) / "data", machine, prepare=STATES[name]) as daemon:
        daemon.service.site.sampler.look()
        yield name, daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("daemon") / "data", stage.CalmMachine, prepare=stage.caught) as found:
        found.service.site.sampler.look()
        yield found


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_well_in_light_and_dark_wide_and_narrow(
    state: tuple[str, Running], windows: Windows, scheme: str, width: int
) -> None:
    name, daemon = state
    window = windows(scheme, width)
    page = window.open(daemon.http_port)
    page.wait_for_timeout(300)
    window.photograph(f"overview-{name}-{scheme}-{width}")
    assert page.inner_text("#headline") == HEADLINES[name]
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out to the side"
    assert page.evaluate("window.shifts") < 0.01, f"moved when the answers came: {page.evaluate('window.shifted')}"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")


def test_figures_have_their_units(daemon: Running, windows: Windows) -> None:
    page = windows().open(daemon.http_port)
    tiles = {
        tile.get_attribute("data-tile"): tile.inner_text().split("\n") for tile in page.query_selector_all(".tile")
    }
    assert tiles["lag"][1].endswith((" ms", " s"))
    assert tiles["throughput"][1].endswith(" /s")
    assert tiles["retained"][1] == "12,480 txns"
    assert tiles["unobserved"][1].startswith("0.34 %")
    assert tiles["collectors"][-1] == "1 of them silent"
    assert tiles["gaps"][-1] == "1,284 transactions lost"


def test_times_are_relative_and_absolute_and_go_on(daemon: Running, windows: Windows) -> None:
    window = windows()
    page = window.open(daemon.http_port)
    first = page.inner_text(".violations li:first-child time")
    assert first.endswith(" s ago")
    assert page.inner_text(".violations li:first-child .absolute").endswith(" UTC")
    window.wait(f"document.querySelector('.violations time').textContent !== {first!r}")


def test_rounds_can_be_filtered_by_verdict(state: tuple[str, Running], windows: Windows) -> None:
    name, daemon = state
    window = windows()
    page = window.open(daemon.http_port)
    page.click(".filter [data-verdict=rejected]")
    if name == "caught":
        window.wait("document.querySelectorAll('#rounds-body tbody tr').length === 3")
        assert page.get_attribute("#rounds-body tbody a", "href") == "violations/v1770a81c"
    else:
        page.wait_for_selector("#rounds-body >> text=No rejected round")
    assert page.get_attribute(".filter [data-verdict=rejected]", "aria-pressed") == "true"


def test_everything_can_be_reached_and_used_with_the_keyboard(daemon: Running, windows: Windows) -> None:
    page = windows().open(daemon.http_port)
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "[document.activeElement.id || document.activeElement.textContent, "
                "getComputedStyle(document.activeElement).outlineStyle]"
            )
        )
    names = [each[0] for each in seen]
    assert names[:2] == ["Skip to the content", "Mussurana"]
    assert names[2].startswith("The latest: write skew")
    assert names[3] == "charts"
    assert names[5:7] == ["Write skew (G2-item)", "Lost update (G-single)"]
    assert {"collectors-body", "unobserved-body", "rounds-body", "rejected"} <= set(names)
    assert {each[1] for each in seen} == {"solid"}, "the focus is always visible"
    page.focus("#charts")
    page.keyboard.press("End")
    last = page.inner_text("#readout")
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    earlier = page.inner_text("#readout")
    assert earlier < last, "the readout starts with the time"
    assert "transactions/s" in earlier
    assert page.get_attribute("#charts", "aria-valuetext") == earlier
    page.keyboard.press("Escape")
    assert "arrow keys" in page.inner_text("#readout")
    page.focus("text=Write skew (G2-item)")
    page.keyboard.press("Enter")
    page.wait_for_url("**/violations/v1770a81c")


def test_pointing_at_the_charts_moves_nothing(daemon: Running, windows: Windows) -> None:
    window = windows()
    page = window.open(daemon.http_port)
    before = page.evaluate("document.getElementById('charts').getBoundingClientRect().top")
    page.hover("#charts", position={"x": 500, "y": 100})
    assert "UTC" in page.inner_text("#readout")
    assert page.evaluate("document.getElementById('charts').getBoundingClientRect().top") == before
    window.photograph("overview-readout")


def test_a_daemon_that_goes_away_and_comes_back(tmp_path: Path, windows: Windows) -> None:
    window = windows()
    with running(tmp_path / "data", stage.CalmMachine, prepare=stage.busy) as daemon:
        port = daemon.http_port
        page = window.open(port)
        assert page.inner_text("#headline") == "No violation in the last hour"
    page.wait_for_selector("#link[data-state=lost]")
    window.wait("document.getElementById('headline').textContent === 'No connection to the daemon'")
    assert "What is shown is from" in page.inner_text("#subline"), "nothing looks accepted that may no longer be so"
    assert page.get_attribute("body", "class") == "stale"
    page.wait_for_timeout(300)
    window.photograph("overview-disconnected")
    with running(tmp_path / "data", stage.CalmMachine, prepare=stage.busy, http_listen=f"127.0.0.1:{port}"):
        page.wait_for_selector("#link[data-state=live]")
        assert page.inner_text("#headline") == "No violation in the last hour"
    window.errors = [error for error in window.errors if "ERR_CONNECTION" not in error and "ERR_EMPTY" not in error]


def test_before_the_first_answer_nothing_is_claimed_and_everything_has_its_place(
    daemon: Running, windows: Windows
) -> None:
    window = windows()
    page = window.page
    held: list[Any] = []
    page.route("**/api/**", lambda route: held.append(route))
    page.goto(f"http://127.0.0.1:{daemon.http_port}/")
    window.wait("document.querySelectorAll('.chart .title').length > 0")
    window.photograph("overview-loading")
    assert page.inner_text("#headline") == "Asking the daemon …"
    assert page.inner_text("#link") == "Connecting …"
    assert "No round yet" not in page.inner_text("main")
    assert {each.inner_text() for each in page.query_selector_all(".tile .value")} == {"–"}
    for route in held:
        route.continue_()
    page.unroute("**/api/**")
    page.wait_for_selector("body:not(.loading)")
    assert page.evaluate("window.shifts") < 0.01, f"moved when the answers came: {page.evaluate('window.shifted')}"


def test_a_daemon_that_may_not_show_anything_says_why(tmp_path: Path, windows: Windows) -> None:
    window = windows("dark")
    with running(tmp_path / "data", http_listen="0.0.0.0:0") as daemon:
        page = window.open(daemon.http_port)
        page.wait_for_selector("#link[data-state=refused]")
        assert page.inner_text("#headline") == "The daemon does not show this"
        assert "auth.tokens_file" in page.inner_text("#subline")
        assert "No round yet" not in page.inner_text("main"), "that is not known"
        window.photograph("overview-refused")
    window.errors = [error for error in window.errors if "403" not in error and "ERR_CONNECTION" not in error]


def test_trouble_comes_before_everything_else(tmp_path: Path, windows: Windows) -> None:
    class Broken(stage.CalmMachine):
        def gauges(self) -> Gauges:
            raise RuntimeError("the kernel was not compiled")

    window = windows()
    with running(tmp_path / "data", Broken, prepare=stage.caught) as daemon:
        page = window.open(daemon.http_port)
        window.wait("document.getElementById('headline').textContent === 'Verification has stopped'")
        assert "the kernel was not compiled" in page.inner_text("#subline")
        window.photograph("overview-stopped")


def test_older_violations_can_be_asked_for(tmp_path: Path, windows: Windows) -> None:
    def many(service: Service) -> None:
        now_ns = time.time_ns()
        made = [stage.a_violation(f"v{n:03d}", samples.lost_update(), now_ns - n * 10**9) for n in range(150, 0, -1)]
        stage.tell(service.violations, made)

    window = windows()
    with running(tmp_path / "data", prepare=many) as daemon:
        page = window.open(daemon.http_port)
        assert page.inner_text("#headline") == "More than 20 violations in the last hour"
        for shown in (120, 150):
            page.click("text=Show older ones")
            window.wait(f"document.querySelectorAll('.violations li').length === {shown}")
        assert not page.is_visible("text=Show older ones")
        names = page.evaluate(
            "[...document.querySelectorAll('.violations a')].map((link) => link.href.split('/').at(-1))"
        )
        assert names == [f"v{n:03d}" for n in range(1, 151)], "each once, newest first"


@pytest.mark.parametrize("width", [WIDE, 900, NARROW])
def test_several_levels_have_their_places(tmp_path: Path, windows: Windows, width: int) -> None:
    levels = ["serializable", "strict-serializable", "strong-session-si"]

    def three(service: Service) -> None:
        stage.busy(service)
        for level, verdict in zip(levels, ("accepted", "unknown", "accepted"), strict=True):
            service.board.publish((stage.a_round(1801, time.time_ns(), verdict, level=level, reason=REASON),))

    window = windows("light", width)
    with running(tmp_path / "data", stage.CalmMachine, prepare=three, verify_levels=",".join(levels)) as daemon:
        page = window.open(daemon.http_port)
        assert page.inner_text("#headline") == "No answer for round 1,801"
        assert page.inner_text("#subline") == f"strict-serializable: {REASON}"
        assert [each.inner_text() for each in page.query_selector_all(".levels code")] == levels
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        window.photograph(f"overview-levels-{width}")
        if width > NARROW:
            box = page.query_selector("#rounds-body")
            assert box.evaluate("(each) => each.scrollWidth <= each.clientWidth"), "the reason is not out of sight"
            assert page.query_selector("#rounds-body tbody tr").bounding_box()["height"] < 80, "nor a tower of words"
