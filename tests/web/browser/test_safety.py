"""What strangers send is text and nothing else, the policy holds, and the token goes nowhere but into its header."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.daemon.board import CollectorInfo
from mussurana.verifier.daemon.gaps import Gap
from mussurana.verifier.daemon.ingest import Link
from mussurana.verifier.daemon.service import Service
from mussurana.verifier.rounds.outcome import Gauges
from tests.daemon.conftest import running
from tests.render import samples
from tests.web import stage
from tests.web.browser.conftest import Windows

TOKEN = "a-token-for-queries-1"
EVIL = '"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{7*7}}javascript:window.pwned=1'


class EvilMachine(stage.CalmMachine):
    def gauges(self) -> Gauges:
        plain = vars(super().gauges())
        return Gauges(**{**plain, "unchecked_reads": {EVIL: 7}})


def evil(service: Service) -> None:
    """Strangers' text in every place that shows it."""
    now_ns = time.time_ns()
    id = bytes([7]) * 16
    service.ingest._links[id] = Link(CollectorInfo(id, EVIL, EVIL, EVIL, True, 1, 1, now_ns), 1, 1)
    service.metrics.statements.missed(EVIL, EVIL, "partial", 5, now_ns)
    service.board.gaps.note(Gap(now_ns, id, "declared", EVIL, txns=3))
    rounds = stage.a_round(1, now_ns, "rejected", violations=(EVIL,)), stage.a_round(2, now_ns, "unknown", reason=EVIL)
    service.board.publish(rounds)
    stage.tell(
        service.violations,
        [stage.a_violation(EVIL, samples.everywhere(EVIL), now_ns), stage.a_violation("h", samples.hostile(), now_ns)],
    )


def assert_unharmed(page: Any) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.querySelectorAll('img:not(.brand img), script:not([src]), iframe').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    links = page.evaluate("[...document.querySelectorAll('a')].map((link) => link.protocol)")
    assert set(links) == {"http:"}
    assert page.evaluate("window.violated") == [], "the policy had nothing to stop: there was no markup to begin with"


def test_strange_names_are_shown_as_they_are_and_do_nothing(tmp_path: Path, windows: Windows) -> None:
    window = windows()
    with running(tmp_path / "data", EvilMachine, prepare=evil) as daemon:
        page = window.open(daemon.http_port)
        page.wait_for_timeout(300)
        for place in ("collectors-body", "unobserved-body", "rounds-body", "gaps-body", "violations-body"):
            assert EVIL in page.evaluate(f"document.getElementById('{place}').textContent"), place
        assert_unharmed(page)
        window.photograph("overview-hostile")
        page.click(".violations li:last-child a")
        page.wait_for_selector("body:not(.loading) .card")
        assert EVIL in page.evaluate("document.getElementById('story').textContent")
        assert EVIL in page.evaluate("document.getElementById('facts').textContent")
        assert_unharmed(page)
        window.photograph("violation-hostile")
        window.open(daemon.http_port, "/violations/h")
        assert_unharmed(page)


def test_the_policy_of_the_page_is_enforced(tmp_path: Path, windows: Windows) -> None:
    window = windows()
    with running(tmp_path / "data", prepare=stage.caught) as daemon:
        page = window.open(daemon.http_port, "/violations/v1770a81c")
        with pytest.raises(Exception, match="TrustedHTML"):
            page.evaluate("() => { document.body.innerHTML = '<b>x</b>' }")
        # Elements of style and frame are no matter of trusted types; the other directives stop them.
        page.evaluate(
            "() => { const made = document.createElement('style'); made.textContent = 'body { color: red }';"
            " document.head.append(made) }"
        )
        page.evaluate(
            "() => { const made = new Image(); made.src = 'https://elsewhere.invalid/x'; document.body.append(made) }"
        )
        window.wait("window.violated.length >= 3")
        assert {"require-trusted-types-for", "style-src-elem", "img-src"} <= set(page.evaluate("window.violated"))
    window.errors.clear()


UNEXPECTED = [
    "<img src=x onerror=alert(1)>",
    "<p onclick=alert(1)>x</p>",
    "<script>alert(1)</script>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='https://elsewhere.invalid'>x</a>",
    "<p style='color: red'>x</p>",
    "<svg><use href='#x'/></svg>",
    "<svg><foreignObject><p>x</p></foreignObject></svg>",
    "<style>p { color: red }</style>",
    "<math><mi>x</mi></math>",
    "x<!-- comment -->",
    "<form action=/><input></form>",
]


def test_a_story_with_markup_that_no_story_has_is_refused(tmp_path: Path, windows: Windows) -> None:
    window = windows()
    with running(tmp_path / "data", prepare=stage.caught) as daemon:
        page = window.open(daemon.http_port, "/violations/v1770a81c")
        for markup in UNEXPECTED:
            refused = page.evaluate(
                "(markup) => import('/assets/story.js').then(({ built }) => { try { built(markup); return '' }"
                " catch (error) { return error.message } })",
                markup,
            )
            assert refused.startswith("The story has markup that was not expected"), markup
    window.errors.clear()  # the policy complains about styles even where they are only parsed


def test_signing_in_and_out(tmp_path: Path, windows: Windows) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"query anna {TOKEN}\n")
    window = windows("dark")
    page = window.page
    with running(tmp_path / "data", stage.CalmMachine, prepare=stage.caught, auth_tokens_file=str(tokens)) as daemon:
        page.goto(f"http://127.0.0.1:{daemon.http_port}/violations/v1770a81c")
        page.wait_for_selector("#token")
        assert page.evaluate("document.activeElement.id") == "token"
        window.photograph("login")
        page.keyboard.type("not the right token")
        page.keyboard.press("Enter")
        page.wait_for_selector("#login-error >> text=This is not a token for queries.")
        assert page.get_attribute("#token", "aria-invalid") == "true"
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector(".card")
        assert page.inner_text("h1") == "Write skew (G2-item)"
        with page.expect_download() as saving:
            page.click("[data-form=svg]")
        assert saving.value.failure() is None, "downloads carry the token, too"
        page.click(".crumbs a")
        page.wait_for_selector(".violations")
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert not [sent.url for sent in window.requests if TOKEN in sent.url]
        asked = [sent for sent in window.requests if "/api/overview" in sent.url]
        assert asked[-1].headers["authorization"] == f"Bearer {TOKEN}"
        assert not [sent for sent in window.requests if "/assets/" in sent.url and "authorization" in sent.headers]
        page.click("#sign-out")
        page.wait_for_selector("#token")
        assert page.evaluate("sessionStorage.length") == 0
    window.errors = [error for error in window.errors if "401" not in error and "ERR_" not in error]
