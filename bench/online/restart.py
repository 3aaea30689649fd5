"""Ready within seconds after kill -9, with a gigabyte of log behind the last checkpoint: `make restart`.

A daemon writes a checkpoint and ends. Another one, which is told to write none, takes load until its log has grown by
the gigabyte, and is killed under that load. The files are dropped from the page cache, as if the machine had started
anew. The next one has to be ready, and to make something durable, within the bar. Then it catches up while load goes
on, and has to stay ready. Ends with 1 if it missed the bar, was not ready for a moment, or did not verify again what
had been verified before with the same outcome and without an alarm.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.machine import this_machine
from bench.online.__main__ import SHAPES, until_verified
from bench.online.daemon import DaemonProcess
from bench.online.load import Load

BAR_SECONDS, BAR_LOG_BYTES = 5.0, 1_000_000_000
SHAPE = "90 % reads, 100k keys"
WARM_UP_TXNS = 100_000
CALM_TXNS_PER_SECOND = 5_000
"""While it catches up: enough to see that fragments are taken."""

NO_CHECKPOINT = ("--checkpoint-interval-seconds", "86400", "--checkpoint-log-bytes", str(1 << 40))


class Pressure:
    """Load from a thread of its own, through all that happens to the daemon."""

    def __init__(self, load: Load, rate: float) -> None:
        self._load, self.rate = load, rate
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._load.run(max(1, round(self.rate / 10)), self.rate)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()


def restart(directory: Path, log_bytes: int, rate: float) -> bool:
    data = directory / "data"
    daemon = DaemonProcess(data, directory / "daemon.log")
    load = Load(daemon.address, SHAPES[SHAPE])
    load.run(WARM_UP_TXNS, 10_000)
    until_verified(daemon)
    daemon.end()
    before_bytes = _log_bytes(data)
    daemon.start(*NO_CHECKPOINT)
    pressure = Pressure(load, rate)
    while _log_bytes(data) - before_bytes < log_bytes:
        time.sleep(0.1)
    verified = daemon.read().total("mussurana_transactions_total")
    daemon.kill()
    pressure.rate = CALM_TXNS_PER_SECOND
    _drop_from_cache(data)
    grown, durable = _log_bytes(data) - before_bytes, load.durable
    started = time.monotonic()
    ready_seconds = daemon.start(*NO_CHECKPOINT)
    while load.durable == durable:
        time.sleep(0.01)
    durable_seconds = time.monotonic() - started
    print(f"{grown / 1e6:,.0f} MB of log behind the checkpoint, {verified:,.0f} transactions in it had been verified")
    print(f"ready after {ready_seconds:.2f} s, a new fragment durable after {durable_seconds:.2f} s", flush=True)

    looks = misses = 0
    durable_before = load.durable
    while (reading := daemon.read()).total("mussurana_log_behind_bytes") > 16 << 20:
        looks += 1
        misses += not daemon.is_ready()
        time.sleep(0.2)
    caught_up_seconds = time.monotonic() - started
    taken = load.durable - durable_before
    pressure.close()
    until_verified(daemon)
    load.finish()
    reading = daemon.read()
    daemon.end()
    different = reading.total("mussurana_steps_different_total")
    again = reading.total("mussurana_steps_rerun_total")
    alarms = reading.total("mussurana_rejections_total")
    unknown = reading.total("mussurana_unknown_transactions_total") + reading.total("mussurana_gaps_total")
    print(
        f"caught up after {caught_up_seconds:.0f} s; meanwhile {taken} fragments were taken, and it was not ready "
        f"{misses} of {looks} times"
    )
    print(
        f"{again:.0f} steps taken again, {different:.0f} differed; {alarms:.0f} alarms, {unknown:.0f} unknown or gaps"
    )
    is_quick = max(ready_seconds, durable_seconds) <= BAR_SECONDS
    print(f"the bar, ready within {BAR_SECONDS:g} s: {'reached' if is_quick else 'NOT reached'}")
    is_whole = grown >= log_bytes and again > 0 and not (different or alarms or unknown or misses)
    return is_quick and is_whole


def _log_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in (data / "log").glob("*.seg"))


def _drop_from_cache(data: Path) -> None:
    for path in data.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)  # only what is on disk can be dropped
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log-bytes", type=int, default=BAR_LOG_BYTES, help="behind it (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=45_000, help="transactions per second (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where data goes (default: a temporary one)")
    options = parser.parse_args()
    print(this_machine().line().replace("(one used)", "(shared with the generator)"), flush=True)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        return 0 if restart(Path(directory), options.log_bytes, options.rate) else 1


if __name__ == "__main__":
    sys.exit(main())
