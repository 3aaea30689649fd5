"""What systemd wants to know of a service with Type=notify: that it is ready, that it ends, that it is alive.

The protocol of sd_notify(3): a datagram with lines NAME=VALUE to the socket that the variable NOTIFY_SOCKET names.
Where there is no such variable nothing is said. `python3-systemd` would do the same and needs a C library.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from time import CLOCK_MONOTONIC, clock_gettime_ns

logger = logging.getLogger(__name__)


class Notifier:
    """A supervisor that is told. One that cannot be reached is no reason to end."""

    def __init__(self, environment: Mapping[str, str] = os.environ, process: int | None = None) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        is_for_us = environment.get("WATCHDOG_PID", "") in ("", str(process or os.getpid()))
        period_us = environment.get("WATCHDOG_USEC", "") if is_for_us else ""
        self.watchdog_seconds = int(period_us) / 1e6 if period_us.isdecimal() else 0.0

    def ready(self, status: str) -> None:
        self._say("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """`ready` has to follow. The time is for Type=notify-reload; Type=notify passes over it."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={clock_gettime_ns(CLOCK_MONOTONIC) // 1000}")

    def stopping(self, within_seconds: float) -> None:
        """What has been received is verified first, so that ending may take longer than systemd would wait."""
        self._say("STOPPING=1", "STATUS=ending", f"EXTEND_TIMEOUT_USEC={int(within_seconds * 1e6)}")

    async def keep_alive(self) -> None:
        """Say so twice in each period of the watchdog, for as long as the event loop turns; never if there is none."""
        while self.watchdog_seconds:
            self._say("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 2)

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        # A name that starts with @ is abstract: no file, and a zero in place of the @.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as telling:
                telling.setblocking(False)
                telling.connect(address)
                telling.send("\n".join(lines).encode())
        except OSError as error:
            logger.warning("systemd was not told %s: %s", lines[0], error.strerror or error, extra={"event": "notify"})
