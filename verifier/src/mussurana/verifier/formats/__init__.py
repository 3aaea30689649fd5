"""Histories in files: which formats there are, which one a path holds, and how to read and write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from mussurana.verifier.formats import cobra, dbcop, elle, native, spool, text, viper
from mussurana.verifier.formats.spool import Recording
from mussurana.verifier.history import History, HistoryError, LeftOut

__all__ = ["FORMATS", "Format", "Recording", "detect", "load", "recordings", "save"]


@dataclass(frozen=True)
class Format:
    hint: str  # how the path of such a history looks, for people
    suffixes: tuple[str, ...]  # ends of file names that say which format it is
    read: Callable[[Path], History]
    write: Callable[[History, Path], tuple[LeftOut, ...]] | None


FORMATS: dict[str, Format] = {
    "mussurana": Format("*.mus", (".mus",), native.read, native.write),
    "cobra": Format("a folder with *.log", (), cobra.read, cobra.write),
    "dbcop": Format("history.bincode, or its folder", (".bincode",), dbcop.read, dbcop.write),
    "elle-edn": Format("*.edn", (".edn",), elle.read_edn, elle.write_edn),
    "elle-json": Format("*.json, *.jsonl", (".json", ".jsonl"), elle.read_json, elle.write_json),
    "spool": Format("a folder with *.seg, or with folders of them", (), spool.read, None),
    "text": Format("*.txt", (".txt",), text.read, text.write),
    "viper": Format("a folder with J*.log, or with json/J*.log", (), viper.read, viper.write),
}


def load(path: str | PathLike[str], format: str | None = None, database: str = "") -> History:
    """The history at a path, or where that has what was recorded of several databases, that of one of them.

    HistoryError says what is wrong with it, and where.
    """
    place = Path(path)
    name = _name_of(place, format)
    if database and name != "spool":
        raise HistoryError(f"{place}: only what collectors recorded tells of which database it is")
    with _sentences(place):
        return spool.only(spool.recordings(place), database).read() if database else _format(name).read(place)


def recordings(path: str | PathLike[str], format: str | None = None) -> list[Recording]:
    """What collectors recorded at a path, by database; empty if it is another kind of history."""
    place = Path(path)
    if _name_of(place, format) != "spool":
        return []
    with _sentences(place):
        return spool.recordings(place)


def _name_of(place: Path, format: str | None) -> str:
    name = detect(place) if format is None else format
    if not place.exists():
        raise HistoryError(f"{place}: no such file or folder")
    return name


@contextmanager
def _sentences(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HistoryError(f"{error.filename or place}: {error.strerror}") from error
    except RecursionError:
        raise HistoryError(f"{place}: nested too deeply") from None


def save(history: History, path: str | PathLike[str], format: str | None = None) -> tuple[LeftOut, ...]:
    """Write a history; return what the format has no place for, such as times or names.

    What would change the operations of a transaction or how it ended is not left out: HistoryError says what it is.
    """
    place = Path(path)
    name = _by_suffix(place) if format is None else format
    if name is None:
        raise HistoryError(f"{place}: the name does not tell which format to write; {_choices()}")
    write = _format(name).write
    if write is None:
        raise HistoryError(f"{place}: {name} can be read but not written")
    try:
        return write(history, place)
    except OSError as error:
        raise HistoryError(f"{error.filename or place}: {error.strerror}") from error
    except UnicodeEncodeError:
        raise HistoryError(f"{place}: a name in the history is not Unicode text") from None


def detect(path: str | PathLike[str]) -> str:
    """The name of the format, by the names of files first and then by how they begin."""
    place = Path(path)
    try:
        if place.is_dir():
            name = _of_folder(place)
        elif place.exists() and not place.is_file():
            raise HistoryError(f"{place}: what is read from here cannot be read twice, so say which format it has")
        elif place.exists():
            with place.open("rb") as file:
                start = file.read(4096)
            name = "mussurana" if start.startswith(native.MAGIC) else _by_suffix(place) or _by_start(start)
        else:
            raise HistoryError(f"{place}: no such file or folder")
    except OSError as error:
        raise HistoryError(f"{place}: {error.strerror}") from error
    if name is None:
        raise HistoryError(f"{place}: not recognised as a history; {_choices()}")
    return name


def _of_folder(folder: Path) -> str | None:
    if not any(folder.iterdir()):
        raise HistoryError(f"{folder}: the folder is empty")
    if (folder / dbcop.FILE_NAME).is_file():
        return "dbcop"
    if any(folder.glob("json/J*.log")):
        return "viper"
    if spool.folders_of(folder):
        return "spool"
    logs = sorted(folder.glob("*.log"), key=lambda log: log.name)
    if any(log.name.startswith("J") for log in logs) and all(_begins_with(log, b"{") for log in logs):
        return "viper"
    return "cobra" if logs else None


def _begins_with(file: Path, expected: bytes) -> bool:
    with file.open("rb") as content:
        return content.read(len(expected)) in (expected, b"")


def _by_suffix(path: Path) -> str | None:
    return next((name for name, format in FORMATS.items() if path.suffix in format.suffixes), None)


def _by_start(start: bytes) -> str | None:
    content = b"".join(start.split())
    if content.startswith((b"r(", b"w(")):
        return "text"
    if content.startswith((b"{:", b"[{:", b"({:", b"#jepsen", b"[#jepsen", b";")):
        return "elle-edn"
    return "elle-json" if content.startswith((b'{"', b'[{"')) else None


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise HistoryError(f"no format is called {name!r}; {_choices()}")
    return FORMATS[name]


def _choices() -> str:
    return "formats: " + "; ".join(f"{name} ({format.hint})" for name, format in FORMATS.items())
