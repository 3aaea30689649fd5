"""Sends fragments to a daemon as a collector does: within the window, again after a broken connection, until durable.

Meant for replaying and for generating load. A thread of its own keeps the connection; whoever sends is held up while
the window is full or the daemon is away.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from mussurana.verifier.daemon.client import CallError, Target, explained
from mussurana.wire import PROTOCOL
from mussurana.wire.history_pb2 import Download, Fragment, Hello, Upload

RETRY_SECONDS = 0.2
"""Before connecting again: a daemon that restarts is back within seconds."""

FOR_GOOD = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.ABORTED,
}
"""Answers that trying again does not change."""


class Sender:
    """One collector. `send` from one thread."""

    def __init__(
        self,
        target: Target,
        id: bytes,
        name: str,
        database: str,
        is_patient: bool = False,
        acknowledged: Callable[[int], None] = lambda sequence: None,
    ) -> None:
        """A patient one waits for a daemon that is not there at first; others fail then."""
        self._target, self._id, self._name, self._database = target, id, name, database
        self._is_patient, self._acknowledged = is_patient, acknowledged
        self._changed = threading.Condition()
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._under_way_bytes = 0
        self._window_bytes = 0
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_connected = False
        self._closing = False
        self._failed: CallError | None = None
        self.durable = 0
        self.resent = 0
        self._thread = threading.Thread(target=self._run, name=f"send {name}", daemon=True)
        self._thread.start()

    def send(self, fragment: Fragment) -> None:
        """Hand over the next fragment, once there is room. CallError if the daemon does not take it."""
        content = Upload(fragment=fragment).SerializeToString()
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._has_room(len(content)))
            if self._failed:
                raise self._failed
            self._unacknowledged.append((fragment.sequence, content))
            self._under_way_bytes += len(content)
            if self._is_connected:
                self._outgoing.put(content)

    def finish(self) -> None:
        """Wait until all is durable, then end."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed or not self._unacknowledged)
        self.close()
        if self._failed:
            raise self._failed

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._outgoing.put(None)
        self._thread.join()

    def _has_room(self, length: int) -> bool:
        """One fragment may always be under way, however small the window; none while the daemon asks to wait."""
        if not self._window_bytes:
            return False
        return not self._unacknowledged or self._under_way_bytes + length <= self._window_bytes

    def _run(self) -> None:
        was_connected = self._is_patient
        while not self._closing:
            with self._target.channel() as channel:
                try:
                    self._converse(channel)
                except grpc.RpcError as error:
                    was_connected |= self._is_connected
                    self._disconnected(error, was_connected)
            with self._changed:
                if self._failed or self._changed.wait_for(lambda: self._closing, RETRY_SECONDS):
                    return

    def _disconnected(self, error: grpc.RpcError, was_connected: bool) -> None:
        with self._changed:
            self._is_connected, self._window_bytes = False, 0
            if error.code() in FOR_GOOD or not was_connected:
                self._failed = explained(self._target, error)
            self._changed.notify_all()

    def _converse(self, channel: grpc.Channel) -> None:
        call: Any = channel.stream_stream("/mussurana.v1.Ingest/Stream", None, Download.FromString)
        outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outgoing = outgoing
        with self._changed:
            first = self._unacknowledged[0][0] if self._unacknowledged else self.durable + 1
        hello = Hello(
            protocol=PROTOCOL,
            collector=self._id,
            name=self._name,
            database=self._database,
            version="replay",
            first_sequence=first,
        )
        outgoing.put(Upload(hello=hello).SerializeToString())
        answers = call(_sent(outgoing), metadata=self._target.metadata())
        try:
            for answer in answers:
                self._heard(answer, outgoing)
                if self._closing:
                    return
        finally:
            outgoing.put(None)
            answers.cancel()

    def _heard(self, answer: Download, outgoing: queue.SimpleQueue[bytes | None]) -> None:
        with self._changed:
            is_welcome = answer.HasField("welcome")
            said: Any = answer.welcome if is_welcome else answer.acknowledgement
            while self._unacknowledged and self._unacknowledged[0][0] <= said.durable_sequence:
                self._under_way_bytes -= len(self._unacknowledged.popleft()[1])
            self.durable = max(self.durable, said.durable_sequence)
            self._window_bytes = said.window_bytes
            if is_welcome:
                self._is_connected = True
                self.resent += len(self._unacknowledged)
                for _, content in self._unacknowledged:
                    outgoing.put(content)
            self._changed.notify_all()
        self._acknowledged(self.durable)


def _sent(outgoing: queue.SimpleQueue[bytes | None]) -> Iterator[bytes]:
    while (content := outgoing.get()) is not None:
        yield content
