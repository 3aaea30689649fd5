"""Inputs that are damaged or made by an enemy, for every reader: refused or read, in bounded time and memory.

    python -m tests.inputs                                an hour, shared by all readers
    python -m tests.inputs --seconds 300 --only mus
    python -m tests.inputs --only mus --seed 12345 --cases 1      one case again
    python -m tests.inputs --replay out/inputs/mus-12345          one that failed, as it was

Every case follows from its number. One that fails is stored, and told once for each place in the program.
"""

from __future__ import annotations

import argparse
import logging
import re
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic

from tests.inputs import (
    certificate,
    checkpoint,
    cobra,
    dbcop,
    elle,
    fragment,
    log,
    mus,
    shipper,
    spool,
    text,
    viper,
)
from tests.inputs.confined import Confined, End, Outcome
from tests.inputs.reader import Reader, files_in, write

READERS = {
    reader.name: reader
    for reader in (
        mus.READER, spool.READER, checkpoint.READER, certificate.READER, fragment.READER, log.READER, shipper.READER,
        cobra.READER, dbcop.READER, elle.EDN, elle.JSON, text.READER, viper.READER,
    )
}  # fmt: skip

SECONDS_DEFAULT = 3600.0
PROGRESS_SECONDS = 60.0
FAILURES_SHOWN_MAX = 20  # of one reader; it has to be looked at then
OUT = Path("out/inputs")
WARM_UP_CASES = 2
PLACE = re.compile(r'(?:File "|  )[^"\n]*?((?:mussurana|tests)/[\w/]+\.py)", line (\d+)')


@dataclass
class Tally:
    ends: Counter[End] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)  # of failures

    def __str__(self) -> str:
        return ", ".join(f"{number:,} {end}" for end, number in self.ends.most_common())


def work(name: str) -> tuple[End, str]:
    """A case by its name: "mus 12345", or "mus out/inputs/mus-12345"."""
    reader, what = name.split(" ", 1)
    files = READERS[reader].case(int(what)) if what.isdecimal() else files_in(Path(what))
    return READERS[reader].attempt(files)


def place_of(outcome: Outcome) -> str:
    """Where in the program a case failed: the innermost line of ours, and how."""
    found = [(file, line) for file, line in PLACE.findall(outcome.message) if "mussurana/" in file]
    first_is_innermost = outcome.end in ("slow", "died")
    where = ":".join(found[0 if first_is_innermost else -1]) if found else outcome.message[:60]
    return f"{outcome.end} {where}"


def store(reader: str, seed: int) -> Path:
    folder = OUT / f"{reader}-{seed}"
    write(READERS[reader].case(seed), folder)
    return folder


def report(reader: Reader, seed: int, outcome: Outcome) -> None:
    folder = store(reader.name, seed)
    print(f"FAILED  {reader.name}, case {seed}: {outcome.end}")
    print("  " + outcome.message.strip().replace("\n", "\n  "))
    print(f"  replay  python -m tests.inputs --only {reader.name} --seed {seed} --cases 1")
    print(f"          python -m tests.inputs --replay {folder}", flush=True)


def run(reader: Reader, seeds: Iterator[int], until: float, confined: Confined) -> Tally:
    tally = Tally()
    shown = monotonic()
    for seed in seeds:
        if monotonic() >= until or len(tally.places) >= FAILURES_SHOWN_MAX:
            break
        outcome = confined.run(f"{reader.name} {seed}")
        tally.ends[outcome.end] += 1
        if outcome.is_failure:
            where = place_of(outcome)
            tally.places[where] += 1
            if tally.places[where] == 1:
                report(reader, seed, outcome)
        if monotonic() - shown >= PROGRESS_SECONDS:
            shown = monotonic()
            print(f"{reader.name}: {tally}", file=sys.stderr, flush=True)
    return tally


def replay(folder: Path) -> int:
    reader = folder.name.rpartition("-")[0]
    if reader not in READERS or not folder.is_dir():
        print(f"{folder}: expected a folder such as {OUT}/mus-12345, which a run has stored", file=sys.stderr)
        return 2
    confined = Confined(work)
    outcome = confined.run(f"{reader} {folder}")
    confined.end()
    print(f"{reader}: {outcome.end}" + (f"\n{outcome.message}" if outcome.message else ""))
    return int(outcome.is_failure)


def warm_up(readers: list[Reader]) -> None:
    """Compile and load what is used, so that workers have it from their start. In a worker first: it may fail."""
    confined = Confined(work)
    for reader in readers:
        for seed in range(WARM_UP_CASES):
            if not confined.run(f"{reader.name} {seed}").is_failure:
                work(f"{reader.name} {seed}")
    confined.end()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.inputs", description="Damaged and forged inputs.")
    parser.add_argument("--seconds", type=float, help=f"for all readers together (default {SECONDS_DEFAULT:g})")
    parser.add_argument("--cases", type=int, help="of each reader (default: as many as there is time for)")
    parser.add_argument("--only", choices=READERS, action="append", metavar="READER", help=", ".join(READERS))
    parser.add_argument("--seed", type=int, help="the number of the first case (default: a random one)")
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="read this input again")
    options = parser.parse_args(arguments)
    if options.replay:
        return replay(options.replay)
    first = secrets.randbelow(10**12) if options.seed is None else options.seed
    readers = [READERS[name] for name in options.only or READERS]
    seconds = options.seconds or (float("inf") if options.cases else SECONDS_DEFAULT)
    warm_up(readers)
    failures = 0
    confined = Confined(work)
    try:
        for reader in readers:
            seeds = iter(range(first, first + options.cases)) if options.cases else count(first)
            tally = run(reader, seeds, monotonic() + seconds / len(readers), confined)
            failures += len(tally.places)
            print(f"{reader.name:12} {sum(tally.ends.values()):8,} cases from {first} on: {tally}", flush=True)
            for where, number in tally.places.most_common():
                print(f"{'':12} {number:8,} times {where}", flush=True)
    finally:
        confined.end()
    return int(failures > 0)


if __name__ == "__main__":
    logging.disable()  # the daemon tells its log what it passes over
    sys.exit(main())
