"""A certificate: a verdict and its proof in a file, for `audit.py` to check and for people to keep.

JSON, with the order of events or the named transactions by their numbers in the history, and with a fingerprint of
the history, so that a proof cannot be held against another one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mussurana.verifier.audit import LEVELS
from mussurana.verifier.history import History, HistoryError
from mussurana.verifier.verdict import Accepted, Rejected, Result

FORMAT = "mussurana-certificate"
VERSION = 1

CLOCK_DRIFT_NS_MAX = 1 << 62
"""146 years. The auditor adds it to times, which are as large at most."""


class CertificateError(HistoryError):
    """A file that is not a certificate. The message names the file and the field, and says what was expected."""


def certificate(result: Result, history: History) -> dict[str, Any]:
    """What `audit` needs to check a result, as values that JSON can hold."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "level": result.settings.level,
        "session_order": result.settings.session_order,
        "clock_drift_ns": result.settings.clock_drift_ns,
        "history": history.fingerprint(),
    }
    verdict = result.verdict
    if isinstance(verdict, Accepted):
        return {**fields, "verdict": "accepted", "witness": verdict.witness.order.tolist()}
    if isinstance(verdict, Rejected):
        counterexample = {
            "anomaly": verdict.counterexample.anomaly,
            "adya": verdict.counterexample.adya,
            "transactions": [transaction.txn for transaction in verdict.counterexample.transactions],
        }
        return {**fields, "verdict": "rejected", "counterexample": counterexample}
    return {**fields, "verdict": "unknown", "reason": verdict.reason}


def read_certificate(path: Path | str) -> dict[str, Any]:
    """Read a certificate that anybody may have written: all that the auditor uses is there and has its type."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CertificateError(f"{path}: not a certificate: byte {error.start} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise CertificateError(f"{path}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except ValueError as error:  # Python converts no numbers of more than 4,300 digits
        raise CertificateError(f"{path}: a number has too many digits") from error
    except RecursionError as error:
        raise CertificateError(f"{path}: nested too deeply") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise CertificateError(f'{path}: not a certificate: expected an object with "format": "{FORMAT}"')
    if fields.get("version") != VERSION:
        raise CertificateError(f"{path}: version {fields.get('version')!r}; this program reads version {VERSION}")

    def expect(holds: bool, field: str, expected: str) -> None:
        if not holds:
            raise CertificateError(f"{path}: field {field}: expected {expected}")

    expect(fields.get("level") in tuple(LEVELS), "level", f"one of {', '.join(LEVELS)}")
    expect(isinstance(fields.get("session_order"), bool), "session_order", "true or false")
    drift_ns = fields.get("clock_drift_ns")
    fits = type(drift_ns) is int and 0 <= drift_ns <= CLOCK_DRIFT_NS_MAX
    expect(fits, "clock_drift_ns", f"a number of nanoseconds from 0 to {CLOCK_DRIFT_NS_MAX}")
    expect(isinstance(fields.get("history"), dict), "history", "an object with transactions, operations and crc32")
    verdict = fields.get("verdict")
    expect(verdict in ("accepted", "rejected", "unknown"), "verdict", "accepted, rejected or unknown")
    if verdict == "accepted":
        expect(_whole_numbers(fields.get("witness")), "witness", "a list of whole numbers")
    if verdict == "rejected":
        counterexample = fields.get("counterexample")
        named = counterexample.get("transactions") if isinstance(counterexample, dict) else None
        expect(_whole_numbers(named), "counterexample.transactions", "a list of whole numbers")
    return fields


def _whole_numbers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)
