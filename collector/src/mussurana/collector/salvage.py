"""Ships the spools of processes that were killed, in a thread of its own, beside what this process sends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from mussurana.collector.abandoned import find_abandoned, remove_unfinished
from mussurana.collector.sender import Sender

if TYPE_CHECKING:
    from mussurana.collector.metrics import Metrics
    from mussurana.collector.settings import Settings

SALVAGE_SECONDS = 30.0
"""How often they are looked for. Looking costs a listing of the spool."""


class Salvager:
    def __init__(self, settings: Settings, metrics: Metrics, turn: threading.Lock) -> None:
        self._settings = settings
        self._metrics = metrics
        self._turn = turn
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._sender: Sender | None = None

    def start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="mussurana-salvager", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        self._stopping.set()
        sender = self._sender
        if sender is not None:
            sender.stop(0)
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._ship_all()
            except Exception:
                self._metrics.background_failures += 1
            self._stopping.wait(SALVAGE_SECONDS)

    def _ship_all(self) -> None:
        root = Path(self._settings.spool)
        remove_unfinished(root)
        for spool in find_abandoned(root):
            try:
                self._sender = Sender(self._settings, spool, self._metrics, self._turn)
                if not self._stopping.is_set():
                    self._sender.run()
                self._metrics.spools_recovered += spool.durable_sequence >= spool.last_sequence
            finally:
                self._sender = None
                spool.close()
            if self._stopping.is_set():
                return
