"""A history that is hard to order: a random formula, of which each clause is a cycle if all its literals are false.

A variable is a key that two transactions write and two others read: which of the writers came first is its value, and
each value draws one edge, from the reader of the first one to the second one. A variable has such a key for each clause
that it is in, tied to its own by two more cycles. Deciding whether there is an order decides the formula.
"""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass, field

from mussurana.wire import write_id
from mussurana.wire.history_pb2 import READ, WRITE, Fragment

CLAUSES_PER_VARIABLE = 4.26
"""Where formulas of three literals are hardest."""


@dataclass
class Formula:
    """Transactions, each as (operations), an operation as (is_write, key, version); versions count from 1."""

    variables: int
    seed: int
    txns: list[list[tuple[bool, int, int]]] = field(default_factory=list)
    keys: int = 0
    versions: int = 0

    def __post_init__(self) -> None:
        some = random.Random(self.seed)
        choices = [self._choice() for _ in range(self.variables)]
        for _ in range(round(CLAUSES_PER_VARIABLE * self.variables)):
            literals = []
            for variable in some.sample(range(self.variables), 3):
                copy = self._choice()
                for value in (0, 1):  # they have the same value
                    self._cycle((choices[variable], value), (copy, 1 - value))
                literals.append((copy, some.randrange(2)))
            self._cycle(*literals)

    def _choice(self) -> tuple[int, int, int, int]:
        """Two writers of a key, and the readers of each: their transactions."""
        self.keys += 1
        first = len(self.txns)
        for _ in range(2):
            self.versions += 1
            self.txns.append([(True, self.keys, self.versions)])
        for version in (self.versions - 1, self.versions):
            self.txns.append([(False, self.keys, version)])
        return first, first + 1, first + 2, first + 3

    def _cycle(self, *edges: tuple[tuple[int, int, int, int], int]) -> None:
        """A cycle that is there if each of these choices has that value."""
        ends = [(choice[2 + value], choice[1 - value]) for choice, value in edges]
        for (_, end), (begin, _) in zip(ends, ends[1:] + ends[:1], strict=True):
            self.keys += 1
            self.versions += 1
            self.txns[end].append((True, self.keys, self.versions))
            self.txns[begin].append((False, self.keys, self.versions))

    def fragment(self, sequence: int, tag: int) -> Fragment:
        """All of it, each transaction of a session of its own. Nobody tells what a write replaced."""
        count, ops = len(self.txns), [op for txn in self.txns for op in txn]
        unknown = bytes(8 * count)
        made = Fragment(
            sequence=sequence,
            sealed_ns=time.time_ns(),
            txn_count=count,
            txn_session=struct.pack(f"<{count}I", *range(count)),
            txn_status=bytes(count),
            txn_begin_ns=unknown,
            txn_begun_ns=unknown,
            txn_commit_ns=unknown,
            txn_committed_ns=unknown,
            txn_op_count=struct.pack(f"<{count}I", *map(len, self.txns)),
            op_kind=bytes(WRITE if is_write else READ for is_write, _, _ in ops),
            op_key=struct.pack(f"<{len(ops)}Q", *(1000 + key for _, key, _ in ops)),
            op_version=struct.pack(f"<{len(ops)}Q", *(write_id(tag, version) for _, _, version in ops)),
        )
        made.write_ids.add(tag=tag, settled=self.versions + 1, drawn=self.versions + 1)
        return made
