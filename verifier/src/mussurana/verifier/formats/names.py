"""Names for many things without making many strings: they are made when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import History, HistoryError, Ints


class NumberNames(Sequence[str]):
    """Names that are decimal numbers, such as Cobra's transaction ids."""

    def __init__(self, numbers: npt.NDArray[Any]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return NumberNames(self._numbers[index])
        return str(int(self._numbers[index]))

    def __iter__(self) -> Iterator[str]:
        return map(str, self._numbers.tolist())


class PackedNames(Sequence[str]):
    """Names that lie one after the other in UTF-8; name i is `packed[start[i] : start[i + 1]]`."""

    def __init__(self, packed: bytes, start: Ints) -> None:
        self._packed = packed
        self._start = start

    def __len__(self) -> int:
        return len(self._start) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        i = index % len(self)
        return self._packed[self._start[i] : self._start[i + 1]].decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self._packed[first:last].decode("utf-8") for first, last in pairwise(self._start.tolist()))


def join_names(parts: Iterable[PackedNames]) -> PackedNames:
    pieces = list(parts)
    starts = [np.zeros(1, np.int64)]
    end = 0
    for piece in pieces:
        starts.append(piece._start[1:] + end)
        end += len(piece._packed)
    return PackedNames(b"".join(piece._packed for piece in pieces), np.concatenate(starts))


def key_number(name: str, format: str) -> int:
    """The key for a format whose keys are numbers of 64 bits."""
    if name.isascii() and name.isdigit() and len(name) <= 20 and str(int(name)) == name and int(name) < 2**64:
        return int(name)
    raise HistoryError(f"{format} has no way to write key {name}: its keys are numbers from 0 to 2**64 - 1")


def transaction_ids(history: History, reserved: frozenset[int] = frozenset()) -> tuple[list[int], bool]:
    """A number for each transaction, and whether they are the ones that its source used.

    They are where those are numbers that fit into 64 bits, differ, and mean nothing else in the target format.
    """
    ids = []
    for name in history.txn_names:
        if not name.isascii() or not name.isdigit() or len(name) > 19 or int(name) >= 2**63 or str(int(name)) != name:
            break
        ids.append(int(name))
    if history.txn_names and len(ids) == history.txn_count == len(set(ids)) and not reserved.intersection(ids):
        return ids, True
    return list(range(1, history.txn_count + 1)), False
