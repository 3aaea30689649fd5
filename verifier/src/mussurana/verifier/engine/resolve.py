"""Who read from whom: from operations to versions, and the checks that need no graph (design 3.1).

A version is a final write of a transaction to a key, or the initial version of a key. Resolving a history
finds, for each transaction that took effect, the versions it installed and the versions it read before
writing them itself (its *external* reads). What cannot be resolved is either impossible (the history is rejected
here, with a name) or ambiguous (a value that several transactions wrote: the read is set aside and counted).

In-doubt transactions take effect exactly when a transaction that took effect saw something they wrote:
for one that nobody saw, having aborted explains at least as much as having committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from mussurana.verifier.history import (
    INITIAL,
    NO_ROW,
    NO_VALUE,
    Bytes,
    History,
    Ints,
    Kind,
    SmallInts,
    Status,
    offsets,
    ranges,
)
from mussurana.verifier.kernels import kernel

READ, WRITE, APPEND, READ_LIST = int(Kind.READ), int(Kind.WRITE), int(Kind.APPEND), int(Kind.READ_LIST)
COMMITTED, ABORTED, IN_DOUBT = int(Status.COMMITTED), int(Status.ABORTED), int(Status.IN_DOUBT)

NOBODY = -1

# What an operation or list element turned out to be; the values above RESOLVED are anomalies.
RESOLVED, AMBIGUOUS, INTERNAL, FUTURE, ABORTED_READ, INTERMEDIATE, NEVER_WRITTEN, DUPLICATE_ELEMENT = range(8)


@dataclass(frozen=True)
class Impossible:
    """An operation that no order of transactions explains."""

    what: int  # INTERNAL, FUTURE, ABORTED_READ, INTERMEDIATE, NEVER_WRITTEN or DUPLICATE_ELEMENT
    op: int  # the operation that saw it
    write: int  # the write of what it saw, NOBODY if there is none


@dataclass(frozen=True)
class Resolved:
    """External reads and installed versions of the transactions that took effect.

    Versions 0 .. key_count are the initial versions of the keys; then come the installed ones, grouped by key.
    """

    history: History
    in_effect: np.ndarray  # bool per transaction of the history
    seen_by: SmallInts  # per transaction: for one in doubt, somebody in effect who saw a write of it; else NOBODY
    key_count: int
    version_key: SmallInts
    version_txn: SmallInts  # NOBODY for initial versions
    version_op: Ints  # the write, NOBODY for initial versions
    version_new: np.ndarray  # bool, at snapshot levels: it began a row, and may overlap writers of rows before it
    read_txn: SmallInts
    read_version: SmallInts
    read_op: Ints  # the operation that shows it: a read, or a write that named the version it replaced
    # lists seen: reader list_txn[i] saw the versions list_version[list_start[i] : list_start[i + 1]] in this order,
    # first to last
    list_txn: SmallInts
    list_op: Ints
    list_start: Ints
    list_version: SmallInts
    repeated_values: int  # writes of a value that was written to the same key before
    ambiguous: Ints  # the operations that saw a value of which several transactions might be the writer
    impossible: tuple[Impossible, ...]
    founded: np.ndarray  # bool per key: its initial version stands for one that was left out; see `foundations`


@kernel
def _mix(key, value):
    """A 64-bit hash of a key and a value (the finaliser of splitmix64)."""
    x = np.uint64(value) ^ (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def index_writes(kind, key, value, slots, same_next):
    """Fill a hash table from (key, value) to the first operation that writes it.

    Pre:  `slots` is -1 everywhere, its size a power of two and at least twice the number of writes.
    Post: `find_write` finds the first write of (key, value); the others follow through `same_next`, -1 at the end.
    Returns how many writes repeat the value of an earlier one.
    """
    repeats = 0
    mask = np.uint64(len(slots) - 1)
    for op in range(len(kind)):
        if kind[op] != WRITE and kind[op] != APPEND:
            continue
        at = _mix(key[op], value[op]) & mask
        while slots[at] >= 0 and (key[slots[at]] != key[op] or value[slots[at]] != value[op]):
            at = (at + np.uint64(1)) & mask
        if slots[at] >= 0:
            same_next[op] = same_next[slots[at]]
            same_next[slots[at]] = op
            repeats += 1
        else:
            slots[at] = op
    return repeats


@kernel
def find_write(key, value, slots, wanted_key, wanted_value):
    """The first operation that writes `wanted_value` to `wanted_key`, or -1."""
    mask = np.uint64(len(slots) - 1)
    at = _mix(wanted_key, wanted_value) & mask
    while slots[at] >= 0:
        op = slots[at]
        if key[op] == wanted_key and value[op] == wanted_value:
            return op
        at = (at + np.uint64(1)) & mask
    return -1


@kernel
def scan_transactions(
    op_start, kind, key, value, previous, list_start, list_value, key_count, split,
    seen_op, first_in_txn, final, new_row, bad,
):  # fmt: skip
    """Find what each transaction saw of others, which of its writes are final, and where it contradicts itself.

    Post: seen_op[o] is 1 where operation o saw the outside for the first time on its key (a read, or a write that
          names what it replaced), 2 where it is a list read, of which the part before the transaction's own appends
          is the outside. first_in_txn[o] and final[o] tell whether a write is its transaction's first and last on its
          key. bad[o] is INTERNAL where operation o cannot follow what the transaction did before. With `split`,
          new_row[o] tells whether the transaction's first write of the key began a row. A snapshot may then hold a row
          of that key as well, which others have deleted since: a read can see either.
    """
    owner = np.full(key_count, -1, np.int64)  # the transaction whose state the next arrays hold
    last_write = np.zeros(key_count, np.int64)  # its last write of the key, -1 if it has none
    outside = np.zeros(key_count, np.int64)  # the outside version it saw, NO_VALUE if it saw none
    for txn in range(len(op_start) - 1):
        for op in range(op_start[txn], op_start[txn + 1]):
            k = key[op]
            if owner[k] != txn:
                owner[k] = txn
                last_write[k] = -1
                outside[k] = NO_VALUE
            if kind[op] == READ_LIST:
                # The list has to end with the appends made here so far, in order.
                end = list_start[op + 1]
                for mine in range(op - 1, op_start[txn] - 1, -1):
                    if kind[mine] == APPEND and key[mine] == k:
                        end -= 1
                        if end < list_start[op] or list_value[end] != value[mine]:
                            bad[op] = INTERNAL
                            break
                if bad[op] == 0:
                    last = list_value[end - 1] if end > list_start[op] else INITIAL
                    if outside[k] == NO_VALUE:
                        outside[k] = last
                    elif outside[k] != last:
                        bad[op] = INTERNAL
                    seen_op[op] = 2
                continue
            saw = value[op] if kind[op] == READ else previous[op]
            if saw != NO_VALUE and (kind[op] == READ or saw != NO_ROW):
                mine = last_write[k]
                if mine >= 0 and (value[mine] == saw or not new_row[mine] or kind[op] != READ):
                    if value[mine] != saw:
                        bad[op] = INTERNAL
                elif outside[k] == NO_VALUE:
                    outside[k] = saw
                    seen_op[op] = 1
                elif outside[k] != saw:
                    bad[op] = INTERNAL
            if kind[op] == WRITE or kind[op] == APPEND:
                if last_write[k] >= 0:
                    final[last_write[k]] = 0
                    new_row[op] = new_row[last_write[k]]
                else:
                    first_in_txn[op] = 1
                    new_row[op] = split and previous[op] == NO_ROW
                final[op] = 1
                last_write[k] = op


@kernel
def find_writer(reader, k, v, key, value, slots, same_next, op_txn, status, final, allow_partial):
    """The write that a transaction saw when it saw version v of key k.

    Returns (what, op): RESOLVED with the write, AMBIGUOUS, or the anomaly with a write that shows it (-1 if there is
    none). With `allow_partial` a write that is not the last of its transaction counts as well (inside lists).
    """
    op = find_write(key, value, slots, k, v)
    if op < 0:
        return NEVER_WRITTEN, -1
    found = -1
    found_txn = -1
    what = FUTURE
    shows = op
    while op >= 0:
        writer = op_txn[op]
        if writer != reader:
            if status[writer] == ABORTED:
                what = ABORTED_READ
                shows = op
            elif not final[op] and not allow_partial:
                if what != ABORTED_READ:
                    what = INTERMEDIATE
                    shows = op
            elif found < 0 or found_txn == writer:
                found = op
                found_txn = writer
            else:
                return AMBIGUOUS, found
        op = same_next[op]
    if found >= 0:
        return RESOLVED, found
    return what, shows


@kernel
def resolve_reads(
    op_start, op_txn, status, kind, key, value, previous, list_start, list_value,
    slots, same_next, seen_op, first_in_txn, final, in_effect, seen_by, what, writer_op, element_writer,
):  # fmt: skip
    """Resolve the external reads of every transaction in effect, and let in-doubt writers that were seen take effect.

    Pre:  what[op] is AMBIGUOUS where nobody can tell whose write the operation saw, else 0.
    Post: for each operation with seen_op of a transaction in effect, what[op] is RESOLVED (writer_op[op] is the
          write, -1 for the initial version), AMBIGUOUS, or an anomaly (writer_op[op] shows it). For lists
          element_writer holds the write of each outside element, and -2 for the elements that are the reader's own.
    """
    stack = np.empty(len(status), np.int64)
    depth = 0
    in_list = np.full(len(kind) if len(list_value) else 0, -1, np.int64)  # the last list read that showed this write
    for txn in range(len(status)):
        if status[txn] == COMMITTED:
            in_effect[txn] = 1
            stack[depth] = txn
            depth += 1
    while depth > 0:
        depth -= 1
        txn = stack[depth]
        for op in range(op_start[txn], op_start[txn + 1]):
            if what[op] == AMBIGUOUS:
                continue
            if seen_op[op] == 1:
                v = value[op] if kind[op] == READ else previous[op]
                if v == INITIAL:
                    writer_op[op] = -1
                    continue
                outcome, write = find_writer(
                    txn, key[op], v, key, value, slots, same_next, op_txn, status, final, False
                )
                what[op] = outcome
                writer_op[op] = write
                if outcome == RESOLVED:
                    w = op_txn[write]
                    if in_effect[w] == 0:
                        in_effect[w] = 1
                        seen_by[w] = txn
                        stack[depth] = w
                        depth += 1
            elif seen_op[op] == 2:
                before = -1  # the write of the element before
                for at in range(list_start[op], list_start[op + 1]):
                    own = find_write(key, value, slots, key[op], list_value[at])
                    if own >= 0 and same_next[own] >= 0:
                        what[op] = AMBIGUOUS
                        break
                    if own >= 0 and not (op_txn[own] == txn and own < op):
                        own = -1
                    if own >= 0 and in_list[own] != op:
                        in_list[own] = op
                        element_writer[at] = -2
                        continue
                    outcome, write = find_writer(
                        txn, key[op], list_value[at], key, value, slots, same_next, op_txn, status, final, True
                    )
                    if own >= 0 or (outcome == RESOLVED and in_list[write] == op):
                        outcome = DUPLICATE_ELEMENT
                    elif outcome == RESOLVED:
                        in_list[write] = op
                    if outcome == RESOLVED and first_in_txn[write] == 0:
                        # Not its transaction's first append, so the one before it has to stand before it.
                        if before < 0 or op_txn[before] != op_txn[write]:
                            outcome = INTERMEDIATE
                        else:
                            for between in range(before + 1, write):
                                if key[between] == key[op] and kind[between] == APPEND:
                                    outcome = INTERMEDIATE
                    elif outcome == RESOLVED and before >= 0 and final[before] == 0:
                        outcome = INTERMEDIATE
                        write = before
                    if outcome != RESOLVED:
                        what[op] = outcome
                        writer_op[op] = write
                        break
                    element_writer[at] = write
                    before = write
                    w = op_txn[write]
                    if in_effect[w] == 0:
                        in_effect[w] = 1
                        seen_by[w] = txn
                        stack[depth] = w
                        depth += 1
                if what[op] == RESOLVED and before >= 0 and final[before] == 0:
                    what[op] = INTERMEDIATE
                    writer_op[op] = before


def resolve(history: History, split: bool, doubtful: Ints | None = None) -> Resolved:
    """Find readers and writers, for levels that tell begins from commits or for the others.

    Anything in `impossible` means that the history is rejected at all of them. `doubtful` are operations that saw what
    several transactions wrote although the history does not show them all.
    """
    op_count = history.op_count
    key_count = max(len(history.key_names), int(history.key.max(initial=-1)) + 1)
    writes = int(np.count_nonzero((history.kind == WRITE) | (history.kind == APPEND)))
    slots = np.full(max(2, 1 << (2 * writes).bit_length()), -1, np.int64)
    same_next = np.full(op_count, -1, np.int64)
    repeated_values = index_writes(history.kind, history.key, history.value, slots, same_next)

    seen_op, first_in_txn, final, new_row, bad, what = (np.zeros(op_count, np.uint8) for _ in range(6))
    scan_transactions(
        history.op_start, history.kind, history.key, history.value, history.previous,
        history.list_start, history.list_value, key_count, split, seen_op, first_in_txn, final, new_row, bad,
    )  # fmt: skip
    op_txn = np.repeat(np.arange(history.txn_count), np.diff(history.op_start))
    if doubtful is not None:
        what[doubtful[seen_op[doubtful] != 0]] = AMBIGUOUS
    in_effect = np.zeros(history.txn_count, np.uint8)
    seen_by = np.full(history.txn_count, NOBODY, np.int32)
    writer_op = np.full(op_count, -1, np.int64)
    element_writer = np.full(len(history.list_value), -2, np.int64)
    resolve_reads(
        history.op_start, op_txn, history.status, history.kind, history.key, history.value, history.previous,
        history.list_start, history.list_value, slots, same_next, seen_op, first_in_txn, final,
        in_effect, seen_by, what, writer_op, element_writer,
    )  # fmt: skip

    ours = in_effect.view(bool)[op_txn]
    anomalous = np.flatnonzero(ours & ((bad != 0) | (what > AMBIGUOUS)))
    impossible = tuple(
        Impossible(INTERNAL if bad[op] else int(what[op]), int(op), int(writer_op[op])) for op in anomalous.tolist()
    )

    install = np.flatnonzero(ours & (final != 0))
    install = install[np.argsort(history.key[install], kind="stable")]
    version_of_op = np.full(op_count, NOBODY, np.int32)
    version_of_op[install] = key_count + np.arange(len(install), dtype=np.int32)
    good = ours & (bad == 0) & (what == RESOLVED)
    read_op = np.flatnonzero(good & (seen_op == 1))
    read_version = np.where(writer_op[read_op] >= 0, version_of_op[writer_op[read_op]], history.key[read_op])

    lists = np.flatnonzero(good & (seen_op == 2))
    list_version, list_start, last = _lists_as_versions(history, lists, element_writer, version_of_op, final)
    # A list read is also a read of its last version.
    read_op = np.concatenate([read_op, lists])
    read_version = np.concatenate([read_version, last])
    in_order = np.argsort(read_op, kind="stable") if len(lists) else slice(None)
    read_op, read_version = read_op[in_order], read_version[in_order]

    return Resolved(
        history=history,
        in_effect=in_effect.view(bool),
        seen_by=seen_by,
        key_count=key_count,
        version_key=np.concatenate([np.arange(key_count, dtype=np.int32), history.key[install]]),
        version_txn=np.concatenate([np.full(key_count, NOBODY, np.int32), op_txn[install].astype(np.int32)]),
        version_op=np.concatenate([np.full(key_count, NOBODY, np.int64), install]),
        version_new=np.concatenate([np.zeros(key_count, bool), new_row[install] != 0]),
        read_txn=op_txn[read_op].astype(np.int32),
        read_version=read_version.astype(np.int32),
        read_op=read_op,
        list_txn=op_txn[lists].astype(np.int32),
        list_op=lists,
        list_start=list_start,
        list_version=list_version,
        repeated_values=int(repeated_values),
        ambiguous=np.flatnonzero(ours & (what == AMBIGUOUS)),
        impossible=impossible,
        founded=np.zeros(key_count, bool),
    )


def restrict(resolved: Resolved, txns: Ints) -> Resolved:
    """The part of a resolved history that these transactions make up, renumbered as by `History.restrict`.

    Leaving transactions out only weakens a history: an order that explains the whole explains the part. Reads from
    those left out are dropped, lists lose the elements of those left out, and in-doubt transactions that nobody left
    has seen go as well. What all that is left of a key builds on takes the place of its initial version; see
    `foundations`.
    """
    txns = np.unique(txns)
    old = resolved.history
    asked = np.zeros(old.txn_count, bool)
    asked[txns] = True
    asked &= resolved.in_effect
    list_of = np.repeat(np.arange(len(resolved.list_txn)), np.diff(resolved.list_start))
    in_effect = asked & (old.status == COMMITTED)
    while True:
        seen = np.concatenate([
            resolved.version_txn[resolved.read_version[in_effect[resolved.read_txn]]],
            resolved.version_txn[resolved.list_version[in_effect[resolved.list_txn[list_of]]]],
        ])  # fmt: skip
        more = np.zeros_like(asked)
        more[seen[seen >= 0]] = True
        more = in_effect | (more & asked)
        if np.array_equal(more, in_effect):
            break
        in_effect = more

    history = old.restrict(txns)
    keys = np.unique(old.key[ranges(old.op_start[txns], old.op_start[txns + 1])])
    new_key = np.full(resolved.key_count, NOBODY, np.int32)
    new_key[keys] = np.arange(len(keys), dtype=np.int32)
    new_txn = np.full(old.txn_count, NOBODY, np.int32)
    new_txn[txns] = np.arange(len(txns), dtype=np.int32)
    op_shift = np.zeros(old.txn_count, np.int64)
    op_shift[txns] = history.op_start[:-1] - old.op_start[txns]

    initial = resolved.version_txn < 0
    left = np.where(initial, new_key[resolved.version_key] >= 0, in_effect[resolved.version_txn])
    new_version = np.cumsum(left) - 1
    writer = resolved.version_txn[left]
    founded = foundations(resolved, in_effect, left)
    known = left & ~(initial & resolved.founded[resolved.version_key])
    known |= founded[resolved.version_key] == np.arange(len(known))
    reads = in_effect[resolved.read_txn] & known[resolved.read_version]
    new_version = np.where(left, new_version, new_version[resolved.version_key])  # a foundation is initial now
    named = np.flatnonzero(founded[keys] >= resolved.key_count)  # the others have their names
    if len(named):
        names = list(history.initial_names) or [""] * len(keys)
        for at in named.tolist():
            names[at] = old.value_name(int(old.value[resolved.version_op[founded[keys[at]]]]))
        history = replace(history, initial_names=names)
    lists = in_effect[resolved.list_txn]
    elements = lists[list_of] & left[resolved.list_version]
    read_txn, read_version, read_op = resolved.read_txn[reads], resolved.read_version[reads], resolved.read_op[reads]
    # A list whose last element is gone still shows what its reader saw last of the rest.
    for i in np.flatnonzero(lists):
        shown = resolved.list_version[resolved.list_start[i] : resolved.list_start[i + 1]]
        if len(shown) and not left[shown[-1]]:
            rest = shown[left[shown]]
            last = rest[-1] if len(rest) else old.key[resolved.list_op[i]]
            read_txn = np.append(read_txn, resolved.list_txn[i])
            read_version = np.append(read_version, last)
            read_op = np.append(read_op, resolved.list_op[i])
    return Resolved(
        history=history,
        in_effect=in_effect[txns],
        seen_by=np.where(resolved.seen_by[txns] >= 0, new_txn[resolved.seen_by[txns]], NOBODY).astype(np.int32),
        key_count=len(keys),
        version_key=new_key[resolved.version_key[left]],
        version_txn=np.where(writer >= 0, new_txn[writer], NOBODY).astype(np.int32),
        version_op=np.where(writer >= 0, resolved.version_op[left] + op_shift[writer], NOBODY),
        version_new=resolved.version_new[left],
        read_txn=new_txn[read_txn],
        read_version=new_version[read_version].astype(np.int32),
        read_op=read_op + op_shift[read_txn],
        list_txn=new_txn[resolved.list_txn[lists]],
        list_op=resolved.list_op[lists] + op_shift[resolved.list_txn[lists]],
        list_start=offsets(np.bincount(list_of[elements], minlength=len(lists))[lists]),
        list_version=new_version[resolved.list_version[elements]].astype(np.int32),
        repeated_values=resolved.repeated_values,
        ambiguous=np.zeros(0, np.int64),
        impossible=(),
        founded=founded[keys] >= 0,
    )


def with_observers(resolved: Resolved, txns: Iterable[int]) -> Ints:
    """The same transactions and, for those in doubt, the ones that show that they took effect."""
    found = set()
    for start in txns:
        txn = int(start)
        while txn >= 0 and txn not in found:
            found.add(txn)
            txn = int(resolved.seen_by[txn])
    return np.array(sorted(found), np.int64)


def foundations(resolved: Resolved, in_effect: np.ndarray, left: np.ndarray) -> SmallInts:
    """Per key: a version that is left out but that all versions left of the key build on, or -1.

    A version is installed once. Whoever saw it and replaced it put an end to it, so whoever else saw it came before
    them, whoever wrote it. If every writer that is left of the key replaced it, or replaced a version of such a writer,
    then it comes before all that is left of the key, just as an initial version would.
    """
    found = np.full(resolved.key_count, NOBODY, np.int32)
    version, reader = resolved.read_version, resolved.read_txn
    stands_for_another = (resolved.version_txn < 0) & resolved.founded[resolved.version_key]
    outside = in_effect[reader] & (~left | stands_for_another)[version]
    if resolved.repeated_values or not outside.any():
        return found
    key = resolved.version_key[version].astype(np.int64)
    installed = left & (resolved.version_txn >= 0)
    replaces = installed & ~resolved.version_new
    writes = resolved.version_txn[replaces] * resolved.key_count + resolved.version_key[replaces].astype(np.int64)
    updates = in_effect[reader] & np.isin(reader * resolved.key_count + key, writes)
    found[key[outside & updates]] = version[outside & updates]
    alone = found[key] == version
    builds = np.bincount(key[updates & (installed[version] | alone)], minlength=resolved.key_count)
    fine = builds == np.bincount(resolved.version_key[installed], minlength=resolved.key_count)
    initial = ((resolved.version_txn < 0) & ~stands_for_another)[version] & in_effect[reader]
    fine[key[initial | (outside & updates & ~alone)]] = False
    fine[resolved.history.key[resolved.list_op]] = False
    found[~fine] = NOBODY
    return found


def _lists_as_versions(
    history: History, lists: Ints, element_writer: Ints, version_of_op: SmallInts, final: Bytes
) -> tuple[SmallInts, Ints, Ints]:
    """Each outside list as the versions it shows: the final append of each transaction in it, in order."""
    if not len(lists):
        return np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64)
    versions: list[int] = []
    counts: list[int] = []
    last = np.empty(len(lists), np.int64)
    for i, op in enumerate(lists):
        writers = element_writer[history.list_start[op] : history.list_start[op + 1]]
        writers = writers[writers >= 0]
        shown = version_of_op[writers[final[writers] != 0]]
        versions.extend(shown.tolist())
        counts.append(len(shown))
        last[i] = shown[-1] if len(shown) else history.key[op]
    return np.array(versions, np.int32), offsets(counts), last
