"""Files and the command, for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import REPEATED_VALUES, SERIAL, WRITE_SKEW, Command, written


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
