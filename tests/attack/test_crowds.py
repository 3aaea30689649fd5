"""Hundreds connect and say nothing, or a byte now and then: collectors, scrapes and health checks go on meanwhile."""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mussurana.verifier.daemon import auth, http, ingest, service
from mussurana.verifier.daemon.client import Target, status
from mussurana.verifier.daemon.service import SERVER_OPTIONS
from tests.daemon import collector
from tests.daemon.certificates import authority
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.daemon.watching import page, until

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and settings
CROWD = 160
"""More than there are places, and few enough for a test in one process."""

Trickle = Callable[[int], bytes]
"""What a connection sends at its n-th turn."""

OVER_HTTP: dict[str, Trickle] = {
    "nothing": lambda turn: b"",
    "a request line without end": lambda turn: b"GET /" if turn == 0 else b"a",
    "a head without end": lambda turn: b"GET / HTTP/1.1\r\n" if turn == 0 else b"X: y\r\n",
    "a body without end": lambda turn: (
        b"GET /api/overview HTTP/1.1\r\nContent-Length: 9999\r\n\r\n" if turn == 0 else b"a"
    ),
    "requests whose answers nobody reads": lambda turn: b"GET /metrics HTTP/1.1\r\n\r\n" * 20,
}
OVER_GRPC: dict[str, Trickle] = {
    "nothing": lambda turn: b"",
    "the preface, byte by byte": lambda turn: HTTP2[turn : turn + 1],
    "settings, and then nothing": lambda turn: HTTP2 if turn == 0 else b"",
    "settings, and a header without end": lambda turn: HTTP2 + b"\0\x10\0\1\4\0\0\0\1" if turn == 0 else b"\x82",
    "something else": lambda turn: b"GET / HTTP/1.1\r\n\r\n",
}


def is_cut(connection: socket.socket) -> bool:
    """Without reading: what was sent before may still be there."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return any(events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


@contextmanager
def crowd(port: int, trickles: dict[str, Trickle]) -> Iterator[list[int]]:
    """Connects again whenever it is cut off. The list has how often each kind was."""
    kinds = list(trickles.values())
    cut = [0] * len(kinds)
    is_over = threading.Event()
    open_sockets: dict[int, tuple[socket.socket, int]] = {}

    def send(place: int) -> None:
        if place not in open_sockets:
            made = socket.socket()
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect_ex(("127.0.0.1", port))
            open_sockets[place] = made, 0
        connection, turn = open_sockets[place]
        try:
            if content := kinds[place % len(kinds)](turn):
                connection.send(content)
            open_sockets[place] = connection, turn + 1
            if is_cut(connection):
                raise ConnectionError
        except BlockingIOError:
            pass
        except OSError:
            cut[place % len(kinds)] += 1
            open_sockets.pop(place)[0].close()

    def run() -> None:
        while not is_over.is_set():
            for place in range(CROWD):
                send(place)
            time.sleep(0.2)
        for connection, _ in open_sockets.values():
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: len(open_sockets) >= CROWD * 0.9, 20)
    try:
        yield cut
    finally:
        is_over.set()
        thread.join()


def file_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same limits on time, shorter."""
    changed = {"grpc.server_handshake_timeout_ms": 1500, "grpc.max_connection_idle_ms": 1500}
    options = [(name, changed.get(name, value)) for name, value in SERVER_OPTIONS]
    assert {name for name, _ in options} >= set(changed)
    monkeypatch.setattr(service, "SERVER_OPTIONS", options)
    monkeypatch.setattr(http, "REQUEST_SECONDS_MAX", 1.0)
    monkeypatch.setattr(http, "ANSWER_SECONDS_MAX", 1.5)
    monkeypatch.setattr(ingest, "HELLO_SECONDS_MAX", 1.0)
    monkeypatch.setattr(collector, "TIMEOUT_SECONDS", 60.0)


def asked(daemon: Running, path: str) -> float:
    started = time.monotonic()
    assert page(daemon.http_port, path)[0] == 200
    return time.monotonic() - started


def test_a_crowd_on_both_ports_keeps_nobody_away(data: Path, quick: None) -> None:
    with (
        running(data, settings={"ingest_collectors_max": "50"}) as daemon,
        TestCollector(daemon.address) as sender,
        crowd(daemon.http_port, OVER_HTTP) as cut_http,
        crowd(int(daemon.address.rpartition(":")[2]), OVER_GRPC) as cut_grpc,
    ):
        sequence = 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline or not (all(cut_http) and all(cut_grpc)):
            assert time.monotonic() < deadline + 30, (cut_http, cut_grpc)
            for path in ("/-/healthy", "/-/ready", "/metrics"):
                assert asked(daemon, path) < 3.0, path
            sequence += 1
            sender.send(fragment(sequence))
            sender.wait_durable(sequence)
            assert file_count() < 2 * CROWD + 2 * 130 + 200  # the crowd's own ends, and places on both ports
        assert sequence > 3
        with TestCollector(daemon.address, b"n" * 16) as later:
            later.send(fragment(1))
            later.wait_durable(1)
        assert status(Target(daemon.address)).trouble == []


def test_with_tls_who_does_not_get_through_it_is_cut_off(data: Path, tmp_path: Path, quick: None) -> None:
    ours = authority(tmp_path / "ours")
    certificate, key = ours.issue("server")
    settings = {"tls_certificate_file": str(certificate), "tls_key_file": str(key), "ingest_collectors_max": "50"}
    credentials = grpc.ssl_channel_credentials(ours.certificate.read_bytes())
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    trickles: dict[str, Trickle] = {
        "nothing": lambda turn: b"",
        "TLS, byte by byte": lambda turn: hello[turn : turn + 1],
    }
    with (
        running(data, settings=settings) as daemon,
        TestCollector(daemon.address, credentials=credentials) as sender,
        crowd(int(daemon.address.rpartition(":")[2]), trickles) as cut,
    ):
        until(lambda: all(each > CROWD // 2 for each in cut), 20)
        sender.send(fragment(1))
        sender.wait_durable(1)


def test_a_stream_that_does_not_say_hello_ends(data: Path, quick: None) -> None:
    with running(data) as daemon, TestCollector(daemon.address, say_hello=False) as silent:
        code, details = silent.status()
        assert (code, details) == (grpc.StatusCode.DEADLINE_EXCEEDED, "no Hello within 1 s")
        assert daemon.service.metrics.fragments_refused.labels("late")._value.get() == 1
        assert daemon.service.ingest.connected == 0


def test_only_so_many_streams_wait_for_their_hello(data: Path) -> None:
    with running(data, settings={"ingest_collectors_max": "3"}) as daemon:
        silent = [TestCollector(daemon.address, say_hello=False) for _ in range(3)]
        until(lambda: daemon.service.ingest._greeting == 3)
        one_more = TestCollector(daemon.address, say_hello=False)
        assert one_more.status()[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        for each in (*silent, one_more):
            each.close()
        until(lambda: daemon.service.ingest._greeting == 0)


def test_only_so_many_may_watch_without_a_token(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "OPEN_STREAMS_MAX", 3)
    with running(data) as daemon, grpc.insecure_channel(daemon.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        watching = [stub.Watch(request) for _ in range(3)]
        assert [next(each).status for each in watching] == [health_pb2.HealthCheckResponse.SERVING] * 3
        with pytest.raises(grpc.RpcError) as refused:
            next(stub.Watch(request))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stub.Check(request).status == health_pb2.HealthCheckResponse.SERVING
        watching[0].cancel()

        def watch_again() -> bool:
            try:
                return bool(next(stub.Watch(request)).status)
            except grpc.RpcError:
                return False

        until(watch_again)


def test_pages_that_take_work_do_not_keep_health_or_metrics_away(data: Path) -> None:
    working, is_over = threading.Semaphore(0), threading.Event()

    def prepare(made: service.Service) -> None:
        def slow(query: str) -> bytes:
            working.release()
            is_over.wait(20)
            return b"{}"

        made.site._api.answers["hour"] = slow

    with running(data, prepare=prepare) as daemon:
        asking = [threading.Thread(target=page, args=(daemon.http_port, "/api/hour")) for _ in range(http.PAGES_MAX)]
        for each in asking:
            each.start()
        for _ in asking:
            assert working.acquire(timeout=10)
        assert page(daemon.http_port, "/api/hour")[0] == 503
        for path in ("/-/healthy", "/metrics"):
            assert asked(daemon, path) < 3.0
        is_over.set()
        for each in asking:
            each.join()
        assert page(daemon.http_port, "/api/hour")[0] == 200


def test_a_head_that_is_too_large_is_refused(data: Path) -> None:
    with running(data) as daemon, socket.create_connection(("127.0.0.1", daemon.http_port), 5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * (http.HEAD_BYTES_MAX // 2) + b"\r\n")
        connection.sendall(b"X: " + b"y" * (http.HEAD_BYTES_MAX // 2) + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 431")


def test_a_body_is_not_taken_for_the_next_request(data: Path) -> None:
    with running(data) as daemon, socket.create_connection(("127.0.0.1", daemon.http_port), 5) as connection:
        inner = b"GET /metrics HTTP/1.1\r\n\r\n"
        connection.sendall(b"GET /-/healthy HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
        assert answer.count(b"HTTP/1.1 200") == 1
        assert b"mussurana_" not in answer


def test_however_few_files_the_system_allows_some_are_left_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, hard, collectors, expected in ((1024, 1024, 1000, 512), (20_000, 20_000, 1000, 2100), (100, 100, 9, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limits=(soft, hard): limits)
        monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: None)
        assert service._connections_max(collectors) == expected
