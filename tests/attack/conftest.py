"""What attacks on the daemon have in common."""

from __future__ import annotations

from tests.daemon.conftest import data

__all__ = ["data"]
