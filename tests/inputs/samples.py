"""Sound inputs to begin with: histories that a format can hold, and the fragments of a deployment."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mussurana.verifier.formats import save
from mussurana.verifier.history import History, HistoryError
from mussurana.wire.history_pb2 import Fragment
from tests.formats.samples import random_history
from tests.formats.test_round_trip import SHAPES
from tests.inputs.damage import number
from tests.inputs.reader import Files, files_in
from tests.random_history import random_history as tiny_history
from tests.rounds.equality import Case, make_case, with_fragments
from tests.rounds.schedule import Action

WORLDS = 400


def history_for(rng: Random, format: str) -> History:
    """One that the format can hold, more or less."""
    if format == "mussurana" and rng.random() < 0.5:
        return tiny_history(rng, duplicates=rng.random() < 0.2)
    shapes = [shape for name, shape in SHAPES.items() if name.split()[0] == format]
    return random_history(rng, rng.choice(shapes))


def saved(rng: Random, format: str, name: str) -> Files:
    """A history as the format has it, in a file or folder of this name."""
    for _ in range(20):
        with TemporaryDirectory(prefix="mussurana-inputs-") as folder:
            try:
                save(history_for(rng, format), Path(folder) / name, format)
            except HistoryError:
                continue
            return files_in(Path(folder))
    raise AssertionError(f"no random history is one for {format}")


def with_extremes(rng: Random, history: History) -> History:
    """The same history with numbers in its columns that no recording has."""
    names = [field.name for field in fields(history) if isinstance(getattr(history, field.name), np.ndarray)]
    changed: dict[str, Any] = {}
    for name in rng.sample(names, rng.choice((1, 1, 2, 4))):
        column = getattr(history, name).copy()
        if name in ("op_start", "list_start") or not len(column):
            continue
        info = np.iinfo(column.dtype)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(column))
            wanted = rng.choice((number(rng), int(rng.choice(column.tolist())), int(column[at]) + rng.choice((-1, 1))))
            column[at] = min(max(wanted, int(info.min)), int(info.max))
        changed[name] = column
    return replace(history, **changed)


@lru_cache(maxsize=64)
def world(seed: int) -> tuple[Case, list[tuple[Action, list[Fragment]]]]:
    """A deployment and what its collectors send, in the order in which it arrives."""
    case = make_case(seed)
    return case, with_fragments(case)


def any_world(rng: Random) -> tuple[Case, list[tuple[Action, list[Fragment]]]]:
    return world(rng.randrange(WORLDS))
