"""Documents of violations are made once and kept within a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier.daemon.violations import Violations
from mussurana.verifier.daemon.web import documents
from mussurana.verifier.daemon.web.documents import Documents
from tests.render import samples
from tests.web.stage import a_violation


@pytest.fixture
def violations(tmp_path: Path) -> Violations:
    stored = Violations(tmp_path / "violations")
    stored.add([a_violation(f"v{n}", samples.write_skew(), n) for n in range(4)])
    return stored


def test_a_document_is_made_once(violations: Violations, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Documents(violations)
    first = kept.get("v1", "svg")
    monkeypatch.setitem(documents.FORMS, "svg", ("image/svg+xml", lambda violation: pytest.fail("made again")))
    assert kept.get("v1", "svg") == first


def test_those_that_nobody_asked_for_lately_go_first(violations: Violations) -> None:
    kept = Documents(violations, kept_bytes_max=1)
    for name in ("v0", "v1", "v2", "v0"):
        assert kept.get(name, "json") is not None
    assert list(kept._kept) == [("v0", "json", "waiting")], "the last one is kept whatever its size"
    assert kept._kept_bytes == sum(map(len, kept._kept.values()))


def test_there_is_no_document_of_what_is_not_stored(violations: Violations) -> None:
    assert Documents(violations).get("v9", "json") is None


@pytest.mark.parametrize("form", documents.FORMS)
@pytest.mark.parametrize("make", samples.REJECTED.values(), ids=samples.REJECTED)
def test_every_kind_of_violation_has_every_form(tmp_path: Path, form: str, make: object) -> None:
    stored = Violations(tmp_path / "violations")
    stored.add([a_violation("v", make(), 1)])  # type: ignore[operator]
    found = Documents(stored).get("v", form)
    assert found is not None
    assert found[1]
