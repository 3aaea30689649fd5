"""What the collector counts about itself."""

from __future__ import annotations


class Metrics:
    """Totals since the process started. Plain attributes: counting must cost nothing."""

    def __init__(self) -> None:
        self.hook_failures = 0
        self.fences_issued = 0
        self.fences_failed = 0
        self.fence_seconds = 0.0
