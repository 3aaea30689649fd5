"""What the collector counts about itself, and how the host's Prometheus gets to see it.

Counting is adding to a plain attribute, so that it costs nothing and cannot fail. Once a second the background thread
publishes what has changed to prometheus-client, if the host has imported it; a host without it pays nothing and can
read the attributes. Real counters and gauges are used, not a custom collector, since only these take part in
prometheus-client's multiprocess mode.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

COUNTERS = {
    "txns_recorded": "Transactions written to the spool",
    "txns_lost": "Transactions that ended but will never be sent; declared as a gap",
    "gaps": "Gaps declared",
    "hook_failures": "Failures inside the collector's hooks, which the application did not notice",
    "txns_not_journaled": "Transactions too large for the journal, or for which it had no room",
    "journal_failures": "Failures to write to the journal",
    "extraction_failures": "Statements whose result could not be understood afterwards",
    "background_failures": "Failures of the background thread, after which it went on",
    "statements_unobserved": "Statements that ran untouched because they cannot be observed",
    "fences_issued": "Fences that were committed",
    "fences_failed": "Fences that failed after all retries",
    "fence_seconds": "Time spent on fences",
    "fragments_spooled": "Fragments written to the spool",
    "fragments_dropped": "Fragments that did not fit into the spool",
    "spool_failures": "Failures to write to the spool",
    "bytes_spooled": "Bytes written to the spool",
    "bytes_sent": "Bytes sent to the verifier",
    "connections_failed": "Streams to the verifier that broke or could not be opened",
    "shipper_failures": "Failures to start the process that ships the spool",
    "cache_evictions": "Times the cache of key names and statements was full and started anew",
}
GAUGES = {
    "queue_txns": "Transactions that ended and are not yet in the spool",
    "spool_bytes": "Bytes in the spool that the verifier has not acknowledged",
    "is_connected": "Whether there is a stream to the verifier",
}

PREFIX = "mussurana_collector_"


class Metrics:
    """Totals of this process since it started, and current values. Names as in COUNTERS and GAUGES."""

    txns_recorded: int
    txns_lost: int
    gaps: int
    hook_failures: int
    txns_not_journaled: int
    journal_failures: int
    extraction_failures: int
    background_failures: int
    statements_unobserved: int
    fences_issued: int
    fences_failed: int
    fence_seconds: float
    fragments_spooled: int
    fragments_dropped: int
    spool_failures: int
    bytes_spooled: int
    bytes_sent: int
    connections_failed: int
    shipper_failures: int
    cache_evictions: int
    queue_txns: int
    spool_bytes: int
    is_connected: int

    def __init__(self) -> None:
        for name in (*COUNTERS, *GAUGES):
            setattr(self, name, 0)
        self._published = dict.fromkeys((*COUNTERS, *GAUGES), 0.0)

    def values(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in (*COUNTERS, *GAUGES)}

    def publish(self) -> None:
        """Tell prometheus-client, if the host uses it, what has changed since the last time."""
        if "prometheus_client" not in sys.modules:
            return
        exported = _exported()
        for name in COUNTERS:
            value = getattr(self, name)
            exported[name].inc(value - self._published[name])
            self._published[name] = value
        for name in GAUGES:  # several recorders of a process add up
            value = getattr(self, name)
            exported[name].inc(value - self._published[name])
            self._published[name] = value

    def withdraw(self) -> None:
        """The recorder is closed: its current values are nothing. What it counted stays counted."""
        for name in GAUGES:
            setattr(self, name, 0)
        self.publish()


_lock = threading.Lock()
_metrics: dict[str, Any] = {}


def _exported() -> dict[str, Any]:
    with _lock:
        if not _metrics:
            from prometheus_client import Counter, Gauge

            for name, text in COUNTERS.items():
                _metrics[name] = Counter(PREFIX + name, text)
            for name, text in GAUGES.items():
                _metrics[name] = Gauge(PREFIX + name, text, multiprocess_mode="livesum")
        return _metrics


def renew_lock() -> None:
    """In a forked child: somebody else may have held it."""
    global _lock
    _lock = threading.Lock()


def unregister() -> None:
    """Take the metrics out of the host's registry, so that nothing is left behind."""
    with _lock:
        if _metrics:
            from prometheus_client import REGISTRY

            for metric in _metrics.values():
                REGISTRY.unregister(metric)
            _metrics.clear()
