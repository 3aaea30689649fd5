"""What the page asks for, as JSON. docs/web.md describes it.

Nothing in an answer changes unless something has happened: times are points in time, not ages, so that who asks again
can be told "as before". The daemon's own time is in a header.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from mussurana.verifier.daemon.board import CollectorInfo, public_id
from mussurana.verifier.daemon.journal import Round
from mussurana.verifier.daemon.violations import Summary
from mussurana.verifier.daemon.web.hour import Hour
from mussurana.verifier.render.daemon import status_json

if TYPE_CHECKING:
    from mussurana.verifier.daemon.service import Service

ROUNDS_SHOWN = 8
VIOLATIONS_SHOWN = 20
SHAPES_SHOWN = 50
GAPS_SHOWN = 20
COLLECTORS_SHOWN = 100
"""In the overview, which is asked for every other second; counts are of all."""

LIST_MAX = 500
"""Entries in one answer to who asks for rounds or violations."""

SILENT_SECONDS = 60.0
"""A collector that is connected and has sent nothing for so long is called silent."""

OVERVIEW_SECONDS = 0.5
"""For how long an overview is good: any number of viewers costs as much as one."""


class BadQuery(Exception):
    """The message says which parameter is wrong."""


class Api:
    def __init__(self, service: Service, hour: Hour) -> None:
        self._service, self._hour = service, hour
        self._started_ns = service.clock.now_ns()
        self._overview: tuple[float, bytes] = (float("-inf"), b"")
        self._lock = threading.Lock()
        self.answers: dict[str, Callable[[str], bytes]] = {
            "overview": lambda query: self.overview(),
            "hour": self.hour,
            "rounds": self.rounds,
            "violations": self.violations,
        }

    def overview(self) -> bytes:
        with self._lock:
            made, content = self._overview
            if monotonic() - made >= OVERVIEW_SECONDS:
                content = _encoded(self._look())
                self._overview = (monotonic(), content)
        return content

    def hour(self, query: str) -> bytes:
        since_seconds = _number(query, "since_seconds", 0, 1 << 40)
        return _encoded(
            {
                "interval_seconds": self._hour.interval_seconds,
                "columns": self._hour.columns(self._service.clock.now_ns(), since_seconds),
            }
        )

    def rounds(self, query: str) -> bytes:
        """The latest first."""
        limit = _number(query, "limit", 100, LIST_MAX)
        level, verdict = _text(query, "level"), _text(query, "verdict")
        found = [
            each
            for each in map(self._service.violations.shown, reversed(self._service.board.rounds()))
            if level in ("", each.level) and verdict in ("", each.verdict)
        ]
        return _encoded({"rounds": [round_json(each) for each in found[:limit]], "more": len(found) > limit})

    def violations(self, query: str) -> bytes:
        """The latest first; those before the one whose id is given."""
        limit = _number(query, "limit", 100, LIST_MAX)
        level, before = _text(query, "level"), _text(query, "before")
        stored = self._service.violations.summaries()[::-1]
        if before:
            place = next((place for place, each in enumerate(stored) if each.id == before), None)
            if place is None:
                raise BadQuery("before: there is no such violation")
            stored = stored[place + 1 :]
        found = [each for each in stored if level in ("", each.level)]
        return _encoded({"violations": [vars(each) for each in found[:limit]], "more": len(found) > limit})

    def _look(self) -> dict[str, Any]:
        service = self._service
        status = status_json(service.query.status_now(COLLECTORS_SHOWN))
        for changing in ("now_ns", "uptime_seconds", "violations"):
            del status[changing]
        shown = status.pop("collector")
        gaps, statements = service.board.gaps, service.metrics.statements
        shapes, stored = statements.shapes(), service.violations.summaries()
        rounds = service.board.rounds()
        return {
            "status": {**status, "started_ns": self._started_ns},
            "collectors": {
                **self._collector_counts(service.ingest.collectors()),
                "silent_seconds": SILENT_SECONDS,
                "shown": shown,
            },
            "statements": {
                "fully_seen": statements.fully_seen(),
                "missed": sum(shape.statements for shape in shapes),
                "shapes": [vars(shape) for shape in shapes[:SHAPES_SHOWN]],
                "further_shapes": max(0, len(shapes) - SHAPES_SHOWN),
            },
            "gaps": {
                "counts": gaps.counts(),
                "latest": [{**vars(gap), "collector": public_id(gap.collector)} for gap in gaps.latest()[:GAPS_SHOWN]],
            },
            "rounds": [round_json(service.violations.shown(each)) for each in rounds[: -ROUNDS_SHOWN - 1 : -1]],
            "violations": {
                "stored": len(stored),
                "by_level": _counts(stored),
                "latest": [vars(each) for each in stored[: -VIOLATIONS_SHOWN - 1 : -1]],
            },
        }

    def _collector_counts(self, everybody: list[CollectorInfo]) -> dict[str, int]:
        oldest_ns = self._service.clock.now_ns() - round(SILENT_SECONDS * 1e9)
        connected = [info for info in everybody if info.connected]
        return {
            "connected": len(connected),
            "silent": sum(info.last_seen_ns < oldest_ns for info in connected),
            "known": len(everybody),
        }


def round_json(each: Round) -> dict[str, Any]:
    """A round; `seconds` is what it took in all, and lags are null where no commit time is known."""
    median, p99, longest = each.lag_seconds or (None, None, None)
    return {
        "number": each.number,
        "level": each.level,
        "verdict": each.verdict,
        "reason": each.reason,
        "violations": list(each.violations),
        "further_violations": each.further_violations,
        "epoch": each.epoch,
        "txn_count": each.txn_count,
        "retained": each.retained,
        "forgotten": each.forgotten,
        "finished_ns": each.finished_ns,
        "seconds": each.seconds.get("total", 0.0),
        "lag_median_seconds": median,
        "lag_p99_seconds": p99,
        "lag_longest_seconds": longest,
        "read_count": each.read_count,
        "unchecked": [vars(unchecked) for unchecked in each.unchecked],
    }


def _counts(stored: list[Summary]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in stored:
        counts[each.level] = counts.get(each.level, 0) + 1
    return counts


def _encoded(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()


def _text(query: str, name: str) -> str:
    return parse_qs(query, max_num_fields=20).get(name, [""])[0]


def _number(query: str, name: str, default: int, maximum: int) -> int:
    text = _text(query, name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise BadQuery(f"{name}: expected a whole number")
    return min(int(text), maximum)
