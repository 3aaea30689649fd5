"""The webhook: each violation is POSTed as JSON until somebody says that they have it.

At least once, also across restarts: the place in the store of violations up to which all were delivered is kept in a
file, and moves only after an answer 2xx. A violation may come twice, and has the same id then. Other answers and failed
connections are tried again, after 1 s, 2 s, 4 s and so on up to a limit, for as long as the violation is stored.

With a secret, the header `Mussurana-Signature: t=SECONDS,v1=HEX` carries the HMAC-SHA256 of `SECONDS.BODY`. The time is
signed as well, so that an old call cannot be repeated by somebody who listened.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mussurana.verifier.daemon import config
from mussurana.verifier.daemon.files import write_atomically
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.violations import Violations
from mussurana.wire.segments import Position

RETRY_SECONDS_MIN = 1.0
SIGNATURE = "Mussurana-Signature"

logger = logging.getLogger(__name__)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send a signed body to a place that nobody configured."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class Webhook:
    def __init__(
        self,
        options: config.Webhook,
        violations: Violations,
        path: Path,
        metrics: Metrics,
        wall_seconds: Callable[[], float] = time.time,
        retry_seconds_min: float = RETRY_SECONDS_MIN,
    ) -> None:
        self._options, self._violations, self._path, self._metrics = options, violations, path, metrics
        self._wall_seconds, self._retry_seconds_min = wall_seconds, retry_seconds_min
        self._wake, self._closing = threading.Event(), threading.Event()
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        if self._options.url:
            self._thread.start()

    def wake(self) -> None:
        """There are new violations."""
        self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        position = self._delivered_to()
        pause = self._retry_seconds_min
        while not self._closing.is_set():
            self._wake.clear()
            for violation, after in self._violations.after(position):
                while not self._deliver(violation):
                    if self._closing.wait(pause):
                        return
                    pause = min(2 * pause, self._options.retry_seconds_max)
                pause = self._retry_seconds_min
                position = after
                self._remember(position)
            self._wake.wait()

    def _deliver(self, violation: dict[str, Any]) -> bool:
        body = json.dumps({"event": "rejected", **violation}).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "mussurana"}
        if self._options.secret_file:
            try:
                secret = self._options.secret_file.read_bytes().strip()
            except OSError as error:
                logger.error("webhook: %s: %s", self._options.secret_file, error.strerror, extra={"event": "webhook"})
                return self._counted(False)
            headers[SIGNATURE] = signature(secret, int(self._wall_seconds()), body)
        request = urllib.request.Request(self._options.url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._options.timeout_seconds) as answer:
                answer.read(1)
                return self._counted(200 <= answer.status < 300)
        except (OSError, ValueError) as error:  # refused, timed out, not 2xx, not an address
            reason = getattr(error, "reason", error)
            logger.warning(
                "webhook: violation %s not delivered: %s", violation["id"], reason, extra={"event": "webhook_failed"}
            )
            return self._counted(False)

    def _counted(self, delivered: bool) -> bool:
        self._metrics.webhook_deliveries.labels("ok" if delivered else "failed").inc()
        return delivered

    def _delivered_to(self) -> Position:
        """Without a file: what is found from now on. A webhook that is added later is not told all that was before."""
        try:
            plain = json.loads(self._path.read_text())
            return Position(int(plain["segment"]), int(plain["offset"]))
        except FileNotFoundError:
            position = self._violations.end
            self._remember(position)
            return position
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.error("webhook: %s: %s; all are delivered again", self._path, error, extra={"event": "webhook"})
            return Position(0, 0)

    def _remember(self, position: Position) -> None:
        content = json.dumps({"segment": position.segment, "offset": position.offset}).encode()
        try:
            write_atomically(self._path, [content])
        except OSError as error:  # then some are delivered twice after a restart
            logger.error("webhook: %s: %s", self._path, error.strerror, extra={"event": "webhook"})


def signature(secret: bytes, time_seconds: int, body: bytes) -> str:
    signed = hmac.new(secret, b"%d." % time_seconds + body, hashlib.sha256).hexdigest()
    return f"t={time_seconds},v1={signed}"
