"""Files and the command, for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier import HistoryBuilder, Settings, check
from mussurana.verifier.formats import FORMATS, load, save
from tests.cli.command import REPEATED_VALUES, SEARCHED, SERIAL, WRITE_SKEW, Command, written
from tests.notation import h


@pytest.fixture(autouse=True, scope="session")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile the kernels that these tests need, so that the command has no reason to say that it does."""
    for text in (SERIAL, WRITE_SKEW, REPEATED_VALUES, SEARCHED):
        for level in ("serializable", "strong-session-si"):
            check(h(text), Settings(level))
    numbered = HistoryBuilder()
    numbered.transaction("0")
    numbered.write("1", 1)
    for name in (name for name, format in FORMATS.items() if format.write is not None):
        path = tmp_path_factory.mktemp("formats") / "history"
        save(numbered.finish(), path, name)
        load(path, name)


@pytest.fixture
def mussurana(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def serial(tmp_path: Path) -> Path:
    return written(tmp_path / "serial.mus", SERIAL)


@pytest.fixture
def write_skew(tmp_path: Path) -> Path:
    return written(tmp_path / "skew.mus", WRITE_SKEW)


@pytest.fixture
def repeated_values(tmp_path: Path) -> Path:
    return written(tmp_path / "repeated.mus", REPEATED_VALUES)
