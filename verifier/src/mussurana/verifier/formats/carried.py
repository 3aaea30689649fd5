"""What a format cannot carry: refused where it is structure, else reported, so that nothing is lost in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import (
    INITIAL,
    NO_ROW,
    NO_VALUE,
    UNKNOWN_TIME,
    History,
    HistoryError,
    Kind,
    LeftOut,
    Status,
)


def refuse(
    history: History, format: str, *, aborted: bool = False, in_doubt: bool = False, lists: bool = False
) -> None:
    """Raise where the history has parts that `format` has no room for; true means that it has room."""
    counts = {
        "aborted transactions": 0 if aborted else _count(history.status == Status.ABORTED),
        "in-doubt transactions": 0 if in_doubt else _count(history.status == Status.IN_DOUBT),
        "list operations": 0 if lists else _count((history.kind == Kind.APPEND) | (history.kind == Kind.READ_LIST)),
    }
    for what, count in counts.items():
        if count:
            raise HistoryError(
                f"{format} has no way to write {what}, and there are {count}; mussurana and Elle's formats do"
            )


def unsaid(
    history: History,
    *,
    times: bool = False,
    inner_times: bool = False,
    session_names: bool = False,
    txn_names: bool = False,
    empty: bool = False,
) -> tuple[LeftOut, ...]:
    """What a file in a format that carries only the given parts says less than the history."""
    outer = (history.begin_ns != UNKNOWN_TIME) | (history.committed_ns != UNKNOWN_TIME)
    inner = (history.begun_ns != UNKNOWN_TIME) | (history.commit_ns != UNKNOWN_TIME)
    counts = {
        "begin and commit times": 0 if times else _count(outer),
        "times inside transactions": 0 if inner_times else _count(inner),
        "replaced versions of writes": _count((history.previous != NO_VALUE) & (history.previous != NO_ROW)),
        "writes that began a row": _count(history.previous == NO_ROW),
        "transactions without operations": 0 if empty else _count(history.op_start[1:] == history.op_start[:-1]),
        "session names": 0 if session_names else len(history.session_names),
        "transaction names": 0 if txn_names else len(history.txn_names),
        "notes of what was left out before": len(history.left_out),
    }
    return tuple(LeftOut(what, count) for what, count in counts.items() if count)


def written_versions(history: History) -> dict[tuple[int, int], int]:
    """(key, version) -> the first transaction that wrote it."""
    writer: dict[tuple[int, int], int] = {}
    keys, values = history.key.tolist(), history.value.tolist()
    txn_of_op = np.repeat(np.arange(history.txn_count), np.diff(history.op_start))
    for op in np.flatnonzero((history.kind == Kind.WRITE) | (history.kind == Kind.APPEND)).tolist():
        writer.setdefault((keys[op], values[op]), int(txn_of_op[op]))
    return writer


def refuse_versions(history: History, format: str, meaning: dict[int, str]) -> None:
    """Raise where a version is a number that means something else in `format`."""
    for number, what in meaning.items():
        ops = np.flatnonzero((history.value == number) & (history.value != INITIAL))
        if len(ops):
            key = history.key_names[int(history.key[ops[0]])]
            raise HistoryError(f"{format} has no way to write version {number} of key {key}: there it means {what}")


def _count(mask: npt.NDArray[Any]) -> int:
    return int(np.count_nonzero(mask))
