"""`status`, `verdicts` and `explain` against a running daemon, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mussurana.verifier.daemon.board import public_id
from tests.cli.command import Command
from tests.cli.conftest import mussurana
from tests.daemon.conftest import running
from tests.daemon.watching import send

__all__ = ["mussurana"]  # a fixture


def test_status_tells_people_and_programs(data: Path, mussurana: Command) -> None:
    with running(data) as daemon:
        send(daemon, 1, 10, marks=[4])
        ran = mussurana("status", "--address", daemon.address)
        assert ran.code == 0
        assert ran.out.startswith("verifying, lag 0 ms")
        assert "serializable" in ran.out
        assert "1 violation stored" in ran.out
        plain = json.loads(mussurana("status", "--address", daemon.address, "--json").out)
    assert plain["state"] == "verifying"
    assert plain["violations"] == 1
    assert plain["level"][0]["last_round"]["verdict"] in ("accepted", "rejected")
    assert plain["collector"][0]["durable_sequence"] == 10
    assert plain["collector"][0]["id"] == public_id(b"c" * 16)


def test_verdicts_can_be_limited_and_end_with_the_code_of_a_rejection(data: Path, mussurana: Command) -> None:
    with running(data) as daemon:
        assert mussurana("verdicts", "--address", daemon.address).out == "no violations\n"
        for n in range(1, 4):
            send(daemon, n, n, marks=[2])
        ran = mussurana("verdicts", "--address", daemon.address)
        assert ran.code == 1
        assert "REJECTED  serializable" in ran.out
        assert "mussurana explain serializable-number" in ran.out
        plain = json.loads(mussurana("verdicts", "--address", daemon.address, "--json", "--limit", "2").out)
        assert [each["number"] for each in plain["round"]] == [3, 2]
        assert [each["summary"] for each in plain["violation"]] == ["number 2"]
        rejected = mussurana("verdicts", "--address", daemon.address, "--json", "--verdict", "rejected")
        assert [each["number"] for each in json.loads(rejected.out)["round"]] == [2]
        recent = mussurana("verdicts", "--address", daemon.address, "--json", "--since", "0")
        assert json.loads(recent.out) == {"round": [], "violation": []}


def test_explain_takes_an_id_or_how_it_starts(data: Path, mussurana: Command) -> None:
    with running(data) as daemon:
        send(daemon, 1, 5, marks=[2, 4])
        ran = mussurana("explain", "serializable-number 2", "--address", daemon.address)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("REJECTED  serializable  round ")
        assert "write skew (G2-item), 0 transactions" in ran.out
        plain = json.loads(mussurana("explain", "serializable-number 4", "--address", daemon.address, "--json").out)
        assert plain["counterexample"]["summary"] == plain["summary"] == "number 4"
        many = mussurana("explain", "serializable", "--address", daemon.address)
        assert (many.code, many.out) == (3, "")
        assert "2 violations have ids that start with 'serializable'" in many.err
        none = mussurana("explain", "nothing", "--address", daemon.address)
        assert "there is no violation 'nothing'" in none.err


@pytest.mark.parametrize("command", [["status"], ["verdicts"], ["explain", "x"]])
def test_without_a_daemon_one_line_says_so(command: list[str], mussurana: Command) -> None:
    ran = mussurana(*command, "--address", "127.0.0.1:9")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"mussurana {command[0]}: 127.0.0.1:9: no daemon answers there")
    assert ran.err.count("\n") == 1
