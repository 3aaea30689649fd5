"""What a new user sees: the page of the demo's own daemon, while its application runs on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mussurana.verifier.demo.play import WORKERS
from mussurana.verifier.demo.stage import Stage
from tests.web.browser.conftest import Windows

CAUGHT_SECONDS = 60.0
VISIONS = ("deuteranopia", "protanopia", "tritanopia", "achromatopsia")


@pytest.fixture(scope="module")
def caught() -> Iterator[Stage]:
    """At REPEATABLE READ, while the verifier expects serializable."""
    with Stage(print) as stage, stage.workers("REPEATABLE READ", WORKERS):
        yield stage


def port(stage: Stage) -> int:
    return int(stage.http.rpartition(":")[2])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_application_is_called_by_its_names_and_caught_with_its_sql(
    caught: Stage, windows: Windows, scheme: str
) -> None:
    window = windows(scheme, 1280)
    page = window.open(port(caught))
    window.wait("document.querySelectorAll('.violations a').length > 0", CAUGHT_SECONDS)
    window.wait("document.querySelectorAll('.state').length === 4")
    names = {each.inner_text() for each in page.query_selector_all("#collectors-body .name:not(.muted)")}
    assert names == {f"web-{number + 1}" for number in range(WORKERS)}
    assert page.inner_text("[data-tile=gaps] .value") == "0", "nothing got lost"
    assert page.query_selector_all(".levels .icon.accepted, .levels code"), "strong-session-si has its own verdicts"
    window.photograph(f"demo-overview-{scheme}")
    page.click(".violations a")
    page.wait_for_selector(".card")
    story = page.inner_text("#story")
    assert "FROM doctors WHERE doctors.shift_id" in story, "one line, however the library broke it"
    assert "UPDATE doctors SET on_call" in story
    assert "\\n" not in story
    window.photograph(f"demo-violation-{scheme}")


@pytest.mark.parametrize("vision", VISIONS)
def test_pictures_for_those_who_see_other_colours(caught: Stage, windows: Windows, vision: str) -> None:
    """What can be told apart without colour is tested elsewhere; these are to be looked at."""
    window = windows("light", 1280)
    page = window.open(port(caught))
    window.wait("document.querySelectorAll('.violations a').length > 0", CAUGHT_SECONDS)
    page.context.new_cdp_session(page).send("Emulation.setEmulatedVisionDeficiency", {"type": vision})
    window.photograph(f"demo-{vision}")
