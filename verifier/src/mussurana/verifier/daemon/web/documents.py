"""A violation as JSON, as a picture, as a page of its own, and as the story that its page here tells.

Drawing takes a while (the layout of a picture with many transactions some tenths of a second), so it is done once, by
one thread at a time, and kept for those who look at the same violation next, until its state changes.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mussurana.verifier.daemon.violations import Violations
from mussurana.verifier.render.violation import violation_headline, violation_page, violation_story, violation_svg

KEPT_BYTES_MAX = 16 << 20
"""Of finished documents: some hundred ordinary ones."""

Document = tuple[str, bytes]
"""Content-Type and content."""


def _json(violation: dict[str, Any]) -> str:
    return json.dumps(violation)


def _story(violation: dict[str, Any]) -> str:
    shown = {name: value for name, value in violation.items() if name != "counterexample"}
    return json.dumps({**shown, "headline": violation_headline(violation), "story": violation_story(violation)})


FORMS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "json": ("application/json", _json),
    "svg": ("image/svg+xml", violation_svg),
    "html": ("text/html; charset=utf-8", violation_page),
    "story": ("application/json", _story),
}


class Documents:
    def __init__(self, violations: Violations, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._violations, self._kept_bytes_max = violations, kept_bytes_max
        self._kept: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def get(self, id: str, form: str) -> Document | None:
        """None if there is no such violation."""
        kind, render = FORMS[form]
        state = self._violations.state(id)
        with self._lock:
            content = self._kept.pop((id, form, state), None)
            if content is None:
                violation = self._violations.get(id)
                if violation is None:
                    return None
                content = render(violation).encode()
                self._kept_bytes += len(content)
            self._kept[id, form, state] = content  # the one that was asked for last stands last
            while self._kept_bytes > self._kept_bytes_max and len(self._kept) > 1:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])
        return kind, content
