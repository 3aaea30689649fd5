"""Progress is for people at a terminal who wait; compiling is announced to everybody, once."""

from __future__ import annotations

import io
import os
import pty
import sys
import time
from pathlib import Path
from select import select

import pytest
from numba import njit

from mussurana.verifier import cli, formats, progress
from mussurana.verifier.formats import load, save
from mussurana.verifier.history import History
from tests.cli.command import Command, in_a_process
from tests.notation import h

ANNOUNCEMENT = "compiling parts of the checker for this machine, once each; this takes up to a minute\n"


class Terminal:
    """A terminal that stderr goes to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._there, here = pty.openpty()
        monkeypatch.setattr(sys, "stderr", os.fdopen(here, "w"))
        assert sys.stderr.isatty()

    def shown(self) -> str:
        """All that was printed; the end of it."""
        sys.stderr.flush()
        parts = []
        while select([self._there], [], [], 0.1)[0]:
            parts.append(os.read(self._there, 4096))
        sys.stderr.close()
        os.close(self._there)
        return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.fixture(autouse=True)
def refresh_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.01)


def test_long_work_shows_its_phase_and_leaves_a_clean_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    terminal = Terminal(monkeypatch)
    with progress.Progress() as report:
        report("loading")
        time.sleep(0.2)
        report("pruning")
        time.sleep(0.2)
    shown = terminal.shown()
    assert "loading ... 0 s" in shown
    assert "pruning ... 0 s" in shown
    assert shown.endswith("\r\x1b[K")


def test_two_seconds_pass_before_anything_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress, "perf_counter", lambda: now)
    for waited, expected in ((1.9, False), (2.0, True)):
        now = 100.0
        terminal = Terminal(monkeypatch)
        with progress.Progress() as report:
            report("loading")
            now += waited
            time.sleep(0.2)
        assert ("loading ... 2 s" in terminal.shown()) == expected


def test_a_file_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    with progress.Progress() as report:
        report("loading")
        time.sleep(0.1)
    assert log.getvalue() == ""


def test_a_check_at_a_terminal_shows_progress_and_then_only_the_verdict(
    serial: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slowly(path: str, format: str | None, database: str) -> History:
        time.sleep(0.2)
        return load(path, format, database)

    monkeypatch.setattr(formats, "load", slowly)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    terminal = Terminal(monkeypatch)
    assert cli.main(["check", str(serial)]) == 0
    shown = terminal.shown()
    assert "loading ... 0 s" in shown
    assert shown.endswith("\r\x1b[K")
    assert capsys.readouterr().out.startswith("ACCEPTED")


@pytest.mark.parametrize("at_a_terminal", [False, True])
def test_compiling_is_announced_once(
    at_a_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(monkeypatch) if at_a_terminal else None
    with progress.compiling_announced():
        for constant in range(2):
            njit(lambda x, constant=constant: x + constant)(1)
    shown = terminal.shown() if terminal else capsys.readouterr().err
    assert shown == ("\r\x1b[K" if terminal else "") + ANNOUNCEMENT


def test_nothing_is_announced_when_nothing_is_compiled(mussurana: Command, serial: Path) -> None:
    mussurana("check", serial)
    assert mussurana("check", serial).err == ""


def test_first_use_says_that_it_compiles_and_the_second_has_it_ready(tmp_path: Path) -> None:
    save(h("[0:=1]"), tmp_path / "h.bincode")  # reading it takes few kernels
    files = tmp_path / "h.bincode", tmp_path / "h.mus"
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    runs = [in_a_process("convert", *files, environment=variables) for _ in range(2)]
    assert [(ran.returncode, ran.stderr) for ran in runs] == [(0, ANNOUNCEMENT), (0, "")]
