"""Plain HTTP for whoever watches: /metrics, /-/healthy, /-/ready, and the web page. A thread per connection."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, SHUT_RDWR, socket
from typing import Any, ClassVar

from prometheus_client import CONTENT_TYPE_LATEST

from mussurana.verifier.daemon.metrics import Metrics

REQUEST_SECONDS_MAX = 10
"""For a client to send its request, and for a connection to stay open without one."""

POLL_SECONDS = 0.05
"""Between looks whether it is time to end."""

CONNECTIONS_MAX = 64
"""At the same time, each with its thread. A browser opens up to six, a monitoring system one; who comes after that is
cut off and tries again."""

PLAIN = "text/plain; charset=utf-8"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    path: str  # as sent, up to the question mark
    query: str = ""  # after it
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case


@dataclass(frozen=True)
class Response:
    status: HTTPStatus
    kind: str  # Content-Type
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Page = Callable[[Request], Response]
Site = Callable[[Request], Response | None]
"""Everything that is not one of the pages here; None if there is no such page."""


class HttpServer:
    def __init__(
        self, listen: str, metrics: Metrics, not_ready: Callable[[], str], site: Site = lambda request: None
    ) -> None:
        """`not_ready` says why fragments are not taken at the moment; empty if they are."""
        host, _, port = listen.rpartition(":")
        self.pages: dict[str, Page] = {
            "/metrics": lambda _: Response(HTTPStatus.OK, CONTENT_TYPE_LATEST, metrics.text()),
            "/-/healthy": lambda _: _said("the daemon is running"),
            "/-/ready": lambda _: _ready(not_ready()),
        }
        pages = self.pages

        def answer(request: Request) -> Response:
            try:
                page = pages.get(request.path)
                response = page(request) if page else site(request)
            except Exception:
                logger.exception("no answer for %r", request.path, extra={"event": "http_failed"})
                return _said("there is an error in the daemon; its log says more", HTTPStatus.INTERNAL_SERVER_ERROR)
            return response or _said("there is no such page", HTTPStatus.NOT_FOUND)

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS_MAX
            protocol_version = "HTTP/1.1"
            server_version, sys_version = "mussurana", ""

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def _answer(self, with_body: bool) -> None:
                path, _, query = self.path.partition("?")
                headers = {name.lower(): value for name, value in self.headers.items()}
                self._send(answer(Request(path, query, headers)), with_body)

            def _send(self, response: Response, with_body: bool) -> None:
                self.send_response(response.status)
                if response.status != HTTPStatus.NOT_MODIFIED:
                    self.send_header("Content-Type", response.kind)
                    self.send_header("Content-Length", str(len(response.content)))
                self.send_header("X-Content-Type-Options", "nosniff")
                for name, value in response.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body and response.status != HTTPStatus.NOT_MODIFIED:
                    self.wfile.write(response.content)

            def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
                """What could not even be parsed, and methods other than GET and HEAD."""
                self.close_connection = True
                text = "only GET and HEAD are understood here" if code == 501 else "this is not a request"
                response = _said(text, HTTPStatus.METHOD_NOT_ALLOWED if code == 501 else HTTPStatus(code))
                extra = {"Connection": "close", **({"Allow": "GET, HEAD"} if code == 501 else {})}
                self._send(Response(response.status, response.kind, response.content, extra), with_body=True)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: scrapes would drown the log."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = CONNECTIONS_MAX
            address_family = AF_INET6 if host.startswith("[") else ThreadingHTTPServer.address_family
            connections: ClassVar[set[socket]] = set()

            def process_request(self, request: Any, client_address: Any) -> None:
                if len(self.connections) >= CONNECTIONS_MAX:
                    self.shutdown_request(request)
                    return
                self.connections.add(request)
                super().process_request(request, client_address)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    self.connections.discard(request)

            def server_close(self) -> None:
                super().server_close()
                for connection in list(self.connections):
                    with suppress(OSError):
                        connection.shutdown(SHUT_RDWR)  # whoever waits for a request on it ends

            def handle_error(self, request: object, client_address: object) -> None:
                """Whoever hangs up in the middle of an answer is no news."""
                logger.debug("a connection was lost", exc_info=True, extra={"event": "http_lost"})

        self._server = Server((host.strip("[]"), int(port)), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), name="http", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _said(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(status, PLAIN, text.encode() + b"\n")


def _ready(trouble: str) -> Response:
    return _said(trouble, HTTPStatus.SERVICE_UNAVAILABLE) if trouble else _said("fragments are taken")
