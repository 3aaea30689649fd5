"""Load on a daemon: collectors that send an endless history at a rate, as if it happened now."""

from __future__ import annotations

import time

from bench.online.workload import Shape, Workload
from mussurana.verifier.daemon.client import Target
from mussurana.verifier.replay.send import Sender

FRAGMENT_TXNS = 1000
"""As collectors send them."""


class Load:
    def __init__(self, address: str, shape: Shape) -> None:
        self._workload = Workload(shape)
        self._block_txns = FRAGMENT_TXNS * shape.collectors
        self._senders = [
            Sender(Target(address), each.id, f"load {number}", "generated")
            for number, each in enumerate(self._workload.collectors)
        ]
        self.sent = 0
        self.late_seconds_max = 0.0

    def run(self, txns: int, txns_per_second: float) -> None:
        """Send so many, as evenly as whole fragments can be. A daemon that does not keep up holds it up."""
        block_seconds = self._block_txns / txns_per_second
        due = time.monotonic()
        last_ns = time.time_ns()
        self.late_seconds_max = 0.0
        end = self.sent + txns
        while self.sent < end:
            due += block_seconds
            time.sleep(max(0.0, due - time.monotonic()))
            now_ns = time.time_ns()
            for made in self._workload.block(self._block_txns, last_ns, now_ns):
                self._senders[made.collector].send(made.fragment)
                self.sent += made.fragment.txn_count
            last_ns = now_ns
            self.late_seconds_max = max(self.late_seconds_max, time.monotonic() - due)

    @property
    def durable(self) -> int:
        """Fragments that were acknowledged, of all collectors."""
        return sum(sender.durable for sender in self._senders)

    def finish(self) -> None:
        for made in self._workload.last():
            self._senders[made.collector].send(made.fragment)
        for sender in self._senders:
            sender.finish()
