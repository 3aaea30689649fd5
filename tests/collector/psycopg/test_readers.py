"""What `_columns.c` reads out of results is what Python reads out of them."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mussurana.collector import background, extraction, fragments, psycopg_lane
from mussurana.collector import columns as plain
from mussurana.collector import recorder as recorders
from mussurana.collector.catalog import Table
from mussurana.collector.columns import DELETE, INSERT, READ, UPDATE, PlainBatch, PlainColumns, bind_driver, narrow
from mussurana.collector.extraction import Sink
from mussurana.collector.metrics import Metrics
from mussurana.collector.names import Names
from mussurana.collector.recorder import Recorder
from mussurana.collector.settings import Settings
from mussurana.collector.sql import extract
from mussurana.collector.sql import plan as plans
from mussurana.collector.sql.extract import _make_reader, postgres_extractor
from mussurana.collector.sql.plan import Layout, Plan, Write
from mussurana.verifier.embedded_postgres import EmbeddedPostgres
from mussurana.wire import history_pb2
from tests.collector.postgres import Database
from tests.collector.psycopg.recording import NEWEST, adopt, recording

needs_reader = pytest.mark.skipif(not bind_driver(), reason="the extension was not built, or psycopg has none")

SEEDS = 300
TABLES = [Table(name, "public", ("id",), ("id",), has_prev=False) for name in ("items", "a'b")]


@pytest.fixture(scope="module")
def connection(postgres: EmbeddedPostgres) -> Iterator[Any]:
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as made:
        yield made


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder(Settings())
    yield made
    made.close()


def random_result(rng: random.Random, connection: Any, is_binary: bool) -> Any:
    """Columns: number, number or NULL, version or NULL, version or NULL, text, uuid, bytea, text or NULL."""
    values = [rng.choice(["1", "NULL", str(rng.randrange(1 << 62)), str(rng.randrange(20))]) for _ in range(4)]
    text = rng.choice(["'x'", "'it''s'", "''", "repeat('äö', 400)", "'\\x'"])
    row = (
        f"SELECT (g * {rng.randrange(1, 5)}) % {rng.randrange(1, 9)}, {values[0]}::bigint, {values[1]}::bigint,"
        f" nullif(g % 3, {rng.randrange(4)})::bigint, {text}, md5((g % 4)::text)::uuid,"
        f" decode(md5((g % 5)::text), 'hex'), nullif({text}, 'x')"
    )
    query = f"{row} FROM generate_series(1, {rng.choice([0, 1, 1, 2, 7, 40])}) AS g"
    return connection.cursor(binary=is_binary).execute(query).pgresult


def random_plan(rng: random.Random) -> tuple[Plan, Layout]:
    def table() -> tuple[Table, tuple[int, ...], int]:
        key = tuple(rng.sample([0, 0, 1, 4, 5, 6, 7], rng.choice([1, 1, 1, 2, 3])))
        return rng.choice(TABLES), key, rng.choice([2, 3])

    plan = Plan("SELECT", "SELECT", statement=rng.choice(["SELECT 1", "UPDATE items"]))
    reads = tuple(table() for _ in range(rng.choice([0, 1, 1, 2, 3])))
    layout = Layout(8, None, (), reads)
    if not reads or rng.random() < 0.3:
        kind = rng.choice([plans.INSERT, plans.UPDATE, plans.DELETE])
        written, keys, previous = table()
        plan.write = Write(kind, written, keys)
        layout = Layout(8, None, (), reads, keys, previous=-1 if kind == plans.INSERT else previous)
    return plan, layout


def said(names: Names, sink: Sink) -> list[tuple[Any, ...]]:
    told = history_pb2.Fragment.FromString(names.new_keys())
    keys, texts = {each.key: each.name for each in told.key_name}, dict(names.new_statements)
    return [
        (kind, keys[key], version, previous, texts[text]) for kind, key, version, previous, text in sink.columns.rows()
    ]


@needs_reader
@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
def test_a_reader_says_what_python_says(connection: Any, recorder: Recorder, is_binary: bool) -> None:
    rng = random.Random(7)
    operations = set()
    for seed in range(SEEDS):
        plan, layout = random_plan(rng)
        result = random_result(rng, connection, is_binary)
        read = postgres_extractor("utf-8", recorder)
        known, slow = Names(Metrics()), Names(Metrics())
        _make_reader(plan, layout, random_result(rng, connection, False), "utf-8", recorder, known)
        write_id = rng.randrange(1, 1 << 63) if plan.write else 0
        theirs, ours = Sink(slow), Sink(known)
        slow.readers[layout] = read  # so that none is made
        before = dict(recorder.coverage.unsent())
        read((read, plan, layout, result, write_id, ()), theirs)
        counted = {key: count - before.get(key, 0) for key, count in recorder.coverage.unsent()}
        if rng.random() < 0.5:  # the application shall not see all of it
            result = narrow(result, 8, rng.randrange(8), rng.random() < 0.5 and not is_binary, b"")
        for _ in range(2):  # the second time all keys are known
            ours = Sink(known)
            observation = (known.readers[layout], plan, layout, result, write_id, ())
            if is_binary:
                assert ours.columns.add_read([observation], 0) == 0
                observation[0](observation, ours)
            else:
                assert ours.columns.add_read([observation, (print,)], 0) == 1
            assert said(known, ours) == said(slow, theirs), seed
        after = {key: count - before.get(key, 0) for key, count in recorder.coverage.unsent()}
        assert after == {key: 3 * count for key, count in counted.items()}
        operations |= {kind for kind, *_ in ours.columns.rows()}
    assert operations == {READ, UPDATE, DELETE, INSERT}


@needs_reader
def test_a_version_that_is_none_is_a_failure_and_nothing_is_added(connection: Any, recorder: Recorder) -> None:
    names = Names(Metrics())
    layout = Layout(2, None, (), ((TABLES[0], (0,), 1),))
    plan = Plan("", "")
    for wrong in ("'x'", "'-1'", "'9223372036854775808'", "'99999999999999999999'", "''"):
        result = connection.execute(f"SELECT g, CASE g WHEN 3 THEN {wrong} ELSE '7' END FROM generate_series(1, 3) g")
        names.readers.clear()
        _make_reader(plan, layout, result.pgresult, "utf-8", recorder, names)
        observation = (names.readers[layout], plan, layout, result.pgresult, 0, ())
        sink = Sink(names)
        assert sink.columns.add_read([observation], 0) == 0
        with pytest.raises(ValueError, match="version"):
            observation[0](observation, sink)
        assert len(sink.columns) == 0
    result.pgresult.clear()
    with pytest.raises(ValueError, match="cleared"):
        observation[0](observation, sink)


@needs_reader
@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
def test_a_result_that_was_narrowed_is_one_that_never_had_more(connection: Any, is_binary: bool) -> None:
    def shown(result: Any, rows: int, columns: int) -> list[Any]:
        """Also of a row and a column that are not there."""
        asked = [result.fname, result.ftype, result.fformat, result.fmod, result.fsize, result.ftable]
        about = [ask(column) for ask in asked for column in range(columns + 1)]
        values = [result.get_value(row, column) for row in range(rows + 1) for column in range(columns + 1)]
        counts = (result.ntuples, result.nfields, result.status, result.command_status, result.command_tuples)
        return [about, values, counts]

    rng = random.Random(5)
    connection.execute("DROP TABLE IF EXISTS numbers")
    connection.execute("CREATE TEMP TABLE numbers (id int, name text, wid bigint)")
    connection.execute("INSERT INTO numbers SELECT g, nullif('n' || g, 'n3'), g FROM generate_series(1, 9) g")
    for _ in range(100):
        visible, least = rng.randrange(4), rng.randrange(11)
        names, kind = ["id", "name", "wid", "id + wid"], rng.choice(["SELECT", "UPDATE", "quiet"])
        cursor = connection.cursor(binary=is_binary)
        where = f" WHERE id > {least}"
        texts = {"SELECT": "SELECT {} FROM numbers" + where + " ORDER BY id"}
        texts["UPDATE"] = "UPDATE numbers SET wid = wid" + where + " RETURNING {}"
        texts["quiet"] = texts["UPDATE"]
        result = cursor.execute(texts[kind].format(", ".join(names))).pgresult
        before = [[result.get_value(row, column) for column in range(4)] for row in range(result.ntuples)]
        count, types = result.ntuples, [result.ftype(column) for column in range(4)]
        answer: Any = narrow(result, 4, visible, kind == "quiet", b"s")
        if is_binary and kind == "quiet":
            assert answer is None
            continue
        assert answer.result is result
        assert answer.statement == b"s"
        assert (answer.ntuples, answer.nfields) == (count, 4)
        assert [[answer.get_value(row, column) for column in range(4)] for row in range(count)] == before
        assert [answer.ftype(column) for column in range(4)] == types
        assert [answer.fname(column) for column in range(4)] == [b"id", b"name", b"wid", b"?column?"]
        assert {answer.fformat(column) for column in range(4)} == {int(is_binary)}
        for wrong in ((count, 0), (0, 4), (-1, 0), (0, -1)):
            with pytest.raises(IndexError):
                answer.get_value(*wrong)
        for ask in (answer.fname, answer.ftype, answer.fformat):
            with pytest.raises(IndexError):
                ask(4)
        text = texts[kind].format(", ".join(names[:visible]))
        if kind == "quiet":
            text = text.removesuffix(f" RETURNING {', '.join(names[:visible])}")
        elif kind == "UPDATE" and not visible:
            continue  # which no statement can ask for
        other = cursor.execute(text).pgresult
        columns = 0 if kind == "quiet" else visible
        if kind == "SELECT":  # the rows that an UPDATE returns have no order
            assert shown(result, count, columns) == shown(other, count, columns)
        else:
            assert shown(result, count, columns)[::2] == shown(other, count, columns)[::2]
    for columns, visible in ((3, 1), (5, 1), (4, 4), (4, 5), (4, -1)):
        result = cursor.execute("SELECT 1, 2, 3, 4").pgresult
        assert narrow(result, columns, visible, False, b"") is None
        assert result.nfields == 4
    assert narrow(cursor.execute("RESET all").pgresult, 0, 0, True, b"") is None
    answer = narrow(result, 4, 1, False, b"")
    result.clear()
    with pytest.raises(ValueError, match="cleared"):
        answer.get_value(0, 0)


@NEWEST
def test_without_the_extension_the_same_is_recorded(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do_everything(name: str) -> list[Any]:
        with recording(database, tmp_path / name) as made:
            with made.connect(prepare_threshold=0) as connection:
                for turn in range(3):
                    connection.execute("INSERT INTO items VALUES (%s, 1), (%s, 2)", (turn, 10 + turn))
                    connection.execute("UPDATE items SET value = value + 1 WHERE id >= %s", (turn,))
                    connection.execute("SELECT a.id, b.value FROM items a, items b WHERE a.id > %s", (turn,))
                    connection.execute("SELECT * FROM items WHERE id = %s", (99,))
                    connection.execute("INSERT INTO items VALUES (%s, 1) ON CONFLICT DO NOTHING", (turn,))
                    connection.commit()
                connection.execute("DELETE FROM items WHERE id > %s", (-1,))
            found = [made.operations(), made.coverage]
            assert made.failures == 0
            return found

    adopt(database, "CREATE TABLE items (id int PRIMARY KEY, value int)")
    with_it = do_everything("with")
    monkeypatch.setattr(extraction, "Columns", PlainColumns)
    for module in (fragments, recorders):
        monkeypatch.setattr(module, "Batch", PlainBatch)
    monkeypatch.setattr(background, "SHARED", False)
    for module in (extract, psycopg_lane):
        monkeypatch.setattr(module, "bind_driver", lambda: False)
    monkeypatch.setattr(psycopg_lane, "_NARROWS", False)
    assert do_everything("without") == with_it
    assert len(with_it[0]) == 4


@needs_reader
def test_a_reader_goes_with_the_recorder_that_made_it(connection: Any, tmp_path: Path) -> None:
    recorder = Recorder(Settings(spool=str(tmp_path)))
    plan, layout = Plan("", ""), Layout(2, None, (), ((TABLES[0], (0,), 1),))
    result = connection.execute("SELECT 1, 2").pgresult
    _make_reader(plan, layout, result, "utf-8", recorder, recorder.names)
    assert (
        Sink(recorder.names).columns.add_read([(recorder.names.readers[layout], plan, layout, result, 0, ())], 0) == 1
    )
    gone = weakref.ref(recorder)
    recorder.close()
    del recorder
    gc.collect()
    assert gone() is None


@needs_reader
def test_columns_are_the_same_in_both_languages() -> None:
    rng = random.Random(3)
    for _ in range(200):
        native, twin = plain.Columns(), PlainColumns()
        for _ in range(rng.randrange(20)):
            version, previous = rng.randrange(1 << 63), rng.randrange(1 << 63)
            row = rng.randrange(6), rng.randrange(1 << 64), version, previous, rng.randrange(9)
            native.tell(*row)
            twin.tell(*row)
        if rng.random() < 0.3:
            count = rng.randrange(25)
            native.cut(count)
            twin.cut(count)
        native_all, twin_all = plain.Columns(), PlainColumns()
        for _ in range(3):
            native_all.extend(native)
            twin_all.extend(twin)
        assert native_all.content() == twin_all.content()
        assert native.rows() == twin.rows()
        assert native.content() == twin.content()
        kept = [(*row[:3], row[3] if row[0] in plain.REPLACING else 0, row[4]) for row in native.rows()]
        assert plain.rows_in(native.content()) == kept
        assert len(native) == len(twin)
    for wrong in [(6, 1, 1, 0, 0), (0, -1, 1, 0, 0), (0, 1, 1 << 63, 0, 0), (1, 1, 1, 1 << 63, 0), (0, "a", 1, 0, 0)]:
        for columns in (native, twin):
            with pytest.raises((OverflowError, TypeError)):
                columns.tell(*wrong)  # type: ignore[arg-type]
    assert native.rows() == twin.rows()
