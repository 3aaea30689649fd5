"""The daemon as a whole: puts its parts together, starts and ends them in the right order, and minds the signals.

The main thread runs the event loop with gRPC. `workers.py` lists the other threads and the tasks that run for as long
as the daemon does, and watches them. At start everything that is needed to take fragments comes first; the machine,
which may have to be compiled and has the log since the last checkpoint before it, catches up in its own thread.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from time import monotonic

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from mussurana.verifier.daemon import logs
from mussurana.verifier.daemon.audited import Audited, AuditedError
from mussurana.verifier.daemon.auth import Guard, Tokens, TokensError
from mussurana.verifier.daemon.board import Board, Progress
from mussurana.verifier.daemon.checkpoint import Checkpoints
from mussurana.verifier.daemon.checkpointing import Checkpointing, Intervals
from mussurana.verifier.daemon.clock import Clock
from mussurana.verifier.daemon.commit import Committer
from mussurana.verifier.daemon.config import Config
from mussurana.verifier.daemon.configured import ConfigError
from mussurana.verifier.daemon.http import HttpServer
from mussurana.verifier.daemon.ingest import FRAGMENT_BYTES_MAX, SERVICE, Ingest
from mussurana.verifier.daemon.journal import Journal
from mussurana.verifier.daemon.log import START, IngestLog
from mussurana.verifier.daemon.machine import FragmentCheck, MachineFactory
from mussurana.verifier.daemon.metrics import Metrics, gauge
from mussurana.verifier.daemon.notify import Notifier
from mussurana.verifier.daemon.observed import machine_metrics, storage_metrics
from mussurana.verifier.daemon.query import SERVICE as QUERY_SERVICE
from mussurana.verifier.daemon.query import Query
from mussurana.verifier.daemon.sequences import Sequences
from mussurana.verifier.daemon.tell import Teller
from mussurana.verifier.daemon.tls import Certificates, TlsError
from mussurana.verifier.daemon.verify import Verification
from mussurana.verifier.daemon.violations import Violations
from mussurana.verifier.daemon.web.access import Access
from mussurana.verifier.daemon.web.site import Site
from mussurana.verifier.daemon.webhook import Webhook
from mussurana.verifier.daemon.workers import TaskWorker, Workers

SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", FRAGMENT_BYTES_MAX),
    ("grpc.so_reuseport", 0),  # a second daemon on the same port is a mistake
    # Who connects has to get through TLS and the beginning of HTTP/2 in this time, and then has to call something: a
    # connection without a call is of no use to anybody. The longest way, a collector's, is open for as long as it runs.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 30_000),
    ("grpc.max_concurrent_streams", 100),  # on one connection; a collector needs one
    # A collector whose machine is gone must not count as connected for ever.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]
FILES_WANTED = 65_536
"""File descriptors that the daemon asks the system for, if it may have so many: each connection takes one."""

FILES_RESERVED = 512
"""Of them, those that are not for gRPC: connections over HTTP, the log, checkpoints, the journal, libraries."""

STOP_SECONDS = 2.0
"""For streams to be told that the daemon ends."""

END_SECONDS = 60.0
"""For all else that ending takes beyond `drain_seconds`: a last round, a checkpoint, a call of the webhook."""

HEALTH_SECONDS = 0.2
"""Between looks whether the health that is told has changed."""

logger = logging.getLogger(__name__)


class StartError(Exception):
    """Why the daemon cannot start. The message names the file or the option."""


class Service:
    """All parts. Made and run inside an event loop."""

    def __init__(self, config: Config, make_machine: MachineFactory, check: FragmentCheck) -> None:
        self.config, self.data = config, config.data
        self.started = monotonic()
        levels = list(config.verify.levels)
        self.levels = [f"{level}, clocks within {config.verify.clock_drift_seconds:g} s" for level in levels]
        self._lock = _locked(self.data)
        self.metrics, self.clock = Metrics(levels), Clock()
        self.board = Board(Progress(said_ns=self.clock.now_ns()))
        self.checkpoints = Checkpoints(self.data / "checkpoints")
        checkpoint = self.checkpoints.load()
        if checkpoint and checkpoint.levels != self.levels:
            raise StartError(
                f"verify: {self.data} was used for {'; '.join(checkpoint.levels)}, and what it has kept is of no use "
                f"for {'; '.join(self.levels)}. Use another data directory, or the same levels."
            )
        self.audited = _audited(self.data, config.verify.database)
        base = (checkpoint.log, checkpoint.fed) if checkpoint else (START, Sequences())
        self.journal = Journal(self.data / "journal")
        if checkpoint:
            self.journal.skip_to(checkpoint.journal)
        newest = self.journal.newest()
        been_at = max((step.log for step in newest), default=START)
        self.log = IngestLog(self.data / "log", config.log.segment_bytes, base, been_at)
        self.violations = Violations(self.data / "violations")
        for step in newest:
            self.board.publish(step.rounds)
        # Times on disk are never in the future of a clock that was set back meanwhile.
        latest_ns = max(
            [self.log.sequences.latest_ns(), *(step.rounds[-1].finished_ns for step in newest if step.rounds)]
        )
        self.clock.not_before(max(latest_ns, checkpoint.now_ns if checkpoint else 0))
        with suppress(OSError):  # the committer will find the same, and say so
            self.log.resume(self.clock.now_ns())
        self.webhook = Webhook(config.webhook, self.violations, self.data / "webhook.json", self.metrics)
        intervals = Intervals(
            seconds=config.checkpoint.interval_seconds,
            log_bytes=config.checkpoint.log_bytes,
            log_retention_bytes=config.log.retention_bytes,
            journal_retention_bytes=config.journal.retention_bytes,
        )
        self.verification = Verification(
            make_machine,
            self.levels,
            self.log,
            self.journal,
            checkpoint,
            Checkpointing(self.checkpoints, self.log, self.journal, self.metrics, intervals),
            Teller(self.journal, self.violations, self.board, self.clock, self.metrics, self.webhook.wake),
            self.board,
            self.clock,
            self.metrics,
            lambda collector, message: self.ingest.refuse(collector, message),
        )
        self.committer = Committer(
            self.log, self.clock, self.metrics, config.log.disk_reserve_bytes, self.verification.wake
        )
        self.ingest = Ingest(
            self.committer,
            self.log.sequences.copy(),
            self.log.is_known_from_start,
            check,
            self.clock,
            self.metrics,
            config.ingest.window_bytes,
            config.ingest.collectors_max,
            self._must_wait,
            self.audited,
        )
        self.query = Query(self)
        http = config.http
        self.site = Site(self, Access(lambda: self._tokens, http.listen, http.insecure))
        self.http = HttpServer(http.listen, self.metrics, self.not_ready, self.site.answer) if http.listen else None
        self.metrics.observed.add(lambda: machine_metrics(self, levels))
        self.metrics.observed.add(lambda: storage_metrics(self))
        self.metrics.observed.add(
            lambda: [gauge("mussurana_build_info", "The version.", {version("mussurana-verifier"): 1.0}, "version")]
        )
        self._tokens = _tokens(config)
        self._certificates = _certificates(config)
        self._health = health.aio.HealthServicer()
        self._address = ""
        self._serving = False
        self.stopping = asyncio.Event()
        self._supervisor = Notifier()
        self.workers = Workers(
            [
                self.committer.worker,
                self.verification.worker,
                self.webhook.worker,
                self.site.sampler.worker,
                *([self.http.worker] if self.http else []),
                TaskWorker("ingest", self.ingest.watch),
                TaskWorker("health", self._watch_health),
                *([TaskWorker("systemd", self._supervisor.keep_alive)] if self._supervisor.watchdog_seconds else []),
            ],
            lambda name: self.metrics.worker_failures.labels(name).inc(),
        )
        self.clock.leapt = self._leapt
        self.has_ended = True  # unless a thread is still at work, which only the end of the process ends

    async def run(self, ready: Callable[[str, int], None] = lambda ingest, http: None) -> None:
        """Serve until `stopping` is set, then end in order. `ready` is told the address and the port that are used."""
        connections_max = _connections_max(self.config.ingest.collectors_max)
        options = [*SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", connections_max)]
        server = grpc.aio.server(interceptors=[Guard(lambda: self._tokens, self.metrics)], options=options)
        server.add_generic_rpc_handlers((self.ingest.handler(), self.query.handler()))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (SERVICE, QUERY_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        self._address = address = self._add_port(server)
        self.committer.start()
        await server.start()
        self._serving = True
        if self.http:
            self.site.sampler.start()
            self.http.start()
        self.webhook.start()
        self.verification.start()
        logger.info(
            "ready after %.2f s",
            monotonic() - self.started,
            extra={"event": "ready", "ingest": address, "http": self.http.port if self.http else None},
        )
        ready(address, self.http.port if self.http else 0)
        self._supervisor.ready(f"collectors connect to {address}")
        tasks = [worker for worker in self.workers.all if isinstance(worker, TaskWorker)]
        for worker in tasks:
            worker.start()
        watching = asyncio.create_task(self.workers.watch())
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            # Without anybody who watches, it is better to end and to be started again.
            await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            stopping.cancel()
            for worker in tasks:
                worker.end()
            await self._end(server)

    async def _end(self, server: grpc.aio.Server) -> None:
        logger.info("ending", extra={"event": "ending"})
        self._supervisor.stopping(self.config.drain_seconds + END_SECONDS)
        self._serving = False
        await self._health.enter_graceful_shutdown()
        self.ingest.close()
        await server.stop(STOP_SECONDS)
        await asyncio.to_thread(self.committer.close)
        self.has_ended = await asyncio.to_thread(self.verification.close, self.config.drain_seconds)
        await asyncio.to_thread(self.webhook.close)
        if self.http:
            await asyncio.to_thread(self.http.close)
            await asyncio.to_thread(self.site.sampler.close)
        if self.has_ended:
            for part in (self.log, self.journal, self.violations):
                part.close()
            os.close(self._lock)
        logger.info("ended", extra={"event": "ended"})

    def reload(self, load: Callable[[], Config]) -> None:
        """On SIGHUP: log level, tokens, certificates. What cannot be used is reported, and what was there stays."""
        self._supervisor.reloading()
        try:
            self._reload(load)
        finally:
            self._supervisor.ready(f"collectors connect to {self._address}")

    def _reload(self, load: Callable[[], Config]) -> None:
        try:
            config = load()
            tokens = _tokens(config)
            if self._certificates:
                self._certificates.reload()
        except (ConfigError, StartError, TlsError) as error:
            logger.error("nothing reloaded: %s", error, extra={"event": "reload_failed"})
            return
        self._tokens = tokens
        logs.set_level(config.log_level)
        logger.info("reloaded", extra={"event": "reloaded"})

    def not_ready(self) -> str:
        """Why fragments are not taken and acknowledged at the moment; empty if they are."""
        if not self._serving:
            return "starting or ending"
        if self.committer.worker.is_down:
            return self.committer.worker.trouble or "nothing is being acknowledged at the moment"
        return self.committer.trouble

    def troubles(self) -> list[str]:
        """What keeps the daemon from working as it should, in sentences."""
        said = [
            self.not_ready(),
            self.board.progress.trouble,
            self.ingest.refused_databases(),
            *self.workers.troubles(),
            *self.board.incidents(self.clock.now_ns()),
        ]
        return list(dict.fromkeys(filter(None, said)))

    def _leapt(self, seconds: float) -> None:
        """From any thread, inside the clock. Collectors get the time back: see `Verifier.resume`."""
        self.metrics.clock_leaps.inc()
        logger.warning("nobody could be heard for %.1f s", seconds, extra={"event": "clock_leapt"})
        if len(self.log.sequences):
            self.log.interrupt()

    def _must_wait(self) -> str:
        if self.committer.trouble:
            return self.committer.trouble
        behind = self.verification.behind_bytes()
        if behind > self.config.ingest.backlog_bytes_max:
            return f"{behind:,} bytes of the log have not been verified"
        return ""

    async def _watch_health(self) -> None:
        while True:
            serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
            status = not_serving if self.not_ready() else serving
            for service in (health.OVERALL_HEALTH, SERVICE):
                await self._health.set(service, status)
            await self._health.set(QUERY_SERVICE, serving)
            self.clock.now_ns()  # asked so often, it notices when nobody could ask
            await asyncio.sleep(HEALTH_SECONDS)

    def _add_port(self, server: grpc.aio.Server) -> str:
        listen = self.config.ingest.listen
        try:
            if self._certificates:
                port = server.add_secure_port(listen, self._certificates.credentials())
            else:
                port = server.add_insecure_port(listen)
        except RuntimeError as error:
            raise StartError(f"ingest.listen: {listen}: {error}") from error
        return f"{listen.rpartition(':')[0]}:{port}"


def check_files(config: Config) -> None:
    """Look into the files that the configuration names. StartError says what is wrong with them."""
    _certificates(config)
    _tokens(config)


def _audited(data: Path, expected: str) -> Audited:
    try:
        return Audited(data, expected)
    except AuditedError as error:
        raise StartError(f"verify.database: {error}") from None


def _tokens(config: Config) -> Tokens | None:
    try:
        return Tokens.read(config.auth.tokens_file) if config.auth.tokens_file else None
    except TokensError as error:
        raise StartError(f"auth.tokens_file: {error}") from None


def _certificates(config: Config) -> Certificates | None:
    tls = config.tls
    if tls.certificate_file is None or tls.key_file is None:
        return None
    try:
        return Certificates(tls.certificate_file, tls.key_file, tls.client_authority_file)
    except TlsError as error:
        raise StartError(f"tls: {error}") from None


def _connections_max(collectors_max: int) -> int:
    """How many may be connected over gRPC, with or without having said anything: collectors, twice when they all come
    back at once, and those who ask. Whatever strangers do, files can still be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    wanted = FILES_WANTED if hard == infinite else min(FILES_WANTED, hard)
    if soft != infinite and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    files = FILES_WANTED if soft == infinite else soft
    connections_max = max(1, min(2 * collectors_max + 100, files - FILES_RESERVED))
    if connections_max < collectors_max:
        logger.warning(
            "the system allows %d files, so at most %d connections are taken, and not the %d of ingest.collectors_max",
            files,
            connections_max,
            collectors_max,
            extra={"event": "few_files"},
        )
    return connections_max


def _locked(data: Path) -> int:
    """A handle that keeps other daemons out of the directory for as long as it is open."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"data: {error.filename}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StartError(f"data: {data} is in use by another daemon") from None
    return handle


def serve(load: Callable[[], Config], make_machine: MachineFactory, check: FragmentCheck) -> None:
    """Run until SIGTERM or SIGINT. StartError if it cannot even start."""
    config = load()
    logs.set_up(config.log_level)

    async def main() -> bool:
        try:
            service = Service(config, make_machine, check)
        except OSError as error:
            raise StartError(f"{error.filename or config.http.listen}: {error.strerror}") from None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stopping.set)
        with suppress(AttributeError):
            loop.add_signal_handler(signal.SIGHUP, service.reload, load)
        await service.run()
        return service.has_ended

    if not asyncio.run(main()):
        logging.shutdown()
        os._exit(0)  # a kernel that is still running must not meet an interpreter that is being taken down
