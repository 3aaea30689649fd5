"""Who gets data from the page."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

import pytest

from mussurana.verifier.daemon.auth import Tokens
from mussurana.verifier.daemon.web.access import Access

TOKEN = "a-token-for-queries-1"
OTHER = "a-token-for-ingest-22"


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    file = tmp_path / "tokens"
    file.write_text(f"query anna {TOKEN}\ningest web {OTHER}\n")
    return Tokens.read(file)


def status(access: Access, **headers: str) -> HTTPStatus | None:
    refusal = access.refusal(headers)
    return refusal.status if refusal else None


def test_with_tokens_only_one_for_queries_opens(tokens: Tokens) -> None:
    access = Access(lambda: tokens, "0.0.0.0:7702", insecure=False)
    assert status(access, authorization=f"Bearer {TOKEN}") is None
    assert status(access, authorization=f"bearer {TOKEN}") is None
    for given in ("", "Bearer", "Bearer ", f"Bearer {OTHER}", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"):
        assert status(access, authorization=given) == HTTPStatus.UNAUTHORIZED, given


def test_tokens_count_also_where_it_says_insecure(tokens: Tokens) -> None:
    access = Access(lambda: tokens, "127.0.0.1:7702", insecure=True)
    assert status(access, host="localhost:7702") == HTTPStatus.UNAUTHORIZED


def test_without_tokens_nothing_is_shown_to_other_machines_unless_somebody_said_so() -> None:
    assert status(Access(lambda: None, "0.0.0.0:7702", insecure=False), host="10.0.0.1:7702") == HTTPStatus.FORBIDDEN
    assert status(Access(lambda: None, "0.0.0.0:7702", insecure=True), host="mussurana.example") is None


@pytest.mark.parametrize("host", ["127.0.0.1:7702", "localhost:7702", "LOCALHOST", "[::1]:7702", "127.0.0.1"])
def test_without_tokens_this_machine_is_answered(host: str) -> None:
    assert status(Access(lambda: None, "127.0.0.1:7702", insecure=False), host=host) is None


@pytest.mark.parametrize(
    "host", ["evil.example:7702", "127.0.0.1.evil.example", "localhost.evil.example", "", "[evil]:7702", "127.0.0.1@x"]
)
def test_a_foreign_name_that_points_to_this_machine_gets_nothing(host: str) -> None:
    assert status(Access(lambda: None, "127.0.0.1:7702", insecure=False), host=host) == HTTPStatus.FORBIDDEN
