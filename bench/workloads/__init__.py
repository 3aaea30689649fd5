"""Workloads for a real database: the four that Cobra and the papers after it are measured with.

A workload is tables, rows to start with, and transactions. A transaction is a generator: it yields statements with
their parameters and is sent the rows, so that one text serves every driver. Statements are SQLAlchemy Core; what a
driver runs without SQLAlchemy is their compiled text.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import ClauseElement, Compiled, MetaData, Table
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

ROWS_PER_CLIENT = 1 << 32  # of numbers that a client may give to what it inserts


class Statement:
    """One statement, with names for its parameters."""

    def __init__(self, core: ClauseElement) -> None:
        self.core = core

    @cached_property
    def compiled(self) -> Compiled:
        return self.core.compile(dialect=PGDialect_psycopg())  # type: ignore[no-untyped-call]

    @cached_property
    def text(self) -> str:
        """As psycopg takes it."""
        return str(self.compiled)

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Parameters of that text that stand in the statement itself, such as a limit."""
        values = self.compiled.params
        return {name: value for name, value in values.items() if value is not None}


Parameters = Mapping[str, Any]
Transaction = Generator[tuple[Statement, Parameters], list[Any], None]


@dataclass
class Client:
    """Who runs transactions: its own randomness, and its own numbers for what it inserts."""

    number: int
    seed: int = 0
    random: random.Random = field(init=False)
    _numbers: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}/{self.number}")
        self._numbers = itertools.count((self.number + 1) * ROWS_PER_CLIENT)

    def fresh(self) -> int:
        return next(self._numbers)


@dataclass(frozen=True)
class Workload:
    name: str
    metadata: MetaData
    rows: Callable[[], Iterator[tuple[Table, list[dict[str, Any]]]]]  # what to start with
    transaction: Callable[[Client], Transaction]


def workloads() -> dict[str, Workload]:
    from bench.workloads import blindw, rubis, tpcc, twitter

    return {found.name: found for found in (blindw.WORKLOAD, twitter.WORKLOAD, tpcc.WORKLOAD, rubis.WORKLOAD)}
