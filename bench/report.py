"""Measurements as tables: lines of a terminal that appear one by one, markdown, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.bars import PEERS, Figures, Judgement, Row, judge
from bench.collection import Comparison
from bench.machine import Machine
from bench.processes import ProcessMeasurement, ProcessScenario
from bench.scenarios import Scenario
from bench.worker import Measurement

MIB = 2**20
CORE_SHARE_MIN = 0.9  # with less of a core than this, a time says more about the neighbours
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
"""Where these are in a markdown file, only what is between them is replaced."""

CHECK_COLUMNS = (
    "history",
    "level",
    "txns",
    "verdict",
    "load s",
    "build s",
    "prune s",
    "solve s",
    "explain s",
    "total s",
    "median s",
    "MiB",
    "bar",
)
PROCESS_COLUMNS = ("process", "level", "txns", "verdict", "wall s", "median s", "import s", "bar")
_LEFT = {"history", "process", "level", "verdict", "bar", "workload", "driver", "mode"}
_NUMBER_WIDTH = 9


@dataclass
class Report:
    """What was measured so far."""

    machine: Machine
    repeat: int
    checks: list[tuple[Scenario, Measurement]] = field(default_factory=list)
    processes: list[tuple[ProcessScenario, ProcessMeasurement]] = field(default_factory=list)
    comparisons: list[tuple[Scenario, Comparison]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # what looked like a history and is none
    failures: list[str] = field(default_factory=list)  # checks that went wrong
    figures: dict[Row, Figures | None] = field(default_factory=dict)

    def add_check(self, scenario: Scenario, measured: Measurement) -> list[str]:
        self.checks.append((scenario, measured))
        seconds = {"seconds": measured.seconds["total"], "memory_mib": measured.memory_bytes / MIB}
        # Every history that has a bar is a valid one: a quick wrong answer reaches nothing.
        self.figures.setdefault(_row(scenario), seconds if measured.verdict == "accepted" else None)
        return self.check_cells(scenario, measured)

    def add_process(self, scenario: ProcessScenario, measured: ProcessMeasurement) -> list[str]:
        self.processes.append((scenario, measured))
        figures = {"seconds": measured.wall_seconds}
        if measured.import_seconds is not None:
            figures["import_seconds"] = measured.import_seconds
        self.figures.setdefault(_row(scenario), figures)
        return self.process_cells(scenario, measured)

    def add_failure(self, scenario: Scenario | ProcessScenario, why: object) -> str:
        self.figures.setdefault(_row(scenario), None)
        self.failures.append(f"{scenario.name}, {scenario.level}: {why}")
        return self.failures[-1]

    def add_unreadable(self, scenario: Scenario, why: object) -> str:
        self.figures.setdefault(_row(scenario), None)
        self.unreadable.append(f"{scenario.name}, {scenario.level}: {why}")
        return self.unreadable[-1]

    def judgements(self) -> list[Judgement]:
        return judge(self.figures)

    @property
    def passed(self) -> bool:
        return not self.failures and all(judgement.met for judgement in self.judgements())

    def check_cells(self, scenario: Scenario, measured: Measurement) -> list[str]:
        phases = ("load", "build", "prune", "solve", "explain", "total")
        return [
            scenario.name if len(scenario.paths) == 1 else f"{scenario.name} ({len(scenario.paths)})",
            scenario.level,
            f"{measured.transactions:,}",
            measured.verdict,
            *(f"{measured.seconds[phase]:.4f}" for phase in phases),
            f"{measured.median_seconds:.4f}",
            f"{measured.memory_bytes / MIB:.0f}",
            self._bars(_row(scenario)),
        ]

    def process_cells(self, scenario: ProcessScenario, measured: ProcessMeasurement) -> list[str]:
        imported = measured.import_seconds
        return [
            scenario.name,
            scenario.level,
            f"{measured.transactions:,}",
            measured.verdict,
            f"{measured.wall_seconds:.2f}",
            f"{measured.median_seconds:.2f}",
            "" if imported is None else f"{imported:.2f}",
            self._bars(_row(scenario)),
        ]

    def _bars(self, row: Row) -> str:
        return "; ".join(judgement.short for judgement in judge(self.figures, row))

    def summary(self) -> list[str]:
        """Everything that is not a row of a table."""
        lines = [f"{'met' if judgement.met else 'MISSED'}: {judgement.sentence}" for judgement in self.judgements()]
        lines += self.peer_sentences()
        for scenario, comparison in self.comparisons:
            lines.append(
                f"{scenario.name} at {scenario.level}: {comparison.compared} verdicts of another checker, "
                f"{len(comparison.differences)} differ"
            )
            lines += [f"  {difference}" for difference in comparison.differences]
        lines += [f"unreadable: {what}" for what in self.unreadable]
        lines += [f"FAILED: {what}" for what in self.failures]
        lines += self.disturbed()
        return lines

    def disturbed(self) -> list[str]:
        shares = [measured.core_share for _, measured in self.checks]
        shares += [measured.core_share for _, measured in self.processes]
        count = sum(share < CORE_SHARE_MIN for share in shares)
        if not count:
            return []
        return [
            f"{count} of {len(shares)} scenarios shared their core with other work ({min(shares):.0%} of it at worst): "
            "their times are too long; measure again on a quiet machine"
        ]

    def peer_sentences(self) -> list[str]:
        sentences = []
        for peer in PEERS:
            for scenario, measured in self.checks:
                if _row(scenario) == peer.row and measured.verdict == "accepted":
                    ours, load = measured.seconds["total"], measured.seconds["load"]
                    name, level = peer.row
                    process_mib = measured.peak_bytes / MIB
                    memory = f" and {peer.memory_mib:g} MiB" if peer.memory_mib else ""
                    sentences.append(
                        f"{peer.name} on {name} at {level}: {peer.seconds:g} s{memory} "
                        f"(given figures, not run beside us); ours is {peer.seconds / ours:.0f} times faster, "
                        f"with loading {peer.seconds / (ours + load):.0f} times, in a process of {process_mib:.0f} MiB"
                    )
        return sentences


class Table:
    """Rows of one width that can be printed before the last one is known."""

    def __init__(self, columns: Sequence[str], widest: Mapping[str, int]) -> None:
        self.columns = columns
        self.widths = [max(len(column), widest.get(column, _NUMBER_WIDTH)) for column in columns]

    def header(self) -> str:
        return self.row(self.columns)

    def row(self, cells: Iterable[str]) -> str:
        padded = [
            cell.ljust(width) if column in _LEFT else cell.rjust(width)
            for column, cell, width in zip(self.columns, cells, self.widths, strict=True)
        ]
        return "  ".join(padded).rstrip()


def report_markdown(report: Report) -> str:
    parts = [f"{report.machine.line()}. Best of {report.repeat}."]
    if report.checks:
        parts.append(markdown_table(CHECK_COLUMNS, [report.check_cells(*check) for check in report.checks]))
    if report.processes:
        parts.append(markdown_table(PROCESS_COLUMNS, [report.process_cells(*process) for process in report.processes]))
    parts.append("\n".join(f"- {line.strip()}" for line in report.summary()))
    return "\n\n".join(parts) + "\n"


def write_markdown(report: Report, path: Path) -> None:
    put_between_marks(report_markdown(report), path)


def put_between_marks(text: str, path: Path) -> None:
    """A file of its own, or between the marks of a page that has them."""
    if path.exists():
        page = path.read_text(encoding="utf-8")
        before, begin, rest = page.partition(BEGIN)
        _, end, after = rest.partition(END)
        if begin and end:
            text = f"{before}{BEGIN}\n\n{text}\n{END}{after}"
    path.write_text(text, encoding="utf-8")


def report_json(report: Report) -> str:
    return json.dumps(
        {
            "machine": asdict(report.machine),
            "repeat": report.repeat,
            "checks": [
                {
                    "name": scenario.name,
                    "level": scenario.level,
                    "histories": len(scenario.paths),
                    "verdict": measured.verdict,
                    "median_seconds": measured.median_seconds,
                    "memory_bytes": measured.memory_bytes,
                    **{name: value for name, value in asdict(measured).items() if name != "verdicts"},
                }
                for scenario, measured in report.checks
            ],
            "processes": [
                {"name": scenario.name, "level": scenario.level, **asdict(measured)}
                for scenario, measured in report.processes
            ],
            "comparisons": [
                {"name": scenario.name, "level": scenario.level, **asdict(comparison)}
                for scenario, comparison in report.comparisons
            ],
            "bars": [
                {
                    "bar": judgement.sentence,
                    "value": judgement.value,
                    "limit": judgement.bar.limit,
                    "met": judgement.met,
                }
                for judgement in report.judgements()
            ],
            "unreadable": report.unreadable,
            "failures": report.failures,
        },
        indent=1,
    )


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---" if column in _LEFT else "---:" for column in columns], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(scenario: Scenario | ProcessScenario) -> Row:
    return scenario.short_name, scenario.level
