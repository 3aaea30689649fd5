"""Running the command, in this process or in one of its own, on small histories written to files."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier import cli
from mussurana.verifier.formats import save
from tests.notation import h

SERIAL = "[x:=1] | [x==1 y:=2]"
WRITE_SKEW = "[x==_ y:=1] | [y==_ x:=2]"
SEARCHED = "[x:=1 y:=1] [x:=3] | [x:=2 y:=2] | [x==1] | [x==2]"
REPEATED_VALUES = "[x:=1] | [x:=1] | [x==1]"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Command:
    """`mussurana`, called as its entry point calls it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        self._capsys.readouterr()
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as left:  # argparse leaves this way
            code = left.code if isinstance(left.code, int) else 1
        captured = self._capsys.readouterr()
        return Ran(code, captured.out, captured.err)


def process_arguments(*arguments: object) -> list[str]:
    entry_point = "import sys; from mussurana.verifier.cli import main; sys.exit(main())"
    return [sys.executable, "-c", entry_point, *map(str, arguments)]


def in_a_process(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own; `environment` adds to the variables of this one."""
    environment = {**os.environ, **settings.pop("environment", {})}
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    return subprocess.run(
        process_arguments(*arguments), env=environment, text=True, timeout=120, check=False, **settings
    )


def written(path: Path, text: str) -> Path:
    """The path, with the history that the text stands for (see tests/notation.py) in it."""
    save(h(text), path)
    return path
