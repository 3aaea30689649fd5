"""What is added to statements, and where. Around it the text stays as it was written."""

from __future__ import annotations

import re

import pytest

from mussurana.collector.sql.plan import DELETE, INSERT, UPDATE
from mussurana.collector.sql.tokens import FORMAT, NONE, QMARK, RAW
from tests.collector.sql.schema import plan, plans

OURS = re.compile(
    r'[, ]*(\w+\.)?("\w+"|mussurana_wid)(::text)? AS mussurana_\w+'
    r"|, extract\(epoch FROM [^)]*\)::text AS mussurana_\w+| RETURNING $|, %s::bigint|, mussurana_wid\b"
    r"| mussurana_wid = [^,]*,"
)


@pytest.mark.parametrize(
    ("text", "added"),
    [
        (
            "SELECT balance FROM accounts WHERE id = %s",
            ', accounts."id" AS mussurana_k1, accounts.mussurana_wid AS mussurana_w2',
        ),
        ("SELECT id, balance FROM accounts", ", accounts.mussurana_wid AS mussurana_w1"),
        ("SELECT a.id FROM accounts AS a", ", a.mussurana_wid AS mussurana_w1"),
        (
            "SELECT total FROM days",
            ', extract(epoch FROM days."day")::text AS mussurana_k1, days.mussurana_wid AS mussurana_w2',
        ),
        ("select id from accounts where id = %s for update", ", accounts.mussurana_wid AS mussurana_w1"),
        ('SELECT "A".id FROM accounts "A" -- why', ', "A".mussurana_wid AS mussurana_w1'),
        ("SELECT id IS DISTINCT FROM balance FROM accounts", None),
    ],
)
def test_select_gets_columns_at_the_end_of_its_list(text: str, added: str | None) -> None:
    made = plan(text)
    assert len(made.reads) == 1
    if added is not None:
        place = text.lower().index(" from ", text.lower().index("distinct from") + 14 if "DISTINCT" in text else 0)
        assert made.text == text[:place] + added + text[place:]


def test_a_star_alone_needs_nothing_since_our_columns_are_in_it() -> None:
    made = plan("SELECT * FROM accounts WHERE id = %s")
    assert made.text == made.original
    layout = made.layout_for(["id", "owner", "balance", "mussurana_wid"])
    assert layout.visible == (0, 1, 2)
    assert [(keys, version) for _, keys, version in layout.reads] == [((0,), 3)]
    moved = made.layout_for(["id", "mussurana_wid", "owner"])
    assert moved.visible == (0, 2)


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT x.owner, y.owner FROM accounts x JOIN accounts y ON x.id < y.id", ["accounts", "accounts"]),
        ("SELECT qty FROM accounts a LEFT JOIN orders o ON o.a = a.id", ["accounts", "orders"]),
        ("SELECT s.b FROM (SELECT balance AS b FROM accounts) s", ["accounts"]),
        ("SELECT s.b FROM (SELECT t.balance AS b FROM (SELECT * FROM accounts) t) AS s", ["accounts"]),
        ("WITH c AS (SELECT * FROM accounts WHERE balance > %s) SELECT c.owner FROM c", ["accounts"]),
        ("SELECT * FROM accounts a, LATERAL (SELECT qty FROM orders WHERE orders.a = a.id) q", ["accounts", "orders"]),
        ("SELECT a.id FROM (accounts a JOIN orders o ON o.a = a.id)", ["accounts", "orders"]),
        ("SELECT owner FROM accounts, notes", ["accounts"]),
    ],
)
def test_tables_are_followed_through_joins_subqueries_and_ctes(text: str, tables: list[str]) -> None:
    assert [read.table.name for read in plan(text).reads] == tables


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("SELECT count(*) FROM accounts", "SELECT with count()"),
        ("SELECT my_aggregate(balance) FROM accounts", "SELECT with my_aggregate()"),
        ("SELECT owner FROM accounts ORDER BY my_aggregate(balance)", "SELECT with my_aggregate()"),
        ("SELECT DISTINCT owner FROM accounts", "SELECT DISTINCT"),
        ("SELECT owner FROM accounts GROUP BY owner", "SELECT with GROUP BY"),
        ("SELECT id FROM accounts UNION SELECT a FROM orders", "set operation"),
        ("SELECT lower(owner) OVER w FROM accounts WINDOW w AS ()", "SELECT with WINDOW"),
        ("SELECT to_json(accounts) FROM accounts GROUP BY accounts.id", "SELECT with GROUP BY"),
        ("SELECT s FROM (SELECT id FROM accounts) s", "whole-row reference"),
        ("SELECT array_agg(accounts) FROM accounts", "SELECT with array_agg()"),
    ],
)
def test_what_merges_rows_is_left_alone_and_counted_by_shape(text: str, shape: str) -> None:
    made = plan(text)
    assert made.text == text
    assert not made.observes
    assert not made.taints
    assert {found for _, found, _ in made.coverage} == {shape}


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("COPY accounts FROM STDIN", {"accounts"}),
        ("MERGE INTO accounts USING orders ON true WHEN MATCHED THEN DELETE", {"accounts"}),
        ("WITH gone AS (DELETE FROM accounts RETURNING *) SELECT * FROM gone", {"accounts"}),
        ("TRUNCATE orders, accounts", {"accounts", "orders"}),
        ("DO $$ BEGIN UPDATE orders SET qty = 1; END $$", {"orders"}),
        ("UPDATE rich SET balance = 1", {"accounts"}),
        ("SELECT pay(3)", {"accounts"}),
        ("CALL pay(3)", {"accounts"}),
        ("BEGIN; DELETE FROM orders; COMMIT", {"orders"}),
        ("EXPLAIN ANALYZE DELETE FROM orders", {"orders"}),
        ("PREPARE p AS DELETE FROM orders", {"orders"}),
        ("UPDATE accounts SET balance = 1 RETURNING WITH (OLD AS o) o.balance", {"accounts"}),
        ("UPDATE accounts SET mussurana_wid = 3", {"accounts"}),
        ("INSERT OR REPLACE INTO accounts (id) VALUES (1)", {"accounts"}),
    ],
)
def test_what_may_write_unseen_taints_its_tables(text: str, tables: set[str]) -> None:
    made = plan(text)
    assert {table.name for table in made.taints} == tables
    assert not made.observes


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT owner FROM accounts FOR NO KEY UPDATE",
        "EXPLAIN SELECT * FROM accounts",
        "LOCK TABLE accounts",
        "INSERT INTO notes VALUES (1)",
        "CREATE TABLE copies AS SELECT * FROM accounts",
        "SET lock_timeout = 3",
        "FETCH 3 FROM c",
        "SAVEPOINT a",
    ],
)
def test_what_cannot_write_to_a_recorded_table_taints_nothing(text: str) -> None:
    assert not plan(text).taints


@pytest.mark.parametrize("version", [18, 15])
def test_updates_say_which_version_they_replaced(version: int) -> None:
    made = plan("UPDATE accounts SET balance = balance - %s WHERE id = %s", version=version)
    assert made.write is not None
    assert made.write.kind == UPDATE
    assert made.quiet
    assert made.injection is not None
    assert list(made.injection((5, 1), 77)) == [77, 5, 1]
    if version == 18:
        assert made.text == (
            "UPDATE accounts SET mussurana_wid = %s, balance = balance - %s WHERE id = %s "
            'RETURNING accounts."id" AS mussurana_k0, old.mussurana_wid AS mussurana_p'
        )
    else:
        assert "mussurana_prev_wid = COALESCE(accounts.mussurana_wid, 0)" in made.text


def test_a_changed_key_is_a_row_gone_and_a_row_come() -> None:
    made = plan("UPDATE accounts SET id = id + 1, balance = 0")
    assert made.write is not None
    assert made.write.old_keys
    assert 'new."id"' in made.text
    assert {table.name for table in plan("UPDATE accounts SET id = 3", version=15).taints} == {"accounts"}


def test_inserts_of_several_rows_carry_the_id_in_each() -> None:
    made = plan("INSERT INTO accounts (id, owner) VALUES (%s, %s), (%s, DEFAULT) RETURNING id")
    assert made.text.startswith(
        "INSERT INTO accounts (mussurana_wid, id, owner) VALUES (%s, %s, %s), (%s, %s, DEFAULT)"
    )
    assert made.injection is not None
    assert list(made.injection((1, "a", 2), 9)) == [9, 1, "a", 9, 2]
    assert made.visible_count == 1


def test_inserts_without_columns_name_them() -> None:
    assert '(mussurana_wid, "id", "owner") VALUES (%s, 1, %s)' in plan("INSERT INTO accounts VALUES (1, %s)").text
    assert "(mussurana_wid) VALUES (%s)" in plan("INSERT INTO accounts DEFAULT VALUES").text
    copied = plan("INSERT INTO accounts SELECT * FROM accounts")
    assert (
        '("id", "owner", "balance", mussurana_wid) SELECT accounts."id", accounts."owner", accounts."balance", %s'
        in copied.text
    )


@pytest.mark.parametrize("version", [18, 15, 0])
def test_upserts_tell_an_insert_from_an_update(version: int) -> None:
    made = plan(
        "INSERT INTO accounts (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET owner = excluded.owner",
        QMARK if version == 0 else FORMAT,
        version,
    )
    assert made.write is not None
    assert made.write.kind == INSERT
    assert made.write.previous is not None
    assert made.write.previous_tells == (version != 18)
    assert "DO UPDATE SET mussurana_wid = excluded.mussurana_wid," in made.text


def test_deletes_return_what_was_there() -> None:
    made = plan("DELETE FROM accounts USING orders o WHERE o.a = accounts.id -- all")
    assert made.write is not None
    assert made.write.kind == DELETE
    assert [read.table.name for read in made.reads] == ["orders"]
    assert made.text.endswith(" -- all")
    assert made.takes_id
    assert made.injection is None


def test_a_call_without_parameters_gets_them_and_its_percent_signs_doubled() -> None:
    made = plan("UPDATE accounts SET owner = '50%' WHERE id = 1", NONE)
    assert "owner = '50%%' WHERE" in made.text
    assert made.injection is not None
    assert list(made.injection(None, 4)) == [4]
    assert "'50%'" in plan("SELECT owner FROM accounts WHERE owner LIKE '50%'", NONE).text


def test_numbered_placeholders_get_one_more() -> None:
    made = plan("UPDATE accounts SET owner = $2 WHERE id = $1 AND owner <> '$9'", RAW)
    assert "mussurana_wid = $3," in made.text
    assert made.injection is not None
    assert list(made.injection((1, "a"), 4)) == [1, "a", 4]


def test_named_placeholders_get_a_named_one() -> None:
    made = plan("UPDATE accounts SET owner = %(o)s WHERE id = %(i)s::INTEGER")
    assert "mussurana_wid = %(mussurana_wid)s," in made.text
    assert made.injection is not None
    assert made.injection({"o": 1, "i": 2}, 4) == {"o": 1, "i": 2, "mussurana_wid": 4}


def test_wrong_parameters_are_left_for_the_driver_to_refuse() -> None:
    made = plan("UPDATE accounts SET owner = %s WHERE id = %s")
    assert made.injection is not None
    with pytest.raises(ValueError, match="placeholders"):
        made.injection((1,), 4)
    with pytest.raises(ValueError, match="placeholders"):
        made.injection({"a": 1, "b": 2}, 4)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT owner FROM accounts WHERE id = %s", "="),
        ("SELECT owner FROM accounts a WHERE a.id = %(i)s::INTEGER LIMIT 1", "="),
        ("SELECT qty FROM orders WHERE b = %s AND a = %s", "="),
        ("SELECT owner FROM accounts WHERE id IN (%s, 3)", "IN"),
        ("SELECT owner FROM accounts WHERE id = ANY(%s::INTEGER[])", "ANY"),
        ("SELECT owner FROM accounts WHERE id BETWEEN %s AND %s", "RANGE"),
        ("SELECT owner FROM accounts WHERE id >= %s AND id < %s", "RANGE"),
        ("UPDATE accounts SET balance = 0 WHERE id = %s", "="),
        ("DELETE FROM accounts WHERE id = %s", "="),
        ("SELECT owner FROM accounts WHERE id = %s AND balance > 0", None),
        ("SELECT owner FROM accounts WHERE id = %s OR id = %s", None),
        ("SELECT owner FROM accounts WHERE id = %s + 1", None),
        ("SELECT owner FROM accounts WHERE id = %s OFFSET 1", None),
        ("SELECT owner FROM accounts WHERE id = %s FOR UPDATE SKIP LOCKED", None),
        ("SELECT owner FROM accounts WHERE id = %s LIMIT %s", None),
        ("SELECT qty FROM orders WHERE a = %s", None),
        ("SELECT qty FROM orders JOIN accounts ON true WHERE accounts.id = %s", None),
        ("SELECT total FROM days WHERE day = %s", None),
    ],
)
def test_absence_is_only_seen_where_it_is_exact(text: str, found: str | None) -> None:
    absence = plan(text).absence
    assert (absence.kind if absence else None) == found


def test_composite_keys_are_in_the_order_of_the_primary_key() -> None:
    absence = plan("SELECT qty FROM orders WHERE b = %s AND a = %s").absence
    assert absence is not None
    assert absence.keys(("x", 7)) == ((7, "x"),)


def test_ranges_are_bounded() -> None:
    absence = plan("SELECT owner FROM accounts WHERE id > %s AND id <= %s").absence
    assert absence is not None
    assert absence.keys((3, 6)) == [(4,), (5,), (6,)]
    assert absence.keys((3, 3_000)) == ()
    assert absence.keys(("3", 6)) == ()


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (
            "SELECT DISTINCT * FROM accounts",
            'SELECT DISTINCT accounts."id", accounts."owner", accounts."balance" FROM accounts',
        ),
        (
            "SELECT a.* FROM accounts a UNION ALL SELECT * FROM accounts",
            'SELECT a."id", a."owner", a."balance" FROM accounts a UNION ALL '
            'SELECT accounts."id", accounts."owner", accounts."balance" FROM accounts',
        ),
        ("COPY accounts TO STDOUT", 'COPY accounts ("id", "owner", "balance") TO STDOUT'),
        ("CREATE TABLE c AS SELECT * FROM spread", 'CREATE TABLE c AS SELECT spread."id" FROM spread'),
        (
            "SELECT count(*) FROM orders WHERE (a, b) IN (SELECT * FROM orders)",
            'SELECT count(*) FROM orders WHERE (a, b) IN (SELECT orders."a", orders."b", orders."qty" FROM orders)',
        ),
    ],
)
def test_stars_that_would_show_our_columns_are_written_out(text: str, sent: str) -> None:
    assert plan(text, NONE).text == sent


def test_natural_joins_do_not_compare_our_columns() -> None:
    assert (
        'FROM accounts  JOIN accounts b USING ("id", "owner", "balance")'
        in plan("SELECT count(*) FROM accounts NATURAL JOIN accounts b").text
    )


def test_a_tainted_table_is_not_recorded_any_more() -> None:
    made = plans()
    read = made.find("SELECT owner FROM accounts", FORMAT)
    other = made.find("SELECT qty FROM orders", FORMAT)
    assert read.observes
    made.taint(made.find("TRUNCATE accounts", FORMAT).taints)
    assert not read.live  # also not what is under way
    assert other.live
    assert not made.find("SELECT owner FROM accounts", FORMAT).observes
    assert not made.find("UPDATE accounts SET owner = 'x'", FORMAT).observes


def test_the_cache_is_bounded_and_keeps_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mussurana.collector.sql.plans.PLANS_MAX", 50)
    made = plans()
    kept = made.find("SELECT owner FROM accounts", FORMAT)
    for number in range(500):
        made.find(f"SELECT owner FROM accounts WHERE id = {number}", FORMAT)
        assert made.find("SELECT owner FROM accounts", FORMAT) is kept
    assert len(made.caches[FORMAT]) <= 50


def test_statements_for_people_have_no_values_in_them() -> None:
    assert plan("SELECT owner FROM accounts WHERE owner = 'me' AND id = %s LIMIT 3").statement == (
        "SELECT owner FROM accounts WHERE owner = ? AND id = %s LIMIT ?"
    )


@pytest.mark.parametrize(
    "text", ["", ";", "SELECT", "SELECT (", "UPDATE", "INSERT INTO", "'", "WITH", "))((", "DELETE FROM"]
)
@pytest.mark.parametrize("style", [NONE, FORMAT, RAW, QMARK])
def test_texts_that_make_no_sense_are_passed_on(text: str, style: str) -> None:
    assert plan(text, style).text == text
