"""Whatever is wrong with what the command was given, it exits with 3 and one line says where and why."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mussurana.verifier.cli import parser
from tests.cli.command import Command, Ran, written

BAD_INPUT = 3


def complaint(ran: Ran) -> str:
    assert ran.code == BAD_INPUT
    assert ran.out == ""
    assert "Traceback" not in ran.err
    return ran.err


def test_missing_history_is_named(mussurana: Command, tmp_path: Path) -> None:
    message = complaint(mussurana("check", tmp_path / "none.mus"))
    assert message == f"mussurana check: {tmp_path}/none.mus: no such file or folder\n"


def test_empty_folder_is_named(mussurana: Command, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    assert "logs: the folder is empty" in complaint(mussurana("check", tmp_path / "logs"))


@pytest.mark.parametrize("name", ["h.txt", "cobra/T1.log", "viper/J1.log"])
def test_a_history_without_transactions_is_not_accepted(name: str, mussurana: Command, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    history = path if path.suffix == ".txt" else path.parent
    assert f"{history}: there is no transaction to check" in complaint(mussurana("check", history))


def test_unrecognised_file_lists_the_formats(mussurana: Command, tmp_path: Path) -> None:
    (tmp_path / "h.bin").write_bytes(b"\0\1\2")
    message = complaint(mussurana("check", tmp_path / "h.bin"))
    assert "h.bin: not recognised as a history; formats: mussurana (*.mus); cobra" in message


def test_corrupt_file_names_the_byte(mussurana: Command, serial: Path) -> None:
    content = bytearray(serial.read_bytes())
    content[100] ^= 1
    serial.write_bytes(content)
    assert "serial.mus: byte " in complaint(mussurana("check", serial))


def test_cut_off_file_names_the_byte(mussurana: Command, serial: Path) -> None:
    serial.write_bytes(serial.read_bytes()[:-1])
    assert "serial.mus: byte " in complaint(mussurana("check", serial))


def test_bad_line_is_named(mussurana: Command, tmp_path: Path) -> None:
    (tmp_path / "h.txt").write_text("w(x,1,a,1)\nnonsense\n")
    assert "h.txt: line 2: expected r(key,value,session,transaction)" in complaint(
        mussurana("check", tmp_path / "h.txt")
    )


def test_file_in_another_format_than_given_is_refused(mussurana: Command, serial: Path) -> None:
    assert "serial.mus" in complaint(mussurana("check", serial, "--format", "elle-edn"))


def test_times_that_go_backwards_name_the_transaction(mussurana: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "h.mus", "[x:=1]@1..2 | [x==1]@5..4")
    assert "transaction 1 (session s1): committed_ns is" in complaint(mussurana("check", path))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "mussurana: the following arguments are required: COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate' (choose from 'check', 'audit', 'convert', 'serve'"),
        (["check"], "mussurana check: the following arguments are required: HISTORY"),
        (["check", "h.mus", "--levle", "adya-si"], "mussurana check: unknown arguments: --levle adya-si"),
        (["check", "h.mus", "--level", "linearizable"], "--level: invalid choice: 'linearizable' (choose from"),
        (["check", "h.mus", "--format", "csv"], "--format: invalid choice: 'csv' (choose from 'mussurana'"),
        (["check", "h.mus", "--solver", "gurobi"], "--solver: invalid choice: 'gurobi'"),
        (["check", "h.mus", "--timeout", "soon"], "'soon' is not a duration; write it like 100ms, 1.5s or 0"),
        (["check", "h.mus", "--clock-drift", "-1s"], "--clock-drift"),
        (["check", "h.mus", "--timeout", "9" * 400], "is longer than any duration that is of use here"),
        (["check", "h.mus", "--report", "r.pdf"], "'r.pdf' has to end in one of .html, .svg, .dot, .json, .txt"),
        (["check", "h.mus", "--report", "none/r.html"], "'none/r.html' cannot be written: there is no folder 'none'"),
        (["check", "h.mus", "--certificate", "none/c"], "'none/c' cannot be written: there is no folder 'none'"),
        (["check", "h.mus", "--certificate", "."], "'.' cannot be written: it is a folder"),
        (["audit", "c.json"], "mussurana audit: the following arguments are required: HISTORY"),
        (["demo", "--loud"], "mussurana demo: unknown arguments: --loud"),
    ],
)
def test_wrong_usage_does_not_look_like_unknown(
    arguments: list[str], expected: str, mussurana: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = complaint(mussurana(*arguments))
    assert expected in message
    assert message.splitlines()[-1].endswith("--help")
    assert len(message.splitlines()) == 2


def test_missing_solver_says_what_to_install(mussurana: Command, serial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"the {name} solver needs a package")

    monkeypatch.setattr("mussurana.verifier.engine.check.find_solver", missing)
    assert "the z3 solver needs a package" in complaint(mussurana("check", serial, "--solver", "z3"))


@pytest.mark.parametrize("option", ["--report", "--certificate"])
def test_full_disk_names_the_file_after_the_verdict(
    option: str, mussurana: Command, serial: Path, tmp_path: Path
) -> None:
    (tmp_path / "full.html").symlink_to("/dev/full")
    ran = mussurana("check", serial, option, tmp_path / "full.html")
    assert ran.code == BAD_INPUT
    assert ran.out.startswith("ACCEPTED")
    assert ran.err == f"mussurana check: {tmp_path}/full.html: No space left on device\n"


@pytest.mark.parametrize("option", ["--report", "--certificate"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("locked/r.html", "permission denied"),
        ("h.mus/r.html", "there is no folder"),
        ("x" * 300 + ".html", "File name too long"),
        ("loop/r.html", "there is no folder"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_check(
    option: str, name: str, why: str, mussurana: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "locked").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "h.mus").write_bytes(b"not read")
    writable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "locked" not in str(path) and writable(path, mode))  # for root
    message = complaint(mussurana("check", "h.mus", option, name))
    assert "cannot be written" in message
    assert why in message


@pytest.mark.parametrize("option", ["--report", "--certificate"])
def test_a_place_that_cannot_be_written_after_all_leaves_the_verdict_and_no_exit_code_of_one(
    option: str, mussurana: Command, write_skew: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*arguments: object, **settings: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", no_room)
    ran = mussurana("check", write_skew, option, "r.html")
    assert (ran.code, ran.err) == (BAD_INPUT, "mussurana check: r.html: Read-only file system\n")
    assert ran.out.startswith("REJECTED")


COMMANDS = {
    "check": ("mussurana.verifier.cli.run_check", ["h.mus"]),
    "audit": ("mussurana.verifier.cli.run_audit", ["c.json", "h.mus"]),
    "convert": ("mussurana.verifier.cli.run_convert", ["h.mus", "g.mus"]),
    "serve": ("mussurana.verifier.commands.serve.run", []),
    "status": ("mussurana.verifier.commands.ask.run_status", []),
    "verdicts": ("mussurana.verifier.commands.ask.run_verdicts", []),
    "explain": ("mussurana.verifier.commands.ask.run_explain", ["v1"]),
    "replay": ("mussurana.verifier.commands.replay.run", ["h.mus"]),
    "demo": ("mussurana.verifier.commands.demo.run", []),
    "adopt": ("mussurana.collector.adopt_command.run_adopt", ["sqlite:////h"]),
    "unadopt": ("mussurana.collector.adopt_command.run_unadopt", ["sqlite:////h"]),
}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("a mistake"), BAD_INPUT),
        (AssertionError(), BAD_INPUT),
        (MemoryError(), BAD_INPUT),
        (RecursionError(), BAD_INPUT),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), BAD_INPUT),
        (OSError(errno.ENOSPC, "No space left on device"), BAD_INPUT),
        (UnicodeEncodeError("ascii", "é", 0, 1, "not ASCII"), BAD_INPUT),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_goes_wrong_inside_a_command_is_no_rejection(
    command: str, error: BaseException, code: int, mussurana: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(options: object) -> int:
        raise error

    function, arguments = COMMANDS[command]
    monkeypatch.setattr(function, fails)
    ran = mussurana(command, *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert f"mussurana {command}: " in ran.err
    our_own = isinstance(error, RuntimeError | AssertionError | UnicodeEncodeError)
    assert ("Traceback" in ran.err) == our_own


def test_every_command_is_among_those() -> None:
    (choices,) = (action.choices for action in parser()._actions if action.dest == "command")
    assert set(choices or ()) == set(COMMANDS)
