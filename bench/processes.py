"""The command as a person meets it: a whole process, once with kernels in the JIT cache and once without any."""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.worker import Failed
from mussurana.verifier.history import History
from mussurana.verifier.simulate import Workload, blindw, simulate

COMMAND = "import sys; from mussurana.verifier.cli import main; sys.exit(main())"  # as the installed script does
LEVEL = "serializable"
DECIDED = (0, 1)  # exit codes: accepted, rejected
_OUTERMOST_IMPORT = re.compile(r"import time:\s+\d+ \|\s+(\d+) \| \S")  # indented names are imported by another one


@dataclass(frozen=True)
class ProcessScenario:
    name: str
    path: Path
    make: Callable[[], History] | None = None
    cached: bool = True  # whether kernels are in the JIT cache
    level: str = LEVEL

    @property
    def short_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class ProcessMeasurement:
    transactions: int
    verdict: str
    walls: list[float]
    cpu_totals: list[float]  # of every run, the time that the core really was ours
    import_seconds: float | None = None

    @property
    def wall_seconds(self) -> float:
        return min(self.walls)

    @property
    def core_share(self) -> float:
        """As for checks. A process also waits for files, but these are in the page cache."""
        wall, cpu = min(zip(self.walls, self.cpu_totals, strict=True))
        return cpu / wall

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.walls)


def process_scenarios(recorded_10k: Path | None, directory: Path) -> Iterator[ProcessScenario]:
    """With the recorded BlindW-RW history of 10k transactions if there is one, else with one of that size."""
    small = partial(simulate, "snapshot", Workload(sessions=6, transactions=300, keys=40, skew=0.5, seed=0))
    large = None if recorded_10k else partial(blindw, 24, 10_000, 10_000, 8, 0.5)
    large_path = recorded_10k or directory / "blindw-10k.mus"
    yield ProcessScenario("command-10k", large_path, large)
    yield ProcessScenario("first-use-small", directory / "small.mus", small, cached=False)
    yield ProcessScenario("first-use-10k", large_path, large, cached=False)


def measure_process(scenario: ProcessScenario, repeat: int) -> ProcessMeasurement:
    return measure_cached(scenario.path, repeat) if scenario.cached else measure_first_use(scenario.path)


def measure_cached(path: Path, repeat: int) -> ProcessMeasurement:
    run(path)  # fills the cache
    results = [run(path) for _ in range(repeat)]
    return ProcessMeasurement(
        results[0].transactions,
        results[0].verdict,
        walls=[result.wall_seconds for result in results],
        cpu_totals=[result.cpu_totals[0] for result in results],
        import_seconds=min(import_seconds(run_command(path, "-X", "importtime").stderr) for _ in range(repeat)),
    )


def measure_first_use(path: Path) -> ProcessMeasurement:
    """Once only: the second time is no first use."""
    with tempfile.TemporaryDirectory() as cache:
        result = run(path, {"NUMBA_CACHE_DIR": cache})
        if not any(Path(cache).iterdir()):
            raise Failed("nothing was compiled, so this was not a first use")
    return result


def run(path: Path, environment: dict[str, str] | None = None) -> ProcessMeasurement:
    started, cpu_started = perf_counter(), children_cpu_seconds()
    done = run_command(path, environment=environment)
    wall, cpu = perf_counter() - started, children_cpu_seconds() - cpu_started
    result = json.loads(done.stdout)
    return ProcessMeasurement(result["transactions"], result["verdict"], [wall], [cpu])


def children_cpu_seconds() -> float:
    """Of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_command(
    path: Path, *python_options: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *python_options, "-c", COMMAND, "check", str(path.resolve()), "--level", LEVEL, "--json"],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in DECIDED:
        raise Failed((done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1])
    return done


def import_seconds(importtime: str) -> float:
    """All imports of a process, at any time of its life, from what -X importtime printed."""
    return sum(int(microseconds) for microseconds in _OUTERMOST_IMPORT.findall(importtime)) / 1e6
