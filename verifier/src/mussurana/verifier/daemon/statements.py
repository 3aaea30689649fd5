"""Which statements collectors could not or not fully see: how many of each shape, on which table.

Totals since the daemon started, of all collectors together. A label of a metric must not take whatever value a stranger
sends, so the metrics have only the sum; here, for people, the shapes have their names, up to a limit.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

SHAPES_MAX = 500
"""Different (table, shape) that are told apart: some hundred kilobytes. An application has a few dozen."""

NAME_CHARACTERS_MAX = 200
OTHERS = "other shapes"


@dataclass(frozen=True)
class Shape:
    table: str  # empty if not known
    shape: str
    observed: str  # "partial", "unobserved_read" or "unobserved_write"
    statements: int
    seen_ns: int  # when the last of them was reported


class Statements:
    """The verifying thread counts; any may read."""

    def __init__(self, shapes_max: int = SHAPES_MAX) -> None:
        self._shapes_max = shapes_max
        self._shapes: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._fully = 0
        self._lock = threading.Lock()

    def saw_fully(self, statements: int) -> None:
        with self._lock:
            self._fully += statements

    def missed(self, table: str, shape: str, observed: str, statements: int, seen_ns: int) -> None:
        if not statements:
            return
        key = (table[:NAME_CHARACTERS_MAX], shape[:NAME_CHARACTERS_MAX], observed)
        with self._lock:
            if key not in self._shapes and len(self._shapes) >= self._shapes_max:
                key = ("", OTHERS, observed)  # at most one more for each of the few values of `observed`
            before, _ = self._shapes.get(key, (0, 0))
            self._shapes[key] = (before + statements, seen_ns)

    def fully_seen(self) -> int:
        with self._lock:
            return self._fully

    def shapes(self) -> list[Shape]:
        """Those that happened most often first."""
        with self._lock:
            found = [Shape(*key, *counted) for key, counted in self._shapes.items()]
        return sorted(found, key=lambda shape: (-shape.statements, shape.table, shape.shape))
