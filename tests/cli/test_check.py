"""`mussurana check`: what it prints, what it writes, and which exit code says what."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from mussurana.verifier import cli
from mussurana.verifier.engine import cdcl
from mussurana.verifier.formats import FORMATS, save
from mussurana.verifier.levels import LEVELS
from mussurana.verifier.simulate.bulk import hot_keys
from mussurana.verifier.solvers import SOLVERS
from tests.cli.command import Command, written

OPENINGS = {".html": "<!doctype html", ".svg": "<svg", ".dot": "digraph", ".json": "{", ".txt": "REJECTED"}


def test_accepted_exits_0_and_says_so(mussurana: Command, serial: Path) -> None:
    ran = mussurana("check", serial)
    assert ran.code == 0
    assert ran.out.startswith("ACCEPTED  serializable")
    assert "2 transactions in 2 sessions" in ran.out


def test_rejected_exits_1_and_explains(mussurana: Command, write_skew: Path) -> None:
    ran = mussurana("check", write_skew)
    assert ran.code == 1
    assert "write skew (G2-item), 2 transactions" in ran.out
    assert "No serial order has both." in ran.out


def test_repeated_values_exit_2_with_what_would_help(mussurana: Command, repeated_values: Path) -> None:
    ran = mussurana("check", repeated_values)
    assert ran.code == 2
    assert ran.out.startswith("UNKNOWN")
    assert "Record unique values per key" in ran.out


@pytest.mark.parametrize("solver", ["own", "python-sat"])
def test_running_out_of_time_exits_2_with_what_would_help(
    solver: str, mussurana: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdcl, "STEPS_PER_CALL", 1)  # our own solver would have the answer before it looks at the clock
    save(hot_keys(sessions=6, transactions=60, keys=4, writes=2, read_fraction=0.3), tmp_path / "hot.mus")
    assert mussurana("check", tmp_path / "hot.mus", "--solver", solver).code == 0
    ran = mussurana("check", tmp_path / "hot.mus", "--solver", solver, "--timeout", "0")
    assert ran.code == 2
    assert "no answer within 0 seconds" in ran.out
    assert "Try a longer --timeout" in ran.out


@pytest.mark.parametrize("level", LEVELS)
def test_level_option_decides_what_is_asked(level: str, mussurana: Command, write_skew: Path) -> None:
    ran = mussurana("check", write_skew, "--level", level)
    assert ran.code == (1 if "serializable" in level else 0)
    assert level in ran.out


def test_session_order_can_be_dropped(mussurana: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "h.mus", "[x:=1] [x==_]")
    assert mussurana("check", path).code == 1
    assert mussurana("check", path, "--no-session-order").code == 0


@pytest.mark.parametrize(("drift", "code"), [("0", 1), ("2s", 0), ("2", 0), ("2000ms", 0), ("1.9s", 1)])
def test_clock_drift_is_a_duration(drift: str, code: int, mussurana: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "h.mus", "[x:=1]@10..20 | [x==_]@22..23")
    assert mussurana("check", path, "--level", "strict-serializable", "--clock-drift", drift).code == code


def test_json_has_the_keys_that_programs_rely_on(
    mussurana: Command, serial: Path, write_skew: Path, repeated_values: Path
) -> None:
    results = {}
    for path in (serial, write_skew, repeated_values):
        ran = mussurana("check", path, "--json")
        assert ran.out.count("\n") == 1, "one object on one line"
        assert ran.err == ""
        result = json.loads(ran.out)
        results[result["verdict"]] = result
        assert result["level"] == "serializable"
        assert result["seconds"].keys() == {"load", "build", "prune", "solve", "explain", "total"}
        assert result["seconds"]["total"] >= result["seconds"]["load"] > 0
        assert result["choices"].keys() == {"generated", "pruned", "solved"}
    assert results.keys() == {"accepted", "rejected", "unknown"}
    assert (results["accepted"]["transactions"], results["accepted"]["sessions"]) == (2, 2)
    assert results["accepted"]["anomaly"] is results["accepted"]["counterexample"] is None
    assert results["rejected"]["anomaly"] == "write skew"
    assert len(results["rejected"]["counterexample"]["transactions"]) == 2
    assert "unique values" in results["unknown"]["reason"]


def test_a_rejection_is_reported_in_every_notation_at_once(
    mussurana: Command, write_skew: Path, tmp_path: Path
) -> None:
    assert OPENINGS.keys() == set(cli.REPORT_SUFFIXES)
    files = {suffix: tmp_path / f"report{suffix}" for suffix in OPENINGS}
    ran = mussurana("check", write_skew, *(part for path in files.values() for part in ("--report", path)))
    assert ran.code == 1
    for suffix, path in files.items():
        content = path.read_text(encoding="utf-8")
        assert content.lower().startswith(OPENINGS[suffix].lower())
        assert "write skew" in content or suffix == ".dot"
    assert files[".txt"].read_text(encoding="utf-8") == ran.out


@pytest.mark.parametrize("suffix", [".svg", ".dot"])
def test_without_a_counterexample_there_is_no_picture(
    suffix: str, mussurana: Command, serial: Path, tmp_path: Path
) -> None:
    picture = tmp_path / f"report{suffix}"
    ran = mussurana("check", serial, "--report", picture)
    assert ran.code == 0
    assert ran.err == f"{picture}: not written, there is no counterexample to draw\n"
    assert not picture.exists()


@pytest.mark.parametrize("suffix", [".html", ".json", ".txt"])
def test_acceptance_is_reported_in_words(suffix: str, mussurana: Command, serial: Path, tmp_path: Path) -> None:
    assert mussurana("check", serial, "--report", tmp_path / f"report{suffix}").code == 0
    assert "accepted" in (tmp_path / f"report{suffix}").read_text(encoding="utf-8").lower()


def test_what_help_lists_is_what_there_is() -> None:
    assert tuple(cli.FORMATS) == tuple(FORMATS)
    assert cli.SOLVERS == SOLVERS
    text = cli.parser().format_help()
    assert all(command in text for command in ("check", "audit", "convert", "demo"))


@pytest.mark.parametrize("command", ["check", "audit", "convert", "demo"])
def test_every_command_explains_itself(command: str, mussurana: Command) -> None:
    ran = mussurana(command, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: mussurana {command}")
    if command == "check":
        assert all(f"  {name} " in ran.out for name in (*LEVELS, *FORMATS))


def test_version_is_that_of_the_package(mussurana: Command) -> None:
    assert mussurana("--version").out == f"mussurana {version('mussurana-verifier')}\n"
