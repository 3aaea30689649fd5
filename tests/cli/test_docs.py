"""What the README and docs/ say is what the program does: their examples run, and their tables are complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mussurana.verifier import cli
from mussurana.verifier.formats import FORMATS
from mussurana.verifier.levels import LEVELS
from tests.cli.command import Command

ROOT = Path(__file__).parents[2]
WITH_EXAMPLES = [ROOT / "README.md", ROOT / "docs" / "checking.md"]

by_name = pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def sessions(page: Path) -> Iterator[tuple[list[str], str]]:
    """(command, what it prints) in the examples of a page that show both, in order."""
    for block in blocks(page, "console"):
        for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            yield shlex.split(command), printed


def matches(printed: str, expected: str) -> bool:
    """Whether this was expected, but for how long it took; a line of three dots stands for any lines."""
    pattern = r"(?:.*\n)*".join(map(re.escape, re.split(r"^\.\.\.\n", without_durations(expected), flags=re.MULTILINE)))
    return re.fullmatch(pattern, without_durations(printed)) is not None


def without_durations(text: str) -> str:
    return re.sub(r"\d[\d.]* (?:ms|s)\b", "a while", text)


@by_name
def test_examples_print_what_they_show(
    page: Path, mussurana: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = 0
    for (program, *arguments), expected in sessions(page):
        if program == "cat":
            Path(arguments[0]).write_text(expected, encoding="utf-8")
            continue
        assert program == "mussurana"
        ran = mussurana(*arguments)
        assert matches(ran.out + ran.err, expected), f"{shlex.join(arguments)} printed\n{ran.out}{ran.err}"
        commands += 1
    for program in blocks(page, "python"):
        exec(compile(program, page.name, "exec"), {})
    assert commands >= 4


def test_the_comparison_of_examples_can_fail() -> None:
    assert matches("A 1.5 ms\nB\nC\n", "A 20 s\n...\nC\n")
    assert not matches("A 1.5 ms\nB\n", "A 20 s\n")
    assert not matches("A\nB\n", "A\n...\nC\n")


@by_name
def test_commands_that_are_only_shown_have_options_that_exist(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", "").splitlines():
            program, *arguments = shlex.split(line.split("||")[0].rpartition(" | ")[2])
            if program == "make":
                assert arguments[0] in make_targets()
            else:
                assert Path(program).name == "mussurana"
                assert cli.parser().parse_known_args(arguments)[1] == []


def make_targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_readme_names_every_make_target_that_developers_need() -> None:
    named = set(re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= make_targets()
    assert named == {
        "alerts",
        "attack",
        "bench",
        "bench-online",
        "bench-overhead",
        "browser",
        "compliance",
        "crash",
        "demo",
        "fuzz",
        "fuzz-inputs",
        "fuzz-pipelines",
        "fuzz-rounds",
        "hang-hunt",
        "help",
        "image",
        "lint",
        "manifests",
        "restart",
        "sanitize",
        "soak",
        "test",
    }


@pytest.mark.parametrize("page", ["README.md", "docs/levels.md"])
def test_tables_of_levels_are_complete(page: str) -> None:
    assert first_column(ROOT / page, "Levels" if page == "README.md" else "What each level promises") == set(LEVELS)


@pytest.mark.parametrize("page", ["README.md", "docs/format.md"])
def test_tables_of_formats_are_complete(page: str) -> None:
    assert first_column(ROOT / page, "Formats" if page == "README.md" else "Formats of histories") == set(FORMATS)


def first_column(page: Path, heading: str) -> set[str]:
    """The names in the first table under a heading."""
    section = page.read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1]
    table = section[section.index("|---|") :].split("\n\n", 1)[0]
    return set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE))


def test_picture_in_the_docs_is_what_is_drawn(
    mussurana: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        arguments[0]: content for (program, *arguments), content in sessions(ROOT / "README.md") if program == "cat"
    }
    Path("duty.txt").write_text(files["duty.txt"], encoding="utf-8")
    assert mussurana("check", "duty.txt", "--report", "duty.svg").code == 1
    assert Path("duty.svg").read_text() == (ROOT / "docs" / "duty.svg").read_text(), "draw docs/duty.svg anew"
