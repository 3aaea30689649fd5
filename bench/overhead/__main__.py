"""Measure what the collector costs.

    python -m bench.overhead                                all workloads through psycopg and SQLAlchemy, ten minutes
    python -m bench.overhead --only blindw --driver psycopg one of them
    python -m bench.overhead --markdown docs/overhead.md    the same, and the figures there anew

Exit code 0 when every bar is met, 1 when one is missed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.machine import this_machine
from bench.overhead.client import DRIVERS, MODES
from bench.overhead.measure import CLIENTS, SERVER_SETTINGS, Plan, measure, sink
from bench.overhead.report import COLUMNS, LEGEND, Report, report_json, report_markdown
from bench.report import Table, put_between_marks
from bench.workloads import workloads
from mussurana.verifier.embedded_postgres import EmbeddedPostgres

WIDEST = dict.fromkeys(COLUMNS, 8) | {"driver": 10, "workload": 9, "mode": 7}


def arguments_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description="Measure what the collector costs.")
    parser.add_argument("--only", default="", metavar="NAME", help="only workloads with this in their name")
    parser.add_argument("--driver", choices=DRIVERS, help="only through this one")
    parser.add_argument("--rounds", type=int, default=6, help="turns of each mode (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn (default: %(default)s)")
    parser.add_argument(
        "--isolation",
        default="read committed",
        choices=("read committed", "repeatable read", "serializable"),
        help="of all transactions (default: %(default)s, at which the database does the least beside us)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="also write tables here; in a page with marks, only between them"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    parser = arguments_parser()
    options = parser.parse_args(arguments)
    chosen = [workload for name, workload in workloads().items() if options.only in name]
    if not chosen:
        parser.error(f"no workload has {options.only!r} in its name; there are {', '.join(workloads())}")
    plan = Plan(options.rounds, options.seconds)
    with EmbeddedPostgres(settings=SERVER_SETTINGS) as server, sink() as address:
        report = Report(this_machine(), plan, options.isolation, f"PostgreSQL {server.major}", [])
        table = Table(COLUMNS, WIDEST)
        print(report.headline() + "\n\n" + table.header(), flush=True)
        for driver in [options.driver] if options.driver else DRIVERS:
            for workload in chosen:
                found = measure(server, workload, driver, options.isolation, plan, address)
                report.measured.append(found)
                for mode in MODES:
                    print(table.row(report.cells(found, mode)), flush=True)
    print("\n" + LEGEND.format(clients=CLIENTS) + "\n")
    for line in report.summary():
        print(line)
    if options.json:
        options.json.write_text(report_json(report) + "\n", encoding="utf-8")
    if options.markdown:
        put_between_marks(report_markdown(report), options.markdown)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
