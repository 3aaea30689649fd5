"""Plain HTTP for whoever watches: /metrics, /-/healthy, /-/ready. A thread per request, none of them slow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from mussurana.verifier.daemon.metrics import Metrics

REQUEST_SECONDS_MAX = 10
"""For a client to send its request: whoever takes longer is not a monitoring system."""

CONNECTIONS_MAX = 64
"""At the same time, a thread each: more than any number of monitoring systems. Others are closed at once."""

POLL_SECONDS = 0.05
"""Between looks whether it is time to end."""

Page = Callable[[], tuple[HTTPStatus, str, bytes]]
"""Status, type and content."""


class HttpServer:
    def __init__(self, listen: str, metrics: Metrics, not_ready: Callable[[], str]) -> None:
        """`not_ready` says why fragments are not taken at the moment; empty if they are."""
        host, _, port = listen.rpartition(":")
        self.pages: dict[str, Page] = {
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, metrics.text()),
            "/-/healthy": lambda: _said("the daemon is running"),
            "/-/ready": lambda: _said(not_ready() or "fragments are taken", is_fine=not not_ready()),
        }
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS_MAX
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def _answer(self, with_body: bool) -> None:
                page = pages.get(self.path.partition("?")[0])
                status, kind, content = page() if page else _said("there is no such page", HTTPStatus.NOT_FOUND)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                if with_body:
                    self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: scrapes would drown the log."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = AF_INET6 if host.startswith("[") else ThreadingHTTPServer.address_family
            room = threading.BoundedSemaphore(CONNECTIONS_MAX)

            def process_request(self, request: Any, client_address: Any) -> None:
                if self.room.acquire(blocking=False):
                    super().process_request(request, client_address)
                else:
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    self.room.release()

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


def _said(text: str, not_found: HTTPStatus | None = None, is_fine: bool = True) -> tuple[HTTPStatus, str, bytes]:
    status = not_found or (HTTPStatus.OK if is_fine else HTTPStatus.SERVICE_UNAVAILABLE)
    return status, "text/plain; charset=utf-8", text.encode() + b"\n"
