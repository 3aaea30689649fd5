"""One POST with a deadline for all of it: resolving the name, connecting, TLS, sending, and the head of the answer.

The standard library limits single reads, so a server that sends a byte now and then holds it for ever; and nothing
limits the resolver. So a thread of its own makes the attempt, and the webhook waits for it until the deadline and no
longer. Then the connection is cut, which ends the thread wherever it reads or writes. Connecting and TLS have limits of
their own, and a resolver gives up by itself.

Only the status of the answer is of interest. What follows it is not read.
"""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

REASON_CHARACTERS_MAX = 300
"""Of what is said about a failure: parts of it come from the other side."""


class Post:
    def __init__(self, url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float) -> None:
        self._url, self._body, self._headers, self._timeout_seconds = url, body, dict(headers), timeout_seconds
        self._deadline = monotonic() + timeout_seconds
        self._connection: http.client.HTTPConnection | None = None
        self._changed = threading.Condition()
        self._failure: str | None = None  # None until it is known; empty if it was taken
        self._thread = threading.Thread(target=self._attempt, name="webhook attempt", daemon=True)

    def send(self) -> str:
        """Why it was not taken, as far as is known at the deadline; empty if it was (an answer 2xx)."""
        try:
            self._thread.start()
        except RuntimeError as error:
            return str(error)
        with self._changed:
            while self._failure is None and (left := self._deadline - monotonic()) > 0:
                self._changed.wait(left)
            if self._failure is None:
                self._failure = f"no answer within {self._timeout_seconds:g} s"
        self._cut()
        return self._failure

    def give_up_after(self, seconds: float) -> None:
        """From any thread."""
        with self._changed:
            self._deadline = min(self._deadline, monotonic() + seconds)
            self._changed.notify_all()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def connects(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def connected(self) -> None:
        """On a connection that came too late nothing is sent: nobody would cut it any more."""
        if self._failure is not None:
            raise TimeoutError(self._failure)

    def _attempt(self) -> None:
        try:
            failure = self._asked()
        except BaseException as error:  # whatever an answer does to the library, it is an attempt that failed
            reason = error.reason if type(error) is urllib.error.URLError else error
            failure = f"{type(error).__name__}: {reason}"[:REASON_CHARACTERS_MAX]
        with self._changed:
            if self._failure is None:
                self._failure = failure
            self._changed.notify_all()

    def _asked(self) -> str:
        request = urllib.request.Request(self._url, self._body, self._headers, method="POST")
        opener = urllib.request.build_opener(_NoRedirects, _Opening(self))
        with opener.open(request, timeout=self._timeout_seconds) as answer:
            return "" if 200 <= answer.status < 300 else f"the answer is {answer.status}"

    def _cut(self) -> None:
        """Whoever reads or writes on the connection does so no more."""
        with suppress(OSError, AttributeError):  # it is closed, or not open yet
            self._connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send a signed body to a place that nobody configured."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class _Opening(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Connects as the library does, and tells with what."""

    def __init__(self, post: Post) -> None:
        super().__init__()
        self._post = post

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_told(http.client.HTTPConnection, self._post), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_told(http.client.HTTPSConnection, self._post), req)


def _told(kind: type[http.client.HTTPConnection], post: Post) -> type[http.client.HTTPConnection]:
    class Connection(kind):  # type: ignore[misc, valid-type]
        def connect(self) -> None:
            post.connects(self)
            super().connect()
            post.connected()

    return Connection
