"""A daemon that was stopped takes nobody for silent: what sessions did meanwhile is verified like all else."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from bench.online.ports import free_port
from bench.online.workload import Shape, Workload
from mussurana.verifier.daemon.client import Target, status
from mussurana.verifier.daemon.clock import GAP_SECONDS
from tests.daemon.collector import TestCollector
from tests.daemon.crash import Daemon
from tests.daemon.watching import until

SILENCE_SECONDS = 4.0
"""Well below the time for which the daemon stands still."""


def test_what_sessions_did_while_the_daemon_was_stopped_is_verified(data: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    program = "from mussurana.verifier.cli import main; main()"
    flags = ["--data", str(data), "--ingest-listen", address, "--http-listen", ""]
    flags += ["--rounds-silence-seconds-max", str(SILENCE_SECONDS), "--rounds-wait-seconds-max", str(SILENCE_SECONDS)]
    flags += ["--log-disk-reserve-bytes", "0"]
    daemon = Daemon([sys.executable, "-c", program, "serve", *flags])
    workload = Workload(Shape(sessions=4, collectors=2, keys=20, operations=4, read_fraction=0.5))
    txns = sequence = 0

    def work(count: int) -> None:
        nonlocal txns, sequence
        now_ns = time.time_ns()
        txns, sequence = txns + count, sequence + 1
        for sender, made in zip(senders, workload.block(count, now_ns - 10**6, now_ns), strict=True):
            sender.send(made.fragment)
            sender.wait_durable(sequence)

    def is_verified() -> bool:
        now = status(Target(address))
        return now.state == "verifying" and not now.log_behind_bytes and not now.lag_seconds

    try:
        daemon.wait_ready()
        until(lambda: status(Target(address)).state == "verifying", 300)
        senders = [TestCollector(address, each.id) for each in workload.collectors]
        work(200)
        until(is_verified, 60)
        os.kill(daemon.process.pid, signal.SIGSTOP)
        time.sleep(max(GAP_SECONDS, SILENCE_SECONDS) + 2.0)
        os.kill(daemon.process.pid, signal.SIGCONT)
        # First one session is heard again, and rounds are over before the others are.
        for count in (1, 200, 200):
            work(count)
            until(is_verified, 60)
        now = status(Target(address))
        assert (now.unknown_txns, now.sessions_open, list(now.trouble)) == (0, 4, [])
        for sender in senders:
            sender.close()
        lines = daemon.end(signal.SIGTERM)
        assert [line for line in lines if line.get("event") == "clock_leapt"]
    finally:
        daemon.process.kill()
        daemon.process.wait()
