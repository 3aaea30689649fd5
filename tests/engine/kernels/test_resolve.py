"""Who wrote what was read, against going through all writes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from mussurana.verifier.engine.resolve import (
    ABORTED_READ,
    AMBIGUOUS,
    DUPLICATE_ELEMENT,
    FUTURE,
    INTERMEDIATE,
    INTERNAL,
    NEVER_WRITTEN,
    RESOLVED,
    find_write,
    find_writer,
    index_writes,
    resolve_reads,
    scan_transactions,
)
from mussurana.verifier.history import History, Kind, Status
from tests.engine.twins import covers, find_writer_by_hand, resolve_by_hand, scan_by_hand, txn_of, writes_of
from tests.notation import show
from tests.random_history import ToyDatabase, spoil_operation, spoil_read, spoil_status, to_history


def spoilt_histories(count: int) -> Iterator[History]:
    """Random histories with more wrong in them than usual; in every third, values repeat."""
    for seed in range(count):
        rng = Random(seed)
        drafts = ToyDatabase(rng, duplicates=seed % 3 == 0).run()
        for _ in range(rng.randint(0, 6)):
            rng.choice((spoil_read, spoil_read, spoil_operation, spoil_status))(rng, drafts)
        yield to_history(drafts)


class Tables:
    """The arrays that the kernels fill, in the order in which `resolve` has them filled."""

    def __init__(self, history: History, split: bool = False) -> None:
        self.history = history
        self.slots = np.full(max(2, 1 << (2 * history.op_count).bit_length()), -1, np.int64)
        self.same_next = np.full(history.op_count, -1, np.int64)
        self.repeats = index_writes(history.kind, history.key, history.value, self.slots, self.same_next)
        self.seen_op, self.first_in_txn, self.final, self.new_row, self.bad, self.what = (
            np.zeros(history.op_count, np.uint8) for _ in range(6)
        )
        scan_transactions(
            history.op_start, history.kind, history.key, history.value, history.previous, history.list_start,
            history.list_value, len(history.key_names), split,
            self.seen_op, self.first_in_txn, self.final, self.new_row, self.bad,
        )  # fmt: skip
        self.op_txn = np.repeat(np.arange(history.txn_count), np.diff(history.op_start))

    def find_write(self, key: int, value: int) -> int:
        return int(find_write(self.history.key, self.history.value, self.slots, key, value))


@covers(index_writes, find_write)
def test_all_writes_of_a_value_are_found() -> None:
    repeated = 0
    for history in spoilt_histories(600):
        tables = Tables(history)
        pairs = {(int(k), int(v)) for k, v in zip(history.key, history.value, strict=True)} | {(0, 98), (1, -5)}
        repeats = 0
        for key, value in pairs:
            expected = writes_of(history, key, value)
            op = tables.find_write(key, value)
            assert op == min(expected, default=-1)
            found = []
            while op >= 0:
                found.append(op)
                op = int(tables.same_next[op])
            assert sorted(found) == expected
            repeats += max(0, len(expected) - 1)
        assert tables.repeats == repeats
        repeated += repeats > 0
    assert repeated > 60


def test_the_hash_table_may_be_as_full_as_promised() -> None:
    for seed in range(200):
        rng = Random(seed)
        count = rng.choice((1, 2, 4, 8, 16))
        kind = np.full(count, Kind.WRITE, np.uint8)
        key = np.array([rng.randrange(3) for _ in range(count)], np.int32)
        value = np.array([rng.choice((rng.randrange(5), rng.randrange(-(2**62), 2**62))) for _ in range(count)])
        slots, same_next = np.full(2 * count, -1, np.int64), np.full(count, -1, np.int64)
        index_writes(kind, key, value, slots, same_next)
        pairs = list(zip(key.tolist(), value.tolist(), strict=True))
        assert all(find_write(key, value, slots, k, v) == pairs.index((k, v)) for k, v in pairs)
        assert find_write(key, value, slots, 0, 7) == (pairs.index((0, 7)) if (0, 7) in pairs else -1)


@covers(scan_transactions)
def test_a_transaction_is_scanned_as_if_it_ran_alone() -> None:
    inconsistent = beside_a_new_row = 0
    for history in spoilt_histories(1500):
        for split in (False, True):
            tables, by_hand = Tables(history, split), scan_by_hand(history, split)
            for name in ("seen_op", "first_in_txn", "final", "new_row", "bad"):
                assert getattr(tables, name).tolist() == getattr(by_hand, name), f"{name}: {show(history)}"
            inconsistent += INTERNAL in by_hand.bad
        beside_a_new_row += by_hand.bad != scan_by_hand(history, False).bad
    assert inconsistent > 400
    assert beside_a_new_row > 20


@covers(find_writer)
def test_the_writer_is_the_only_one_that_can_have_been_seen() -> None:
    outcomes: dict[int, int] = {}
    for history in spoilt_histories(600):
        tables = Tables(history)
        rng = Random(history.op_count)
        for op in range(history.op_count):
            key, value = int(history.key[op]), int(history.value[op])
            reader, partial = rng.randrange(history.txn_count), rng.random() < 0.3
            what, write = find_writer(
                reader, key, value, history.key, history.value, tables.slots, tables.same_next,
                tables.op_txn, history.status, tables.final, partial,
            )  # fmt: skip
            expected, writes = find_writer_by_hand(history, tables.final.tolist(), reader, key, value, partial)
            assert what == expected, f"{show(history)}: {reader} saw {value} of {key}"
            assert write in writes
            outcomes[what] = outcomes.get(what, 0) + 1
    assert min(outcomes[what] for what in (RESOLVED, AMBIGUOUS, FUTURE, ABORTED_READ, INTERMEDIATE)) > 10


@covers(resolve_reads)
def test_reads_are_resolved_and_seen_transactions_in_doubt_take_effect() -> None:
    outcomes: dict[int, int] = {}
    promoted = 0
    for history in spoilt_histories(2000):
        tables = Tables(history)
        in_effect, seen_by = np.zeros(history.txn_count, np.uint8), np.full(history.txn_count, -1, np.int32)
        writer_op, element_writer = np.full(history.op_count, -1, np.int64), np.full(len(history.list_value), -2)
        resolve_reads(
            history.op_start, tables.op_txn, history.status, history.kind, history.key, history.value,
            history.previous, history.list_start, history.list_value, tables.slots, tables.same_next, tables.seen_op,
            tables.first_in_txn, tables.final, in_effect, seen_by, tables.what, writer_op, element_writer,
        )  # fmt: skip

        by_hand = resolve_by_hand(history, scan_by_hand(history, False))
        text = show(history)
        assert set(np.flatnonzero(in_effect)) == by_hand.in_effect, text
        for op, what in by_hand.what.items():
            assert tables.what[op] == what, f"operation {op}: {text}"
            assert writer_op[op] in by_hand.writers[op], f"operation {op}: {text}"
            outcomes[what] = outcomes.get(what, 0) + 1
        for at, write in by_hand.elements.items():
            assert element_writer[at] == write, f"element {at}: {text}"
        for txn in by_hand.in_effect:
            # Whoever is in doubt was seen by somebody, and that leads back to somebody who surely committed.
            trail = {txn}
            while history.status[txn] == Status.IN_DOUBT:
                assert txn in by_hand.sees[int(seen_by[txn])], text
                txn = int(seen_by[txn])
                assert txn not in trail, text
                trail.add(txn)
            promoted += len(trail) > 1
    kinds = (RESOLVED, AMBIGUOUS, FUTURE, ABORTED_READ, INTERMEDIATE, NEVER_WRITTEN, DUPLICATE_ELEMENT)
    assert min(outcomes.get(what, 0) for what in kinds) > 10
    assert promoted > 100


def test_the_twin_finds_the_transaction_of_an_operation() -> None:
    for history in spoilt_histories(20):
        assert [txn_of(history, op) for op in range(history.op_count)] == Tables(history).op_txn.tolist()
