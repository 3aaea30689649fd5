"""A daemon in a process of its own, and what can be read of it from outside: metrics, memory, processor time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.online.ports import free_port
from bench.worker import Failed

READY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 120.0

Values = dict[str, dict[tuple[str, ...], float]]


@dataclass(frozen=True)
class Reading:
    """What a daemon has done so far."""

    at: float
    values: Values
    cpu_seconds: float
    resident_bytes: int

    def total(self, name: str) -> float:
        return sum(self.values.get(name, {}).values())


class DaemonProcess:
    def __init__(self, data: Path, log: Path, *flags: str) -> None:
        program = (
            "import sys; from mussurana.verifier.cli import main; sys.exit(main())"  # as the installed script does
        )
        self.address, self.http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        listen = ["--data", str(data), "--ingest-listen", self.address, "--http-listen", self.http]
        self._log = log
        self._command = [sys.executable, "-c", program, "serve", *listen]
        self.start(*flags)

    def start(self, *flags: str) -> float:
        """Begin a life, and return how many seconds it took to be ready."""
        started = time.monotonic()
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen([*self._command, *flags], stderr=errors)
        while time.monotonic() < started + READY_SECONDS_MAX and self._process.poll() is None:
            if self.is_ready():
                return time.monotonic() - started
            time.sleep(0.02)
        raise Failed(f"the daemon did not start; see {self._log}")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.http}/-/ready", timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """As kill -9 does."""
        self._process.kill()
        self._process.wait()

    def read(self) -> Reading:
        if self._process.poll() is not None:
            raise Failed(f"the daemon has ended; see {self._log}")
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        values: Values = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = (
                    sample.value
                )
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        resident = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return Reading(time.monotonic(), values, cpu_seconds, resident)

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
