"""A full disk, a slow disk, a clock that is set back: each has a defined end, and everything else goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.online.ports import free_port
from mussurana.verifier.daemon.journal import Step
from mussurana.verifier.daemon.log import FRAGMENT, Entry, IngestLog
from mussurana.verifier.daemon.service import Service
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import running
from tests.daemon.crash import Daemon
from tests.daemon.watching import is_verified, page, until

NO_SPACE = OSError(28, "No space left on device")


class Disk:
    """Refuses what a daemon writes to its log for as long as it is full."""

    def __init__(self, service: Service) -> None:
        self.is_full, self.attempts = True, 0
        self._commit = service.log.commit
        service.log.commit = self.commit  # type: ignore[method-assign]

    def commit(self, entries: Sequence[Entry]) -> None:
        self.attempts += 1
        if self.is_full:
            raise NO_SPACE
        self._commit(entries)


def test_a_full_disk_stops_acknowledgements_and_nothing_else_and_is_said(data: Path) -> None:
    disks: list[Disk] = []
    with (
        running(data, prepare=lambda service: disks.append(Disk(service))) as daemon,
        TestCollector(daemon.address) as collector,
        grpc.insecure_channel(daemon.address) as channel,
    ):
        collector.send(fragment(1), fragment(2))
        until(lambda: page(daemon.http_port, "/-/ready")[0] == 503)
        assert "No space left on device" in page(daemon.http_port, "/-/ready")[1]
        assert page(daemon.http_port, "/-/healthy")[0] == 200
        assert "mussurana_acknowledging 0.0" in page(daemon.http_port, "/metrics")[1]
        check = health_pb2_grpc.HealthStub(channel).Check
        until(lambda: check(health_pb2.HealthCheckRequest(service="mussurana.v1.Ingest")).status == 2)
        collector.next()
        assert (collector.durable, collector.window_bytes) == (0, 0)
        disks[0].is_full = False
        collector.wait_durable(2)
        until(lambda: page(daemon.http_port, "/-/ready")[0] == 200)
        until(lambda: is_verified(daemon))
        assert disks[0].attempts > 1


def test_a_reserve_of_the_disk_is_left_for_the_journal(data: Path) -> None:
    with running(data, log_disk_reserve_bytes=str(1 << 50)) as daemon, TestCollector(daemon.address) as collector:
        collector.send(fragment(1))
        until(lambda: "are kept in reserve" in page(daemon.http_port, "/-/ready")[1])
    assert collector.durable == 0


def test_a_journal_that_cannot_be_written_hides_the_round_until_it_can(data: Path) -> None:
    refused: list[Step] = []
    full = [True]

    def prepare(service: Service) -> None:
        append = service.journal.append

        def refuse(step: Step) -> None:
            if full[0]:
                refused.append(step)
                raise NO_SPACE
            append(step)

        service.journal.append = refuse  # type: ignore[method-assign]

    with running(data, prepare=prepare) as daemon, TestCollector(daemon.address) as collector:
        collector.send(fragment(1, mark="hidden"))
        collector.wait_durable(1)
        until(lambda: "the journal cannot be written" in daemon.service.board.progress.trouble)
        assert daemon.service.board.rounds() == []
        assert daemon.service.violations.summaries() == []
        collector.send(fragment(2))
        collector.wait_durable(2)
        full[0] = False
        until(lambda: is_verified(daemon))
        assert daemon.service.board.progress.trouble == ""
        assert len(daemon.service.violations.summaries()) == 1
        assert daemon.service.board.rounds()[0].number == 1


def test_a_checkpoint_that_cannot_be_written_is_counted_and_tried_again(data: Path) -> None:
    failed: list[bool] = []

    def prepare(service: Service) -> None:
        write = service.checkpoints.write

        def refuse(checkpoint: object) -> None:
            if not failed:
                failed.append(True)
                raise NO_SPACE
            write(checkpoint)  # type: ignore[arg-type]

        service.checkpoints.write = refuse  # type: ignore[method-assign]

    with running(data, prepare=prepare, checkpoint_interval_seconds="0.05") as daemon:
        with TestCollector(daemon.address) as collector:
            for n in range(1, 10):
                collector.send(fragment(n))
                collector.wait_durable(n)
                time.sleep(0.03)
            until(lambda: daemon.service.checkpoints.written_ns > 0)
        assert daemon.service.metrics.checkpoint_failures._value.get() == 1


def test_a_slow_disk_makes_batches_larger(data: Path) -> None:
    syncs: list[int] = []

    def prepare(service: Service) -> None:
        commit = service.log.commit

        def slowly(entries: Sequence[Entry]) -> None:
            syncs.append(len(entries))
            time.sleep(0.1)
            commit(entries)

        service.log.commit = slowly  # type: ignore[method-assign]

    with running(data, prepare=prepare) as daemon:
        collectors = [TestCollector(daemon.address, bytes([n]) * 16) for n in range(5)]
        for collector in collectors:
            collector.send(*(fragment(n) for n in range(1, 21)))
        for collector in collectors:
            collector.wait_durable(20)
            collector.close()
        assert sum(syncs) == 100
        assert len(syncs) < 20


def test_a_clock_that_is_set_back_changes_nothing_but_the_times(data: Path) -> None:
    wall_ns = [time.time_ns()]

    def prepare(service: Service) -> None:
        # All parts share the clock, so it is its sources that are replaced.
        service.clock.__init__(lambda: wall_ns[0], time.monotonic_ns)  # type: ignore[misc]

    with running(data, prepare=prepare) as daemon, TestCollector(daemon.address) as collector:
        collector.send(fragment(1))
        collector.wait_durable(1)
        until(lambda: is_verified(daemon))
        wall_ns[0] -= 3600 * 10**9
        for n in range(2, 6):
            collector.send(fragment(n))
            collector.wait_durable(n)
            time.sleep(0.06)
        until(lambda: sum(each.txn_count for each in daemon.service.board.rounds()) == 50)
        finished = [each.finished_ns for each in daemon.service.board.rounds()]
        assert finished == sorted(finished)
        assert daemon.service.clock.ahead_seconds() > 3500
    with running(data) as daemon:
        assert daemon.service.clock.now_ns() > finished[-1]


def test_a_disk_that_is_really_full(data: Path, tmp_path: Path) -> None:
    """A file system of three megabytes, in a mount namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=3m tmpfs {disk}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    command = [sys.executable, "-m", "tests.daemon.process", "--data", str(disk / "data")]
    address, http_port = f"127.0.0.1:{free_port()}", free_port()
    command += ["--ingest-listen", address, "--http-listen", f"127.0.0.1:{http_port}"]
    command += ["--log-disk-reserve-bytes", "0", "--log-segment-bytes", "100000"]
    started = ["unshare", "-m", "sh", "-c", f'{mount} && head -c 1500000 /dev/zero >{disk}/filler && exec "$@"', "sh"]
    daemon = Daemon([*started, *command])
    try:
        daemon.wait_ready()
        with TestCollector(address) as collector:
            collector.send(*(fragment(n, 500) for n in range(1, 101)))
            until(lambda: page(http_port, "/-/ready")[0] == 503)
            assert "No space left on device" in page(http_port, "/-/ready")[1]
            collector.next()
            assert collector.durable < 100
            Path(f"/proc/{daemon.process.pid}/root{disk}/filler").unlink()
            collector.wait_durable(100)
            assert page(http_port, "/-/ready")[0] == 200
    finally:
        daemon.process.kill()
        daemon.process.wait()


def test_after_a_restart_on_a_full_disk_nobody_is_told_that_fragments_are_taken(data: Path, tmp_path: Path) -> None:
    """Two lives in one mount namespace; the disk is filled between them."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=3m tmpfs {disk}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    address, http_port = f"127.0.0.1:{free_port()}", free_port()
    command = [sys.executable, "-m", "tests.daemon.process", "--data", str(disk / "data")]
    command += ["--ingest-listen", address, "--http-listen", f"127.0.0.1:{http_port}", "--log-disk-reserve-bytes", "0"]
    fill = f"head -c 5000000 /dev/zero >{disk}/filler"
    daemon = Daemon(["unshare", "-m", "sh", "-c", f'{mount} && "$@"; {fill}; exec "$@"', "sh", *command])

    def first_life() -> int:
        (child,) = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
        return int(child)

    try:
        daemon.wait_ready()
        with TestCollector(address) as collector:
            collector.send(fragment(1))
            collector.wait_durable(1)
        os.kill(first_life(), signal.SIGKILL)
        answers: list[tuple[int, str]] = []
        deadline = time.monotonic() + 30
        while len(answers) < 20:
            assert time.monotonic() < deadline
            try:
                answers.append(page(http_port, "/-/ready"))
            except OSError:
                time.sleep(0.01)
        assert {status for status, _ in answers} == {503}
        assert "No space left on device" in answers[-1][1]
        Path(f"/proc/{daemon.process.pid}/root{disk}/filler").unlink()
        until(lambda: page(http_port, "/-/ready")[0] == 200)
    finally:
        daemon.process.kill()
        daemon.process.wait()


def test_ready_within_seconds_with_a_gigabyte_of_log_behind_the_last_checkpoint(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written as files here: what counts is what a start reads."""
    if shutil.disk_usage(data.parent).free < 4 << 30:
        pytest.skip("there is not enough room")
    log = IngestLog(data / "log")
    content = fragment(1, 5000).SerializeToString()
    sequence, now_ns = 0, time.time_ns()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda handle: None)  # it need not survive this machine
        while log.durable.segment * (64 << 20) < (1 << 30) + (128 << 20):
            sequence += 1
            log.commit([Entry(FRAGMENT, b"c" * 16, sequence, now_ns, content)])
    log.close()
    assert sum(path.stat().st_size for path in (data / "log").iterdir()) > 1 << 30
    address = f"127.0.0.1:{free_port()}"
    flags = ["--data", str(data), "--ingest-listen", address, "--http-listen", ""]
    daemon = Daemon([sys.executable, "-m", "tests.daemon.process", *flags])
    try:
        assert daemon.wait_ready() < 5.0
        with TestCollector(address, first_sequence=sequence + 1) as collector:
            assert collector.durable == sequence
            started = time.monotonic()
            collector.send(fragment(sequence + 1))
            collector.wait_durable(sequence + 1)
            assert time.monotonic() - started < 2.0
    finally:
        daemon.process.kill()
        daemon.process.wait()
