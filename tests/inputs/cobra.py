"""Cobra's logs: records whose numbers are extreme, and files that break off."""

from __future__ import annotations

from pathlib import Path
from random import Random

from mussurana.verifier.formats import cobra, load
from mussurana.verifier.history import HistoryError
from tests.inputs.damage import damaged, number
from tests.inputs.reader import Files, Reader, use
from tests.inputs.samples import saved

FOLDER = "history"
MEANT = (cobra.LOADED, cobra.ABSENT, cobra.COLLECTING, cobra.NOT_COLLECTING, cobra.NO_WRITE_ID, 2**62, 10**12)
STEMS = ("T", "T99999999999999999999", "T\u0663", "T\u00b2", "J1")


def make(rng: Random) -> Files:
    files = saved(rng, "cobra", FOLDER)
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(list(files))
        files[name] = rng.choice((with_number, with_number, damaged))(rng, files[name])
    if rng.random() < 0.05:
        files[f"{FOLDER}/{rng.choice(STEMS)}.log"] = rng.choice(list(files.values()))
    return files


def with_number(rng: Random, content: bytes) -> bytes:
    """An extreme number, or one with a meaning of its own, right behind a letter that begins a record."""
    starts = [at + 1 + 8 * field for at, byte in enumerate(content) if byte in b"SCRW" for field in range(4)]
    for at in rng.sample(starts, min(len(starts), rng.choice((1, 2, 8)))):
        new = rng.choice(MEANT) if rng.random() < 0.4 else number(rng)
        content = content[:at] + (new % (1 << 64)).to_bytes(8, "big") + content[at + 8 :]
    return content


def read(files: Files, folder: Path, rng: Random) -> str:
    return use(load(folder / FOLDER, "cobra"), folder, rng)


READER = Reader("cobra", make, read, (HistoryError,))
