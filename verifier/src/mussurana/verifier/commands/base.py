"""What all commands share: parsing, exit codes, printing. Nothing here takes long to import."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeAlias

if TYPE_CHECKING:
    from mussurana.verifier.verdict import Result

    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

ACCEPTED, REJECTED, UNKNOWN, BAD_INPUT = range(4)  # 1 means that something was rejected, and nothing else exits with it
INTERRUPTED = 130  # as shells have it: 128 and the number of the signal

SECONDS_MAX = 1e9  # some thirty years; in nanoseconds it still fits into 63 bits

_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "": 10**9}


class CommandError(Exception):
    """What a command cannot do. The message is all that its user needs to see."""


class OutputError(CommandError):
    """Something could not be written. The message names it and says why."""


class Parser(argparse.ArgumentParser):
    def __init__(self, **settings: object) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """One line and the exit code for bad input: argparse's own would mean `unknown`."""
        self.exit(BAD_INPUT, f"{self.prog}: {message}\nSee {self.prog} --help\n")


def add_database(command: Parser, default: str) -> None:
    """The option that chooses among what collectors recorded in one place."""
    command.add_argument(
        "--database",
        default="",
        metavar="NAME",
        help="only what collectors recorded of this database: its name, the end of its name, or its identity "
        f"({default})",
    )


def code_of(result: Result) -> int:
    """The exit code that says a verdict."""
    from mussurana.verifier.verdict import Accepted, Rejected

    if isinstance(result.verdict, Accepted):
        return ACCEPTED
    return REJECTED if isinstance(result.verdict, Rejected) else UNKNOWN


def duration_ns(text: str) -> int:
    """A duration such as 100ms, 1.5s or 2 (seconds), in nanoseconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write it like 100ms, 1.5s or 0")
    ns = float(match[1]) * _UNITS_NS[match[2]]
    if ns > SECONDS_MAX * 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than any duration that is of use here")
    return round(ns)


def duration_seconds(text: str) -> float:
    return duration_ns(text) / 1e9


def output_path(text: str) -> Path:
    """A file that can be written, as far as one can tell before the work that it is for, and without making it."""

    def refuse(why: str) -> argparse.ArgumentTypeError:
        return argparse.ArgumentTypeError(f"{text!r} cannot be written: {why}")

    path = Path(text)
    try:
        if not path.parent.is_dir():
            raise refuse(f"there is no folder {str(path.parent)!r}")
        if path.is_dir():
            raise refuse("it is a folder")
        if not (os.access(path, os.W_OK) if path.exists() else os.access(path.parent, os.W_OK | os.X_OK)):
            raise refuse("permission denied, or on a file system that is read-only")
    except OSError as error:  # a name that is too long, a parent that cannot be entered
        raise refuse(str(error.strerror)) from None
    return path


def listed(title: str, entries: dict[str, str]) -> str:
    width = max(map(len, entries))
    return f"{title}:\n" + "\n".join(f"  {name:<{width}}  {what}" for name, what in entries.items())


def terminal_columns() -> int | None:
    """How wide the terminal is that we print to; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str) -> None:
    """Print. A reader who has seen enough, such as `head -1`, changes nothing about the verdict."""
    try:
        print(text, end="", flush=True)
    except OSError as error:
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"standard output: {error.strerror}") from error


def complain(text: str) -> None:
    """Print a line on stderr, if anybody can read it: that nobody can changes no exit code."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Let go of what could not be written: it is still in Python's buffer, and would fail once more at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_closed_streams() -> None:
    """Whoever was started without stdout or stderr prints to nobody, where Python has no file to print to at all."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
