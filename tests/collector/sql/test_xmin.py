"""Rewriting for databases whose schema must stay as it is: versions are the server's own transaction ids."""

from __future__ import annotations

import pytest

from mussurana.collector.sql.draft import XMIN
from mussurana.collector.sql.plans import Plans
from mussurana.collector.sql.tokens import FORMAT, POSTGRES
from tests.collector.sql.schema import catalog


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (
            "SELECT id FROM accounts",
            "SELECT id, accounts.xmin::text::bigint AS mussurana_w1 FROM accounts",
        ),
        (
            "UPDATE accounts SET balance = 0 WHERE id = %s",
            'UPDATE accounts SET balance = 0 WHERE id = %s RETURNING accounts."id" AS mussurana_k0, '
            "old.xmin::text::bigint AS mussurana_p, accounts.xmin::text::bigint AS mussurana_v",
        ),
        (
            "INSERT INTO accounts (id) VALUES (%s)",
            'INSERT INTO accounts (id) VALUES (%s) RETURNING accounts."id" AS mussurana_k0, '
            "accounts.xmin::text::bigint AS mussurana_v",
        ),
        (
            "DELETE FROM accounts",
            'DELETE FROM accounts RETURNING accounts."id" AS mussurana_k0, '
            "accounts.xmin::text::bigint AS mussurana_p, "
            "pg_current_xact_id()::text::bigint & 4294967295 AS mussurana_v",
        ),
    ],
)
def test_nothing_is_written_and_the_ids_are_asked_for(text: str, sent: str) -> None:
    made = Plans(catalog(), POSTGRES, XMIN).find(text, FORMAT)
    assert made.text == sent
    assert made.injection is None
    assert not made.takes_id
