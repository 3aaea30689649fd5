"""What was measured against the bars, as lines, markdown and JSON. A bar that is missed is said to be missed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from bench.machine import Machine
from bench.overhead.client import MODES, RECORDED
from bench.overhead.measure import CLIENTS, Measured, Phase, Plan
from bench.report import markdown_table

PERCENTILES = (50, 90, 99)

# What the collector may cost. CPU is that of the application's own thread: the path that each statement waits for.
THREAD_US_MAX = {"psycopg": 12.0, "sqlalchemy": 15.0}
SATURATED_MIN = 0.88
HALF_MIN = 0.97
HALF_P90_MAX = 1.10

COLUMNS = (
    "workload",
    "driver",
    "mode",
    "txn/s",
    "ratio",
    "p50",
    "p90",
    "p99",
    "half",
    "half p50",
    "half p90",
    "half p99",
    "us/stmt",
    "us added",
    "us all",
    "fence/s",
    "disk B",
    "wire B",
    "aborted",
)
LEGEND = """\
plain and control: the driver alone, twice; ratios are those to the mean of both, in the median of the rounds, so that
the two rows say what the machine does by itself. ratio: throughput with {clients} clients saturating it; p50, p90,
p99: latency there. half: the same four at half of the load that plain reaches. us/stmt: CPU of the application's
thread per statement, one client alone; us added: over plain; us all: what the whole process uses over plain, with the
background thread, which here has to seal a fragment every tenth of a second, and to wait until it was sent, so it
works in smaller batches than it would by itself. fence/s: of all clients together, saturated. disk B, wire B: bytes
per transaction, spooled and sent.
"""


@dataclass(frozen=True)
class Judgement:
    what: str
    value: float
    limit: float
    met: bool

    def line(self) -> str:
        return f"{'met' if self.met else 'MISSED'}: {self.what}: {self.value:.3g} (bar: {self.limit:g})"


@dataclass
class Report:
    machine: Machine
    plan: Plan
    isolation: str
    server: str
    measured: list[Measured]

    def cells(self, found: Measured, mode: str) -> list[str]:
        alone, saturated, half = found.alone[mode], found.saturated[mode], found.half[mode]
        return [
            found.workload,
            found.driver,
            mode,
            f"{saturated.txns / saturated.wall_seconds:,.0f}",
            f"{found.throughput_ratio(found.saturated, mode):.3f}",
            *(f"{found.latency_ratio(found.saturated, mode, percent):.2f}" for percent in PERCENTILES),
            f"{found.throughput_ratio(found.half, mode):.3f}",
            *(f"{found.latency_ratio(found.half, mode, percent):.2f}" for percent in PERCENTILES),
            f"{alone.thread_us:.1f}",
            f"{found.added_us(mode):.1f}",
            f"{found.added_process_us(mode):.1f}",
            f"{saturated.counted('fences_issued') / saturated.wall_seconds:.1f}",
            per_txn(saturated, half, "bytes_spooled"),
            per_txn(saturated, half, "bytes_sent"),
            f"{saturated.aborted / max(1, saturated.txns + saturated.aborted):.2%}",
        ]

    def judgements(self) -> list[Judgement]:
        judged = []
        for found in self.measured:
            for mode in RECORDED:
                name = f"{found.workload}, {found.driver}, {mode}"
                added = found.added_us(mode)
                limit = THREAD_US_MAX[found.driver]
                judged.append(Judgement(f"{name}: microseconds per statement", added, limit, added <= limit))
                ratio = found.throughput_ratio(found.saturated, mode)
                judged.append(Judgement(f"{name}: throughput saturated", ratio, SATURATED_MIN, ratio >= SATURATED_MIN))
                ratio = found.throughput_ratio(found.half, mode)
                judged.append(Judgement(f"{name}: throughput at half", ratio, HALF_MIN, ratio >= HALF_MIN))
                ratio = found.latency_ratio(found.half, mode, 90)
                judged.append(Judgement(f"{name}: p90 at half", ratio, HALF_P90_MAX, ratio <= HALF_P90_MAX))
        return judged

    def headline(self) -> str:
        machine = self.machine
        return (
            f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib:.0f} GiB; Python {machine.python}; "
            f"{self.server}, {self.isolation}; commit {machine.commit}; load before {machine.load_before:.2f}; "
            f"{self.plan.rounds} rounds of {self.plan.turn_seconds:g} s per mode"
        )

    def summary(self) -> list[str]:
        judged = self.judgements()
        missed = [judgement.line() for judgement in judged if not judgement.met]
        lost = sum(phase.counted("txns_lost") for phase in self._phases())
        failures = sum(phase.counted("hook_failures") for phase in self._phases())
        lines = [f"{len(judged) - len(missed)} of {len(judged)} bars met", *missed]
        lines += [
            f"FAILED: {found.workload}, {found.driver}, {mode}: the collector recorded nothing"
            for found in self.measured
            for mode in RECORDED
            if not found.saturated[mode].counted("bytes_spooled")
        ]
        if lost or failures:
            lines.append(f"{lost:g} transactions were lost and {failures:g} hooks failed while measuring")
        return lines

    @property
    def passed(self) -> bool:
        return not any(line.startswith(("MISSED", "FAILED")) for line in self.summary())

    def _phases(self) -> list[Phase]:
        return [
            phase
            for found in self.measured
            for phases in (found.alone, found.saturated, found.half)
            for phase in phases.values()
        ]


def per_txn(saturated: Phase, half: Phase, counter: str) -> str:
    txns = saturated.txns + saturated.aborted + half.txns + half.aborted
    return f"{(saturated.counted(counter) + half.counted(counter)) / max(1, txns):.0f}"


def report_markdown(report: Report) -> str:
    rows = [report.cells(found, mode) for found in report.measured for mode in MODES]
    lines = "\n".join(f"- {line}" for line in report.summary())
    legend = LEGEND.format(clients=CLIENTS)
    return f"{report.headline()}.\n\n{markdown_table(COLUMNS, rows)}\n\n{legend}\n\n{lines}\n"


def report_json(report: Report) -> str:
    return json.dumps(
        {
            "machine": asdict(report.machine),
            "columns": COLUMNS,
            "rows": [report.cells(found, mode) for found in report.measured for mode in MODES],
            "bars": [asdict(judgement) for judgement in report.judgements()],
        },
        indent=1,
    )
