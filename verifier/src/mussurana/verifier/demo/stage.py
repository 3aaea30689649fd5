"""What the demo runs on: a database, a daemon, workers, and somebody who takes the alerts. All gone when it ends."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from sqlalchemy import create_engine

from mussurana.verifier.daemon import client
from mussurana.verifier.demo import hospital
from mussurana.verifier.embedded_postgres import EmbeddedPostgres, free_port
from mussurana.wire import query_pb2 as wire

LEVELS = ("serializable", "strong-session-si")
WORKERS_SECONDS_MAX = 20.0  # to send their last fragments; one is usual
END_SECONDS_MAX = 3.0  # for the others: what they would still write goes with its directory
READY_SECONDS_MAX = 240.0  # nearly all of it for compiling, on first use and on a busy machine


class StageError(Exception):
    """Something did not start. The message has what it said."""


class Stage:
    """Use as a context manager."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._open = ExitStack()
        self.alerts: queue.Queue[dict[str, Any]] = queue.Queue()

    def __enter__(self) -> Stage:
        try:
            self.folder = Path(self._open.enter_context(TemporaryDirectory(prefix="mussurana-demo-")))
            self._start_daemon()  # first: it may have to compile, which takes a while and needs nobody's help
            self._start_shipper()
            self._say("starting PostgreSQL")
            postgres = self._open.enter_context(EmbeddedPostgres())
            self.postgres_version = postgres.major
            self.url = postgres.url(scheme="postgresql+psycopg")
            engine = create_engine(self.url)
            hospital.create(engine)
            engine.dispose()
            self._say("adopting its tables: mussurana adopt")
            adopted = [sys.executable, "-m", "mussurana.collector", "adopt", postgres.url()]
            done = subprocess.run(adopted, capture_output=True, text=True, check=False)
            if done.returncode:
                raise StageError(f"mussurana adopt failed:\n{done.stderr or done.stdout}")
            self._say("waiting for the verifier; on first use it compiles itself, which takes up to a minute")
            self._wait_until_ready()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start_daemon(self) -> None:
        ingest, http = free_port(), free_port()
        self.ingest, self.http = f"127.0.0.1:{ingest}", f"127.0.0.1:{http}"
        webhook = self._open.enter_context(alert_receiver(self.alerts))
        command = [sys.executable, "-m", "mussurana.verifier", "serve", "--data", str(self.folder / "data")]
        command += ["--verify-levels", ",".join(LEVELS), "--ingest-listen", self.ingest, "--http-listen", self.http]
        command += ["--webhook-url", webhook, "--log-level", "warning"]
        self._daemon_log = self.folder / "daemon.log"
        self.daemon = self._start(command, self._daemon_log)

    def _start_shipper(self) -> None:
        """The collectors would start one themselves, which ends a little later than they do, and than the demo."""
        self._spool = self.folder / "spool"
        command = [sys.executable, "-m", "mussurana.collector.shipper", str(self._spool)]
        self._start(command, self.folder / "shipper.log")

    def _start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            process = start(command, output)
        self._open.callback(end, [process], END_SECONDS_MAX)
        return process

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < until:
            if self.daemon.poll() is not None:
                break
            with suppress(client.CallError):
                if self.status().state == "verifying":
                    return
            time.sleep(0.2)
        raise StageError(f"the daemon did not start:\n{self._daemon_log.read_text(errors='replace')}")

    @contextmanager
    def workers(self, isolation: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Processes of the application, recorded by their collectors, which send what they have before they end."""
        environment = {
            **os.environ,
            "MUSSURANA_VERIFIER": self.ingest,
            "MUSSURANA_SPOOL": str(self._spool),
            "MUSSURANA_FENCE_INTERVAL_SECONDS": "0.3",
        }
        command = [sys.executable, "-m", "mussurana.verifier.demo.hospital", self.url, "--isolation", isolation]
        running: list[subprocess.Popen[bytes]] = []
        patience_seconds = 0.0
        try:
            with (self.folder / "workers.log").open("ab") as log:
                for worker in range(count):
                    name = {"MUSSURANA_NAME": f"web-{worker + 1}"}
                    running.append(start([*command, "--seed", str(worker)], log, {**environment, **name}))
            yield running
            patience_seconds = WORKERS_SECONDS_MAX
        finally:
            end(running, patience_seconds)

    def workers_log(self) -> str:
        return (self.folder / "workers.log").read_text(errors="replace")

    def status(self) -> wire.StatusReply:
        return client.status(client.Target(self.ingest))

    def verdicts(self, since_ns: int = 0) -> wire.VerdictsReply:
        return client.verdicts(client.Target(self.ingest), wire.VerdictsRequest(since_ns=since_ns))

    def explain(self, id: str) -> wire.ExplainReply:
        return client.explain(client.Target(self.ingest), id)

    def page(self, id: str = "") -> str:
        return f"http://{self.http}/" + (f"violations/{id}" if id else "")


def start(command: list[str], log: IO[bytes], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own: an interrupt at the terminal is for the demo, which then ends what it started."""
    return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def end(processes: list[subprocess.Popen[bytes]], patience_seconds: float) -> None:
    """Tell all of them to end, and end those that have not after a while."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + patience_seconds
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def alert_receiver(alerts: queue.Queue[dict[str, Any]]) -> Iterator[str]:
    """Stands for whatever takes a team's alerts; yields the address for the webhook."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alerts.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the demo says what came."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
