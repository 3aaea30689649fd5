"""Servers of others for tests: Prometheus and Alertmanager with our configuration, and somebody to be told."""

from __future__ import annotations

import json
import queue
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
END_SECONDS = 10


def program(*names: str) -> str:
    """Where one of these is; else the test is skipped, and says so."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"there is no {names[0]} here; Debian has it: apt-get install prometheus prometheus-alertmanager")


def free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port: int = asking.getsockname()[1]
        return port


def get(url: str, **parameters: str) -> Any:
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    with urllib.request.urlopen(url + query, timeout=10) as answer:
        return json.load(answer)


def wait_for(what: str, holds: Callable[[], Any], seconds: float) -> Any:
    """What it returns, once that is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds:g} s")


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs until the block ends; what it printed is in the log, and is shown if the block fails."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as running:
        try:
            yield running
        except BaseException:
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")
            raise
        finally:
            running.terminate()
            try:
                running.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()


@contextmanager
def receiver() -> Iterator[tuple[str, queue.Queue[dict[str, Any]]]]:
    """An address that takes what Alertmanager sends, and what came."""
    came: queue.Queue[dict[str, Any]] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def alertmanager(directory: Path, receiver_url: str) -> Iterator[str]:
    """Ours, but for its receivers: every one of them is the given address."""
    config = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yaml").read_text())
    for each in config["receivers"]:
        each["webhook_configs"] = [{"url": receiver_url + each["name"], "send_resolved": False}]
    path = directory / "alertmanager.yaml"
    path.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [program("alertmanager", "prometheus-alertmanager"), f"--config.file={path}"]
    command += [f"--storage.path={directory / 'alertmanager'}", f"--web.listen-address={address}"]
    command += ["--cluster.listen-address="]
    with process(command, directory / "alertmanager.log"):
        wait_for("Alertmanager", lambda: get(f"http://{address}/api/v2/status"), 30)
        yield address


@contextmanager
def prometheus(directory: Path, daemon: str, alertmanager_address: str) -> Iterator[str]:
    """Ours, but for the addresses and for being quick: the same rules, once a second."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    config["global"].update(scrape_interval="1s", scrape_timeout="1s", evaluation_interval="1s")
    config["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in config["rule_files"]]
    config["scrape_configs"] = config["scrape_configs"][:1]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [daemon]}]
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager_address]}]}]
    path = directory / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [program("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={directory / 'prometheus'}"]
    command += [f"--web.listen-address={address}", "--log.level=warn"]
    with process(command, directory / "prometheus.log"):
        wait_for("Prometheus", lambda: get(f"http://{address}/api/v1/status/buildinfo"), 30)
        yield address
