"""BlindW-RW (Cobra, section 6): a key-value table, half of the transactions only read, the other half only write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Integer, MetaData, String, Table, bindparam, select, update

from bench.workloads import Client, Statement, Transaction, Workload

KEYS = 10_000
OPERATIONS = 8  # per transaction
VALUE_BYTES = 140

metadata = MetaData()
pairs = Table("pairs", metadata, Column("key", Integer, primary_key=True, autoincrement=False), Column("value", String))

READ = Statement(select(pairs.c.value).where(pairs.c.key == bindparam("k")))
WRITE = Statement(update(pairs).where(pairs.c.key == bindparam("k")).values(value=bindparam("v")))


def rows() -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    yield pairs, [{"key": key, "value": "x" * VALUE_BYTES} for key in range(KEYS)]


def transaction(client: Client) -> Transaction:
    keys = sorted(client.random.sample(range(KEYS), OPERATIONS))  # in order, so that none waits in a circle
    if client.random.random() < 0.5:
        for key in keys:
            yield READ, {"k": key}
    else:
        for key in keys:
            yield WRITE, {"k": key, "v": f"{client.fresh():0{VALUE_BYTES}}"}


WORKLOAD = Workload("blindw-rw", metadata, rows, transaction)
