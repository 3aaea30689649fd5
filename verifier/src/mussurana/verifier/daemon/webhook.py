"""The webhook: each violation is POSTed as JSON until somebody says that they have it.

At least once, also across restarts: the place in the store of violations up to which all were delivered is kept in a
file, and moves only after an answer 2xx. A violation may come twice, and has the same id then. Other answers and failed
connections are tried again, after 1 s, 2 s, 4 s and so on up to a limit, for as long as the violation is stored.
`post.py` has one attempt: whatever the other side does, it is over in time.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mussurana.verifier.daemon import config
from mussurana.verifier.daemon.files import write_atomically
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.post import Post
from mussurana.verifier.daemon.violations import Violations, json_of
from mussurana.verifier.daemon.workers import Worker
from mussurana.verifier.rounds.stored import conforms
from mussurana.wire.segments import Position

RETRY_SECONDS_MIN = 1.0
CLOSE_SECONDS = 1.0
"""For an attempt that is under way when the daemon ends. What it did not deliver is delivered after the next start."""

SIGNATURE = "Mussurana-Signature"

logger = logging.getLogger(__name__)


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
        self._position = Position(0, 0)
        self._post: Post | None = None  # the last attempt, which may not be over yet
        self.worker = Worker("webhook", self._run)

    def start(self) -> None:
        """Before anything is verified: what is found from now on is delivered."""
        if self._options.url:
            self._position = self._delivered_to()
            self.worker.start()

    def wake(self) -> None:
        """There are new violations."""
        self._wake.set()

    def close(self) -> None:
        self.worker.end()
        self._closing.set()
        self._wake.set()
        if self._post is not None:
            self._post.give_up_after(CLOSE_SECONDS)
        self.worker.join()

    def _run(self) -> None:
        pause = self._retry_seconds_min
        while not self._closing.is_set():
            self._wake.clear()
            for violation, after in self._violations.after(self._position):
                while not self._deliver(violation):
                    if self._closing.wait(pause):
                        return
                    pause = min(2 * pause, self._options.retry_seconds_max)
                pause = self._retry_seconds_min
                self._position = after
                self._remember(after)
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
        if self._post is not None and not self._post.has_ended:
            # It was given up and hangs where nobody can end it, such as in a name server. One at a time.
            return self._failed(violation, "the attempt before has not ended yet")
        self._post = post = Post(self._options.url, body, headers, self._options.timeout_seconds)
        failure = post.send()
        return self._failed(violation, failure) if failure else self._counted(True)

    def _failed(self, violation: dict[str, Any], failure: str) -> bool:
        logger.warning(
            "webhook: violation %s not delivered: %s", violation["id"], failure, extra={"event": "webhook_failed"}
        )
        return self._counted(False)

    def _counted(self, delivered: bool) -> bool:
        self._metrics.webhook_deliveries.labels("ok" if delivered else "failed").inc()
        return delivered

    def _delivered_to(self) -> Position:
        """Without a file: what is found from now on. A webhook that is added later is not told all that was before."""
        try:
            plain = json_of(self._path.read_bytes())
            position = Position(plain["segment"], plain["offset"])
            if not conforms(position, Position) or not Position(0, 0) <= position <= self._violations.end:
                raise ValueError("no violation was ever there")
            return position
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
