"""Daemons for tests: in this process on a thread of their own, with the fake machine unless told otherwise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from mussurana.verifier.daemon.configured import load
from mussurana.verifier.daemon.machine import FragmentCheck, MachineFactory
from mussurana.verifier.daemon.service import Service
from tests.daemon.fake_machine import FakeMachine

QUICK = {"ingest_listen": "127.0.0.1:0", "http_listen": "127.0.0.1:0", "log_disk_reserve_bytes": "0"}


class Running:
    """A daemon that serves."""

    def __init__(self, service: Service, address: str, http_port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.service, self.address, self.http_port, self._loop = service, address, http_port, loop

    def call(self, function: Callable[[], object]) -> None:
        """In the daemon's own thread, as a signal would."""
        self._loop.call_soon_threadsafe(function)


@contextmanager
def running(
    data: Path,
    machine: MachineFactory = FakeMachine,
    check: FragmentCheck = lambda fragment: None,
    *,
    prepare: Callable[[Service], None] = lambda service: None,
    settings: Mapping[str, str] | None = None,
    **flags: str,
) -> Iterator[Running]:
    """Serve until the block ends, then end as SIGTERM would have it. `prepare` may change parts before they start."""
    config = load(None, {}, {**QUICK, "data": str(data), **(settings or {}), **flags})
    found: list[Running] = []
    failed: list[BaseException] = []
    is_ready = threading.Event()

    async def main() -> None:
        service = Service(config, machine, check)
        prepare(service)
        loop = asyncio.get_running_loop()

        def ready(address: str, http_port: int) -> None:
            found.append(Running(service, address, http_port, loop))
            is_ready.set()

        await service.run(ready)

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
        is_ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_ready.wait(30)
    if failed:
        raise failed[0]
    try:
        yield found[0]
    finally:
        found[0].call(found[0].service.stopping.set)
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
