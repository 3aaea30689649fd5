"""No thread and no task of the daemon ends unnoticed: each is told as trouble, begins again, and nothing is lost."""

from __future__ import annotations

import ctypes
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.daemon import workers
from mussurana.verifier.daemon.notify import Notifier
from mussurana.verifier.daemon.service import Service
from mussurana.verifier.daemon.workers import NAMES, TaskWorker, Worker
from tests.attack.test_webhook import Receiver
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.daemon.test_metrics import scraped
from tests.daemon.watching import is_verified, page, until


class Failure(BaseException):
    """Nothing that anybody expects."""


def fail(daemon: Running, name: str) -> None:
    """Ends a worker wherever it is just now."""
    (worker,) = [each for each in daemon.service.workers.all if each.name == name]
    if isinstance(worker, TaskWorker):
        task = worker._task
        assert task is not None
        daemon.call(lambda: task.cancel() and None)
        return
    thread = worker._thread
    assert thread is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Failure))
    daemon.service.webhook.wake()  # one that waits for somebody finds out when it is woken


@pytest.mark.parametrize("name", NAMES)
def test_whichever_ends_is_told_and_begins_again_and_everything_goes_on(
    data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    monkeypatch.setattr(workers, "STEADY_SECONDS", 2.0)
    monkeypatch.setattr(Notifier.__init__, "__defaults__", ({"WATCHDOG_USEC": "200000"}, None))
    with (
        running(data, settings={"webhook_url": receiver.url, "checkpoint_interval_seconds": "0.1"}) as daemon,
        TestCollector(daemon.address) as collector,
    ):
        service = daemon.service
        assert {worker.name for worker in service.workers.all} == set(NAMES)
        collector.send(*(fragment(n) for n in range(1, 20)))
        fail(daemon, name)
        collector.send(*(fragment(n, mark=f"number {n}" if n == 30 else "") for n in range(20, 41)))
        collector.wait_durable(40)
        until(lambda: any(f"({name})" in each for each in service.query.status_now().trouble))
        assert scraped(daemon)["mussurana_worker_failures_total"][(name,)] == 1
        until(lambda: is_verified(daemon))
        until(lambda: receiver.received == ["number 30"])
        until(lambda: service.workers.down() == [])
        assert page(daemon.http_port, "/-/ready")[0] == 200
        until(lambda: service.troubles() == service.board.incidents(service.clock.now_ns()))  # told for longer
        assert sum(each.txn_count for each in service.board.rounds()) == 400
        assert service.board.progress.differences == 0
        assert service.committer.pending_bytes == 0
    receiver.close()
    with running(data) as daemon, TestCollector(daemon.address) as collector:
        assert collector.durable == 40
        until(lambda: is_verified(daemon))
        assert daemon.service.board.progress.differences == 0


def test_an_error_in_the_machine_that_does_not_come_back_loses_nothing(data: Path) -> None:
    """From the checkpoint on everything is fed again, and found again."""
    errors = 0

    def prepare(service: Service) -> None:
        make = service.verification._make_machine

        def made(state: bytes | None) -> Any:
            machine = make(state)
            feed = machine.feed

            def broken(collector: bytes, fragment: Any, received_ns: int) -> None:
                nonlocal errors
                if errors:
                    errors -= 1
                    raise ZeroDivisionError("an error in the machine")
                feed(collector, fragment, received_ns)

            machine.feed = broken  # type: ignore[method-assign]
            return machine

        service.verification._make_machine = made

    with (
        running(data, prepare=prepare, checkpoint_interval_seconds="0.05") as daemon,
        TestCollector(daemon.address) as collector,
    ):
        collector.send(fragment(1))
        collector.wait_durable(1)
        until(lambda: is_verified(daemon))
        errors = 1
        collector.send(fragment(2, mark="found in the end"))
        collector.wait_durable(2)
        until(lambda: any("an error in the machine" in each for each in daemon.service.troubles()))
        collector.send(fragment(3))
        collector.wait_durable(3)
        until(lambda: is_verified(daemon))
        assert [each.summary for each in daemon.service.violations.summaries()] == ["found in the end"]
        assert sum(each.txn_count for each in daemon.service.board.rounds()) == 30


def test_a_checkpoint_that_fails_in_an_unexpected_way_does_not_hold_up_verification(data: Path) -> None:
    failures: list[int] = []

    def prepare(service: Service) -> None:
        write = service.checkpoints.write

        def broken(checkpoint: Any) -> None:
            if not failures:
                failures.append(1)
                raise ZeroDivisionError
            write(checkpoint)

        service.checkpoints.write = broken  # type: ignore[method-assign]

    with (
        running(data, prepare=prepare, checkpoint_interval_seconds="0.05") as daemon,
        TestCollector(daemon.address) as collector,
    ):
        for n in range(1, 20):
            collector.send(fragment(n))
            collector.wait_durable(n)
            time.sleep(0.02)
        until(lambda: daemon.service.checkpoints.written_ns)
        assert scraped(daemon)["mussurana_checkpoint_failures_total"][()] == 1
        assert daemon.service.troubles() == []


def test_every_thread_of_the_daemon_is_a_worker_or_has_an_end_of_its_own(data: Path) -> None:
    before = set(threading.enumerate())
    with running(data, settings={"webhook_url": "http://127.0.0.1:1/"}) as daemon:
        page(daemon.http_port, "/-/ready")
        until(lambda: is_verified(daemon))
        names = {thread.name for thread in set(threading.enumerate()) - before}
        expected = {"commit", "http", "sampler", "verify", "webhook"}
        assert expected <= names
        for name in names - expected:
            assert name.startswith(("checkpoint", "Thread-", "asyncio_")), name  # the daemon's own, and connections


def test_a_worker_that_fails_at_once_pauses_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(workers, "monotonic", lambda: now[0])
    begun: list[float] = []

    def run() -> None:
        begun.append(now[0])
        raise ZeroDivisionError

    worker = Worker("sampler", run)
    worker.start()
    while now[0] < 400:
        worker.join()
        worker.look()
        now[0] += 0.1
    pauses = [later - earlier for earlier, later in pairwise(begun)]
    assert all(later > earlier - 0.2 for earlier, later in pairwise(pauses))
    assert pauses[0] < 1.0
    assert pauses[-1] > 50
    assert "ZeroDivisionError" in worker.trouble


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_worker_that_was_asked_to_end_does_not_begin_again(how: str) -> None:
    ended = threading.Event()

    def run() -> None:
        ended.wait()
        if how == "raises":
            raise ZeroDivisionError

    worker = Worker("sampler", run)
    worker.start()
    worker.end()
    ended.set()
    worker.join()
    assert not worker.look()
    assert not worker.trouble
    assert not worker.is_down


def test_a_failure_is_forgotten_once_the_worker_has_been_well_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(workers, "monotonic", lambda: now[0])
    ended, fails = threading.Event(), [True]

    def run() -> None:
        if fails[0]:
            raise ZeroDivisionError
        ended.wait()

    worker = Worker("sampler", run)
    worker.start()
    worker.join()
    assert worker.look()
    fails[0] = False
    now[0] += 1
    assert not worker.look()
    assert worker.trouble
    now[0] += workers.STEADY_SECONDS
    worker.look()
    assert not worker.trouble
    worker.end()
    ended.set()
