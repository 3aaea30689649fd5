"""Starts the shipper (shipper.py) if there is none, without the application noticing.

The lock is taken here and inherited by the new process: of many collectors that start at once, one starts a shipper.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

from mussurana.collector.flag import Flag

SHIPPER_LOCK = "shipper.lock"
LOCK_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW

START_SECONDS_MAX = 10.0
"""How long the first of its two processes may take to end, which is a start of Python."""

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 1.0, 60.0
"""How soon after a start another may follow, should the shipper not stay; doubled each time."""


class Helper:
    """Sees to it that there is a shipper. Starting one takes a while on a busy machine, hence a thread for it."""

    def __init__(self, root: Path) -> None:
        self.failures = 0
        self.root = root
        self._thread: threading.Thread | None = None
        self._next_at = 0.0
        self._retry_seconds = RETRY_SECONDS_MIN
        self._lock = -1
        self._started = Flag()  # the process is there, or will not be

    def ensure(self) -> None:
        """Start a shipper unless there is one. Returns at once; OSError if the spool is gone."""
        if monotonic() < self._next_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._lock = os.open(self.root / SHIPPER_LOCK, LOCK_FLAGS, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.let_go()
            self._retry_seconds = RETRY_SECONDS_MIN
            return
        self._next_at = monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)
        self._started.clear()
        self._thread = threading.Thread(target=self._start, name="mussurana-helper", daemon=True)
        self._thread.start()

    def wait_until_started(self, timeout_seconds: float) -> None:
        """Wait until there is the process that is being started, if one is; then it needs us no more."""
        if self._thread is not None and self._thread.is_alive():
            self._started.wait(timeout_seconds)

    def _start(self) -> None:
        try:
            _start(self.root, self._lock, self._started)
        except Exception:  # no such interpreter, or no more processes
            self.failures += 1
        finally:
            self._started.set()
            self.let_go()

    def let_go(self) -> None:
        """Close the lock here. A forked child must not hold the one that its parent was about to hand on."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _start(root: Path, lock: int, started: Flag) -> None:
    command = [_python(), "-P", "-m", "mussurana.collector.shipper", str(root), "--lock", str(lock)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=root,
        # It has to find this package where the application found it, wherever that is.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        pass_fds=(lock,),
        start_new_session=True,
    )
    started.set()
    try:
        process.wait(START_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise OSError("the shipper does not start") from None


def _python() -> str:
    """The interpreter. In a server that embeds Python, sys.executable is the server."""
    if os.path.basename(sys.executable).startswith("python"):
        return sys.executable
    return os.path.join(sys.exec_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
