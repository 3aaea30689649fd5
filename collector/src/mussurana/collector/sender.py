"""The sender: one gRPC stream from a spool to the verifier, for as long as there is anything to send.

A verifier that refuses all that comes, because it is about another database for example, says why; it is asked again
like one that cannot be reached, and `refusal` has its words.

Hello goes first; after the Welcome come the fragments that the verifier does not have yet, as many bytes at a time as
its window allows; each acknowledgement lets the spool delete what is durable. A stream that breaks, or on which nothing
is answered for too long, is opened again after a while that doubles up to a limit and carries some chance, so that a
hundred processes do not all come back at once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, cast

import grpc

from mussurana.collector.spool import Destination
from mussurana.wire import REFUSED_KEY, history_pb2

METHOD = "/mussurana.v1.Ingest/Stream"

ANSWER_SECONDS_MAX = 30.0
"""A verifier that says nothing for so long, while it owes a Welcome or an acknowledgement, is asked again."""

BACK_OFF_SECONDS_MIN, BACK_OFF_SECONDS_MAX = 0.2, 30.0

REFUSALS = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)
"""Until somebody does something about it, the answer will be the same."""

REFUSAL_CHARACTERS_MAX = 2000

POLL_SECONDS = 0.15
"""How often the source is asked for more."""

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 60_000),  # finds peers that are gone without a word; often enough, rarely enough
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.enable_retries", 0),
)


class Source(Protocol):
    """Where fragments come from."""

    is_complete: bool  # no more will be added
    last_sequence: int
    durable_sequence: int

    @property
    def first_sequence(self) -> int: ...
    def hello(self, first_sequence: int) -> bytes: ...
    def read(self, after: int) -> Iterator[tuple[int, bytes] | None]: ...
    def acknowledge(self, sequence: int) -> None: ...
    def refuse(self, sequence: int, why: str) -> None: ...


class Requests:
    """The outgoing half of a stream, which gRPC iterates over in a thread of its own.

    That thread also watches for silence, since gRPC has no time limit for a single answer.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.bytes_sent = 0
        self._changed = threading.Condition()
        self._ended = threading.Event()
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
            self._ended.set()
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
                self._ended.wait(POLL_SECONDS)  # and not for an answer, which brings nothing to send
                with self._changed:
                    self._check_silence()
        except OSError:  # the spool cannot be read, perhaps because it was deleted
            self.cancel()
        raise StopIteration

    def _send(self, sequence: int, payload: bytes) -> bytes:
        with self._changed:
            if not self._under_way:
                self._owed_since = monotonic()
            self._under_way.append((sequence, len(payload)))
        self.bytes_sent += len(payload)
        return payload

    def _wait_for_room(self) -> bool:
        """Whether there is something to do: the stream has not ended, and the window has room."""
        with self._changed:
            while not self._ended.is_set() and not self._has_room():
                self._changed.wait(POLL_SECONDS)
                self._check_silence()
            return not self._ended.is_set()

    def _has_room(self) -> bool:
        if self._durable is None or self._window_bytes == 0:
            return False
        # A fragment larger than the window goes alone.
        return not self._under_way or sum(size for _, size in self._under_way) < self._window_bytes

    def _check_silence(self) -> None:
        is_owed = self._durable is None or self._under_way or self._window_bytes == 0
        if is_owed and monotonic() - self._owed_since > ANSWER_SECONDS_MAX:
            self._ended.set()
            self.cancel()


class Sender:
    """Keeps a stream open in a thread of its own, until all of a complete source is durable, or `stop`."""

    def __init__(self, destination: Destination, source: Source, tell: Callable[[Sender], None]) -> None:
        self._destination = destination
        self._source = source
        self._tell = tell  # called whenever one of these has changed
        self.is_connected = False
        self.bytes_sent = 0
        self.connections_failed = 0
        self.refusal = ""  # why the verifier takes nothing at all, in its words
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._call: Any = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        self._stopping.set()
        call = self._call
        if call is not None:
            call.cancel()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        back_off_seconds = BACK_OFF_SECONDS_MIN
        while not self._stopping.is_set():
            durable = self._source.durable_sequence
            try:
                self._stream()
            except Exception as error:  # whatever it was: unreachable, no such token file, a spool that cannot be read
                self.connections_failed += 1
                self._look_why(error)
            if self._source.is_complete and self._source.durable_sequence >= self._source.last_sequence:
                return
            self.is_connected = False
            self._tell(self)
            if self._source.durable_sequence > durable:
                back_off_seconds = BACK_OFF_SECONDS_MIN
            self._stopping.wait(back_off_seconds * random.uniform(0.5, 1.0))
            back_off_seconds = min(2 * back_off_seconds, BACK_OFF_SECONDS_MAX)

    def _look_why(self, error: Exception) -> None:
        """If the verifier will never take a fragment, declare a gap in its place: all others still have a chance."""
        if isinstance(error, grpc.Call):
            refused = dict(error.trailing_metadata() or ()).get(REFUSED_KEY, "")
            if refused.isdigit():
                self._source.refuse(int(refused), error.details() or "")
            elif error.code() in REFUSALS:
                words = (error.details() or "").encode("ascii", "backslashreplace").decode()
                self.refusal = words[:REFUSAL_CHARACTERS_MAX]

    def _stream(self) -> None:
        """One stream, from Hello until it ends."""
        requests = Requests(self._source)
        sent_before = self.bytes_sent
        channel = _channel(self._destination)
        try:
            call = self._call = channel.stream_stream(
                METHOD, request_serializer=None, response_deserializer=history_pb2.Download.FromString
            )(cast(Any, requests), metadata=_metadata(self._destination))
            requests.cancel = call.cancel
            for download in call:
                answer = getattr(download, download.WhichOneof("message"))
                self.is_connected = True
                if answer.durable_sequence > self._source.durable_sequence:
                    self.refusal = ""
                self._source.acknowledge(answer.durable_sequence)
                requests.answered(answer.durable_sequence, answer.window_bytes)
                self.bytes_sent = sent_before + requests.bytes_sent
                self._tell(self)
                is_over = self._source.is_complete and answer.durable_sequence >= self._source.last_sequence
                if is_over or self._stopping.is_set():
                    return
        finally:
            requests.end()
            if self._call is not None:
                self._call.cancel()
            self._call = None
            channel.close()


def _channel(destination: Destination) -> grpc.Channel:
    if not destination.tls and not destination.tls_ca_file:
        return grpc.insecure_channel(destination.verifier, CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_content(destination.tls_ca_file),
        private_key=_content(destination.tls_key_file),
        certificate_chain=_content(destination.tls_certificate_file),
    )
    return grpc.secure_channel(destination.verifier, credentials, CHANNEL_OPTIONS)


def _metadata(destination: Destination) -> tuple[tuple[str, str], ...]:
    token = _content(destination.token_file)
    return () if token is None else (("authorization", f"Bearer {token.decode().strip()}"),)


def _content(path: str) -> bytes | None:
    """Read anew for each stream, so that a renewed token or certificate is used without a restart."""
    return Path(path).read_bytes() if path else None
