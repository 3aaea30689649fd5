"""Measures one scenario in a process of its own, so that memory and caches are those of this scenario only.

A request comes as JSON on stdin, the measurement goes as JSON to stdout. The parent has pinned the process to one core.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time

from bench.memory import give_back_unused, peak_bytes, reset_peak, resident_bytes
from mussurana.verifier import Accepted, Rejected, Settings, check
from mussurana.verifier.formats import load
from mussurana.verifier.history import History, HistoryError
from mussurana.verifier.simulate import blindw

SEARCH_SECONDS_MAX = 60.0  # a history that nobody can decide should not hold up the others
PHASES = ("build", "prune", "solve", "explain")
UNREADABLE = 3  # exit code; stderr says why


class Unreadable(Exception):
    """What looked like a history is none."""


class Failed(Exception):
    """The check itself went wrong."""


@dataclass(frozen=True)
class Measurement:
    transactions: int
    sessions: int  # the most of any history
    verdicts: list[str]  # one per history
    seconds: dict[str, float]  # load, and of the best run: build, prune, solve, explain, total
    totals: list[float]  # of every run
    cpu_totals: list[float]  # of every run, the time that the core really was ours
    loaded_bytes: int  # resident when the history was loaded
    peak_bytes: int  # the most while checking

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.totals)

    @property
    def core_share(self) -> float:
        """The part of the core that the best run had. Below 1, something else ran there, too."""
        total, cpu = min(zip(self.totals, self.cpu_totals, strict=True))
        return cpu / total

    @property
    def memory_bytes(self) -> int:
        """Over the loaded history."""
        return self.peak_bytes - self.loaded_bytes

    @property
    def verdict(self) -> str:
        if len(self.verdicts) == 1:
            return self.verdicts[0]
        return ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(self.verdicts).items()))


@dataclass(frozen=True)
class Run:
    verdicts: list[str]
    seconds: dict[str, float]
    cpu_seconds: float


def measure(paths: Sequence[Path], level: str, repeat: int) -> Measurement:
    settings = Settings(level)
    check(blindw(4, 200, 50, 4, 0.5), settings)  # the machine code of the kernels is not memory of a check
    load_all(paths)
    started = perf_counter()
    histories = load_all(paths)
    load_seconds = perf_counter() - started
    give_back_unused()
    loaded_bytes = resident_bytes()
    run_all(histories, settings)  # what this history needs beyond the small one is compiled, or read from the cache
    reset_peak()
    runs = [run_all(histories, settings) for _ in range(repeat)]
    best = min(runs, key=lambda run: run.seconds["total"])
    return Measurement(
        transactions=sum(history.txn_count for history in histories),
        sessions=max(len(history.session_names) for history in histories),
        verdicts=best.verdicts,
        seconds={"load": load_seconds, **best.seconds},
        totals=[run.seconds["total"] for run in runs],
        cpu_totals=[run.cpu_seconds for run in runs],
        loaded_bytes=loaded_bytes,
        peak_bytes=peak_bytes(),
    )


def load_all(paths: Sequence[Path]) -> list[History]:
    return [load(path) for path in paths]


def run_all(histories: Sequence[History], settings: Settings) -> Run:
    verdicts = []
    seconds = dict.fromkeys((*PHASES, "total"), 0.0)
    cpu_started = process_time()
    for history in histories:
        started = perf_counter()
        result = check(history, settings, timeout_seconds=SEARCH_SECONDS_MAX)
        seconds["total"] += perf_counter() - started  # by our own clock: nothing that `check` does is left out
        for phase in PHASES:
            seconds[phase] += result.seconds[phase]
        verdict = result.verdict
        verdicts.append(
            "accepted" if isinstance(verdict, Accepted) else "rejected" if isinstance(verdict, Rejected) else "unknown"
        )
    return Run(verdicts, seconds, process_time() - cpu_started)


def measure_apart(paths: Sequence[Path], level: str, repeat: int) -> Measurement:
    """`measure` in a fresh process."""
    request = json.dumps({"paths": [str(path.resolve()) for path in paths], "level": level, "repeat": repeat})
    done = subprocess.run(
        [sys.executable, "-m", "bench.worker"],
        cwd=Path(__file__).parent.parent,
        input=request,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return Measurement(**json.loads(done.stdout))
    complaint = (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1]
    raise Unreadable(complaint) if done.returncode == UNREADABLE else Failed(complaint)


def main() -> int:
    request = json.load(sys.stdin)
    try:
        measurement = measure([Path(path) for path in request["paths"]], request["level"], request["repeat"])
    except HistoryError as error:
        print(error, file=sys.stderr)
        return UNREADABLE
    json.dump(asdict(measurement), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
