"""Rounds against one check, on as many random worlds as you have time for.

    python -m tests.rounds                            a hundred thousand cases
    python -m tests.rounds --seconds 600
    python -m tests.rounds --seed 12345 --cases 1     one case again
    python -m tests.rounds --loss                     no false alarm, whatever gets lost on the way

Every case follows from its number. A failure is made smaller and told with the line that replays it.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections import Counter
from itertools import count

from tests.notation import show
from tests.rounds.equality import Case, make_case, run
from tests.rounds.loss import LossCase, keeps_promise, make_loss, run_loss
from tests.rounds.shrink import shrink

CASES_DEFAULT = 100_000
PROGRESS_SECONDS = 60  # where nobody watches; on a terminal, every second


def complaint(case: Case | LossCase, traits: Counter[str] | None = None) -> str:
    """What is wrong with a case; a crash of the machine is, too."""
    try:
        done = run(case) if isinstance(case, Case) else run_loss(case)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {where.name}: {error}"
    if traits is not None:
        traits.update(done.traits)
    return done.complaint


def report(case: Case | LossCase) -> None:
    told = complaint(case)
    print(f"FAILED  case {case.seed}: {told}")
    print(f"  replay    {case.replay}")
    if isinstance(case, Case):
        case = shrink(case, make_case, lambda smaller: complaint(smaller) == told)
    else:
        case = shrink(case, make_loss, lambda smaller: "rejected" in complaint(smaller) and keeps_promise(smaller))
    print(f"  smaller   {case.replay}")
    print(f"  history   {show(case.world.history())}")
    print(f"  settings  {case.settings}, {case.limits}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rounds", description="Rounds against one check.")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument(
        "--cases", type=int, help=f"stop after so many cases (default {CASES_DEFAULT}, or by --seconds)"
    )
    parser.add_argument("--seed", type=int, help="the number of the first case (default: a random one)")
    parser.add_argument("--without", default="", help="parts of the case to leave out, as a failure tells them")
    parser.add_argument("--loss", action="store_true", help="much gets lost: the rounds must never reject")
    parser.add_argument("--traits", action="store_true", help="say how many worlds met what")
    options = parser.parse_args(arguments)
    first = secrets.randbelow(10**12) if options.seed is None else options.seed
    cases = CASES_DEFAULT if options.cases is None and options.seconds is None else options.cases
    without = frozenset(filter(None, options.without.split(",")))
    started = shown = time.monotonic()
    traits: Counter[str] = Counter()
    case: Case | LossCase
    tried = 0
    for seed in count(first):
        now = time.monotonic()
        if tried == cases or (options.seconds and now - started >= options.seconds):
            break
        case = make_loss(seed, without) if options.loss else make_case(seed, without)
        if complaint(case, traits):
            report(case)
            return 1
        tried += 1
        if now - shown >= (1 if sys.stderr.isatty() else PROGRESS_SECONDS):
            shown, end = now, "" if sys.stderr.isatty() else "\n"
            print(f"\r{tried} cases, {tried / (now - started):.0f} per second", end=end, file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    print(f"{tried} cases from {first} on, no failure, {seconds:.0f} s, {tried / max(seconds, 1e-9):.0f} per second")
    if options.traits:
        print(", ".join(f"{trait} {number}" for trait, number in sorted(traits.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
