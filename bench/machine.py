"""Where and of what the figures are: machine, versions, commit, and how busy the machine was."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    cpu: str
    cores: int
    memory_gib: float
    python: str
    numpy: str
    numba: str
    commit: str
    load_before: float  # average number of runnable processes in the minute before

    def line(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores (one used), {self.memory_gib:.0f} GiB; "
            f"Python {self.python}, numpy {self.numpy}, numba {self.numba}; "
            f"commit {self.commit}; load before {self.load_before:.2f}"
        )


def this_machine() -> Machine:
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        python=platform.python_version(),
        numpy=version("numpy"),
        numba=version("numba"),
        commit=_commit(),
        load_before=os.getloadavg()[0],
    )


def use_one_core() -> None:
    """For this process and all that it starts."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit:
        return "unknown"
    return f"{commit} with changes" if _git("status", "--porcelain") else commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
