"""A collector for tests: speaks the wire protocol over a real connection, one message at a time."""

from __future__ import annotations

import queue
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from mussurana.wire import PROTOCOL
from mussurana.wire.history_pb2 import Download, Fragment, Hello, KeyName, Upload
from tests.daemon.fake_machine import MARK

TIMEOUT_SECONDS = 20.0


def fragment(sequence: int, txns: int = 10, mark: str = "") -> Fragment:
    """Transactions without operations, that committed just now; a mark makes the fake machine reject."""
    now_ns = time.time_ns()
    zeros = bytes(8 * txns)
    made = Fragment(
        sequence=sequence,
        sealed_ns=now_ns,
        txn_count=txns,
        txn_session=bytes(4 * txns),
        txn_status=bytes(txns),
        txn_begin_ns=zeros,
        txn_begun_ns=zeros,
        txn_commit_ns=zeros,
        txn_committed_ns=struct.pack("<q", now_ns) * txns,
        txn_op_count=bytes(4 * txns),
    )
    if mark:
        made.key_name.append(KeyName(key=1, name=MARK + mark))
    return made


class TestCollector:
    """One stream. What the daemon says is taken in order; an error of the stream is raised where it is waited for."""

    __test__ = False  # not a test, whatever its name says

    def __init__(
        self,
        address: str,
        id: bytes = b"c" * 16,
        *,
        protocol: int = PROTOCOL,
        first_sequence: int = 1,
        say_hello: bool = True,
        credentials: grpc.ChannelCredentials | None = None,
        token: str = "",
        options: Any = None,
    ) -> None:
        self.id = id
        self._requests: queue.Queue[bytes | None] = queue.Queue()
        self._channel = (
            grpc.secure_channel(address, credentials, options)
            if credentials
            else grpc.insecure_channel(address, options)
        )
        call: Any = self._channel.stream_stream("/mussurana.v1.Ingest/Stream", None, Download.FromString)
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.answers = call(self._sent(), timeout=TIMEOUT_SECONDS, metadata=metadata)
        self.durable = 0
        self.window_bytes = 0
        if say_hello:
            hello = Hello(
                protocol=protocol, collector=id, name="test", database="db", version="0", first_sequence=first_sequence
            )
            self.send_bytes(Upload(hello=hello).SerializeToString())
            welcome = next(self.answers).welcome
            assert welcome.protocol == PROTOCOL
            self.durable, self.window_bytes = welcome.durable_sequence, welcome.window_bytes

    def send_bytes(self, content: bytes) -> None:
        self._requests.put(content)

    def send(self, *fragments: Fragment) -> None:
        for each in fragments:
            self.send_bytes(Upload(fragment=each).SerializeToString())

    def wait_durable(self, sequence: int) -> None:
        while self.durable < sequence:
            self.next()

    def next(self) -> None:
        acknowledgement = next(self.answers).acknowledgement
        assert acknowledgement.durable_sequence >= self.durable
        self.durable, self.window_bytes = acknowledgement.durable_sequence, acknowledgement.window_bytes

    def finish(self) -> None:
        """Say that there is no more, and wait for the end."""
        self._requests.put(None)
        for answer in self.answers:
            self.durable = answer.acknowledgement.durable_sequence

    def status(self) -> tuple[grpc.StatusCode, str]:
        """How the daemon ended the stream."""
        try:
            for _ in self.answers:
                pass
        except grpc.RpcError:
            pass
        return self.answers.code(), self.answers.details()

    def close(self) -> None:
        self._requests.put(None)
        self.answers.cancel()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sent(self) -> Iterator[bytes]:
        while (content := self._requests.get()) is not None:
            yield content
