"""Large histories, made as arrays in one go, for measuring.

A serial execution by construction: transactions take effect one after another, each read sees the last write before it.
Their sessions are random, and they are numbered session by session, so that nothing but reads and rough times tells
the order in which they took effect. Keys within a transaction differ, so every write is blind.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import INITIAL, NO_VALUE, UNKNOWN_TIME, History, Ints, Kind, Status, offsets

STEP_NS = 1_000_000
"""Between two transactions taking effect; a thousand transactions per second is an ordinary load."""


def blindw(
    sessions: int, transactions: int, keys: int, operations: int, read_fraction: float, seed: int = 0
) -> History:
    """Transactions of `operations` operations, each a read or a blind write by chance. Satisfies every level."""
    random = np.random.default_rng(seed)
    is_read = random.random(transactions * operations) < read_fraction
    counts = np.full(transactions, operations)
    return _execute(random, sessions, counts, is_read, _distinct_keys(random, counts, keys), keys)


def hot_keys(sessions: int, transactions: int, keys: int, writes: int, read_fraction: float, seed: int = 0) -> History:
    """Transactions of `writes` blind writes each, and reads among them, `read_fraction` of all operations.

    Satisfies every level. With few keys the writes of a key are hard to order, because few are ever read.
    """
    random = np.random.default_rng(seed)
    reads = round(transactions * writes * read_fraction / (1 - read_fraction))
    reads_each = np.bincount(random.integers(transactions, size=reads), minlength=transactions)
    counts = np.minimum(writes + reads_each, keys)
    rank = np.arange(counts.sum()) - np.repeat(offsets(counts)[:-1], counts)
    # Which of its operations are reads, at random: sort each transaction's operations by a random number.
    txn = np.repeat(np.arange(transactions), counts)
    is_read = (rank >= writes)[np.lexsort((random.random(len(rank)), txn))]
    return _execute(random, sessions, counts, is_read, _distinct_keys(random, counts, keys), keys)


def _distinct_keys(random: np.random.Generator, counts: Ints, keys: int) -> Ints:
    """For each transaction as many different keys as it has operations, by Floyd's method, all transactions at once."""
    width = int(counts.max(initial=0))
    if width > keys:
        raise ValueError(f"a transaction of {width} operations on different keys needs more than {keys} keys")
    chosen = np.full((len(counts), width), -1, np.int64)
    for at in range(width):
        last = keys - width + at
        pick = random.integers(last + 1, size=len(counts))
        chosen[:, at] = np.where((chosen[:, :at] == pick[:, None]).any(axis=1), last, pick)
    chosen = random.permuted(chosen, axis=1)
    return chosen[np.arange(width) < counts[:, None]]


def _execute(
    random: np.random.Generator, sessions: int, counts: Ints, is_read: npt.NDArray[np.bool_], key: Ints, keys: int
) -> History:
    """Run transactions in the order given, each in a random session, then number them session by session."""
    value = np.where(is_read, INITIAL, np.arange(1, len(key) + 1))
    # Sorted by key, then by execution, an operation has the version of the last write at or before it.
    by_key = np.argsort(key, kind="stable")
    place = np.arange(len(key))
    starts_key = np.diff(key[by_key], prepend=-1) != 0
    last_write = np.maximum.accumulate(np.where(~is_read[by_key] | starts_key, place, 0))
    value[by_key] = value[by_key][last_write]

    session = random.permutation(np.arange(len(counts)) % sessions)
    begin_ns, committed_ns = _times_ns(random, session)
    by_session = np.argsort(session, kind="stable")
    start = offsets(counts)
    new_start = offsets(counts[by_session])
    operation = np.repeat(start[by_session] - new_start[:-1], counts[by_session]) + place
    unknown = np.full(len(counts), UNKNOWN_TIME)
    return History(
        session=session[by_session].astype(np.int32),
        status=np.full(len(counts), Status.COMMITTED, np.uint8),
        begin_ns=begin_ns[by_session],
        begun_ns=unknown,
        commit_ns=unknown,
        committed_ns=committed_ns[by_session],
        op_start=new_start,
        kind=np.where(is_read, Kind.READ, Kind.WRITE).astype(np.uint8)[operation],
        key=key[operation].astype(np.int32),
        value=value[operation],
        previous=np.full(len(key), NO_VALUE),
        list_start=np.zeros(len(key) + 1, np.int64),
        list_value=np.zeros(0, np.int64),
        session_names=[f"s{number}" for number in range(sessions)],
        key_names=[f"k{number}" for number in range(keys)],
        source="generated",
    )


def _times_ns(random: np.random.Generator, session: Ints) -> tuple[Ints, Ints]:
    """When each client asked to begin and knew of the commit.

    Transaction t takes effect at t * STEP_NS. Two times at random between a session's consecutive transactions are when
    the first was known to be committed and when the second was asked for; so those of different sessions overlap.
    """
    effect_ns = np.arange(1, len(session) + 1) * STEP_NS
    by_session = np.argsort(session, kind="stable")
    is_first = np.diff(session[by_session], prepend=-1) != 0
    ordered_ns = effect_ns[by_session]
    gap_ns = np.where(is_first, STEP_NS, ordered_ns - np.roll(ordered_ns, 1))
    shares = np.sort(random.random((len(session), 2)), axis=1)
    known_ns = ordered_ns - gap_ns + (gap_ns * shares[:, 0]).astype(np.int64)  # of the transaction before
    asked_ns = ordered_ns - gap_ns + (gap_ns * shares[:, 1]).astype(np.int64)
    next_known_ns = np.where(np.roll(is_first, -1), ordered_ns + STEP_NS, np.roll(known_ns, -1))
    begin_ns, committed_ns = np.empty_like(effect_ns), np.empty_like(effect_ns)
    begin_ns[by_session], committed_ns[by_session] = asked_ns, next_known_ns
    return begin_ns, committed_ns
