"""A webhook's receiver that answers strangely, slowly or never holds up nothing but its own deliveries."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.daemon import webhook
from mussurana.verifier.daemon.post import Post
from tests.daemon.certificates import authority
from tests.daemon.conftest import running
from tests.daemon.watching import send, until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
Answer = Callable[[socket.socket], None]


def said(content: bytes) -> Answer:
    return lambda connection: connection.sendall(content)


def trickled(start: bytes, byte: bytes) -> Answer:
    """A byte now and then, each before any limit on a single read is over."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(byte)
            time.sleep(0.05)

    return answer


STRANGE = {
    "not HTTP": said(b"SSH-2.0-OpenSSH_9\r\n"),
    "nothing": said(b""),
    "zeros": said(bytes(100_000)),
    "a status that is no number": said(b"HTTP/1.1 OK\r\n\r\n"),
    "a thousand headers": said(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"),
    "a long line": said(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"),
    "a redirect to nowhere": said(b"HTTP/1.1 302 Found\r\nLocation: ht!tp://[\r\n\r\n"),
    "letters that are none": said(b"HTTP/1.1 500 \xff\xfe\r\nX: \xff\r\n\r\n"),
    "a reset": lambda connection: connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0"),
    "a head without end": trickled(b"HTTP/1.1 200 OK\r\n", b"X"),
    "continue without end": trickled(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
TAKEN = {
    "half a head": said(b"HTTP/1.1 200 OK\r\nX"),
    "a bad chunk": said(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n"),
    "a body that is shorter than it says": said(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx"),
    "a body without end": trickled(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
}
"""The first line of the answer says that the violation was taken; what follows is of no interest."""


class Receiver:
    """Takes a request, and gives the answers in turn; then OK."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.received: list[str] = []  # what was called, as often as it was
        self._server = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                content = b""
                while not content.endswith(b"}"):
                    content += connection.recv(1 << 16)
                self.received.append(json.loads(content.partition(b"\r\n\r\n")[2])["summary"])
                (self.answers.pop(0) if self.answers else said(OK))(connection)
            except OSError:
                pass

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(webhook.Webhook.__init__, "__defaults__", (time.time, 0.05))
    made = Receiver()
    yield made
    made.close()


def test_after_every_strange_answer_the_violation_is_delivered_again_and_so_are_later_ones(
    data: Path, receiver: Receiver
) -> None:
    receiver.answers = list(STRANGE.values())
    settings = {
        "webhook_url": receiver.url,
        "webhook_timeout_seconds": "0.4",
        "webhook_retry_seconds_max": "0.1",
    }
    with running(data, settings=settings) as daemon:
        send(daemon, 1, 2, marks=[1])
        until(lambda: len(receiver.received) == len(STRANGE) + 1, 20)
        receiver.answers = list(TAKEN.values())
        send(daemon, 3, 3 + len(TAKEN), marks=list(range(3, 4 + len(TAKEN))))
        until(lambda: len(receiver.received) == len(STRANGE) + 1 + len(TAKEN) + 1, 20)
        metrics = daemon.service.metrics
        assert metrics.webhook_deliveries.labels("failed")._value.get() == len(STRANGE)
        assert metrics.webhook_deliveries.labels("ok")._value.get() == len(TAKEN) + 2
        assert daemon.service.troubles() == []
    delivered = [f"number {n}" for n in range(3, 4 + len(TAKEN))]
    assert receiver.received == ["number 1"] * (len(STRANGE) + 1) + delivered


@pytest.mark.parametrize("name", ["a head without end", "continue without end"])
def test_an_answer_without_end_does_not_keep_the_daemon_from_ending(data: Path, receiver: Receiver, name: str) -> None:
    receiver.answers = [STRANGE[name]]
    with running(data, settings={"webhook_url": receiver.url, "webhook_timeout_seconds": "60"}) as daemon:
        send(daemon, 1, 2, marks=[1])
        until(lambda: receiver.received)
        started = time.monotonic()
    assert time.monotonic() - started < 5


def test_the_deadline_is_for_all_of_an_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolving, connecting, TLS, sending, reading: each of them hangs once."""
    never = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))  # nobody accepts, reads or answers
    port = server.getsockname()[1]
    attempts = {
        "reading": Post(f"http://127.0.0.1:{port}/", b"{}", {}, 0.3),
        "sending": Post(f"http://127.0.0.1:{port}/", bytes(50 << 20), {}, 0.3),
        "TLS": Post(f"https://127.0.0.1:{port}/", b"{}", {}, 0.3),
        "resolving": Post("http://a.name.that.takes.long/", b"{}", {}, 0.3),
    }
    real = socket.getaddrinfo

    def resolve(host: str, *more: Any, **named: Any) -> Any:
        return never.wait(3) if "long" in host else real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    for what, post in attempts.items():
        started = time.monotonic()
        failure = post.send()
        assert failure, what
        assert time.monotonic() - started < 1.5, what
    never.set()
    until(lambda: all(post.has_ended for post in attempts.values()), 5)
    server.close()


def test_it_is_delivered_over_tls_to_who_is_trusted_and_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    ours = authority(tmp_path / "ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.issue("server"))
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"https://localhost:{server.server_address[1]}/"
    assert "certificate verify failed" in Post(url, b"{}", {}, 5).send()
    monkeypatch.setenv("SSL_CERT_FILE", str(ours.certificate))
    assert Post(url, b"{}", {}, 5).send() == ""
    server.shutdown()
    server.server_close()
