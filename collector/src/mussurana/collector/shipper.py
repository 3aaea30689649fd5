"""The shipper: one process per spool that takes what all others have spooled to their verifiers.

    python -m mussurana.collector.shipper SPOOL            as a service: until it is told to end
    python -m mussurana.collector.shipper SPOOL --lock 5   as collectors start it: until nobody needs it

A process of its own, because gRPC must not come into an application that forks: in about one of fifty forks the child
finds a lock of gRPC's held by a thread that it does not have, and stops with the interpreter's lock in its hands. It
also does not compete with the application for the interpreter.

Whoever holds `shipper.lock` in the spool is the shipper. A collector that finds it free takes it and hands it to the
process that it starts, so there is never more than one, and a shipper that dies is replaced within a second. One that
was started by a collector ends a little after the last collector has, and what that left is shipped.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
from pathlib import Path

from mussurana.collector.helper import LOCK_FLAGS, SHIPPER_LOCK
from mussurana.collector.spool_folder import ForeignSpool, is_own, own_folder

HERE = Path()

NICENESS = 5
"""The application comes first."""


def take_lock(root: Path) -> int | None:
    handle = os.open(root / SHIPPER_LOCK, LOCK_FLAGS, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def main() -> int:
    parser = argparse.ArgumentParser(prog="mussurana.collector.shipper", description="Ship what collectors spooled.")
    parser.add_argument("spool", type=Path, help="the folder that the collectors have as their spool")
    parser.add_argument("--lock", type=int, help="the shipper's lock, held already; for collectors")
    options = parser.parse_args()
    try:
        # From here on it is this folder, whatever somebody else may put in its place.
        os.chdir(own_folder(options.spool))
        if not is_own(HERE):
            raise ForeignSpool(f"{options.spool} has just been replaced")
    except ForeignSpool as error:
        print(error, file=sys.stderr)
        return 1
    lock = options.lock
    if lock is not None:
        # The application must not find a child that it does not know, so the child of its own ends here.
        if os.fork():
            os._exit(0)
        os.nice(NICENESS)
    elif (lock := take_lock(HERE)) is None:
        print(f"{options.spool}: another shipper is at work", file=sys.stderr)
        return 1
    from mussurana.collector.shipping import Shipper  # gRPC comes with it, so not before the fork

    shipper = Shipper(HERE, stays=options.lock is None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: shipper.stopping.set())
    while lock is not None:
        shipper.run()
        os.close(lock)
        # A process may have begun and ended while it saw that there is a shipper.
        lock = take_lock(HERE) if shipper.is_needed() else None
    return 0


if __name__ == "__main__":
    sys.exit(main())
