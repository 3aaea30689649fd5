"""Histories of lists as histories of registers, exactly or not at all.

The wire knows versions and what each replaced. A list that was read shows the versions of its key in order, so an
append is a write that replaced the element before it, and reading a list is reading its last element. That says the
same only where the order of all appends that took effect is known; everything else is refused, with the key.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from mussurana.verifier.history import INITIAL, History, HistoryError, Kind, Status


def as_registers(history: History) -> History:
    """The same history without lists. HistoryError names the key where that cannot be done exactly."""
    is_list = np.isin(history.kind, (Kind.APPEND, Kind.READ_LIST))
    if not is_list.any():
        return history
    txn_of = np.repeat(np.arange(history.txn_count), np.diff(history.op_start))
    longest: dict[int, list[int]] = defaultdict(list)
    lists: dict[int, list[list[int]]] = defaultdict(list)
    for op in np.flatnonzero(history.kind == Kind.READ_LIST).tolist():
        if history.status[txn_of[op]] != Status.ABORTED:
            seen = history.list_seen(op)
            lists[int(history.key[op])].append(seen)
            longest[int(history.key[op])] = max(longest[int(history.key[op])], seen, key=len)
    appends: dict[int, list[int]] = defaultdict(list)
    for op in np.flatnonzero(history.kind == Kind.APPEND).tolist():
        appends[int(history.key[op])].append(op)
    previous = history.previous.copy()
    for key in {*longest, *appends}:
        _order(history, txn_of, key, longest[key], lists[key], appends[key], previous)
    kind = np.where(history.kind == Kind.APPEND, Kind.WRITE, history.kind)
    kind = np.where(history.kind == Kind.READ_LIST, Kind.READ, kind).astype(np.uint8)
    empty, no_lists = np.zeros(0, np.int64), np.zeros(history.op_count + 1, np.int64)
    return replace(history, kind=kind, previous=previous, list_start=no_lists, list_value=empty)


def _order(
    history: History,
    txn_of: np.ndarray,
    key: int,
    longest: list[int],
    lists: list[list[int]],
    appends: list[int],
    previous: np.ndarray,
) -> None:
    """Fill in which element each append of a key replaced."""

    def refuse(why: str) -> HistoryError:
        return HistoryError(
            f"key {history.key_names[key]!r}: {why}, which the wire cannot say; use `mussurana check` for this history"
        )

    if any(seen != longest[: len(seen)] for seen in lists):
        raise refuse("lists that were read contradict each other")
    writer: dict[int, int] = {}
    for op in appends:
        value = int(history.value[op])
        if value in writer:
            raise refuse(f"element {history.value_name(value)} was appended twice")
        writer[value] = op
    if len(set(longest)) < len(longest):
        raise refuse("an element stands twice in a list")
    for value in longest:
        if value not in writer or history.status[txn_of[writer[value]]] == Status.ABORTED:
            raise refuse(f"element {history.value_name(value)} was read, and nobody committed it")
    shown = set(longest)
    unseen = [
        op for op in appends if int(history.value[op]) not in shown and history.status[txn_of[op]] == Status.COMMITTED
    ]
    if len({int(txn_of[op]) for op in unseen}) > 1:
        raise refuse(f"{len(unseen)} appends were never read, so that nothing tells their order")
    ordered = [*(writer[value] for value in longest), *unseen]
    txns = [int(txn_of[op]) for op in ordered]
    if len({txn for at, txn in enumerate(txns) if at == 0 or txns[at - 1] != txn}) < sum(
        at == 0 or txns[at - 1] != txn for at, txn in enumerate(txns)
    ):
        raise refuse("what one transaction appended is apart in a list")
    before = INITIAL
    for op in ordered:
        previous[op] = before
        before = int(history.value[op])
