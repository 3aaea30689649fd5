"""`check --certificate`, then `audit`: proofs hold for the history they are about, and for no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mussurana.verifier import audit as auditor
from mussurana.verifier.levels import LEVELS
from tests.cli.command import Command, written


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("history", ["serial", "write_skew"])
def test_proof_of_every_verdict_holds(
    history: str, level: str, mussurana: Command, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(history)
    mussurana("check", path, "--level", level, "--certificate", tmp_path / "proof.json")
    ran = mussurana("audit", tmp_path / "proof.json", path)
    assert ran.code == 0
    assert ran.out.startswith("the proof holds: ")


def test_witness_in_another_order_does_not_hold(mussurana: Command, serial: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    mussurana("check", serial, "--certificate", proof)
    fields = json.loads(proof.read_text())
    fields["witness"].reverse()
    proof.write_text(json.dumps(fields))
    ran = mussurana("audit", proof, serial)
    assert ran.code == 1
    assert ran.out.startswith("the proof does not hold: transaction 1 could not have seen version 1 of x")


def test_counterexample_of_a_valid_history_does_not_hold(
    mussurana: Command, serial: Path, write_skew: Path, tmp_path: Path
) -> None:
    proof = tmp_path / "proof.json"
    mussurana("check", write_skew, "--certificate", proof)
    refuted = json.loads(proof.read_text())
    mussurana("check", serial, "--certificate", proof)
    proof.write_text(json.dumps({**refuted, "history": json.loads(proof.read_text())["history"]}))
    ran = mussurana("audit", proof, serial)
    assert ran.code == 1
    assert "transactions [0, 1] do have a valid order" in ran.out


def test_proof_is_not_for_another_history(mussurana: Command, serial: Path, tmp_path: Path) -> None:
    mussurana("check", serial, "--certificate", tmp_path / "proof.json")
    ran = mussurana("audit", tmp_path / "proof.json", written(tmp_path / "other.mus", "[x:=1] | [x==1]"))
    assert ran.code == 1
    assert "about another history" in ran.out


def test_unknown_has_no_proof(mussurana: Command, repeated_values: Path, tmp_path: Path) -> None:
    assert mussurana("check", repeated_values, "--certificate", tmp_path / "proof.json").code == 2
    ran = mussurana("audit", tmp_path / "proof.json", repeated_values)
    assert ran.code == 2
    assert ran.out == "it cannot be told whether the proof holds: the verdict is unknown, which needs no proof\n"


def test_a_proof_that_takes_too_long_to_check_is_not_called_wrong(
    mussurana: Command, write_skew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mussurana("check", write_skew, "--certificate", tmp_path / "proof.json")
    monkeypatch.setattr(auditor, "STEPS_MAX", 3)
    ran = mussurana("audit", tmp_path / "proof.json", write_skew)
    assert ran.code == 2
    assert ran.out.startswith("it cannot be told whether the proof holds: 2 transactions have too many orders")


def test_proof_is_about_operations_and_not_about_the_file(mussurana: Command, serial: Path, tmp_path: Path) -> None:
    mussurana("check", serial, "--certificate", tmp_path / "proof.json")
    mussurana("convert", serial, tmp_path / "copy.edn")
    assert mussurana("audit", tmp_path / "proof.json", tmp_path / "copy.edn").code == 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "proof.json: line 1, column 1: not JSON"),
        ("{}", 'proof.json: not a certificate: expected an object with "format": "mussurana-certificate"'),
        ('{"format": "mussurana-certificate", "version": 2}', "proof.json: version 2; this program reads version 1"),
        ('{"format": "mussurana-certificate", "version": 1}', "proof.json: field level: expected one of serializable"),
    ],
)
def test_what_is_no_certificate_is_bad_input(
    content: str, expected: str, mussurana: Command, serial: Path, tmp_path: Path
) -> None:
    (tmp_path / "proof.json").write_text(content)
    ran = mussurana("audit", tmp_path / "proof.json", serial)
    assert ran.code == 3
    assert expected in ran.err


def test_missing_certificate_or_history_is_bad_input(mussurana: Command, serial: Path, tmp_path: Path) -> None:
    mussurana("check", serial, "--certificate", tmp_path / "proof.json")
    for arguments in ((tmp_path / "none", serial), (tmp_path / "proof.json", tmp_path / "none")):
        ran = mussurana("audit", *arguments)
        assert ran.code == 3
        assert f"{tmp_path}/none: " in ran.err
