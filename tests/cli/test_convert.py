"""`mussurana convert`: between formats by name, saying what was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier.formats import FORMATS, load
from tests.cli.command import Command, written
from tests.notation import show

NUMBERED = "[0:=1] [1:=2] | [0==1 1==_]"


@pytest.mark.parametrize("name", [name for name, format in FORMATS.items() if format.write is not None])
def test_there_and_back_is_the_same_history(name: str, mussurana: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "h.mus", NUMBERED)
    there = mussurana("convert", path, tmp_path / "there", "--to", name)
    assert there.code == 0
    assert there.out.startswith(f"{tmp_path}/there: 3 transactions, 4 operations\n")
    assert mussurana("convert", tmp_path / "there", tmp_path / "back.mus", "--from", name).code == 0
    assert show(load(tmp_path / "back.mus")) == NUMBERED


def test_names_say_the_formats(mussurana: Command, serial: Path, tmp_path: Path) -> None:
    for ending in (".txt", ".edn", ".json", ".mus"):
        assert mussurana("convert", serial, tmp_path / f"copy{ending}").code == 0
        assert mussurana("check", tmp_path / f"copy{ending}").code == 0


def test_what_is_lost_is_said(mussurana: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "h.mus", "[x:=1]!@1..2 [x:=2]!@3..4 [x:=3]@5..6")
    ran = mussurana("convert", path, tmp_path / "h.txt")
    assert "lost when writing: 3 × begin and commit times\n" in ran.out
    assert "lost when writing: 1 × borders between rolled-back transactions\n" in ran.out


def test_what_was_left_out_of_the_source_is_said(mussurana: Command, tmp_path: Path) -> None:
    (tmp_path / "h.edn").write_text(
        "{:type :invoke :process 0 :f :txn :value [[:w x 1]]}\n{:type :ok :process 0 :f :txn :value [[:w x 1]]}\n"
        "{:type :info :process :nemesis :f :start}\n"
    )
    ran = mussurana("convert", tmp_path / "h.edn", tmp_path / "h.mus")
    assert ran.code == 0
    assert "left out when reading: 1 × " in ran.out


def test_what_a_format_cannot_say_is_refused(mussurana: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "h.mus", "[x+=1] | [x==(1)]")
    ran = mussurana("convert", path, tmp_path / "h.txt")
    assert ran.code == 3
    assert "text has no way to write list operations, and there are 2" in ran.err
    assert not (tmp_path / "h.txt").exists()


def test_name_that_tells_no_format_is_refused(mussurana: Command, serial: Path, tmp_path: Path) -> None:
    ran = mussurana("convert", serial, tmp_path / "copy")
    assert ran.code == 3
    assert "the name does not tell which format to write; formats: mussurana" in ran.err


def test_target_that_cannot_be_written_is_named(mussurana: Command, serial: Path, tmp_path: Path) -> None:
    ran = mussurana("convert", serial, tmp_path / "none" / "copy.mus")
    assert ran.code == 3
    assert ran.err == f"mussurana convert: {tmp_path}/none/copy.mus: No such file or directory\n"
