"""The stream from a collector: Hello, Welcome, then fragments one way and acknowledgements the other.

A fragment is parsed and checked as far as it can be on its own, handed to the committer, and acknowledged once it is
durable. Whoever sends something else is told what was wrong and is cut off; nobody else notices. Whoever sends more
than its window is simply not read any more until there is room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from mussurana.verifier.daemon.audited import Audited, described
from mussurana.verifier.daemon.board import CollectorInfo, public_id
from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.commit import Committer, Submission
from mussurana.verifier.daemon.log import FRAGMENT, Entry
from mussurana.verifier.daemon.machine import FragmentCheck
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.quotas import Ledger, OverQuota
from mussurana.verifier.daemon.sequences import MEMORY_NS, NO_SECRET, Sequences
from mussurana.wire import PROTOCOL, REFUSED_KEY
from mussurana.wire.databases import IDENTITY_CHARACTERS_MAX
from mussurana.wire.history_pb2 import Acknowledgement, Database, Download, Fragment, Hello, Upload, Welcome

SERVICE = "mussurana.v1.Ingest"

FRAGMENT_BYTES_MAX = 32 << 20
"""Collectors send some hundred kilobytes. gRPC refuses what is larger before it is read into memory."""

COLLECTOR_ID_BYTES = 16
SECRET_BYTES_MAX = 64

JUMP_MAX = 1 << 32
"""Fragments at once that a collector no longer has. It numbers those that it spools, some per second, and what it no
longer has another verifier had, or a data directory that is gone: 34 years of four per second are still taken. Whoever
jumps further is refused, so that nobody uses up the numbers of a collector."""

NAME_CHARACTERS_MAX = 200
"""Of what a collector calls itself: more than that is not for people."""

PENDING_BYTES_MAX = 512 << 20
"""Of all collectors together, received and not yet durable. Beyond it nobody is read: the disk is what is slow."""

WRONG_SECRET = (
    "hello.secret is not the one that this collector came with first; each process draws an id and a secret of its "
    "own, and keeps them in the folder that it spools to"
)

SILENT_NS_MAX = 86_400 * 1_000_000_000
"""A collector that has not come back for a day was killed and had nothing left to send, or nobody looks for it."""

WRITE_SECONDS_MAX = 2.0
"""For a last acknowledgement to be written: longer than that takes a collector that does not read."""

HELLO_SECONDS_MAX = 10.0
"""From the begin of a stream to its Hello, which a collector sends at once."""

AT_ONCE_BYTES_MAX = 1 << 20
"""Of a fragment, to be looked through without leaving the event loop: some milliseconds."""

OTHERS_SHOWN_MAX = 5
OTHERS_SHOWN_NS = 300 * 10**9
"""Collectors of another database count as trouble as long as they try. They come back after half a minute at most."""

LOOK_SECONDS = 0.01
"""Between looks whether there is room again."""

PAUSE_LOOK_SECONDS = 0.2
"""Between looks whether collectors should wait."""

logger = logging.getLogger(__name__)
Status = grpc.StatusCode


class Refused(Exception):
    """Ends a stream with a status and a reason."""

    def __init__(self, code: grpc.StatusCode, kind: str, message: str, sequence: int = 0) -> None:
        """`sequence` is of the fragment that will not be taken, however often it comes; 0 if it is not about one."""
        super().__init__(message)
        self.code, self.kind, self.message, self.sequence = code, kind, message, sequence


@dataclass(eq=False)
class Link:
    """What is known of a collector, across its streams."""

    info: CollectorInfo
    received: int  # last sequence that was taken
    durable: int  # last sequence that is durable
    secret: bytes = NO_SECRET  # the digest of the one that it has to come with
    recorded: Database = field(default_factory=Database)  # as its Hello tells
    ledger: Ledger = field(default_factory=Ledger)
    is_bound: bool = False  # to its secret, or to none: because something of it is in the log
    pending_bytes: int = 0
    stream: Stream | None = None
    has_broken_off: bool = False  # its last stream, which did not end as a collector that is done ends it


@dataclass(eq=False)
class Stream:
    ended: asyncio.Future[Refused]
    news: asyncio.Event = field(default_factory=asyncio.Event)  # there is something to acknowledge
    is_over: bool = False  # nothing more is acknowledged by the task that does so

    def end(self, code: grpc.StatusCode, kind: str, message: str) -> None:
        if not self.ended.done():
            self.ended.set_result(Refused(code, kind, message))


class Ingest:
    def __init__(
        self,
        committer: Committer,
        sequences: Sequences,
        is_complete: bool,  # whether they tell of all that collectors came with
        check: FragmentCheck,
        clock: Clock,
        metrics: Metrics,
        window_bytes: int,
        collectors_max: int,
        must_wait: Callable[[], str],  # why collectors should wait; empty if they need not
        audited: Audited,
    ) -> None:
        self._committer, self._check, self._clock, self._metrics = committer, check, clock, metrics
        self._window_bytes, self._collectors_max, self._must_wait = window_bytes, collectors_max, must_wait
        self._links = {
            id: Link(
                CollectorInfo(id, durable_sequence=last.sequence, last_seen_ns=last.received_ns),
                received=last.sequence,
                durable=last.sequence,
                secret=last.secret,
                is_bound=is_complete or bool(last.secret),
            )
            for id, last in sequences.items()
        }
        self._audited = audited
        self._others: dict[str, tuple[int, str]] = {}  # refused databases: when last, and their names
        self._streams: set[Stream] = set()
        self._greeting = 0  # streams that have not said Hello yet
        self._waiting = ""
        self._closing = False
        self._loop = asyncio.get_running_loop()

    def handler(self) -> grpc.GenericRpcHandler:
        """Messages are taken as bytes, so that what is not one can be answered in words."""
        method: Any = grpc.stream_stream_rpc_method_handler(
            self._stream, request_deserializer=None, response_serializer=Download.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Stream": method})

    async def watch(self) -> None:
        """Tell collectors when to wait and when to go on, for as long as the daemon runs."""
        while True:
            waiting = self._must_wait()
            if bool(waiting) != bool(self._waiting):
                logger.log(
                    logging.WARNING if waiting else logging.INFO,
                    "collectors wait: %s" if waiting else "collectors go on%s",
                    waiting,
                    extra={"event": "collectors_wait" if waiting else "collectors_go_on"},
                )
                self._waiting = waiting
                for stream in self._streams:
                    stream.news.set()
            await asyncio.sleep(PAUSE_LOOK_SECONDS)

    def close(self) -> None:
        """Take nothing more. Collectors come back when the daemon does."""
        self._closing = True
        for stream in self._streams:
            stream.end(Status.UNAVAILABLE, "", "the verifier is shutting down")

    def refuse(self, collector: bytes, message: str) -> None:
        """From any thread: a collector sent something that turned out to make no sense."""

        def end() -> None:
            link = self._links.get(collector)
            if link and link.stream:
                link.stream.end(Status.INVALID_ARGUMENT, "garbage", message)

        self._loop.call_soon_threadsafe(end)

    def collectors(self) -> list[CollectorInfo]:
        return [link.info for link in list(self._links.values())]

    @property
    def connected(self) -> int:
        return len(self._streams)

    @property
    def silent(self) -> int:
        """Collectors that did not say that they are done, and are not here."""
        oldest_ns = self._clock.now_ns() - SILENT_NS_MAX
        return sum(link.has_broken_off and link.info.last_seen_ns >= oldest_ns for link in list(self._links.values()))

    @property
    def window_bytes(self) -> int:
        return 0 if self._waiting else self._window_bytes

    # One stream

    async def _stream(self, _requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        stream = Stream(self._loop.create_future())
        link: Link | None = None
        acknowledging: asyncio.Task[None] | None = None
        try:
            hello = await self._hello(context, stream)
            link = self._welcome(hello, stream)
            welcome = Welcome(protocol=PROTOCOL, durable_sequence=link.durable, window_bytes=self.window_bytes)
            await context.write(Download(welcome=welcome))
            acknowledging = asyncio.create_task(self._acknowledge(context, link, stream))
            acknowledging.add_done_callback(partial(_end_with, stream))
            while (content := await self._next(context, link, stream)) is not None:
                self._count(link, content)
                fragment = await self._looked_through(link, content)
                if fragment is not None:
                    told = fragment.database if fragment.database.identity else link.recorded
                    await self._keep_database(told, decides=fragment.txn_count > 0)
                    self._take(link, fragment)
                else:
                    self._metrics.fragments_duplicated.inc()
                    stream.news.set()  # it may have missed the acknowledgement
            while link.durable < link.received and not stream.ended.done():
                await asyncio.sleep(LOOK_SECONDS)
            if stream.ended.done():
                raise stream.ended.result()
        except Refused as refused:
            if refused.kind:
                self._metrics.fragments_refused.labels(refused.kind).inc()
                who = link.info.name if link else context.peer()
                logger.warning(
                    "stream of %s ended: %s", who, refused, extra={"event": "stream_refused", "reason": refused.kind}
                )
            await _ended(stream, acknowledging)
            acknowledging = None
            trailing = ((REFUSED_KEY, str(refused.sequence)),) if refused.sequence else ()
            await context.abort(refused.code, refused.message, trailing)
        finally:
            # First of all: where a collector has gone away, gRPC may cancel this while it waits.
            self._streams.discard(stream)
            if link and link.stream is stream:
                link.stream, link.info.connected, link.has_broken_off = None, False, True
                if not link.is_bound:
                    del self._links[link.info.id]  # it only said hello
            await _ended(stream, acknowledging)
        assert link is not None
        await context.write(Download(acknowledgement=self._acknowledgement(link)))
        if link.stream is None:
            link.has_broken_off = False

    async def _hello(self, context: grpc.aio.ServicerContext[Any, Any], stream: Stream) -> Hello:
        if self._closing:
            raise Refused(Status.UNAVAILABLE, "", "the verifier is shutting down")
        if self._greeting >= self._collectors_max:
            message = f"{self._greeting} streams have not said Hello yet, and no more are taken"
            raise Refused(Status.RESOURCE_EXHAUSTED, "capacity", message)
        late = f"no Hello within {HELLO_SECONDS_MAX:g} s"
        deadline = self._loop.call_later(HELLO_SECONDS_MAX, stream.end, Status.DEADLINE_EXCEEDED, "late", late)
        self._greeting += 1
        try:
            content = await _read(context, stream)
        finally:
            self._greeting -= 1
            deadline.cancel()
        upload = _parsed(content if content is not None else b"")
        if not upload.HasField("hello"):
            raise Refused(Status.INVALID_ARGUMENT, "garbage", "the first message of a stream is a Hello")
        hello = upload.hello
        if hello.protocol > PROTOCOL:
            raise Refused(
                Status.FAILED_PRECONDITION,
                "protocol",
                f"the collector speaks protocol {hello.protocol} and this verifier knows up to {PROTOCOL}: "
                "upgrade the verifier first",
            )
        if hello.protocol < 1:
            raise Refused(Status.INVALID_ARGUMENT, "garbage", "hello.protocol is missing")
        if len(hello.collector) != COLLECTOR_ID_BYTES:
            raise Refused(
                Status.INVALID_ARGUMENT,
                "garbage",
                f"hello.collector has {len(hello.collector)} bytes; {COLLECTOR_ID_BYTES} were expected",
            )
        if len(hello.secret) > SECRET_BYTES_MAX:
            message = f"hello.secret has {len(hello.secret)} bytes; at most {SECRET_BYTES_MAX} are taken"
            raise Refused(Status.INVALID_ARGUMENT, "garbage", message)
        if max(len(hello.recorded.identity), len(hello.recorded.name)) > IDENTITY_CHARACTERS_MAX:
            message = f"hello.recorded: more than {IDENTITY_CHARACTERS_MAX} characters are not taken"
            raise Refused(Status.INVALID_ARGUMENT, "garbage", message)
        return hello

    def _welcome(self, hello: Hello, stream: Stream) -> Link:
        if len(self._streams) >= self._collectors_max:
            message = f"{self._collectors_max} collectors are connected, and no more are taken"
            raise Refused(Status.RESOURCE_EXHAUSTED, "capacity", message)
        self._forget()
        link = self._links.get(hello.collector) or Link(CollectorInfo(hello.collector), 0, 0)
        secret = sha256(hello.secret).digest() if hello.secret else NO_SECRET
        if (link.is_bound or link.stream) and not compare_digest(link.secret, secret):
            raise Refused(Status.PERMISSION_DENIED, "secret", WRONG_SECRET)
        self._refuse_other(self._audited.refusal(hello.recorded), hello.recorded)
        jump = hello.first_sequence - 1 - link.received
        if jump > JUMP_MAX:
            message = f"hello.first_sequence is {hello.first_sequence}, {jump:,} fragments after the last one taken"
            raise Refused(Status.INVALID_ARGUMENT, "sequence", f"{message}; at most {JUMP_MAX:,} are passed over")
        self._links[hello.collector], link.secret = link, secret
        link.recorded = hello.recorded
        if link.stream is not None:
            message = "another stream of this collector has taken over"
            link.stream.end(Status.ABORTED, "superseded", message)
        link.stream, link.has_broken_off = stream, False
        self._streams.add(stream)
        link.info.name = hello.name[:NAME_CHARACTERS_MAX] or f"collector {public_id(hello.collector)}"
        link.info.database = hello.database[:NAME_CHARACTERS_MAX]
        link.info.version = hello.version[:NAME_CHARACTERS_MAX]
        link.info.connected, link.info.last_seen_ns = True, self._clock.now_ns()
        if hello.first_sequence > link.received + 1:
            reason = "the collector no longer has them, and this log never did"
            now_ns = self._clock.now_ns()
            lost = Entry.lost(hello.collector, link.received + 1, hello.first_sequence - 1, reason, now_ns)
            self._submit(link, lost)
        logger.info(
            "collector %s connected, %d fragments are durable",
            link.info.name,
            link.durable,
            extra={
                "event": "collector_connected",
                "collector": public_id(hello.collector),
                "version": link.info.version,
            },
        )
        return link

    async def _keep_database(self, told: Database, decides: bool) -> None:
        """Take a fragment only if it is of the database that this is about, which the first transactions decide."""
        refusal = self._audited.refusal(told)
        if not refusal and decides and not self._audited.is_kept(told):
            try:
                refusal = await asyncio.to_thread(self._audited.keep, told)
            except OSError as error:
                raise Refused(Status.UNAVAILABLE, "", f"the data directory cannot be written: {error}") from None
        self._refuse_other(refusal, told)

    def _refuse_other(self, refusal: str, told: Database) -> None:
        if refusal:
            self._others.pop(told.identity, None)
            self._others = dict([*self._others.items()][1 - OTHERS_SHOWN_MAX :])
            self._others[told.identity] = self._clock.now_ns(), described(told)
            raise Refused(Status.FAILED_PRECONDITION, "database", refusal)

    def refused_databases(self) -> str:
        """Which other databases somebody tries to send, in a sentence; empty if nobody does. From any thread."""
        oldest_ns = self._clock.now_ns() - OTHERS_SHOWN_NS
        names = [name for last_ns, name in self._others.values() if last_ns >= oldest_ns]
        own = self._audited.title
        return f"this verifier is about {own}, and refuses collectors of {', '.join(names)}" if names else ""

    async def _next(self, context: grpc.aio.ServicerContext[Any, Any], link: Link, stream: Stream) -> bytes | None:
        """The next message, once there is room for it; None at the end of the stream."""
        while not stream.ended.done() and self._is_full(link):
            await asyncio.sleep(LOOK_SECONDS)
        return await _read(context, stream)

    def _is_full(self, link: Link) -> bool:
        if self._waiting:
            return True
        return link.pending_bytes > self._window_bytes or self._committer.pending_bytes > PENDING_BYTES_MAX

    def _count(self, link: Link, content: bytes) -> None:
        self._metrics.fragments_received.inc()
        self._metrics.received_bytes.inc(len(content))
        link.info.last_seen_ns = self._clock.now_ns()

    async def _looked_through(self, link: Link, content: bytes) -> Fragment | None:
        """The fragment in a message, if it is the next one and fine; None if it is here already.

        A large one is looked through in another thread, so that the other streams go on meanwhile.
        """
        if len(content) <= AT_ONCE_BYTES_MAX:
            return self._checked(link, content)
        return await asyncio.to_thread(self._checked, link, content)

    def _checked(self, link: Link, content: bytes) -> Fragment | None:
        upload = _parsed(content)
        if not upload.HasField("fragment"):
            raise Refused(Status.INVALID_ARGUMENT, "garbage", "after the Hello only fragments are expected")
        fragment = upload.fragment
        if fragment.sequence <= link.received and fragment.sequence > 0:
            return None
        if fragment.sequence != link.received + 1:
            raise Refused(
                Status.FAILED_PRECONDITION,
                "sequence",
                f"fragment.sequence is {fragment.sequence}; {link.received + 1} was expected",
            )
        try:
            self._check(fragment)
            link.ledger.charge(fragment)
        except OverQuota as error:
            self._metrics.quota_refusals.labels(error.quota).inc()
            message = f"fragment {fragment.sequence}: {error}"
            raise Refused(Status.RESOURCE_EXHAUSTED, "quota", message, fragment.sequence) from error
        except Exception as error:  # whatever a stranger's bytes do to the check, they do it to this stream only
            raise Refused(Status.INVALID_ARGUMENT, "garbage", str(error), fragment.sequence) from error
        fragment.collector_name = fragment.collector_name[:NAME_CHARACTERS_MAX] or link.info.name
        return fragment

    def _take(self, link: Link, fragment: Fragment) -> None:
        link.info.fragments += 1
        received_ns = link.info.last_seen_ns
        serialized = fragment.SerializeToString()
        self._submit(link, Entry(FRAGMENT, link.info.id, fragment.sequence, received_ns, serialized))

    def _submit(self, link: Link, entry: Entry) -> None:
        if not link.is_bound:
            link.is_bound = True
            if link.secret:  # into the log before anything else of this collector
                secret = Entry.secret(link.info.id, link.secret, entry.received_ns)
                self._committer.submit(Submission(secret, lambda: None))
        link.received = entry.sequence
        link.pending_bytes += len(entry.content)

        def done() -> None:
            if entry.sequence <= link.durable:
                return  # told before, by a committer that failed in between and began again
            link.durable = link.info.durable_sequence = entry.sequence
            link.pending_bytes -= len(entry.content)
            if link.stream:
                link.stream.news.set()

        self._committer.submit(Submission(entry, lambda: self._call(done)))

    def _call(self, function: Callable[[], None]) -> None:
        """From the committing thread. At the very end of the daemon nobody is there to be told."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    async def _acknowledge(self, context: grpc.aio.ServicerContext[Any, Any], link: Link, stream: Stream) -> None:
        """Whenever more is durable, say so; what became durable meanwhile goes into one message."""
        while True:
            await stream.news.wait()
            stream.news.clear()
            if stream.is_over:
                return
            await context.write(Download(acknowledgement=self._acknowledgement(link)))

    def _acknowledgement(self, link: Link) -> Acknowledgement:
        return Acknowledgement(durable_sequence=link.durable, window_bytes=self.window_bytes)

    def _forget(self) -> None:
        """Collectors that have been gone for as long as the log's own table remembers."""
        oldest_ns = self._clock.now_ns() - MEMORY_NS
        for id, link in list(self._links.items()):
            is_gone = link.stream is None and link.durable == link.received
            if is_gone and link.info.last_seen_ns < oldest_ns:
                del self._links[id]


async def _read(context: grpc.aio.ServicerContext[Any, Any], stream: Stream) -> bytes | None:
    """The next message or None at the end, unless the stream is to be ended first."""
    reading = asyncio.ensure_future(context.read())
    await asyncio.wait({reading, stream.ended}, return_when=asyncio.FIRST_COMPLETED)
    if stream.ended.done():
        reading.cancel()
        raise stream.ended.result()
    content: Any = reading.result()
    return None if content is grpc.aio.EOF else bytes(content)


def _end_with(stream: Stream, acknowledging: asyncio.Task[None]) -> None:
    """A stream on which nothing is acknowledged any more ends, and the collector comes back."""
    if not acknowledging.cancelled() and acknowledging.exception() is not None:
        stream.end(Status.UNAVAILABLE, "", "acknowledgements could not be sent")


def _parsed(content: bytes) -> Upload:
    upload = Upload()
    try:
        upload.ParseFromString(content)
    except DecodeError:
        raise Refused(Status.INVALID_ARGUMENT, "garbage", "this is not an Upload of history.proto") from None
    return upload


async def _ended(stream: Stream, acknowledging: asyncio.Task[None] | None) -> None:
    """Let an acknowledgement that is being written be written: after one that was cancelled, gRPC writes no more."""
    stream.is_over = True
    stream.news.set()
    if acknowledging is not None:
        _, unfinished = await asyncio.wait({acknowledging}, timeout=WRITE_SECONDS_MAX)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(acknowledging, return_exceptions=True)
