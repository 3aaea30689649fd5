"""A daemon in its own process while somebody attacks: how long an honest collector waits, memory, and the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.online.daemon import DaemonProcess
from mussurana.verifier.daemon.quotas import SESSIONS_MAX, STATEMENT_KINDS_MAX, TAGS_MAX
from mussurana.wire.history_pb2 import Coverage, Fragment, SessionEvent
from tests.attack.collectors import Sender
from tests.attack.test_crowds import OVER_GRPC, OVER_HTTP, crowd
from tests.daemon import collector
from tests.daemon.watching import until

LAG_SECONDS_MAX = 30.0
"""On two cores that do other things as well. Alone it is some seconds, of the attack with the most work."""
MEMORY_GROWTH_MAX = 1 << 30
END_SECONDS_MAX = 10.0

Attack = Callable[[int], Iterator[Fragment]]
"""What the n-th of several ids sends."""


def long_names(place: int) -> Iterator[Fragment]:
    for number in range(4):
        made = Fragment()
        for key in range(300):
            made.key_name.add(key=1 + 300 * (4 * place + number) + key, name="t/" + "x" * 100_000)
        yield made


def long_statements(place: int) -> Iterator[Fragment]:
    for number in range(4):
        made = Fragment()
        for statement in range(30):
            made.statement.add(number=1 + 30 * number + statement, text="y" * 1_000_000)
        yield made


def many_sessions(place: int) -> Iterator[Fragment]:
    made = Fragment()
    made.session_event.extend(SessionEvent(what=SessionEvent.OPEN, session=each) for each in range(SESSIONS_MAX))
    yield made


def many_tags(place: int) -> Iterator[Fragment]:
    made = Fragment()
    for each in range(TAGS_MAX - 1):
        made.write_ids.add(tag=10_000 + TAGS_MAX * place + each, settled=1)
    yield made


def many_gaps(place: int) -> Iterator[Fragment]:
    for number in range(5):
        made = Fragment()
        gap = made.gap.add(reason="x")
        for each in range(100_000):
            first = 1 + 20 * (100_000 * number + each)
            gap.write_ids.add(tag=1_000_000 + place, first=first, end=first + 1)
        yield made


def many_taints(place: int) -> Iterator[Fragment]:
    made = Fragment()
    for each in range(STATEMENT_KINDS_MAX):
        made.coverage.add(table=f"{place}.{each}", observed=Coverage.UNOBSERVED_WRITE, statement_count=1)
    yield made


def second_names(place: int) -> Iterator[Fragment]:
    for name in ("t", "u"):
        made = Fragment()
        for each in range(100_000):
            made.key_name.add(key=1_000_000 + 100_000 * place + each, name=f"{name}/{each}")
        yield made


ATTACKS: dict[str, Attack | None] = {
    each.__name__: each
    for each in (long_names, long_statements, many_sessions, many_tags, many_gaps, many_taints, second_names)
} | {"crowds": None}


def attack(daemon: DaemonProcess, make: Attack, errors: list[BaseException]) -> None:
    try:
        for place in range(10):
            with Sender(daemon, "e", id=os.urandom(16)) as evil:
                for fragment in make(place):
                    evil.sequence += 1
                    fragment.sequence, fragment.sealed_ns = evil.sequence, time.time_ns()
                    evil.send(fragment)
                    evil.wait_durable(evil.sequence)
    except BaseException as error:  # told by the test, which would else have attacked nobody
        errors.append(error)


class Honest:
    """Sends one transaction after the other, and waits until each is verified."""

    def __init__(self, process: DaemonProcess, sender: Sender) -> None:
        self.lags: list[float] = []
        self._process, self._sender, self._sent = process, sender, 0
        self.work()  # kernels are compiled
        self.lags.clear()

    def work(self) -> None:
        self._sent += 1
        before = f"<a{self._sent - 1}" if self._sent > 1 else ""
        started = time.monotonic()
        self._sender.tell(f"0 x:=a{self._sent}{before}")
        until(lambda: self._process.read().total("mussurana_transactions_total") >= self._sent, 120)
        self.lags.append(time.monotonic() - started)


def during(process: DaemonProcess, name: str, honest: Honest) -> None:
    make, errors = ATTACKS[name], list[BaseException]()
    if make is None:
        ports = [int(address.rpartition(":")[2]) for address in (process.http, process.address)]
        with crowd(ports[0], OVER_HTTP), crowd(ports[1], OVER_GRPC):
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                honest.work()
        return
    attacking = threading.Thread(target=attack, args=(process, make, errors))
    attacking.start()
    while attacking.is_alive():
        honest.work()
    attacking.join()
    assert errors == []


@pytest.mark.attack
@pytest.mark.parametrize("name", list(ATTACKS))
def test_an_honest_collector_is_verified_while_others_attack(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "TIMEOUT_SECONDS", 600.0)
    process = DaemonProcess(tmp_path / "data", tmp_path / "log")
    try:
        with Sender(process, "a") as good:
            honest = Honest(process, good)
            before = process.read().resident_bytes
            during(process, name, honest)
            growth = process.read().resident_bytes - before
            for _ in range(3):
                honest.work()
        started = time.monotonic()
        process.end()
        ended = time.monotonic() - started
    except BaseException:
        process.kill()
        raise
    lags = honest.lags
    print(
        f"{name}: lag {max(lags):.1f} s at most, then {lags[-1]:.2f} s, {growth >> 20} MiB more, ended in {ended:.1f} s"
    )
    assert max(lags) < LAG_SECONDS_MAX
    assert lags[-1] < 3
    assert growth < MEMORY_GROWTH_MAX
    assert ended < END_SECONDS_MAX
