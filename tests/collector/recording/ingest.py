"""A verifier for tests: real gRPC on the loopback, in memory, that can be slow, silent or go away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from types import TracebackType

import grpc

from mussurana.wire import PROTOCOL, history_pb2

Behaviour = Callable[["Ingest", Iterator[history_pb2.Upload], grpc.ServicerContext], Iterator[history_pb2.Download]]


def acknowledge(
    ingest: Ingest, uploads: Iterator[history_pb2.Upload], context: grpc.ServicerContext
) -> Iterator[history_pb2.Download]:
    """Take everything, and say so."""
    hello = next(uploads).hello
    kept = ingest.greet(hello, context)
    yield history_pb2.Download(
        welcome=history_pb2.Welcome(protocol=PROTOCOL, durable_sequence=len(kept), window_bytes=ingest.window_bytes)
    )
    for upload in uploads:
        fragment = upload.fragment
        ingest.received.append((hello.collector, fragment.sequence))
        if fragment.sequence == len(kept) + 1:
            kept.append(fragment)
        time.sleep(ingest.delay_seconds)
        if len(ingest.received) == ingest.break_after:
            context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
        yield history_pb2.Download(
            acknowledgement=history_pb2.Acknowledgement(durable_sequence=len(kept), window_bytes=ingest.window_bytes)
        )


def say_nothing(
    ingest: Ingest, uploads: Iterator[history_pb2.Upload], context: grpc.ServicerContext
) -> Iterator[history_pb2.Download]:
    """Never answer."""
    ingest.greet(next(uploads).hello, context)
    ingest.stopping.wait(60)
    yield from ()


class Ingest:
    """What it has received, by collector. `with Ingest() as verifier: verifier.address`."""

    def __init__(
        self,
        behaviour: Behaviour = acknowledge,
        address: str = "127.0.0.1:0",
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.window_bytes = 1 << 20
        self.delay_seconds = 0.0
        self.break_after = -1  # fragments
        self.kept: dict[bytes, list[history_pb2.Fragment]] = {}
        self.hellos: list[history_pb2.Hello] = []
        self.received: list[tuple[bytes, int]] = []  # also those that were sent again
        self.tokens: list[str] = []
        self.stopping = threading.Event()
        handler = grpc.stream_stream_rpc_method_handler(
            lambda uploads, context: behaviour(self, uploads, context),
            request_deserializer=history_pb2.Upload.FromString,
            response_serializer=history_pb2.Download.SerializeToString,
        )
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("mussurana.v1.Ingest", {"Stream": handler}),)
        )
        host = address.rpartition(":")[0]
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.address = f"{host}:{port}"

    def greet(self, hello: history_pb2.Hello, context: grpc.ServicerContext) -> list[history_pb2.Fragment]:
        self.hellos.append(hello)
        self.tokens += [str(value) for key, value in context.invocation_metadata() if key == "authorization"]
        return self.kept.setdefault(hello.collector, [])

    def fragments(self) -> list[history_pb2.Fragment]:
        return [fragment for kept in self.kept.values() for fragment in kept]

    def txn_count(self) -> int:
        return sum(fragment.txn_count for fragment in self.fragments())

    def __enter__(self) -> Ingest:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.stop(0).wait()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
