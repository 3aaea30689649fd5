"""An exception in any of our hooks stays there: the application does not notice, and nothing false is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mussurana.collector import psycopg_adapter, psycopg_lane, psycopg_watch
from mussurana.collector.psycopg_cursors import SharedAdapters
from mussurana.collector.psycopg_watch import Watch
from mussurana.collector.recorder import Session, Txn
from mussurana.collector.sql.plan import Plan
from mussurana.collector.sql.plans import Plans
from mussurana.collector.transactions import Transactions
from mussurana.verifier.verdict import Accepted, Unknown
from tests.collector.postgres import Database, create_database, drop_database
from tests.collector.psycopg.recording import NEWEST, adopt, recording
from tests.collector.psycopg.script import FILLED, TABLES, Script

HOOKS: list[tuple[Any, str]] = [
    (Watch, "plan_for"),
    (Watch, "record"),
    (Watch, "observation"),
    (Watch, "before"),
    (Watch, "after"),
    (Watch, "control_of"),
    (Watch, "begin"),
    (Watch, "may_commit_instead"),
    (Watch, "statement_failed"),
    (Watch, "command_failed"),
    (Watch, "synced"),
    (Watch, "begin_implicit"),
    (Watch, "end_implicit"),
    (Watch, "closed"),
    (Watch, "_renew"),
    (Watch, "_fence"),
    (Watch, "_text"),
    (Watch, "_blame"),
    (Plans, "find"),
    (Plans, "taint"),
    (Plan, "layout_for"),
    (Transactions, "begin"),
    (Transactions, "end"),
    (Transactions, "savepoint"),
    (Transactions, "committing"),
    (Txn, "saw"),
    (Session, "begin"),
    (Session, "fence_due"),
    (Session, "committing"),
    (psycopg_adapter, "layout_of"),
    (psycopg_adapter, "keep_place"),
    (Watch, "declared"),
    (Watch, "fetched"),
    (Watch, "abandon"),
    (Transactions, "set_default"),
    (psycopg_adapter, "SharedAdapters"),
    (psycopg_adapter, "make_sharing"),
    (SharedAdapters, "is_like"),
    (SharedAdapters, "transformer"),
    (psycopg_lane, "catch_up"),
    (psycopg_lane, "narrow"),
    (psycopg_lane, "Converted"),
    (psycopg_lane.Converted, "values"),
    (psycopg_watch, "repair_error"),
    (psycopg_adapter, "may_be_ours"),
    (psycopg_watch, "may_be_ours"),
    (psycopg_watch, "as_sent"),
    (psycopg_watch, "postgres_catalog"),
    (psycopg_watch, "layout_of"),
]

# These are about what an error says, so with them errors say something else.
SHOWN_IN_ERRORS = {"repair_error", "may_be_ours", "as_sent"}


class Injected(Exception):
    pass


@NEWEST
def test_the_application_does_not_notice(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = create_database(database.server)
    unnoticed = []
    for seed, (owner, name) in enumerate(HOOKS):
        fresh = ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        other.run(*fresh, *TABLES, *FILLED)
        adopt(database, *fresh, *TABLES, *FILLED)
        expected = Script(other.connect(), seed, 40, taints=False, stars=False).run()
        calls = 0

        def fail(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            raise Injected

        with monkeypatch.context() as patch, recording(database, tmp_path / str(seed)) as made:
            patch.setattr(owner, name, fail)
            found = Script(made.connect(), seed, 40, taints=False, stars=False).run()
        if not calls:
            unnoticed.append(name)
        for index, (one, another) in enumerate(zip(expected, found, strict=False)):
            if name in SHOWN_IN_ERRORS and isinstance(one, tuple) and one[0] == "error":
                one, another = one[:3], another[:3]
            assert another == one, f"{name} fails, after {expected[max(0, index - 4) : index]}"
    drop_database(other)
    assert len(unnoticed) < len(HOOKS) / 4, unnoticed  # most of them are on the way of any script


@NEWEST
@pytest.mark.parametrize(("owner", "name"), HOOKS, ids=[name for _, name in HOOKS])
def test_what_fails_now_and_then_leads_to_no_alarm(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    adopt(database, "CREATE TABLE accounts (id int PRIMARY KEY, balance int)")
    original = getattr(owner, name)
    calls = 0

    def fail(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise Injected
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, fail)
    with recording(database, tmp_path) as made:
        with made.connect() as connection:
            for number in range(1, 12):
                connection.execute("INSERT INTO accounts VALUES (%s, 0)", (number,))
                connection.commit()
                connection.execute("SELECT balance FROM accounts WHERE id = %s", (number,))
                connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id <= %s", (number,))
                connection.rollback() if number % 3 == 0 else connection.commit()
                connection.cursor().executemany("UPDATE accounts SET balance = 0 WHERE id = %s", [(1,), (number,)])
                connection.commit()
                connection.execute("SELECT * FROM accounts")
                connection.rollback()
        monkeypatch.undo()
        assert isinstance(made.verdict(), Accepted | Unknown)
