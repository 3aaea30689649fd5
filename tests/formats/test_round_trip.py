"""What was saved is what is loaded, for every format, on random histories."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier import formats
from mussurana.verifier.history import History, HistoryBuilder, HistoryError, Status
from tests.formats.samples import Shape, canonical, random_history

COMMITTED = (Status.COMMITTED,)
REGISTERS = Shape(
    statuses=COMMITTED, lists=False, times="none", previous=False, value_names=False, key_name="{}", session_name="{}"
)
SHAPES = {
    "mussurana": Shape(),
    "cobra": replace(REGISTERS, session_name="T{}"),
    "cobra stamped": replace(
        REGISTERS,
        session_name="T{}",
        times="outer",
        statuses=(Status.COMMITTED,) * 5 + (Status.IN_DOUBT,),
        in_doubt_last=True,
    ),
    "dbcop": replace(REGISTERS, statuses=(Status.COMMITTED, Status.ABORTED)),
    "elle-edn": Shape(previous=False, times="outer", initial_in_uncommitted=False),
    "elle-edn lists": Shape(previous=False, times="outer", registers=False, key_name=":k{}", session_name="{}"),
    "elle-json": Shape(previous=False, times="none", initial_in_uncommitted=False, key_name="{}"),
    "text": replace(REGISTERS, session_name="s{}", key_name="x{}", statuses=(Status.COMMITTED, Status.ABORTED)),
    "viper": replace(REGISTERS, session_name="J{}", times="ms"),
}
PATHS = {"mussurana": "h.mus", "elle-edn": "h.edn", "elle-json": "h.json", "text": "h.txt"}


def by_number(history: History) -> dict[str, list[Any]]:
    """As dbcop has it: sessions without names."""
    numbers = {name: str(number) for number, name in enumerate(history.session_names)}
    return {numbers[session]: txns for session, txns in canonical(history).items()}


def without_empty(history: History) -> dict[str, list[Any]]:
    """As text has it: no empty transactions, and rolled back ones that follow each other are one."""
    sessions = {}
    for session, txns in canonical(history).items():
        kept = []
        for status, group in groupby([txn for txn in txns if txn[2]], key=lambda txn: txn[0]):
            some = list(group)
            if status == Status.ABORTED:
                some = [(status, some[0][1], [operation for txn in some for operation in txn[2]])]
            kept.extend(some)
        if kept:
            sessions[session] = kept
    return sessions


def with_one_kind_of_nothing(history: History) -> dict[str, list[Any]]:
    """As Elle has it: an unwritten key is a list or a register, whichever; both reads saw nothing."""
    plain: dict[str, list[Any]] = {}
    for session, txns in canonical(history).items():
        plain[session] = [
            (status, stamps, [op if op[2] != "initial" else (op[1], "initial") for op in ops])
            for status, stamps, ops in txns
        ]
    return plain


COMPARED_BY = {
    "dbcop": by_number,
    "text": without_empty,
    "elle-edn": with_one_kind_of_nothing,
    "elle-json": with_one_kind_of_nothing,
}


@pytest.mark.parametrize("case", SHAPES)
def test_what_was_saved_is_loaded_again(case: str, tmp_path: Path) -> None:
    name = case.split()[0]
    compare = COMPARED_BY.get(name, canonical)
    for seed in range(80):
        history = random_history(random.Random(seed), SHAPES[case])
        path = tmp_path / str(seed) / PATHS.get(name, "h")
        path.parent.mkdir()
        formats.save(history, path, name)
        assert compare(formats.load(path)) == compare(history), f"seed {seed}"


def test_our_own_format_keeps_everything(tmp_path: Path) -> None:
    for seed in range(40):
        build = random_history(random.Random(seed), Shape())
        assert formats.save(build, tmp_path / "h.mus") == ()
        again = formats.load(tmp_path / "h.mus")
        assert list(again.txn_names) == list(build.txn_names)
        assert list(again.key_names) == list(build.key_names)
        assert list(again.session_names) == list(build.session_names)
        assert again.value_names == build.value_names
        for column in ("session", "status", "op_start", "kind", "key", "value", "previous", "list_start", "list_value"):
            assert getattr(again, column).tolist() == getattr(build, column).tolist()
            assert getattr(again, column).dtype == getattr(build, column).dtype


def test_notes_of_what_was_left_out_survive_our_own_format(tmp_path: Path) -> None:
    build = HistoryBuilder()
    build.leave_out("reads that nobody understood", 7)
    formats.save(build.finish(), tmp_path / "h.mus")
    assert formats.load(tmp_path / "h.mus").left_out == build.finish().left_out


@pytest.mark.parametrize("name", ["cobra", "dbcop", "text", "viper"])
def test_lists_are_refused_by_formats_without_them(name: str, tmp_path: Path) -> None:
    build = HistoryBuilder()
    build.transaction("1")
    build.append("1", 5)
    with pytest.raises(HistoryError, match=f"{name} has no way to write list operations, and there are 1"):
        formats.save(build.finish(), tmp_path / "h", name)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("cobra", Status.ABORTED),
        ("dbcop", Status.IN_DOUBT),
        ("text", Status.IN_DOUBT),
        ("viper", Status.ABORTED),
        ("viper", Status.IN_DOUBT),
    ],
)
def test_an_outcome_that_a_format_does_not_know_is_refused(name: str, status: Status, tmp_path: Path) -> None:
    build = HistoryBuilder()
    build.transaction("1", status)
    build.write("1", 5)
    with pytest.raises(HistoryError, match=f"{name} has no way to write (aborted|in-doubt) transactions"):
        formats.save(build.finish(), tmp_path / "h", name)


@pytest.mark.parametrize(("name", "version"), [("cobra", 0xBEBEEBEE), ("dbcop", 0), ("text", -1), ("viper", 0)])
def test_a_version_that_means_something_else_is_refused(name: str, version: int, tmp_path: Path) -> None:
    build = HistoryBuilder()
    build.transaction("1")
    build.write("7", version)
    with pytest.raises(HistoryError, match=f"{name} has no way to write version {version} of key 7"):
        formats.save(build.finish(), tmp_path / "h", name)


def test_saving_says_what_the_format_has_no_place_for(tmp_path: Path) -> None:
    build = HistoryBuilder()
    build.transaction("alice", begin_ns=1, committed_ns=2, name="first")
    build.write("7", 5, previous=4)
    lost = {note.what: note.count for note in formats.save(build.finish(), tmp_path / "h", "dbcop")}
    assert lost == {
        "begin and commit times": 1,
        "replaced versions of writes": 1,
        "session names": 1,
        "transaction names": 1,
    }


def test_an_in_doubt_transaction_before_others_is_refused_by_cobra(tmp_path: Path) -> None:
    build = HistoryBuilder()
    build.transaction("a", Status.IN_DOUBT)
    build.transaction("a")
    with pytest.raises(HistoryError, match="not the last of its session"):
        formats.save(build.finish(), tmp_path / "h", "cobra")
