"""An alarm waits, is told, and is withdrawn under the same id, with the real machine in a process of its own."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.online.ports import free_port
from mussurana.wire.history_pb2 import INSERT, READ, UPDATE, Coverage, Fragment, SessionEvent
from tests.daemon.collector import TestCollector
from tests.daemon.test_webhook import Receiver
from tests.daemon.watching import until

ONE, OTHER = b"a" * 16, b"b" * 16
TAG = 17


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


class Daemon:
    """`mussurana serve`, which may be killed."""

    def __init__(self, data: Path, *flags: str) -> None:
        self.address, self.http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        listen = ["--data", str(data), "--ingest-listen", self.address, "--http-listen", self.http]
        program = "from mussurana.verifier.cli import main; main()"
        self.command = [sys.executable, "-c", program, "serve", *listen, *flags]
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)
        until(self._is_up, 180)  # kernels may have to be compiled
        return process

    def kill_and_start(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._started()

    def _is_up(self) -> bool:
        try:
            return str(self.overview()["status"]["state"]) == "verifying"
        except OSError:
            return False

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.http}/{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def overview(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.get("api/overview"))
        return answer

    def violation(self) -> dict[str, Any]:
        return next(iter(self.overview()["violations"]["latest"]), {})

    def send(self, collector: bytes, *fragments: Fragment) -> None:
        with TestCollector(self.address, collector, first_sequence=fragments[0].sequence) as stream:
            stream.send(*fragments)
            stream.wait_durable(fragments[-1].sequence)


def opened(sequence: int = 1) -> Fragment:
    made = Fragment(sequence=sequence, sealed_ns=time.time_ns(), collector_name="other")
    made.session_event.add(what=SessionEvent.OPEN, session=1)
    return made


def tainted(sequence: int) -> Fragment:
    made = Fragment(sequence=sequence, sealed_ns=time.time_ns(), collector_name="other")
    made.coverage.add(table="seats", shape="COPY", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
    return made


def skew(sequence: int = 1) -> Fragment:
    """Two transactions that no serial order explains, committed just now."""
    p, q, a, b = ((TAG << 32) + counter for counter in range(1, 5))
    ops = [
        [(INSERT, 1, p, 0), (INSERT, 2, q, 0)],
        [(READ, 1, p, 0), (UPDATE, 2, a, q)],
        [(READ, 2, q, 0), (UPDATE, 1, b, p)],
    ]
    flat = [op for txn in ops for op in txn]
    now_ns = time.time_ns()
    times = struct.pack("<q", now_ns) * 3
    made = Fragment(
        sequence=sequence,
        sealed_ns=now_ns,
        txn_count=3,
        txn_session=struct.pack("<3I", 1, 1, 2),
        txn_status=bytes(3),
        txn_begin_ns=times,
        txn_begun_ns=times,
        txn_commit_ns=times,
        txn_committed_ns=times,
        txn_op_count=struct.pack("<3I", 2, 2, 2),
        op_kind=bytes(op[0] for op in flat),
        op_key=struct.pack("<6Q", *(op[1] for op in flat)),
        op_version=struct.pack("<6Q", *(op[2] for op in flat)),
        op_previous=struct.pack("<2Q", *(op[3] for op in flat if op[0] == UPDATE)),
    )
    made.write_ids.add(tag=TAG, settled=5, drawn=5)
    for key in (1, 2):
        made.key_name.add(key=key, name=f"seats/{key}")
    return made


def test_an_alarm_survives_a_kill_while_it_waits_is_told_and_is_withdrawn_by_a_late_taint(
    data: Path, receiver: Receiver
) -> None:
    daemon = Daemon(data, "--webhook-url", receiver.url)
    try:
        daemon.send(OTHER, opened())
        daemon.send(ONE, skew())
        until(lambda: daemon.overview()["status"]["alarms_waiting"] == 1)
        waiting = daemon.violation()
        assert waiting["state"] == "waiting"
        assert daemon.overview()["rounds"][0]["verdict"] == "unknown"
        assert not receiver.calls

        daemon.kill_and_start()
        until(lambda: daemon.violation()["state"] == "told", 15)
        until(lambda: receiver.calls)
        assert daemon.overview()["rounds"][0]["verdict"] == "rejected"

        daemon.send(OTHER, tainted(2))
        until(lambda: daemon.violation()["state"] == "withdrawn")
        until(lambda: len(receiver.calls) == 2)
        assert [(call["event"], call["id"]) for call, _, _ in receiver.calls] == [
            ("rejected", waiting["id"]),
            ("withdrawn", waiting["id"]),
        ]
        why = "other @1 wrote to seats unseen"
        assert receiver.calls[1][0]["withdrawn"] == why
        assert daemon.violation()["withdrawn"] == why
        assert 'withdrawn_violations_total{level="serializable",told="yes"} 1.0' in daemon.get("metrics")
        assert daemon.overview()["rounds"][0]["verdict"] == "unknown"

        daemon.kill_and_start()
        assert daemon.violation()["state"] == "withdrawn"
        assert len(receiver.calls) == 2
    finally:
        daemon.process.kill()
        daemon.process.wait()


def test_with_a_healthy_fleet_an_alarm_waits_less_than_half_a_second(data: Path, receiver: Receiver) -> None:
    daemon = Daemon(data, "--webhook-url", receiver.url)
    try:
        daemon.send(OTHER, opened())
        made = skew()
        daemon.send(ONE, made)
        until(lambda: daemon.overview()["status"]["alarms_waiting"] == 1)
        began = time.monotonic()
        daemon.send(OTHER, Fragment(sequence=2, sealed_ns=time.time_ns()))
        until(lambda: receiver.calls)
        assert time.monotonic() - began < 2.0, "a fragment of the other is all that it waited for"
    finally:
        daemon.process.kill()
        daemon.process.wait()
