"""What one reader's fuzzer is: it makes inputs, and goes on with what the reader made of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

from mussurana.verifier import audit as auditor
from mussurana.verifier import check, conclusions
from mussurana.verifier.certificate import certificate
from mussurana.verifier.engine import cdcl
from mussurana.verifier.engine import check as checking
from mussurana.verifier.formats import FORMATS, save
from mussurana.verifier.history import History, HistoryError
from mussurana.verifier.render.dot import counterexample_dot
from mussurana.verifier.render.html import report_html
from mussurana.verifier.render.json import result_json
from mussurana.verifier.render.svg import counterexample_svg
from mussurana.verifier.render.text import result_text, width_for
from mussurana.verifier.verdict import Rejected
from tests.inputs.confined import End, fatal
from tests.random_history import random_settings

Files = dict[str, bytes]
"""An input: content by path, relative to the folder in which the reader finds it."""

FILE_BYTES_MAX = 1 << 20
"""To read more takes more time, and no other way."""

TIMEOUT_SECONDS = 1.0
"""For a search, which may take exponential time and is told when to give up."""

STEPS_MAX = 20_000
"""Of the auditor, which tries a million and so takes a minute; that it counts them is what matters here."""

SEARCHES = 200
"""A round may search for some seconds before it gives up, and more when it tries again; here it has a share of that."""


@dataclass(frozen=True)
class Reader:
    name: str
    make: Callable[[Random], Files]
    read: Callable[[Files, Path, Random], str]  # goes all the way; says what is wrong, or nothing
    refusals: tuple[type[Exception], ...]  # what it may raise instead

    def case(self, seed: int) -> Files:
        made = self.make(Random(f"{self.name} {seed}"))
        return {name: content[:FILE_BYTES_MAX] for name, content in made.items()}

    def attempt(self, files: Files) -> tuple[End, str]:
        """Read an input. It may be refused; a complaint is a failure, and so is any other exception."""
        with TemporaryDirectory(prefix="mussurana-inputs-") as folder, limited():
            write(files, Path(folder))
            try:
                complaint = self.read(files, Path(folder), Random(digest(files)))
            except self.refusals as error:
                if fatal(error):
                    raise
                return "refused", f"{type(error).__name__}: {error}"[:1_000]
        return ("failed", complaint) if complaint else ("read", "")


@contextmanager
def limited() -> Iterator[None]:
    """Within it searches that are bounded by minutes are bounded by less."""
    with (
        patch.object(checking, "EXPLAIN_SECONDS_MIN", TIMEOUT_SECONDS / 2),
        patch.object(auditor, "STEPS_MAX", STEPS_MAX),
        patch.object(conclusions, "STEPS_MAX", STEPS_MAX),
        patch.object(cdcl, "STEPS_PER_CALL", cdcl.STEPS_PER_CALL // SEARCHES),
    ):
        yield


def write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def files_in(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def digest(files: Files) -> int:
    """What is decided at random while an input is read follows from the input alone."""
    number = 0
    for name, content in sorted(files.items()):
        number = zlib.crc32(content, zlib.crc32(name.encode(), number))
    return number


def use(history: History, folder: Path, rng: Random) -> str:
    """All that a command may do with a history: check it, show what came of it, prove and audit it, translate it."""
    if not history.txn_count:
        return ""
    settings = random_settings(rng)
    result = check(history, settings, timeout_seconds=TIMEOUT_SECONDS)
    result_json(result)
    result_text(result, "history", False, width_for(rng.choice((1, 40, 120, 10_000))))
    report_html(result, "history")
    if isinstance(result.verdict, Rejected):
        counterexample_svg(result.verdict.counterexample)
        counterexample_dot(result.verdict.counterexample)
    outcome = auditor.audit(certificate(result, history), history)
    if outcome.ok is False:
        return f"{settings}: the proof of a verdict does not hold: {outcome.message}"
    with suppress(HistoryError):  # the other format may have no place for something
        save(history, folder / "translated", rng.choice([name for name, format in FORMATS.items() if format.write]))
    return ""
