"""What the shipper does: a stream for each folder of the spool, to the verifier that it names."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from pathlib import Path
from time import monotonic

from mussurana.collector.abandoned import complete, remove_unfinished
from mussurana.collector.sender import Sender
from mussurana.collector.spool import LOCK, REFUSED, Destination, Shipped, folders, try_lock
from mussurana.collector.spool_folder import ForeignSpool, refuse_foreign, write_private
from mussurana.collector.spool_reader import SpoolReader

LOOK_SECONDS = 0.5
"""How often the spool is looked through for new folders and for those whose process has gone."""

LINGER_SECONDS = 2.0
"""How long it stays without collectors, since the next one often comes at once."""

UNREACHABLE_SECONDS_MAX = 60.0
"""How long it goes on trying for processes that are gone: a verifier that restarts is back in less. After that the next
shipper has to."""


class Shipment:
    """One folder on its way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reader = SpoolReader(folder)
        self.shipped = Shipped()
        self._refusal = ""
        self._lock: int | None = None
        self.sender = Sender(Destination.read(folder), self.reader, self._tell)
        self.sender.start()

    @property
    def has_owner(self) -> bool:
        return self._lock is None

    @property
    def is_done(self) -> bool:
        return self.reader.is_complete and self.reader.durable_sequence >= self.reader.last_sequence

    def look(self) -> None:
        """If the process has gone, complete what it left."""
        if self._lock is None:
            self._lock = try_lock(self.folder / LOCK)
            if self._lock is not None:
                self.reader.last_sequence = complete(self.folder)
                self.reader.is_complete = True

    def end(self) -> None:
        """Stop, and delete the folder if all of it is durable."""
        self.sender.stop(LINGER_SECONDS)
        if self.is_done and not self.reader.is_gone:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    def _tell(self, sender: Sender) -> None:
        self.shipped = Shipped(
            self.reader.durable_sequence, sender.bytes_sent, sender.connections_failed, int(sender.is_connected)
        )
        if not self.reader.is_gone:
            with contextlib.suppress(OSError):  # the folder may just have been deleted
                self.shipped.write(self.folder)
                if sender.refusal != self._refusal:
                    self._refusal = sender.refusal
                    self._say_refusal()

    def _say_refusal(self) -> None:
        """Here, and to the process whose fragments they are. Once, and not each time that the verifier is asked."""
        if self._refusal:
            print(f"{self.folder.name}: {self._refusal}", file=sys.stderr, flush=True)
            write_private(self.folder / REFUSED, self._refusal)
        else:
            (self.folder / REFUSED).unlink(missing_ok=True)


class Shipper:
    def __init__(self, root: Path, stays: bool) -> None:
        self._root = root
        self._stays = stays
        self._shipments: dict[Path, Shipment] = {}
        self._tried: set[Path] = set()  # folders that are left to the next shipper
        self.stopping = threading.Event()

    def run(self) -> None:
        needed_at = monotonic()
        while not self.stopping.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception:
                continue  # whatever is wrong with the spool may be right a little later
            if any(shipment.has_owner for shipment in self._shipments.values()):
                needed_at = monotonic()
            patience = UNREACHABLE_SECONDS_MAX if self._shipments else LINGER_SECONDS
            if not self._stays and monotonic() - needed_at > patience:
                break
        for shipment in self._shipments.values():
            shipment.end()
        self._tried |= self._shipments.keys()
        self._shipments.clear()

    def is_needed(self) -> bool:
        """Whether something has come since it last looked, and nobody has told it to end."""
        if self.stopping.is_set():
            return False
        return any(_has_destination(folder) for folder in folders(self._root) if folder not in self._tried)

    def _look(self) -> None:
        remove_unfinished(self._root)
        for folder in folders(self._root):
            if folder not in self._shipments:
                try:
                    refuse_foreign(folder)
                    if _has_destination(folder) and _says_whose_it_is(folder):
                        self._shipments[folder] = Shipment(folder)
                except ForeignSpool as error:
                    self._say_once(folder, error)
                except (OSError, ValueError, TypeError):  # half deleted, or not one of ours
                    continue
        for folder, shipment in list(self._shipments.items()):
            if not shipment.reader.is_gone:
                shipment.look()
            if shipment.is_done or shipment.reader.is_gone:
                shipment.end()
                del self._shipments[folder]

    def _say_once(self, folder: Path, error: ForeignSpool) -> None:
        if folder not in self._tried:
            print(error, file=sys.stderr, flush=True)
        self._tried.add(folder)


def _has_destination(folder: Path) -> bool:
    try:
        return bool(Destination.read(folder).verifier)
    except (OSError, ValueError, TypeError):  # half deleted, or not one of ours
        return False


def _says_whose_it_is(folder: Path) -> bool:
    """Whether the process has spooled something, with its name first, or is gone and never will."""
    if SpoolReader(folder).has_begun:
        return True
    lock = try_lock(folder / LOCK)
    if lock is not None:
        os.close(lock)
    return lock is not None
