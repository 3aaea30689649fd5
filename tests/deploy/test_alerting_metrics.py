"""What alerts rest on: it is there from the start, survives a restart, and tells a collector that is gone from one
that is done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mussurana.verifier.daemon.metrics import ANOMALIES
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import running
from tests.daemon.fake_machine import FakeMachine
from tests.deploy.scrape import families, value

ROOT = Path(__file__).parents[2]

VIOLATION = "mussurana_violation_timestamp_seconds"
HEARTBEAT = "mussurana_verification_heartbeat_timestamp_seconds"
LAG = "mussurana_verification_lag_current_seconds"
SILENT = "mussurana_collectors_silent"

KILLED = """
import sys, time
from tests.daemon.collector import TestCollector, fragment
collector = TestCollector(sys.argv[1], b"k" * 16)
collector.send(fragment(1))
collector.wait_durable(1)
print("sent", flush=True)
time.sleep(60)
"""


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def test_a_violation_is_still_known_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        series = [each.labels for each in families(daemon.http_port)[VIOLATION].samples]
        assert len(series) == len(ANOMALIES) + 1, "a zero for each anomaly"
        assert value(daemon.http_port, VIOLATION) == 0
        before = time.time()
        with TestCollector(daemon.address) as collector:
            collector.send(fragment(1, mark="one"))
            collector.wait_durable(1)
            assert eventually(lambda: value(daemon.http_port, VIOLATION) > 0)
        found = value(daemon.http_port, VIOLATION, level="serializable", anomaly="write skew")
        assert before <= found <= time.time() + 1
    with running(tmp_path / "data") as daemon:
        assert value(daemon.http_port, VIOLATION, anomaly="write skew") == found
        assert value(daemon.http_port, "mussurana_rejections_total") == 0, "counters begin anew"


class Hanging(FakeMachine):
    def step(self, now_ns: int, force: bool = False) -> list:  # type: ignore[type-arg]
        time.sleep(1.5 if self.s["pending"] else 0)
        return super().step(now_ns, force)


def test_a_long_round_shows_while_it_lasts(tmp_path: Path) -> None:
    with running(tmp_path / "data", Hanging) as daemon, TestCollector(daemon.address) as collector:
        assert eventually(lambda: time.time() - value(daemon.http_port, HEARTBEAT) < 0.5)
        collector.send(fragment(1))
        collector.wait_durable(1)
        assert eventually(lambda: time.time() - value(daemon.http_port, HEARTBEAT) > 0.7, 2)
        assert eventually(lambda: time.time() - value(daemon.http_port, HEARTBEAT) < 0.5)


def test_a_collector_that_is_done_is_not_silent(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        collector = TestCollector(daemon.address)
        collector.send(fragment(1))
        collector.finish()
        assert eventually(lambda: value(daemon.http_port, "mussurana_collectors_connected") == 0)
        assert eventually(lambda: value(daemon.http_port, SILENT) == 0, 1)
        collector.close()


def test_a_collector_that_was_killed_is_silent_until_somebody_sends_the_rest(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", KILLED, daemon.address]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=environment) as killed:
            assert killed.stdout
            assert killed.stdout.readline() == b"sent\n"
            assert value(daemon.http_port, SILENT) == 0
            killed.kill()
        assert eventually(lambda: value(daemon.http_port, SILENT) == 1)
        heir = TestCollector(daemon.address, b"k" * 16)
        assert value(daemon.http_port, SILENT) == 0
        heir.send(fragment(2))
        heir.finish()
        assert eventually(lambda: value(daemon.http_port, SILENT) == 0)
        heir.close()
