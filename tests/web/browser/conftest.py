"""A real Chromium, driven with playwright. `make test` skips these tests and says so; `make browser` insists."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PICTURES = ROOT / "out" / "screenshots"
"""Where the pictures are that a person should look at after a change."""

QUIET = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = 1400, 390


def _missing() -> str:
    """What is needed and not there; empty if nothing is."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed; `make browser` installs it"
    if not _chromium():
        return "there is no Chromium; install Debian's package chromium, or say where it is in CHROMIUM"
    return ""


def _chromium() -> str | None:
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "MUSSURANA_BROWSER" not in os.environ:
        reason = "a browser takes its time: `make browser` runs these, where there is a Chromium"
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if missing := _missing():
        pytest.fail(missing)
    from playwright.sync_api import sync_playwright

    flags = QUIET + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=flags)
        yield browser
        browser.close()


@dataclass
class Window:
    """A tab of a browser that nobody has used, and what went wrong in it."""

    page: Any
    name: str
    errors: list[str] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)

    def open(self, port: int, path: str = "/") -> Any:
        self.page.goto(f"http://127.0.0.1:{port}{path}")
        self.page.wait_for_selector("body:not(.loading)")
        return self.page

    def wait(self, expression: str, seconds: float = 20.0) -> None:
        """Until an expression is true. The browser's own way to wait is forbidden by the policy of the page."""
        until = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < until, f"never true: {expression}"
            self.page.wait_for_timeout(50)

    def heard(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def asked(self, dialog: Any) -> None:
        self.errors.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def photograph(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(PICTURES / f"{name}.png"), full_page=True)


Windows = Callable[..., Window]

WATCH = """
window.shifts = 0;
window.shifted = [];
window.violated = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    window.shifts += entry.value;
    window.shifted.push(...entry.sources.map(({ node }) => node?.id || node?.className || node?.parentNode?.className));
  }
}).observe({ type: "layout-shift", buffered: true });
document.addEventListener("securitypolicyviolation", (event) => window.violated.push(event.violatedDirective));
"""


@pytest.fixture
def windows(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Windows]:
    """Opens tabs. In the end none of them may have had an error that the test did not take out of its list."""
    opened: list[Window] = []
    contexts = []

    def open_window(scheme: str = "light", width: int = WIDE, height: int = 900) -> Window:
        context = chromium.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        window = Window(page, request.node.name)
        page.add_init_script(WATCH)
        page.on("console", window.heard)
        page.on("pageerror", lambda error: window.errors.append(str(error)))
        page.on("dialog", window.asked)
        page.on("request", lambda sent: window.requests.append(sent))
        page.set_default_timeout(20_000)
        opened.append(window)
        return window

    yield open_window
    errors = [error for window in opened for error in window.errors]
    for context in contexts:
        context.close()
    assert errors == []
