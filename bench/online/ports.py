"""Ports that nobody uses, so that several of these can run on one machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """One that was free a moment ago. The system hands them out in turn, so nobody gets it soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
