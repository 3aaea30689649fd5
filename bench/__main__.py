"""Measure the checker.

    python -m bench                          all scenarios: recorded histories where there are any, and generated ones
    python -m bench DIRECTORY --only hot     those histories instead; only scenarios with `hot` in their name
    python -m bench --markdown docs/performance.md

Exit code 0 when every bar that was measured is met, 1 when one is missed or a check failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.collection import compare
from bench.machine import this_machine, use_one_core
from bench.processes import ProcessScenario, measure_process, process_scenarios
from bench.report import CHECK_COLUMNS, PROCESS_COLUMNS, Report, Table, report_json, write_markdown
from bench.scenarios import Scenario, generated, recorded
from bench.worker import Failed, Unreadable, measure_apart
from mussurana.verifier.formats import save
from mussurana.verifier.history import HistoryError

HISTORIES = Path("../shared/histories")
RECORDED_10K = "blindw-rw-10k"
LOAD_MAX = 0.7  # below this, of two cores or more one is free nearly all the time


def show_progress(text: str) -> None:
    """What is being measured, on a line that the next text replaces."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def show(line: str) -> None:
    show_progress("")
    print(line, flush=True)


def provide(scenario: Scenario | ProcessScenario, path: Path) -> None:
    if scenario.make is not None and not path.exists():
        show_progress(f"generating {scenario.name}")
        save(scenario.make(), path)


def measure_checks(scenarios: Sequence[Scenario], repeat: int, report: Report) -> None:
    names = [f"{scenario.name} ({len(scenario.paths)})" for scenario in scenarios]
    verdict_width = max(len("accepted"), *(len("000 accepted, 000 rejected") * bool(s.verdicts) for s in scenarios))
    widest = {"history": max(map(len, names)), "level": max(len(s.level) for s in scenarios), "verdict": verdict_width}
    table = Table(CHECK_COLUMNS, widest)
    show(table.header())
    for scenario in scenarios:
        provide(scenario, scenario.paths[0])
        show_progress(f"measuring {scenario.name}, {scenario.level}")
        try:
            measured = measure_apart(scenario.paths, scenario.level, repeat)
            if scenario.verdicts:
                comparison = compare(scenario.verdicts, scenario.level, scenario.paths, measured.verdicts)
                report.comparisons.append((scenario, comparison))
            show(table.row(report.add_check(scenario, measured)))
        except (HistoryError, Unreadable) as error:
            show(f"unreadable: {report.add_unreadable(scenario, error)}")
        except Failed as error:
            show(f"FAILED: {report.add_failure(scenario, error)}")


def measure_processes(scenarios: Sequence[ProcessScenario], repeat: int, report: Report) -> None:
    table = Table(
        PROCESS_COLUMNS,
        {"process": max(len(s.name) for s in scenarios), "level": max(len(s.level) for s in scenarios)},
    )
    show("\n" + table.header())
    for scenario in scenarios:
        provide(scenario, scenario.path)
        show_progress(f"measuring {scenario.name}")
        try:
            show(table.row(report.add_process(scenario, measure_process(scenario, repeat))))
        except Failed as error:
            show(f"FAILED: {report.add_failure(scenario, error)}")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def arguments_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the checker on one core.")
    parser.add_argument(
        "directory", nargs="?", type=Path, help=f"where recorded histories are (default: {HISTORIES}, if it exists)"
    )
    parser.add_argument("--only", metavar="NAME", help="only scenarios with this in their name")
    parser.add_argument(
        "--repeat", type=positive, default=5, help="runs, of which the best counts (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="also write tables here; in a page with marks, only between them"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_parser()
    options = parser.parse_args(arguments)
    if options.directory is not None and not options.directory.exists():
        parser.error(f"{options.directory}: no such directory")
    directory = options.directory or (HISTORIES if HISTORIES.is_dir() else None)

    report = Report(this_machine(), options.repeat)
    use_one_core()
    with tempfile.TemporaryDirectory() as temporary:
        found = list(recorded(directory)) if directory else []
        recorded_10k = next((s.paths[0] for s in found if s.short_name == RECORDED_10K), None)
        wanted = options.only or ""
        checks = [s for s in (*found, *generated(Path(temporary))) if wanted in s.name]
        processes = [s for s in process_scenarios(recorded_10k, Path(temporary)) if wanted in s.name]
        if not checks and not processes:
            parser.error(f"no scenario has {wanted!r} in its name")
        show(report.machine.line())
        if report.machine.load_before > LOAD_MAX:
            show("The machine is busy with other work: times will be too long.")
        show("")
        if checks:
            measure_checks(checks, options.repeat, report)
        if processes:
            measure_processes(processes, options.repeat, report)

    show("")
    for line in report.summary():
        show(line)
    if options.json:
        options.json.write_text(report_json(report) + "\n", encoding="utf-8")
    if options.markdown:
        write_markdown(report, options.markdown)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
