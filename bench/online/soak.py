"""Many millions of transactions into one daemon: memory that stays flat, rounds that do not get slower (`make soak`).

Prints a line per million, and ends with 1 if resident memory between the first and the last million grew by more than
a fifth, or a round took more than half as long again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.machine import this_machine
from bench.online.__main__ import SHAPES, until_verified
from bench.online.daemon import DaemonProcess, Reading
from bench.online.load import Load
from bench.online.workload import Shape

MILLION = 1_000_000
MEMORY_GROWTH_MAX, ROUND_GROWTH_MAX = 1.2, 1.5
WARM_UP = 1
"""Millions before anything is compared: tables fill, and the allocator finds its size."""


def soak(name: str, shape: Shape, millions: int, rate: float, directory: Path, levels: str) -> bool:
    daemon = DaemonProcess(directory / "data", directory / "daemon.log", "--verify-levels", levels)
    readings: list[Reading] = []
    try:
        load = Load(daemon.address, shape)
        readings.append(daemon.read())
        for million in range(1, millions + 1):
            load.run(MILLION, rate)
            until_verified(daemon)
            readings.append(daemon.read())
            print(line(name, million, readings[-2], readings[-1]), flush=True)
        load.finish()
    finally:
        daemon.end()
    compared = readings[WARM_UP:] if len(readings) > WARM_UP + 1 else readings
    memory = max(reading.resident_bytes for reading in compared) / compared[0].resident_bytes
    first, last = (
        round_seconds_per_txn(readings[at - 1], readings[at]) for at in (min(WARM_UP + 1, millions), millions)
    )
    is_flat = memory <= MEMORY_GROWTH_MAX and last <= ROUND_GROWTH_MAX * first
    print(f"{name}: memory at most {memory:.2f} of what it was after the first million, time per transaction ", end="")
    print(f"{last / first:.2f}: {'flat' if is_flat else 'NOT flat'}", flush=True)
    return is_flat and not readings[-1].total("mussurana_rejections_total")


def round_seconds_per_txn(before: Reading, after: Reading) -> float:
    txns = after.total("mussurana_transactions_total") - before.total("mussurana_transactions_total")
    return (after.total("mussurana_round_seconds_sum") - before.total("mussurana_round_seconds_sum")) / max(1.0, txns)


def line(name: str, million: int, before: Reading, after: Reading) -> str:
    rounds = after.total("mussurana_rounds_total") - before.total("mussurana_rounds_total")
    seconds = after.total("mussurana_round_seconds_sum") - before.total("mussurana_round_seconds_sum")
    return (
        f"{name}  {million:>3} million  {after.resident_bytes / 1e6:>6.0f} MB resident  "
        f"{seconds / max(1.0, rounds) * 1000:>6.0f} ms per round  "
        f"{round_seconds_per_txn(before, after) * 1e6:>6.1f} us per transaction  "
        f"{after.total('mussurana_retained_transactions'):>9,.0f} retained  "
        f"log {after.total('mussurana_log_bytes') / 1e6:>6,.0f} MB  "
        f"rejections {after.total('mussurana_rejections_total'):.0f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="10k keys", help="workloads whose name contains this (default: %(default)s)")
    parser.add_argument("--millions", type=int, default=10, help="of transactions (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=30_000, help="transactions per second (default: %(default)s)")
    parser.add_argument("--levels", default="serializable")
    parser.add_argument("--directory", type=Path, help="where data goes (default: a temporary one)")
    options = parser.parse_args()
    print(this_machine().line().replace("(one used)", "(shared with the generator)"))
    is_flat = True
    for name, shape in SHAPES.items():
        if options.only in name:
            with tempfile.TemporaryDirectory(dir=options.directory) as directory:
                is_flat &= soak(name, shape, options.millions, options.rate, Path(directory), options.levels)
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
