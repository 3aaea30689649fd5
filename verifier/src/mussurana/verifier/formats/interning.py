"""Small numbers for large ones, in the order in which they first appear.

A hash table over arrays, because sorting (`numpy.unique`) takes longer than reading the whole file. Also answers
which transactions wrote a write id, for checking what Cobra's reads claim.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import Ints, SmallInts
from mussurana.verifier.kernels import kernel

Flags = npt.NDArray[np.bool_]

EMPTY = -1


@kernel
def _slot(number: int, mask: int) -> np.int64:
    # Fibonacci hashing: the constant is 2**64 / golden ratio, and its high bits are the well mixed ones.
    mixed = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(20)) & np.uint64(mask))


@kernel
def _number_all(numbers: Ints, table: Ints, code: SmallInts, first: Ints) -> int:
    """Fill `code` with the rank of each number by first appearance and `first` with where that was; return how many.

    Pre:  `table` is EMPTY everywhere; its length is a power of two and at least 2 * len(numbers); `first` is as
          long as `numbers`.
    Post: code[i] == code[j] iff numbers[i] == numbers[j]; numbers[first[code[i]]] == numbers[i].
    """
    mask = len(table) - 1
    count = 0
    for i in range(len(numbers)):
        slot = _slot(numbers[i], mask)
        while table[slot] != EMPTY and numbers[first[table[slot]]] != numbers[i]:
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = count
            first[count] = i
            count += 1
        code[i] = table[slot]
    return count


@kernel
def _first_false_claim(
    version: Ints, txn: Ints, claimed: Ints, is_claim: Flags, is_write: Flags, table: Ints, following: Ints
) -> tuple[int, int]:
    """Return (read, write) where the read names another transaction than those that wrote the version; else (-1, -1).

    Pre:  one entry per operation; `txn` is the id of its transaction; `claimed` the id that a read names, heeded
          where `is_claim`; `table` and `following` are EMPTY; the table's length is a power of two and at least
          twice the number of operations.
    """
    mask = len(table) - 1
    for op in range(len(version)):
        if is_write[op]:
            slot = _slot(version[op], mask)
            while table[slot] != EMPTY and version[table[slot]] != version[op]:
                slot = (slot + 1) & mask
            following[op] = table[slot]
            table[slot] = op
    for op in range(len(version)):
        if not is_claim[op]:
            continue
        slot = _slot(version[op], mask)
        while table[slot] != EMPTY and version[table[slot]] != version[op]:
            slot = (slot + 1) & mask
        write = table[slot]
        while write != EMPTY and txn[write] != claimed[op]:
            write = following[write]
        if write == EMPTY and table[slot] != EMPTY:
            return op, table[slot]
    return -1, -1


def _table(entries: int) -> Ints:
    return np.full(max(2, 1 << (2 * entries).bit_length()), EMPTY, np.int64)


def intern(numbers: Ints) -> tuple[SmallInts, Ints]:
    """(the code of each number, the number of each code)."""
    code = np.empty(len(numbers), np.int32)
    first = np.empty(len(numbers), np.int64)
    count = _number_all(numbers, _table(len(numbers)), code, first)
    return code, numbers[first[:count]]


def first_false_claim(
    version: Ints, txn: Ints, claimed: Ints, is_claim: Flags, is_write: Flags
) -> tuple[int, int] | None:
    """The first read that names a transaction which did not write what it saw, with a write that contradicts it."""
    following = np.full(len(version), EMPTY, np.int64)
    read, write = _first_false_claim(version, txn, claimed, is_claim, is_write, _table(len(version)), following)
    return None if read < 0 else (int(read), int(write))
