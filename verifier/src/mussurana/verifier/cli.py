"""The `mussurana` command. Parsing and printing only; what it calls is imported late, so that --help is quick."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from mussurana.verifier.history import History
    from mussurana.verifier.verdict import Counterexample, Result

ACCEPTED, REJECTED, UNKNOWN, BAD_INPUT = range(4)
EXIT_CODES = "exit code: 0 accepted, 1 rejected, 2 unknown, 3 bad input"
LEVELS = ("serializable", "strict-serializable", "strong-si", "strong-session-si", "generalized-si", "adya-si")
FORMATS = ("mussurana", "cobra", "dbcop", "elle-edn", "elle-json", "text", "viper")
SOLVERS = ("own", "python-sat", "z3", "monosat")
REPORT_SUFFIXES = (".html", ".svg", ".dot", ".json", ".txt")

_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "": 10**9}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """As argparse does it, but with the exit code for bad input: its own would mean `unknown`."""
        self.print_usage(sys.stderr)
        self.exit(BAD_INPUT, f"{self.prog}: error: {message}\n")


def duration_ns(text: str) -> int:
    """A duration such as 100ms, 1.5s or 2 (seconds), in nanoseconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write it like 100ms, 1.5s or 0")
    return round(float(match[1]) * _UNITS_NS[match[2]])


def duration_seconds(text: str) -> float:
    return duration_ns(text) / 1e9


def report_path(text: str) -> Path:
    if Path(text).suffix not in REPORT_SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r} has to end in one of {', '.join(REPORT_SUFFIXES)}")
    return Path(text)


def parser() -> Parser:
    top = Parser(
        prog="mussurana",
        description="Says whether a recorded history has the isolation its database promised, with a proof either way.",
    )
    top.add_argument("--version", action="version", version=f"mussurana {version('mussurana-verifier')}")
    commands = top.add_subparsers(title="commands", dest="command", required=True, parser_class=Parser)

    check = commands.add_parser(
        "check",
        help="check a history",
        description="Check a history at an isolation level.",
        epilog=f"{EXIT_CODES}. Levels and formats are described in the README and in docs/.",
    )
    check.add_argument("path", help="a file or folder with a history")
    check.add_argument(
        "--level", choices=LEVELS, default="serializable", help="what the database promises (default: %(default)s)"
    )
    check.add_argument("--format", choices=FORMATS, help="format of the history (default: recognised from the path)")
    check.add_argument("--json", action="store_true", help="print the result as one JSON object")
    check.add_argument(
        "--report",
        type=report_path,
        action="append",
        default=[],
        metavar="FILE",
        help=f"also write the result to a file ({', '.join(REPORT_SUFFIXES)}); may be given more than once",
    )
    check.add_argument("--certificate", type=Path, metavar="FILE", help="write the proof, for `mussurana audit`")
    check.add_argument(
        "--timeout", type=duration_seconds, metavar="SECONDS", help="give up searching after this time (default: never)"
    )
    check.add_argument(
        "--clock-drift",
        type=duration_ns,
        default=100_000_000,
        metavar="DURATION",
        help="how far the clocks of two clients may be apart (default: 100ms)",
    )
    check.add_argument("--no-session-order", action="store_true", help="let a session's transactions be reordered")
    check.add_argument(
        "--solver", choices=SOLVERS, default="own", help="what searches where pruning ends (default: %(default)s)"
    )

    audit = commands.add_parser(
        "audit",
        help="check the proof of a verdict with an independent checker",
        description="Replay the witness of an accepted history, or refute the counterexample of a rejected one, "
        "with code that shares nothing with the engine.",
        epilog="exit code: 0 the proof holds, 1 it does not, 3 bad input",
    )
    audit.add_argument("certificate", type=Path, help="what `mussurana check --certificate` wrote")
    audit.add_argument("history", help="the history that it is about")
    audit.add_argument("--format", choices=FORMATS, help="format of the history (default: recognised from the path)")

    convert = commands.add_parser(
        "convert", help="translate a history between formats", description="Translate a history between formats."
    )
    convert.add_argument("source", help="a file or folder with a history")
    convert.add_argument("target", help="the file or folder to write")
    convert.add_argument("--from", dest="source_format", choices=FORMATS, help="default: recognised from the path")
    convert.add_argument("--to", dest="target_format", choices=FORMATS, help="default: recognised from the name")

    demo = commands.add_parser("demo", help="see an accepted and a rejected history", add_help=False)
    demo.add_argument("arguments", nargs=argparse.REMAINDER)
    return top


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["demo"]:  # it has options of its own
        from mussurana.verifier.demo import main as demo

        return demo(arguments[1:])
    options = parser().parse_args(arguments)
    command = {"check": run_check, "audit": run_audit, "convert": run_convert}[options.command]
    from mussurana.verifier.history import HistoryError

    try:
        return command(options)
    except (HistoryError, ImportError) as error:
        print(f"mussurana {options.command}: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BAD_INPUT
        print(f"mussurana {options.command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(f"mussurana {options.command}: interrupted", file=sys.stderr)
        return 130


def run_check(options: argparse.Namespace) -> int:
    from mussurana.verifier.progress import Progress

    with Progress() as progress:
        progress("loading")
        started = perf_counter()
        from mussurana.verifier.formats import load

        history = load(options.path, options.format)
        loaded = perf_counter() - started
        from mussurana.verifier.engine.check import check
        from mussurana.verifier.verdict import Accepted, Rejected, Settings

        settings = Settings(options.level, not options.no_session_order, options.clock_drift)
        result = check(history, settings, solver=options.solver, timeout_seconds=options.timeout, report=progress)
        seconds = {"load": loaded, **result.seconds, "total": loaded + result.seconds["total"]}
        result = replace(result, seconds=seconds)
        progress("writing")
        for path in options.report:
            if path.suffix in (".svg", ".dot") and not isinstance(result.verdict, Rejected):
                print(f"{path}: not written, there is no counterexample to draw", file=sys.stderr)
            else:
                path.write_text(rendered(result, options.path, path.suffix), encoding="utf-8")
        if options.certificate:
            write_certificate(result, history, options.certificate)
    print(rendered(result, options.path, ".json" if options.json else ".txt", sys.stdout.isatty()), end="")
    if isinstance(result.verdict, Accepted):
        return ACCEPTED
    return REJECTED if isinstance(result.verdict, Rejected) else UNKNOWN


def rendered(result: Result, source: str, suffix: str, color: bool = False) -> str:
    """The result in the notation that a file name asks for."""
    if suffix == ".json":
        from mussurana.verifier.render.json import result_json

        return json.dumps(result_json(result)) + "\n"
    if suffix == ".html":
        from mussurana.verifier.render.html import report_html

        return report_html(result, source)
    if suffix == ".svg":
        from mussurana.verifier.render.svg import counterexample_svg

        return counterexample_svg(counterexample(result))
    if suffix == ".dot":
        from mussurana.verifier.render.dot import counterexample_dot

        return counterexample_dot(counterexample(result))
    from mussurana.verifier.render.text import result_text

    return result_text(result, source, color).rstrip("\n") + "\n"


def counterexample(result: Result) -> Counterexample:
    from mussurana.verifier.verdict import Rejected

    assert isinstance(result.verdict, Rejected)
    return result.verdict.counterexample


def write_certificate(result: Result, history: History, path: Path) -> None:
    from mussurana.verifier.certificate import certificate

    path.write_text(json.dumps(certificate(result, history)) + "\n", encoding="utf-8")


def run_audit(options: argparse.Namespace) -> int:
    from mussurana.verifier.audit import audit
    from mussurana.verifier.certificate import read_certificate
    from mussurana.verifier.formats import load

    outcome = audit(read_certificate(options.certificate), load(options.history, options.format))
    print(outcome.message)
    return 0 if outcome.ok else 1


def run_convert(options: argparse.Namespace) -> int:
    from mussurana.verifier.formats import load, save

    history = load(options.source, options.source_format)
    lost = save(history, options.target, options.target_format)
    print(f"{history.txn_count} transactions, {history.op_count} operations: {options.target}")
    for left_out in (*history.left_out, *lost):
        print(f"left out: {left_out.count} x {left_out.what}")
    return 0
