"""Waiting for a daemon to have done something, and looking at what it shows."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_verified(daemon: Running) -> bool:
    verification = daemon.service.verification
    is_up = daemon.service.board.progress.state == "verifying"
    return is_up and not verification.behind_bytes() and not verification.lag_seconds()


def send(daemon: Running, first: int, last: int, marks: Sequence[int] = ()) -> None:
    with TestCollector(daemon.address, first_sequence=first) as collector:
        for n in range(first, last + 1):
            collector.send(fragment(n, 20, mark=f"number {n}" if n in marks else ""))
            collector.wait_durable(n)  # each in a batch of its own, so that the log is the same each time
    until(lambda: is_verified(daemon))


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
