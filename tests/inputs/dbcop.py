"""dbcop's files: counts that say more than there is, and numbers at the ends of their range."""

from __future__ import annotations

from pathlib import Path
from random import Random

from mussurana.verifier.formats import load
from mussurana.verifier.history import HistoryError
from tests.inputs.damage import damaged, number
from tests.inputs.reader import Files, Reader, use
from tests.inputs.samples import saved

NAME = "history.bincode"


def make(rng: Random) -> Files:
    content = saved(rng, "dbcop", NAME)[NAME]
    for _ in range(rng.choice((1, 1, 2, 4))):
        content = rng.choice((with_count, with_count, damaged))(rng, content)
    return {NAME: content}


def with_count(rng: Random, content: bytes) -> bytes:
    """Where eight bytes hold a small number, such as a count, they hold another one."""
    small = [at for at in range(len(content) - 7) if content[at] < 32 and not any(content[at + 1 : at + 8])]
    if not small:
        return content
    at = rng.choice(small)
    new = rng.choice((number(rng), content[at] + 1, content[at] - 1, 0))
    return content[:at] + (new % (1 << 64)).to_bytes(8, "little") + content[at + 8 :]


def read(files: Files, folder: Path, rng: Random) -> str:
    return use(load(folder / NAME), folder, rng)


READER = Reader("dbcop", make, read, (HistoryError,))
