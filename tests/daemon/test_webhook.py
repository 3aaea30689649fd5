"""Every violation is delivered at least once, signed, in order, across failures and restarts."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.daemon.webhook import SIGNATURE
from tests.daemon.conftest import running
from tests.daemon.watching import send, until


class Receiver:
    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, Any], bytes, str]] = []
        self.answers: list[int] = []  # the next ones; then 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.calls.append((json.loads(body), body, self.headers.get(SIGNATURE, "")))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def summaries(self) -> list[str]:
        return [call["summary"] for call, _, _ in self.calls]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def test_a_violation_is_delivered_with_its_counterexample_and_a_signature(
    data: Path, tmp_path: Path, receiver: Receiver
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    settings = {"webhook_url": receiver.url, "webhook_secret_file": str(secret)}
    with running(data, settings=settings) as daemon:
        send(daemon, 1, 5, marks=[3])
        until(lambda: receiver.calls)
    call, body, signature = receiver.calls[0]
    assert (call["event"], call["level"], call["summary"]) == ("rejected", "serializable", "number 3")
    assert call["counterexample"]["anomaly"] == "write skew"
    time_part, _, signed = signature.partition(",v1=")
    expected = hmac.new(b"s3cret", time_part.removeprefix("t=").encode() + b"." + body, hashlib.sha256).hexdigest()
    assert signed == expected
    assert len(receiver.calls) == 1


@pytest.mark.parametrize("answer", [500, 404, 302])
def test_whatever_is_not_success_is_tried_again(data: Path, receiver: Receiver, answer: int) -> None:
    receiver.answers = [answer]
    settings = {"webhook_url": receiver.url, "webhook_retry_seconds_max": "0.1"}
    with running(
        data, settings=settings, prepare=lambda service: setattr(service.webhook, "_retry_seconds_min", 0.05)
    ) as daemon:
        send(daemon, 1, 5, marks=[2, 4])
        until(lambda: len(receiver.calls) == 3)
        until(lambda: daemon.service.metrics.webhook_deliveries.labels("ok")._value.get() == 2)
    assert receiver.summaries() == ["number 2", "number 2", "number 4"]


def test_what_was_not_delivered_before_a_restart_is_delivered_after_it(data: Path, receiver: Receiver) -> None:
    receiver.answers = [204, *[503] * 100]
    settings = {"webhook_url": receiver.url, "webhook_retry_seconds_max": "0.1"}
    with running(data, settings=settings) as daemon:
        send(daemon, 1, 5, marks=[1, 2, 3])
        until(lambda: len(receiver.calls) >= 2)
    receiver.answers.clear()
    receiver.calls.clear()
    with running(data, settings=settings) as daemon:
        until(lambda: len(receiver.calls) >= 2)
        send(daemon, 6, 8, marks=[7])
        until(lambda: len(receiver.calls) >= 3)
    assert receiver.summaries() == ["number 2", "number 3", "number 7"]


def test_a_webhook_that_is_added_later_is_not_told_the_past(data: Path, receiver: Receiver) -> None:
    with running(data) as daemon:
        send(daemon, 1, 3, marks=[2])
    with running(data, settings={"webhook_url": receiver.url}) as daemon:
        send(daemon, 4, 6, marks=[5])
        until(lambda: receiver.calls)
    assert receiver.summaries() == ["number 5"]


def test_a_damaged_position_delivers_again_rather_than_not(data: Path, receiver: Receiver) -> None:
    settings = {"webhook_url": receiver.url}
    with running(data, settings=settings) as daemon:
        send(daemon, 1, 3, marks=[2])
        until(lambda: receiver.calls)
    (data / "webhook.json").write_text("{")
    with running(data, settings=settings):
        until(lambda: len(receiver.calls) == 2)
    assert receiver.summaries() == ["number 2", "number 2"]
