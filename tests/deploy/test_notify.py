"""What systemd hears, on a real socket."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mussurana.verifier.daemon.notify import Notifier

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "deploy" / "systemd"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        yield listening


def address(listening: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(listening.getsockname())}


def heard(listening: socket.socket) -> list[str]:
    return listening.recv(4096).decode().split("\n")


def test_each_state_is_one_datagram(systemd: socket.socket) -> None:
    notifier = Notifier(address(systemd))
    notifier.ready("here I am")
    assert heard(systemd) == ["READY=1", "STATUS=here I am"]
    notifier.reloading()
    reloading, since = heard(systemd)
    assert reloading == "RELOADING=1"
    assert 0 <= time.monotonic() - int(since.removeprefix("MONOTONIC_USEC=")) / 1e6 < 5
    notifier.stopping(12.5)
    assert heard(systemd) == ["STOPPING=1", "STATUS=ending", "EXTEND_TIMEOUT_USEC=12500000"]


def test_an_abstract_address_works() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"mussurana-test-{os.getpid()}"
        listening.bind(f"\0{name}")
        listening.settimeout(5)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready("")
        assert heard(listening)[0] == "READY=1"


def test_without_systemd_nothing_happens() -> None:
    notifier = Notifier({})
    notifier.ready("")
    notifier.stopping(1)
    asyncio.run(asyncio.wait_for(notifier.keep_alive(), 1))


def test_a_socket_that_is_gone_is_no_reason_to_end(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nowhere")}).ready("")


def test_the_watchdog_is_fed_twice_a_period(systemd: socket.socket) -> None:
    notifier = Notifier({**address(systemd), "WATCHDOG_USEC": "200000", "WATCHDOG_PID": str(os.getpid())})
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(notifier.keep_alive(), 0.45))
    systemd.setblocking(False)
    fed = []
    with suppress(BlockingIOError):
        while True:
            fed += heard(systemd)
    assert set(fed) == {"WATCHDOG=1"}
    assert 3 <= len(fed) <= 5


@pytest.mark.parametrize(
    "period", [{}, {"WATCHDOG_USEC": "nonsense"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}]
)
def test_a_watchdog_that_is_not_ours_is_not_fed(period: dict[str, str]) -> None:
    assert Notifier(period).watchdog_seconds == 0


def test_the_daemon_says_ready_then_alive_then_reloading_then_stopping(systemd: socket.socket, tmp_path: Path) -> None:
    environment = {**os.environ, **address(systemd), "WATCHDOG_USEC": "400000"}
    command = [sys.executable, "-m", "tests.daemon.process", "--data", str(tmp_path / "data")]
    command += ["--ingest-listen", "127.0.0.1:0", "--http-listen", "", "--log-disk-reserve-bytes", "0"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            ready, status = heard(systemd)
            assert ready == "READY=1"
            assert status.startswith("STATUS=collectors connect to 127.0.0.1:")
            assert heard(systemd) == ["WATCHDOG=1"]
            daemon.send_signal(signal.SIGHUP)
            assert next_but_alive(systemd)[0] == "RELOADING=1"
            assert next_but_alive(systemd)[0] == "READY=1"
            daemon.send_signal(signal.SIGTERM)
            assert next_but_alive(systemd)[0] == "STOPPING=1"
            assert daemon.wait(30) == 0
        finally:
            daemon.kill()


def test_the_command_of_the_unit_says_ready_stays_alive_and_ends_well(systemd: socket.socket, tmp_path: Path) -> None:
    """The real daemon with the unit's own command, variables and configuration; only the places are other ones."""
    unit = (SYSTEMD / "mussurana.service").read_text()
    config = tmp_path / "mussurana.toml"
    config.write_text(re.sub(r"127\.0\.0\.1:770[12]", "127.0.0.1:0", (SYSTEMD / "mussurana.toml").read_text()))
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    places = {"/opt/mussurana/bin": str(Path(sys.executable).parent), "/etc/mussurana/mussurana.toml": str(config)}
    variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))
    for ours, here in places.items():
        assert ours in line
        line = line.replace(ours, here)
    data = {name: value.replace("%S", str(tmp_path)) for name, value in variables.items() if "%S" in value}
    assert data == {"MUSSURANA_DATA": str(tmp_path / "mussurana")}
    environment = {**os.environ, **data, **address(systemd), "WATCHDOG_USEC": "1000000"}
    with subprocess.Popen(line.split(), env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            assert heard(systemd)[0] == "READY=1"
            assert heard(systemd) == ["WATCHDOG=1"]
            daemon.send_signal(signal.SIGTERM)
            assert next_but_alive(systemd)[0] == "STOPPING=1"
            assert daemon.wait(60) == 0
        finally:
            daemon.kill()
    assert (tmp_path / "mussurana" / "log").is_dir()


def next_but_alive(listening: socket.socket) -> list[str]:
    while (said := heard(listening)) == ["WATCHDOG=1"]:
        pass
    return said
