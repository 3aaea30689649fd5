"""Viper's logs: each line another tree of values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

from mussurana.verifier.formats import load
from mussurana.verifier.history import HistoryError
from tests.inputs.damage import damaged, number, spoiled, with_placeholders
from tests.inputs.reader import Files, Reader, use
from tests.inputs.samples import saved

FOLDER = "history"
INNER_TIMES = re.compile(rb'"(?:postBeginTS|preCommitTS)": \d+, ')


def make(rng: Random) -> Files:
    files = saved(rng, "viper", FOLDER)
    if rng.random() < 0.5:  # what versions are initial is to be found out then
        files = {name: content for name, content in files.items() if "initial" not in name} or files
    if rng.random() < 0.8:  # in one millisecond begins and commits seem to be in any order
        files = {name: INNER_TIMES.sub(b"", content) for name, content in files.items()}
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        name = rng.choice(list(files))
        lines = files[name].decode(errors="replace").splitlines() or ["{}"]
        at = rng.randrange(len(lines))
        try:
            txn = json.loads(lines[at])
        except (ValueError, RecursionError):
            txn = {"value": []}
        if isinstance(txn, dict) and isinstance(txn.get("value"), list) and rng.random() < 0.5:
            txn["value"].append(operation(rng))
            if rng.random() < 0.2:
                txn["isInitial"] = True
        if rng.random() < 0.5:
            txn = spoiled(rng, txn)
        lines[at] = with_placeholders(rng, json.dumps(txn), json.dumps)
        files[name] = "\n".join(lines).encode(errors="surrogatepass")
        if rng.random() < 0.2:
            files[name] = damaged(rng, files[name])
    return files


def operation(rng: Random) -> object:
    """Of one of the kinds that we never write."""
    a, b = rng.randint(0, 5), rng.randint(0, 5)
    row = {"id": a, "val": number(rng)}
    written = {"opType": "w", "key": a, "value": b, "succ": True}
    operations: tuple[object, ...] = (
        ["i", a, b, number(rng), False, True],
        ["d", a, b, 0, True, True],
        ["range", a, b, [row], [row, row]],
        ["range", a, b, [row] * 1_000],
        written,
    )
    return rng.choice(operations)


def read(files: Files, folder: Path, rng: Random) -> str:
    return use(load(folder / FOLDER, "viper"), folder, rng)


READER = Reader("viper", make, read, (HistoryError,))
