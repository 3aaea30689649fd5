"""The text format: lines of an operation each, with numbers and names that nobody writes."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from mussurana.verifier.formats import load
from mussurana.verifier.history import HistoryError
from tests.inputs.damage import damaged, number
from tests.inputs.reader import Files, Reader, use
from tests.inputs.samples import saved

NAME = "history.txt"


def make(rng: Random) -> Files:
    content = saved(rng, "text", NAME)[NAME]
    if rng.random() < 0.7:
        lines = content.decode().split("\n")
        for _ in range(rng.choice((1, 2, 4))):
            change(rng, lines)
        content = "\n".join(lines).encode(errors="surrogatepass")
    if rng.random() < 0.4:
        content = damaged(rng, content)
    return {NAME: content}


def change(rng: Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    fields = list(re.finditer(r"[^(),]+", lines[at]))
    how = rng.choice(("field", "field", "field", "again", "swap", "drop"))
    if how == "again":
        lines[at:at] = [lines[at]] * rng.choice((1, 2, 2_000))
    elif how == "swap":
        lines.insert(rng.randrange(len(lines)), lines.pop(at))
    elif how == "drop" and len(lines) > 1:
        del lines[at]
    elif fields:
        start, end = rng.choice(fields).span()
        new = rng.choice((str(number(rng)), str(number(rng)), "-1", "\u0663", "x" * 10_000, "9" * 5_000, "-", "\x00"))
        lines[at] = lines[at][:start] + new + lines[at][end:]


def read(files: Files, folder: Path, rng: Random) -> str:
    return use(load(folder / NAME), folder, rng)


READER = Reader("text", make, read, (HistoryError,))
