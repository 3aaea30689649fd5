"""The sender: one gRPC stream from a spool to the verifier, for as long as there is anything to send.

Hello goes first; after the Welcome come the fragments that the verifier does not have yet, as many bytes at a time as
its window allows; each acknowledgement lets the spool delete what is durable. A stream that breaks, or on which nothing
is answered for too long, is opened again after a while that doubles up to a limit and carries some chance, so that a
hundred processes do not all come back at once.

gRPC does not survive a fork, and where its own fork support is switched off, a channel that was open while forking
aborts the child. So the channel is closed before each fork and made anew after it, by each process for itself.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import grpc

    from mussurana.collector.metrics import Metrics
    from mussurana.collector.settings import Settings

METHOD = "/mussurana.v1.Ingest/Stream"

ANSWER_SECONDS_MAX = 30.0
"""A verifier that says nothing for so long, while it owes a Welcome or an acknowledgement, is asked again."""

BACK_OFF_SECONDS_MIN, BACK_OFF_SECONDS_MAX = 0.2, 30.0

POLL_SECONDS = 0.5
"""How long a wait may last before the sender looks whether it shall end."""

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 60_000),  # finds peers that are gone without a word; often enough, rarely enough
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.use_local_subchannel_pool", 1),  # a channel of the host's to the same address is none of ours
    ("grpc.enable_retries", 0),
)


class Source(Protocol):
    """Where fragments come from: the spool of this process, or that of one that is gone."""

    is_complete: bool  # no more will be added
    last_sequence: int
    durable_sequence: int

    @property
    def first_sequence(self) -> int: ...
    def hello(self, first_sequence: int, /) -> bytes: ...
    def read(self, after: int) -> Iterator[tuple[int, bytes] | None]: ...
    def wait(self, sequence: int, timeout_seconds: float) -> None: ...
    def acknowledge(self, sequence: int) -> None: ...


class Requests:
    """The outgoing half of a stream, which gRPC iterates over in a thread of its own.

    That thread also watches for silence, since gRPC has no time limit for a single answer.
    """

    def __init__(self, source: Source, metrics: Metrics) -> None:
        self._source = source
        self._metrics = metrics
        self._changed = threading.Condition()
        self._ended = False
        self._said_hello = False
        self._durable: int | None = None  # not known before the Welcome
        self._window_bytes = 0
        self._under_way: list[tuple[int, int]] = []  # sequence and bytes
        self._fragments: Iterator[tuple[int, bytes] | None] = iter(())
        self._owed_since = monotonic()
        self.cancel: Callable[[], object] = self.end

    def answered(self, durable_sequence: int, window_bytes: int) -> None:
        """A Welcome or an acknowledgement has come."""
        with self._changed:
            if self._durable is None:
                self._fragments = self._source.read(max(durable_sequence, self._source.first_sequence - 1))
            self._durable = durable_sequence
            self._window_bytes = window_bytes
            self._under_way = [entry for entry in self._under_way if entry[0] > durable_sequence]
            self._owed_since = monotonic()
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._said_hello:
            self._said_hello = True
            return self._source.hello(self._source.first_sequence)
        try:
            while self._wait_for_room():
                found = next(self._fragments)
                if found is not None:
                    return self._send(*found)
                if self._source.is_complete and not self._under_way:
                    break
                self._source.wait(self._source.last_sequence, POLL_SECONDS)
                self._check_silence()
        except OSError:  # the spool cannot be read; gRPC would write a traceback to the host's log
            self._metrics.spool_failures += 1
            self.cancel()
        raise StopIteration

    def _send(self, sequence: int, payload: bytes) -> bytes:
        with self._changed:
            if not self._under_way:
                self._owed_since = monotonic()
            self._under_way.append((sequence, len(payload)))
        self._metrics.bytes_sent += len(payload)
        return payload

    def _wait_for_room(self) -> bool:
        """Whether there is something to do: the stream has not ended, and the window has room."""
        with self._changed:
            while not self._ended and not self._has_room():
                self._changed.wait(POLL_SECONDS)
                self._check_silence()
            return not self._ended

    def _has_room(self) -> bool:
        if self._durable is None or self._window_bytes == 0:
            return False
        # A fragment larger than the window goes alone.
        return not self._under_way or sum(size for _, size in self._under_way) < self._window_bytes

    def _check_silence(self) -> None:
        is_owed = self._durable is None or self._under_way or self._window_bytes == 0
        if is_owed and monotonic() - self._owed_since > ANSWER_SECONDS_MAX:
            self._ended = True
            self.cancel()


class Sender:
    """Keeps a stream open in a thread of its own. `stop` and `start` may follow each other, as around a fork."""

    def __init__(
        self, settings: Settings, source: Source, metrics: Metrics, turn: threading.Lock, shows_connection: bool = False
    ) -> None:
        self._settings = settings
        self._source = source
        self._metrics = metrics
        self._turn = (
            turn  # held while importing: a fork in the middle of an import would leave the child with half of it
        )
        self._shows_connection = shows_connection
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._call: Any = None
        self._requests: Requests | None = None

    def start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = threading.Thread(target=self.run, name="mussurana-sender", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """End the stream and the thread; whether they have ended in time."""
        self._stopping.set()
        self.interrupt()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return self._thread is None or not self._thread.is_alive()

    def join(self, timeout_seconds: float) -> None:
        """Wait for everything to be durable, if the source is complete."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _show_connection(self, is_connected: int) -> None:
        if self._shows_connection:
            self._metrics.is_connected = is_connected

    def interrupt(self) -> None:
        requests, call = self._requests, self._call
        if requests is not None:
            requests.end()
        if call is not None:
            call.cancel()

    def run(self) -> None:
        """Send until everything of a complete source is durable, or `stop`."""
        back_off_seconds = BACK_OFF_SECONDS_MIN
        while not self._stopping.is_set():
            durable = self._source.durable_sequence
            try:
                self._stream()
            except Exception:
                self._metrics.connections_failed += 1
            finally:
                self._show_connection(0)
            if self._source.is_complete and self._source.durable_sequence >= self._source.last_sequence:
                return
            if self._source.durable_sequence > durable:
                back_off_seconds = BACK_OFF_SECONDS_MIN
            self._stopping.wait(back_off_seconds * random.uniform(0.5, 1.0))
            back_off_seconds = min(2 * back_off_seconds, BACK_OFF_SECONDS_MAX)

    def _stream(self) -> None:
        """One stream, from Hello until it ends."""
        with self._turn:
            import grpc

            from mussurana.wire import history_pb2

        requests = self._requests = Requests(self._source, self._metrics)
        channel = _channel(self._settings)
        try:
            call = self._call = channel.stream_stream(
                METHOD, request_serializer=None, response_deserializer=history_pb2.Download.FromString
            )(cast(Any, requests), metadata=_metadata(self._settings))
            requests.cancel = call.cancel
            if self._stopping.is_set():
                return
            for download in call:
                answer = getattr(download, download.WhichOneof("message"))
                self._show_connection(1)
                self._source.acknowledge(answer.durable_sequence)
                requests.answered(answer.durable_sequence, answer.window_bytes)
                if self._source.is_complete and answer.durable_sequence >= self._source.last_sequence:
                    return
        except grpc.RpcError:
            self._metrics.connections_failed += 1
        finally:
            requests.end()
            if self._call is not None:
                self._call.cancel()
            self._requests = self._call = None
            channel.close()


def _channel(settings: Settings) -> grpc.Channel:
    import grpc

    if not settings.tls and not settings.tls_ca_file:
        return grpc.insecure_channel(settings.verifier, CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_content(settings.tls_ca_file),
        private_key=_content(settings.tls_key_file),
        certificate_chain=_content(settings.tls_certificate_file),
    )
    return grpc.secure_channel(settings.verifier, credentials, CHANNEL_OPTIONS)


def _metadata(settings: Settings) -> tuple[tuple[str, str], ...]:
    token = _content(settings.token_file)
    return () if token is None else (("authorization", f"Bearer {token.decode().strip()}"),)


def _content(path: str) -> bytes | None:
    """Read anew for each stream, so that a renewed token or certificate is used without a restart."""
    return Path(path).read_bytes() if path else None
