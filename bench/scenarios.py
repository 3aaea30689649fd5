"""Which checks are measured: the histories found in a directory, and generated ones whose size is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mussurana.verifier.formats import detect
from mussurana.verifier.history import History, HistoryError
from mussurana.verifier.simulate import blindw, hot_keys

LEVELS = ("serializable", "strong-session-si")
VERDICTS_FILE = "verdicts.csv"
"""A directory with this file is one collection: `history,level,verdict` of another checker, one line each."""


@dataclass(frozen=True)
class Scenario:
    """One history, or a collection of small ones, at one level."""

    name: str
    level: str
    paths: tuple[Path, ...]
    make: Callable[[], History] | None = None  # for a generated one, to be saved at its only path when first needed
    verdicts: Path | None = None  # for a collection: what another checker says

    @property
    def short_name(self) -> str:
        return self.name.rpartition("/")[2]


def recorded(directory: Path) -> Iterator[Scenario]:
    """Every history below a directory, or the directory itself, at each level."""
    for path in _walk(directory):
        name = path.relative_to(directory).as_posix() if path != directory else path.name
        if (path / VERDICTS_FILE).is_file():
            paths = tuple(_histories(path))
            if paths:
                yield from (Scenario(name, level, paths, verdicts=path / VERDICTS_FILE) for level in LEVELS)
        else:
            yield from (Scenario(name, level, (path,)) for level in LEVELS)


def generated(directory: Path) -> Iterator[Scenario]:
    """Histories that satisfy every level, to be saved in `directory`."""
    makers: dict[str, Callable[[], History]] = {
        "hot-keys-50k": partial(hot_keys, 24, 50_000, 20, 4, 0.1),
        "hot-keys-100k": partial(hot_keys, 24, 100_000, 20, 4, 0.1),
        "sessions-1000-reads-50": partial(blindw, 1000, 100_000, 10_000, 8, 0.5),
        "sessions-1000-reads-90": partial(blindw, 1000, 100_000, 10_000, 8, 0.9),
    }
    for name, make in makers.items():
        yield Scenario(f"generated/{name}", "serializable", (directory / f"{name}.mus",), make)


def _walk(directory: Path) -> Iterator[Path]:
    """Histories and collections, without those inside a collection."""
    if (directory / VERDICTS_FILE).is_file() or _is_history(directory):
        yield directory
    elif directory.is_dir():
        for entry in sorted(directory.iterdir()):
            yield from _walk(entry)


def _histories(collection: Path) -> Iterator[Path]:
    for entry in sorted(collection.iterdir()):
        yield from _walk(entry)


def _is_history(path: Path) -> bool:
    try:
        detect(path)
    except HistoryError:
        return False
    return True
