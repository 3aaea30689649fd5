"""Engine and auditor against brute force on random histories, as many as you have time for.

    python -m tests.fuzz                              a million cases, on all cores
    python -m tests.fuzz --seconds 600 --level strong-si
    python -m tests.fuzz --seed 12345 --cases 1       one case again

Every case follows from its number. A failure is made smaller and printed in the notation of tests/notation.py.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from functools import partial
from itertools import count
from multiprocessing import get_context

from mussurana.verifier import check
from mussurana.verifier.certificate import certificate
from mussurana.verifier.history import History
from mussurana.verifier.verdict import Settings
from tests.audit.forging import upheld_forgery
from tests.fuzz.case import complaint, make
from tests.fuzz.shrink import shrink
from tests.notation import show
from tests.random_history import LEVELS

Work = Callable[[range], tuple[int, int | None]]

CASES_DEFAULT = 1_000_000
CHUNK_CASES = 100  # often enough for a progress line, seldom enough for the processes to be busy with cases


def try_case(history: History, settings: Settings) -> str:
    """The complaint about a case; a crash of the engine is one, too."""
    try:
        return complaint(history, settings) or upheld_forgery(history, certificate(check(history, settings), history))
    except Exception:
        return f"the check failed: {traceback.format_exc()}"


def first_failure(level: str | None, seeds: range) -> tuple[int, int | None]:
    """How many cases were tried, and the seed that failed."""
    for done, seed in enumerate(seeds, start=1):
        if try_case(*make(seed, level)):
            return done, seed
    return len(seeds), None


def chunks(seed: int, cases: int | None, deadline: float) -> Iterator[range]:
    """Ranges of seeds, until there are enough or time is over."""
    end = None if cases is None else seed + cases
    for start in count(seed, CHUNK_CASES):
        if (end is not None and start >= end) or time.monotonic() >= deadline:
            return
        yield range(start, start + CHUNK_CASES if end is None else min(start + CHUNK_CASES, end))


def results(work: Work, todo: Iterator[range], jobs: int) -> Iterator[tuple[int, int | None]]:
    """Do the work in several processes, with little of it handed out ahead, so that it can end at any time."""
    if jobs == 1:
        yield from map(work, todo)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        waiting: set[Future[tuple[int, int | None]]] = set()
        for seeds in todo:
            waiting.add(pool.submit(work, seeds))
            if len(waiting) == 2 * jobs:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in as_completed(waiting))


def report(seed: int, level: str | None) -> None:
    history, settings = make(seed, level)
    print(f"FAILED  {settings.level}, case {seed}: {try_case(history, settings)}")
    print(f"  settings   session order {settings.session_order}, clock drift {settings.clock_drift_ns / 1e9:g} s")
    print(f"  history    {show(history)}")
    print(f"  smaller    {shrink(history, lambda smaller: bool(try_case(smaller, settings)))}")
    print(f"  reproduce  python -m tests.fuzz --seed {seed} --cases 1" + (f" --level {level}" if level else ""))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Engine against brute force.")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument(
        "--cases", type=int, help=f"stop after so many cases (default {CASES_DEFAULT}, or by --seconds)"
    )
    parser.add_argument("--seed", type=int, help="the number of the first case (default: a random one)")
    parser.add_argument("--level", choices=LEVELS, help="only this level (default: a random one for each case)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(10**12) if options.seed is None else options.seed
    cases = CASES_DEFAULT if options.cases is None and options.seconds is None else options.cases
    started = time.monotonic()
    deadline = started + (options.seconds or float("inf"))

    try_case(*make(seed, options.level))  # compile once, before there are several processes
    tried = 0
    shown = started
    for done, failed in results(partial(first_failure, options.level), chunks(seed, cases, deadline), options.jobs):
        tried += done
        if failed is not None:
            report(failed, options.level)
            return 1
        now = time.monotonic()
        if sys.stderr.isatty() and now - shown >= 1:
            shown = now
            print(f"\r{tried} cases, {tried / (now - started):.0f} per second", end="", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    print(f"{tried} cases from {seed} on, no failure, {seconds:.0f} s, {tried / max(seconds, 1e-9):.0f} per second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
