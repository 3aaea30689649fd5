"""The `mussurana` command. Parsing and printing only; what it calls is imported late, so that --help is quick."""

from __future__ import annotations

import argparse
import io
import json
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from mussurana.verifier.commands import ask, demo, replay, serve
from mussurana.verifier.commands.base import (
    ACCEPTED,
    BAD_INPUT,
    INTERRUPTED,
    REJECTED,
    UNKNOWN,
    CommandError,
    OutputError,
    Parser,
    add_database,
    code_of,
    complain,
    duration_ns,
    duration_seconds,
    listed,
    open_closed_streams,
    output_path,
    say,
    terminal_columns,
)
from mussurana.verifier.levels import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mussurana.verifier.commands.base import Commands
    from mussurana.verifier.formats import Recording
    from mussurana.verifier.history import History
    from mussurana.verifier.verdict import Counterexample, Result

# As in formats/ and solvers/, which would bring numpy and numba with them.
FORMATS = {
    "mussurana": "our own: *.mus",
    "cobra": "Cobra client logs: a folder with a *.log file for each session",
    "dbcop": "dbcop: history.bincode, or the folder it is in",
    "elle-edn": "Jepsen / Elle, list-append and rw-register: *.edn",
    "elle-json": "the same in JSON: *.json, *.jsonl",
    "spool": "what collectors recorded: a folder with *.seg, or with folders of them; read only",
    "text": "r(k,v,s,t) and w(k,v,s,t) of PolySI, Plume and AWDIT: *.txt",
    "viper": "Viper's JSON logs: a folder with J*.log or json/J*.log",
}
SOLVERS = ("own", "python-sat", "z3", "monosat")
REPORT_SUFFIXES = (".html", ".svg", ".dot", ".json", ".txt")


def report_path(text: str) -> Path:
    if Path(text).suffix not in REPORT_SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r} has to end in one of {', '.join(REPORT_SUFFIXES)}")
    return output_path(text)


def parser() -> Parser:
    top = Parser(
        prog="mussurana",
        description="Says whether a recorded history has the isolation its database promised, with a proof either way.",
    )
    top.add_argument("--version", action="version", version=f"mussurana {version('mussurana-verifier')}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    add_check(commands)
    add_audit(commands)
    add_convert(commands)
    for module in (serve, ask, replay, demo):
        module.add(commands)
    add_collector(commands)
    return top


def add_check(commands: Commands) -> None:
    command = commands.add_parser(
        "check",
        help="check a history at an isolation level",
        description="Check a history at an isolation level.",
        epilog="\n\n".join(
            (
                listed("levels", {level.name: level.summary for level in LEVELS.values()}),
                listed("formats", FORMATS),
                listed("exit codes", {"0": "accepted", "1": "rejected", "2": "unknown", "3": "bad input"}),
            )
        ),
    )
    command.set_defaults(run=run_check, parser=command)
    command.add_argument("path", metavar="HISTORY", help="a file or folder with a history")
    command.add_argument(
        "--level",
        choices=LEVELS,
        default="serializable",
        metavar="LEVEL",
        help="what the database promises (default: %(default)s)",
    )
    add_format(command, "--format", "format", "recognised from the path")
    add_database(command, "default: each that was recorded there, one after the other")
    command.add_argument("--json", action="store_true", help="print the result as one JSON object")
    command.add_argument(
        "--report",
        type=report_path,
        action="append",
        default=[],
        metavar="FILE",
        help=f"also write the result to a file ({', '.join(REPORT_SUFFIXES)}); may be given more than once",
    )
    command.add_argument(
        "--certificate", type=output_path, metavar="FILE", help="write the proof, for `mussurana audit`"
    )
    command.add_argument(
        "--timeout", type=duration_seconds, metavar="SECONDS", help="give up searching after this time (default: never)"
    )
    command.add_argument(
        "--clock-drift",
        type=duration_ns,
        default=100_000_000,
        metavar="DURATION",
        help="how far the clocks of two clients may be apart (default: 100ms)",
    )
    command.add_argument("--no-session-order", action="store_true", help="let a session's transactions be reordered")
    command.add_argument(
        "--solver",
        choices=SOLVERS,
        default="own",
        metavar="SOLVER",
        help=f"what searches where pruning ends: {', '.join(SOLVERS)} (default: %(default)s)",
    )


def add_audit(commands: Commands) -> None:
    command = commands.add_parser(
        "audit",
        help="check the proof of a verdict",
        description="Replay the witness of an accepted history, or refute the counterexample of a rejected one,\n"
        "with code that shares nothing with the engine.",
        epilog=listed(
            "exit codes", {"0": "the proof holds", "1": "it is rejected", "2": "it cannot be told", "3": "bad input"}
        ),
    )
    command.set_defaults(run=run_audit, parser=command)
    command.add_argument("certificate", metavar="CERTIFICATE", type=Path, help="what `check --certificate` wrote")
    command.add_argument("history", metavar="HISTORY", help="the history that it is about")
    add_format(command, "--format", "format", "recognised from the path")
    add_database(command, "needed if there are several")


def add_convert(commands: Commands) -> None:
    command = commands.add_parser(
        "convert",
        help="translate a history between formats",
        description="Translate a history between formats, and say what is lost on the way.",
        epilog=listed("formats", FORMATS),
    )
    command.set_defaults(run=run_convert, parser=command)
    command.add_argument("source", metavar="SOURCE", help="a file or folder with a history")
    command.add_argument("target", metavar="TARGET", help="the file or folder to write")
    add_format(command, "--from", "source_format", "recognised from the path")
    add_database(command, "needed if there are several")
    add_format(command, "--to", "target_format", "by how its name ends")


def add_collector(commands: Commands) -> None:
    """The collector's own commands, where it is installed beside the verifier."""
    try:
        from mussurana.collector.adopt_command import add_commands
    except ImportError:
        return
    add_commands(commands)


def add_format(command: Parser, option: str, name: str, default: str) -> None:
    command.add_argument(option, dest=name, choices=FORMATS, metavar="FORMAT", help=f"its format (default: {default})")


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code, which is 1 only where something was rejected."""
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack letters that names in a history have
        sys.stdout.reconfigure(errors="backslashreplace")
    name = "mussurana"
    try:
        options, unknown = parser().parse_known_args(arguments)
        if unknown:
            options.parser.error(f"unknown arguments: {' '.join(unknown)}")
        name = f"mussurana {options.command}"
        return run(options)
    except KeyboardInterrupt:
        complain(f"{name}: interrupted")
        return INTERRUPTED
    except MemoryError:
        complain(f"{name}: there is not enough memory")
    except Exception:  # Python itself would exit with 1 for it
        with suppress(Exception):
            complain(f"{traceback.format_exc()}{name}: this is a mistake in mussurana, please report it")
    return BAD_INPUT


def run(options: argparse.Namespace) -> int:
    from mussurana.verifier.history import HistoryError

    try:
        code: int = options.run(options)
        return code
    except (HistoryError, CommandError, ImportError) as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    complain(f"mussurana {options.command}: {message}")
    return BAD_INPUT


def run_check(options: argparse.Namespace) -> int:
    from mussurana.verifier.progress import working

    with working() as progress:
        from mussurana.verifier.formats import load, recordings

        progress("loading")
        started = perf_counter()
        found = [] if options.database else recordings(options.path, options.format)
        if len(found) <= 1:
            load_it = partial(load, options.path, options.format, options.database)
            result, history = checked(options, load_it, started, progress, partial(tell, options))
    return check_each(options, found) if len(found) > 1 else tell(options, result, history)


def check_each(options: argparse.Namespace, found: Sequence[Recording]) -> int:
    """Check what was recorded of several databases, each on its own."""
    from mussurana.verifier.commands.several import Several
    from mussurana.verifier.history import HistoryError
    from mussurana.verifier.progress import working

    if options.report or options.certificate:
        names = ", ".join(each.name for each in found)
        raise CommandError(
            f"{options.path}: a report or certificate is about one history, and {len(found)} databases were recorded "
            f"here; say which one with --database: {names}"
        )
    verdicts = Several(options.path, options.json, rendered)
    for each in found:

        def give_up(result: Result, history: History, each: Recording = each) -> int:
            verdicts.tell(each, result)
            return verdicts.end()

        try:
            with working() as progress:
                result, _ = checked(options, each.read, perf_counter(), progress, give_up)
            verdicts.tell(each, result)
        except (HistoryError, OSError) as error:
            complain(f"mussurana check: {each.name}: {error}")
            verdicts.fail(each, str(error))
    return verdicts.end()


def checked(
    options: argparse.Namespace,
    load: Callable[[], History],
    started: float,
    progress: Callable[[str], None],
    tell: Callable[[Result, History], int],
) -> tuple[Result, History]:
    """What a history is like. If it takes far too long, `tell` says so, and the process ends with its exit code."""
    from mussurana.verifier.engine.check import check
    from mussurana.verifier.history import HistoryError
    from mussurana.verifier.overtime import ended_by
    from mussurana.verifier.verdict import Result, Settings, Unknown

    progress("loading")
    history = load()
    loaded = perf_counter() - started
    if not history.txn_count:  # it would pass, and a recording that failed would go unnoticed
        raise HistoryError(f"{options.path}: there is no transaction to check")
    settings = Settings(options.level, not options.no_session_order, options.clock_drift)

    def give_up() -> int:
        reason = f"no answer within {options.timeout:g} seconds, nor long after that. Try a longer --timeout."
        result = Result(Unknown(reason), settings, history.txn_count, len(history.session_names))
        seconds = {"load": loaded, "total": perf_counter() - started}
        return tell(replace(result, seconds=seconds), history)

    with ended_by(options.timeout, give_up):
        result = check(history, settings, solver=options.solver, timeout_seconds=options.timeout, report=progress)
    seconds = {"load": loaded, **result.seconds, "total": loaded + result.seconds["total"]}
    return replace(result, seconds=seconds), history


def tell(options: argparse.Namespace, result: Result, history: History) -> int:
    """Print the verdict, write the files, and return the exit code."""
    from mussurana.verifier.verdict import Rejected

    # First of all the verdict: it is there even if a file cannot be written.
    say(rendered(result, options.path, ".json" if options.json else ".txt", terminal_columns()))
    for path in options.report:
        if path.suffix in (".svg", ".dot") and not isinstance(result.verdict, Rejected):
            complain(f"{path}: not written, there is no counterexample to draw")
        else:
            write(path, rendered(result, options.path, path.suffix))
    if options.certificate:
        from mussurana.verifier.certificate import certificate

        write(options.certificate, json.dumps(certificate(result, history)) + "\n")
    return code_of(result)


def run_audit(options: argparse.Namespace) -> int:
    from mussurana.verifier.progress import working

    with working() as progress:
        from mussurana.verifier.audit import audit
        from mussurana.verifier.certificate import read_certificate
        from mussurana.verifier.formats import load

        progress("loading")
        certificate = read_certificate(options.certificate)
        history = load(options.history, options.format, options.database)
        progress("auditing")
        outcome = audit(certificate, history)
    said, code = {
        True: ("the proof holds", ACCEPTED),
        False: ("the proof does not hold", REJECTED),
        None: ("it cannot be told whether the proof holds", UNKNOWN),
    }[outcome.ok]
    say(f"{said}: {outcome.message}\n")
    return code


def run_convert(options: argparse.Namespace) -> int:
    from mussurana.verifier.progress import working

    with working() as progress:
        from mussurana.verifier.formats import load, save

        progress("loading")
        history = load(options.source, options.source_format, options.database)
        progress("writing")
        lost = save(history, options.target, options.target_format)
    lines = [f"{options.target}: {history.txn_count:,} transactions, {history.op_count:,} operations"]
    lines += [f"  left out when reading: {left_out.count:,} × {left_out.what}" for left_out in history.left_out]
    lines += [f"  lost when writing: {left_out.count:,} × {left_out.what}" for left_out in lost]
    say("\n".join(lines) + "\n")
    return 0


def rendered(result: Result, source: str, suffix: str, columns: int | None = None) -> str:
    """The result in the notation that a file name asks for. With `columns` it is for a terminal that has so many."""
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
    from mussurana.verifier.render.text import WIDTH, result_text, width_for

    text = result_text(result, source, columns is not None, width_for(columns or WIDTH))
    return text.rstrip("\n") + "\n"


def counterexample(result: Result) -> Counterexample:
    from mussurana.verifier.verdict import Rejected

    assert isinstance(result.verdict, Rejected)
    return result.verdict.counterexample


def write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from error
