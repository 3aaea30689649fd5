"""The version table, against a dictionary."""

from __future__ import annotations

from random import Random

import numpy as np

from mussurana.verifier.rounds.table import VersionTable, find_slot, look_up, store
from tests.engine.twins import covers


def some_keys(rng: Random, count: int) -> list[int]:
    """Small ones, which clash, and any others; key 0 is the fence."""
    return [rng.choice((rng.randint(-20, 20), rng.getrandbits(63) - rng.getrandbits(63))) for _ in range(count)]


@covers(find_slot, look_up, store)
def test_the_table_has_what_was_put_last() -> None:
    for seed in range(100):
        rng = Random(seed)
        table, twin = VersionTable(8), dict[int, int]()
        for _ in range(rng.randint(1, 20)):
            keys = list(dict.fromkeys(some_keys(rng, rng.randint(0, 30))))
            versions = [rng.randint(1, 2**62) for _ in keys]
            table.put(np.array(keys, np.int64), np.array(versions, np.int64))
            twin.update(zip(keys, versions, strict=True))
            asked = [*some_keys(rng, 20), *twin]
            assert table.get(np.array(asked, np.int64)).tolist() == [twin.get(key, 0) for key in asked]
            assert len(table) == len(twin)
            assert dict(zip(*(column.tolist() for column in table.entries()), strict=True)) == twin
        assert 3 * len(table) <= 2 * len(table._key)
