"""Histories of lists as histories of registers, exactly or not at all.

The wire knows versions and what each replaced. A list that was read shows the versions of its key in order, so an
append that stands in it is a write that replaced the element before it, and reading a list is reading its last element.
An append that nobody read came after all that were read; it is a write of which nobody knows what it replaced, and
where those before it are one chain, that says the same. What this cannot say is refused, with the key.

Lists that aborted transactions read prove nothing, nor do those of transactions in doubt that did not take effect.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from mussurana.verifier.history import INITIAL, NO_VALUE, History, HistoryError, Kind, Status


def as_registers(history: History) -> History:
    """The same history without lists. HistoryError names the key where that cannot be done exactly."""
    is_list = np.isin(history.kind, (Kind.APPEND, Kind.READ_LIST))
    if not is_list.any():
        return history
    txn_of = np.repeat(np.arange(history.txn_count), np.diff(history.op_start))
    takes_part = _in_effect(history)[txn_of]
    lists: dict[int, list[list[int]]] = defaultdict(list)
    for op in np.flatnonzero((history.kind == Kind.READ_LIST) & takes_part).tolist():
        lists[int(history.key[op])].append(history.list_seen(op))
    appends: dict[int, list[int]] = defaultdict(list)
    for op in np.flatnonzero(history.kind == Kind.APPEND).tolist():
        appends[int(history.key[op])].append(op)
    previous = history.previous.copy()
    for key, seen in lists.items():
        _order(history, txn_of, key, seen, appends[key], previous)
    kind = np.where(history.kind == Kind.APPEND, Kind.WRITE, history.kind)
    kind = np.where(history.kind == Kind.READ_LIST, Kind.READ, kind).astype(np.uint8)
    empty, no_lists = np.zeros(0, np.int64), np.zeros(history.op_count + 1, np.int64)
    return replace(history, kind=kind, previous=previous, list_start=no_lists, list_value=empty)


def _in_effect(history: History) -> np.ndarray:
    """The transactions that took effect at some level, those in doubt as far as somebody saw them."""
    if not (history.status == Status.IN_DOUBT).any():
        return np.asarray(history.status == Status.COMMITTED)
    from mussurana.verifier.engine.resolve import resolve  # which compiles kernels on first use

    return resolve(history, split=True).in_effect


def _order(
    history: History, txn_of: np.ndarray, key: int, lists: list[list[int]], appends: list[int], previous: np.ndarray
) -> None:
    """Fill in which element each append of a key replaced, as far as lists show it."""

    def refuse(why: str) -> HistoryError:
        return HistoryError(
            f"key {history.key_names[key]!r}: {why}, which the wire cannot say; use `mussurana check` for this history"
        )

    longest = max(lists, key=len)
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
    txns = [int(txn_of[writer[value]]) for value in longest]
    starts = [txn for at, txn in enumerate(txns) if at == 0 or txns[at - 1] != txn]
    if len(set(starts)) < len(starts):
        raise refuse("what one transaction appended is apart in a list")
    for before, value in zip([INITIAL, *longest], longest, strict=False):
        if previous[writer[value]] not in (NO_VALUE, before):
            raise refuse(f"element {history.value_name(value)} replaced another one than lists show before it")
        previous[writer[value]] = before
