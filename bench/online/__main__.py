"""Throughput and lag of the daemon, load generator and daemon on the same machine over real gRPC: `make bench-online`.

Commit times are those at which the generator says that transactions committed, spread evenly over the time that a
fragment covers; lag is from there to the verdict, as the daemon's own histogram has it. Acknowledgements are durable.
The columns daemon and load are microseconds of processor time per transaction, which other work on the machine hardly
changes; their sum says what two cores could do at best.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.machine import this_machine
from bench.online.daemon import DaemonProcess, Reading
from bench.online.load import Load
from bench.online.workload import Shape

BAR_TXNS_PER_SECOND, BAR_LAG_SECONDS = 30_000, 2.0
WARM_UP_TXNS = 100_000
PHASES = ("admit", "build", "prune", "solve", "forget")

SHAPES = {
    "90 % reads, 10k keys": Shape(),
    "90 % reads, 100k keys": Shape(keys=100_000),
    "50 % blind writes, 10k keys": Shape(read_fraction=0.5, blind_fraction=1.0),
    "50 % blind writes, 100k keys": Shape(keys=100_000, read_fraction=0.5, blind_fraction=1.0),
}


@dataclass(frozen=True)
class Result:
    """Between two readings."""

    before: Reading
    after: Reading
    late_seconds_max: float
    generator_cpu_seconds: float

    def grown(self, name: str) -> float:
        return self.after.total(name) - self.before.total(name)

    @property
    def seconds(self) -> float:
        return self.after.at - self.before.at

    @property
    def txns_per_second(self) -> float:
        return self.grown("mussurana_transactions_total") / self.seconds

    def lag_seconds(self, quantile: float) -> float:
        """From the histogram, evenly within a bucket; the end of the last bucket that is counted, if it is beyond."""
        name = "mussurana_verification_lag_seconds_bucket"
        by_bound: dict[float, float] = {}  # of all levels together
        for labels, value in self.after.values[name].items():
            bound = float(labels[0])
            by_bound[bound] = by_bound.get(bound, 0.0) + value - self.before.values[name][labels]
        counts = sorted(by_bound.items())
        wanted = quantile * counts[-1][1]
        low, below = 0.0, 0.0
        for bound, count in counts:
            if count >= wanted:
                inside = (wanted - below) / (count - below) if count > below else 0.0
                return low + inside * (bound - low) if bound != float("inf") else float("inf")
            low, below = bound, count
        return float("inf")

    def phase(self, name: str) -> float:
        """Share of the time, in percent."""
        values = "mussurana_round_phase_seconds_total"
        grown = sum(v - self.before.values[values][k] for k, v in self.after.values[values].items() if name in k)
        return 100 * grown / self.seconds

    def line(self, name: str, rate: float) -> str:
        rejected = self.grown("mussurana_rejections_total")
        phases = ", ".join(f"{phase} {self.phase(phase):.0f}" for phase in PHASES)
        commit = 100 * self.grown("mussurana_log_commit_seconds_sum") / self.seconds
        txns = max(1.0, self.grown("mussurana_transactions_total"))
        cpu_us = 1e6 * (self.after.cpu_seconds - self.before.cpu_seconds) / txns
        made_us = 1e6 * self.generator_cpu_seconds / txns
        return (
            f"{name:<30} {rate:>8,.0f} {self.txns_per_second:>9,.0f} {self.lag_seconds(0.5):>7.2f} "
            f"{self.lag_seconds(0.99):>7.2f} {self.late_seconds_max:>6.2f} {cpu_us:>6.1f} {made_us:>6.1f} "
            f"{self.after.resident_bytes / 1e6:>6.0f}  {phases}; commit {commit:.0f}"
            + (f"  REJECTED {rejected:.0f}" if rejected else "")
        )


HEADER = (
    f"{'workload':<30} {'offered':>8} {'verified':>9} {'lag p50':>7} {'p99, s':>7} {'late':>6} "
    f"{'daemon':>6} {'load':>6} {'MB':>6}  where the daemon's time goes, % of wall time"
)


def measure(name: str, shape: Shape, rates: list[float], seconds: float, directory: Path, flags: list[str]) -> bool:
    """Whether the bar is reached at the rates up to it."""
    daemon = DaemonProcess(directory / "data", directory / "daemon.log", *flags)
    reached = True
    try:
        load = Load(daemon.address, shape)
        load.run(WARM_UP_TXNS, 10_000)
        until_verified(daemon)
        for rate in rates:
            load.run(round(2 * rate), rate)  # the first seconds at a new rate do not count
            before, cpu_before = daemon.read(), time.process_time()
            load.run(round(seconds * rate), rate)
            result = Result(before, daemon.read(), load.late_seconds_max, time.process_time() - cpu_before)
            print(result.line(name, rate), flush=True)
            is_kept = result.lag_seconds(0.99) < BAR_LAG_SECONDS and result.txns_per_second > 0.95 * rate
            reached &= is_kept or rate > BAR_TXNS_PER_SECOND
            until_verified(daemon)
            if not is_kept:
                break
        load.finish()
    finally:
        daemon.end()
    return reached


def until_verified(daemon: DaemonProcess) -> None:
    while True:
        reading = daemon.read()
        is_up = reading.total("mussurana_verification_running") > 0
        is_behind = reading.total("mussurana_log_behind_bytes") > 0
        if is_up and not is_behind and reading.total("mussurana_verification_lag_current_seconds") < 1.0:
            return
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--rates", default="30000,45000,60000,80000,100000", help="transactions per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="at each rate")
    parser.add_argument("--levels", default="serializable")
    parser.add_argument("--directory", type=Path, help="where data goes (default: a temporary one)")
    options = parser.parse_args()
    rates = [float(rate) for rate in options.rates.split(",")]
    print(this_machine().line().replace("(one used)", "(shared with the generator)"))
    print(HEADER, flush=True)
    reached = True
    for name, shape in SHAPES.items():
        if options.only in name:
            with tempfile.TemporaryDirectory(dir=options.directory) as directory:
                flags = ["--verify-levels", options.levels]
                reached &= measure(name, shape, rates, options.seconds, Path(directory), flags)
    print(
        f"the bar, {BAR_TXNS_PER_SECOND:,} transactions per second with a lag below {BAR_LAG_SECONDS:g} s at the 99th "
        f"percentile: {'reached' if reached else 'NOT reached'}"
    )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
