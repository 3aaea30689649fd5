"""The hash tables of the readers against dictionaries."""

from __future__ import annotations

import random

import numpy as np

from mussurana.verifier.formats.interning import first_false_claim, intern


def test_numbers_are_interned_in_the_order_of_their_first_appearance() -> None:
    rng = random.Random(1)
    for _ in range(200):
        pool = [rng.choice([rng.randrange(-5, 5), rng.randrange(-(2**63), 2**63)]) for _ in range(rng.randint(1, 12))]
        numbers = [rng.choice(pool) for _ in range(rng.randint(0, 40))]
        order = {number: rank for rank, number in enumerate(dict.fromkeys(numbers))}
        code, distinct = intern(np.array(numbers, np.int64))
        assert code.tolist() == [order[number] for number in numbers]
        assert distinct.tolist() == list(order)


def test_false_claims_are_found_where_a_dictionary_finds_them() -> None:
    rng = random.Random(2)
    found = 0
    for _ in range(500):
        count = rng.randint(0, 12)
        version = [rng.randrange(6) for _ in range(count)]
        txn = [rng.randrange(4) for _ in range(count)]
        claimed = [rng.randrange(4) for _ in range(count)]
        is_write = [rng.random() < 0.5 for _ in range(count)]
        is_claim = [not write and rng.random() < 0.8 for write in is_write]
        writers: dict[int, set[int]] = {}
        for op in range(count):
            if is_write[op]:
                writers.setdefault(version[op], set()).add(txn[op])
        expected = next(
            (
                op
                for op in range(count)
                if is_claim[op] and version[op] in writers and claimed[op] not in writers[version[op]]
            ),
            None,
        )
        answer = first_false_claim(
            np.array(version, np.int64),
            np.array(txn, np.int64),
            np.array(claimed, np.int64),
            np.array(is_claim, np.bool_),
            np.array(is_write, np.bool_),
        )
        assert (None if answer is None else answer[0]) == expected
        if answer is not None:
            found += 1
            assert is_write[answer[1]]
            assert version[answer[1]] == version[answer[0]]
    assert found > 50
