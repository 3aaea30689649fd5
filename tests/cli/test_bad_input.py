"""Whatever is wrong with what the command was given, it exits with 3 and one line says where and why."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_our_own_mistakes_are_not_called_bad_input(
    mussurana: Command, serial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(*arguments: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("mussurana.verifier.formats.load", mistake)
    with pytest.raises(RuntimeError, match="a mistake"):
        mussurana("check", serial)
