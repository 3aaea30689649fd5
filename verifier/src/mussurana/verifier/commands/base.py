"""What all commands share: parsing, exit codes, printing. Nothing here takes long to import."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

ACCEPTED, REJECTED, UNKNOWN, BAD_INPUT = range(4)
INTERRUPTED = 130  # as shells have it: 128 and the number of the signal

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


def duration_ns(text: str) -> int:
    """A duration such as 100ms, 1.5s or 2 (seconds), in nanoseconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write it like 100ms, 1.5s or 0")
    return round(float(match[1]) * _UNITS_NS[match[2]])


def duration_seconds(text: str) -> float:
    return duration_ns(text) / 1e9


def output_path(text: str) -> Path:
    """A file that can be written, as far as one can tell before the work that it is for."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: it is a folder")
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
        # What could not be written is still in Python's buffer, and would fail once more, loudly, at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"standard output: {error.strerror}") from error
