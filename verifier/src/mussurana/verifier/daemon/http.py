"""Plain HTTP for whoever watches: /metrics, /-/healthy, /-/ready, and the web page. A thread per connection.

Nobody can keep others away. A client has a deadline for its whole request, and one for taking the whole answer. The
number of connections is limited. When all places are taken, the daemon cuts off whoever has kept it waiting for longest
(`places.py`). The pages, which take work, are answered to a few at the same time, and however many ask for metrics
share the work. So there is always a place for a question about health.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, socket
from time import sleep
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.places import Places
from mussurana.verifier.daemon.workers import Worker

REQUEST_SECONDS_MAX = 10
"""For a client to send a whole request, and for a connection to stay open without one."""

ANSWER_SECONDS_MAX = 30
"""For a client to take a whole answer: pictures and reports have some megabytes at most."""

HEAD_BYTES_MAX = 32 << 10
"""Of a request, which has no body. Browsers send a few kilobytes."""

POLL_SECONDS = 0.05
"""Between looks whether it is time to end, and who is too slow."""

CONNECTIONS_MAX = 128
"""At the same time, each with its thread. A browser opens up to six, a monitoring system one."""

WAITING_MAX = CONNECTIONS_MAX
"""Connections that the system keeps until they are accepted."""

PAGES_MAX = 16
"""Requests for the web page that are being answered at the same time, some tenths of a second each at worst."""

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


Site = Callable[[Request], Response | None]
"""Everything that is not one of the pages here; None if there is no such page."""


class HttpServer:
    def __init__(
        self, listen: str, metrics: Metrics, not_ready: Callable[[], str], site: Site = lambda request: None
    ) -> None:
        """`not_ready` says why fragments are not taken at the moment; empty if they are."""
        host, _, port = listen.rpartition(":")
        shared = _Shared(metrics.text)
        self.pages: dict[str, Site] = {
            "/metrics": lambda _: Response(HTTPStatus.OK, CONTENT_TYPE_LATEST, shared.get()),
            "/-/healthy": lambda _: _said("the daemon is running"),
            "/-/ready": lambda _: _ready(not_ready()),
        }
        pages, places, site_places = self.pages, Places(CONNECTIONS_MAX), threading.Semaphore(PAGES_MAX)

        def ask_site(request: Request) -> Response | None:
            if not site_places.acquire(blocking=False):
                return _said("too many ask at the same time", HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "1"})
            try:
                return site(request)
            finally:
                site_places.release()

        def answer(request: Request) -> Response:
            try:
                page = pages.get(request.path, ask_site)
                response = page(request)
            except Exception:
                logger.exception("no answer for %r", request.path, extra={"event": "http_failed"})
                return _said("there is an error in the daemon; its log says more", HTTPStatus.INTERNAL_SERVER_ERROR)
            return response or _said("there is no such page", HTTPStatus.NOT_FOUND)

        class Handler(BaseHTTPRequestHandler):
            timeout = ANSWER_SECONDS_MAX  # for a single read or write; the places have the deadlines for all of them
            protocol_version = "HTTP/1.1"
            server_version, sys_version = "mussurana", ""

            def handle_one_request(self) -> None:
                places.wait(self.connection, REQUEST_SECONDS_MAX)
                self.rfile: Any = _Head(self.connection_file)
                super().handle_one_request()

            def setup(self) -> None:
                super().setup()
                self.connection_file = self.rfile

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def _answer(self, with_body: bool) -> None:
                places.work(self.connection)
                path, _, query = self.path.partition("?")
                headers = {name.lower(): value for name, value in self.headers.items()}
                if "content-length" in headers or "transfer-encoding" in headers:
                    self.close_connection = True  # its body would be taken for the next request
                self._send(answer(Request(path, query, headers)), with_body)

            def _send(self, response: Response, with_body: bool) -> None:
                places.wait(self.connection, ANSWER_SECONDS_MAX)
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
            request_queue_size = WAITING_MAX
            address_family = AF_INET6 if host.startswith("[") else ThreadingHTTPServer.address_family

            def service_actions(self) -> None:
                places.cut_late()

            def get_request(self) -> tuple[socket, Any]:
                try:
                    return super().get_request()
                except OSError:  # no more file descriptors, for one: it will not be better at once
                    places.cut_longest()
                    sleep(POLL_SECONDS)
                    raise

            def process_request(self, request: Any, client_address: Any) -> None:
                if not places.take(request, REQUEST_SECONDS_MAX):
                    self.shutdown_request(request)
                    return
                try:
                    super().process_request(request, client_address)
                except BaseException:
                    places.leave(request)
                    raise

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    places.leave(request)

            def server_close(self) -> None:
                super().server_close()
                places.cut_all()  # whoever waits for a request ends

            def handle_error(self, request: object, client_address: object) -> None:
                """Whoever hangs up in the middle of an answer is no news."""
                logger.debug("a connection was lost", exc_info=True, extra={"event": "http_lost"})

        self._server = Server((host.strip("[]"), int(port)), Handler)
        self.port: int = self._server.server_address[1]
        self.worker = Worker("http", lambda: self._server.serve_forever(POLL_SECONDS))

    def start(self) -> None:
        self.worker.start()

    def close(self) -> None:
        self.worker.end()
        self._server.shutdown()
        self._server.server_close()
        self.worker.join()


class _Head:
    """The lines of one request. A head that is too long ends its connection."""

    def __init__(self, file: Any) -> None:
        self._file, self._left = file, HEAD_BYTES_MAX

    def readline(self, size: int) -> bytes:
        line: bytes = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head of a request")
        return line

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)


class _Shared:
    """What one makes is for all who asked before it was begun."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._begun, self._made = 0, b""

    def get(self) -> bytes:
        asked = next(self._numbers)
        with self._lock:
            if self._begun < asked:
                begun = next(self._numbers)
                self._made = self._make()
                self._begun = begun
            return self._made


def _said(text: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, PLAIN, text.encode() + b"\n", headers or {})


def _ready(trouble: str) -> Response:
    return _said(trouble, HTTPStatus.SERVICE_UNAVAILABLE) if trouble else _said("fragments are taken")
