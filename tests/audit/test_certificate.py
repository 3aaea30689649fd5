from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import CertificateError, certificate, read_certificate
from mussurana.verifier.verdict import (
    Accepted,
    Counterexample,
    Rejected,
    Result,
    Settings,
    ShownTransaction,
    Unknown,
    Verdict,
    Witness,
)
from tests.notation import h

WRITE_SKEW = h("[x==_ y==_ x:=1] | [x==_ y==_ y:=1] | [x==1]")


def result(verdict: Verdict, level: str) -> Result:
    return Result(verdict, Settings(level), WRITE_SKEW.txn_count, 3)


def rejected(*txns: int) -> Rejected:
    shown = [ShownTransaction(f"T{t}", t, f"s{t}", 0, "", "committed", None, None, ()) for t in txns]
    return Rejected(Counterexample("write skew", "G2-item", "", tuple(shown), ()))


def accepted(*order: int) -> Accepted:
    return Accepted(Witness(np.array(order, np.int64), events=True))


@pytest.mark.parametrize(
    ("verdict", "level", "ok"),
    [
        (accepted(0, 2, 1, 3, 4, 5), "adya-si", True),
        (accepted(0, 2, 4, 5, 1, 3), "adya-si", False),
        (rejected(0, 1), "serializable", True),
        (rejected(0, 1), "adya-si", False),
        (Unknown("budget"), "adya-si", None),
    ],
)
def test_a_certificate_survives_a_file(verdict: Verdict, level: str, ok: bool | None, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    made = certificate(result(verdict, level), WRITE_SKEW)
    path.write_text(json.dumps(made))
    assert read_certificate(path) == made
    assert audit(read_certificate(path), WRITE_SKEW).ok == ok


VALID = certificate(result(rejected(0, 1), "serializable"), WRITE_SKEW)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "else"}, 'expected an object with "format": "mussurana-certificate"'),
        ({"version": 2}, "version 2; this program reads version 1"),
        ({"level": "best"}, "field level: expected one of serializable"),
        ({"session_order": 1}, "field session_order: expected true or false"),
        ({"clock_drift_ns": -1}, "field clock_drift_ns: expected a number of nanoseconds"),
        ({"clock_drift_ns": True}, "field clock_drift_ns"),
        ({"clock_drift_ns": 10**400}, "field clock_drift_ns"),
        ({"level": ["serializable"]}, "field level"),
        ({"history": None}, "field history"),
        ({"verdict": "maybe"}, "field verdict: expected accepted, rejected or unknown"),
        ({"verdict": "accepted"}, "field witness: expected a list of whole numbers"),
        ({"verdict": "accepted", "witness": [0, 1.5]}, "field witness"),
        ({"counterexample": [0, 1]}, "field counterexample.transactions"),
        ({"counterexample": {"transactions": ["T1"]}}, "field counterexample.transactions"),
    ],
)
def test_a_spoilt_certificate_names_file_and_field(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "spoilt.json"
    path.write_text(json.dumps(VALID | change))
    with pytest.raises(CertificateError) as raised:
        read_certificate(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read: No such file"),
        (b"{", "line 1, column 2: not JSON"),
        (b"[]", "not a certificate"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"9" * 5_000, "too many digits"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_certificate_says_what_was_expected(
    content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "no.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CertificateError, match=complaint):
        read_certificate(path)
