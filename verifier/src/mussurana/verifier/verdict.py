"""What a check answers: three kinds of verdict, each with its proof or its reason.

Plain values, made by the engine and `explain/`, read by `render/`, the CLI and the daemon. Nothing here
computes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from mussurana.verifier.history import LeftOut

EdgeKind = Literal["wr", "ww", "rw", "session", "realtime", "epoch"]
Event = Literal["begin", "commit", ""]  # "" where a transaction is one event


@dataclass(frozen=True)
class Witness:
    """An order that explains every read.

    Serializability: transaction numbers in serial order. Snapshot isolation: 2 * t for the begin of transaction t,
    2 * t + 1 for its commit. Transactions that are not in it did not commit.
    """

    order: npt.NDArray[np.int64]
    events: bool  # begins and commits, rather than whole transactions


@dataclass(frozen=True)
class ShownOperation:
    """One operation of a transaction in a counterexample, in words that its source would use."""

    kind: Literal["read", "write", "append"]
    key: str
    version: str  # "initial" for the initial one; for list reads the whole list, "[1, 2, 3]"
    previous: str = ""  # for writes: the version replaced, where known
    statement: str = ""  # SQL, where recorded


@dataclass(frozen=True)
class ShownTransaction:
    label: str  # "T1", "T2", ...
    txn: int  # its number in the history
    session: str
    position: int  # index among its session's transactions, from 0
    name: str  # what its source calls it; may be empty
    status: Literal["committed", "aborted", "in doubt"]
    begin_ns: int | None
    committed_ns: int | None
    operations: tuple[ShownOperation, ...]
    isolation: str = ""  # what it ran at, "READ COMMITTED"; empty where nobody knows


@dataclass(frozen=True)
class Step:
    """One order between two transactions, and why it holds.

    `source` and `target` index `Counterexample.transactions`. `reason` is one sentence that starts with a capital
    and ends with a full stop.
    """

    source: int
    target: int
    source_event: Event
    target_event: Event
    kind: EdgeKind
    key: str  # empty for session and realtime
    reason: str


@dataclass(frozen=True)
class Case:
    """A cycle that follows from the assumptions. Together the cases of a counterexample cover all possibilities."""

    assumptions: tuple[str, ...]  # sentences such as "Suppose T1 wrote x before T2 did."
    steps: tuple[Step, ...]  # a cycle: each step's target is the next one's source; may be empty for plain facts
    conclusion: str  # "No serial order has both."


@dataclass(frozen=True)
class Counterexample:
    anomaly: str  # short and stable, for labels and metrics: "write skew", "G1c-session", "aborted read", ...
    adya: str  # Adya's name where there is one: "G2-item", "G1a", ...; else empty
    summary: str  # one sentence for a person in a hurry
    transactions: tuple[ShownTransaction, ...]
    cases: tuple[Case, ...]
    facts: tuple[
        str, ...
    ] = ()  # sentences that hold without any order: "T2 read x at 7, which T1 wrote and rolled back."


@dataclass(frozen=True)
class Accepted:
    witness: Witness


@dataclass(frozen=True)
class Rejected:
    counterexample: Counterexample


@dataclass(frozen=True)
class Unknown:
    reason: str  # a sentence that says what would have to change to get an answer


Verdict = Accepted | Rejected | Unknown


@dataclass(frozen=True)
class Choices:
    """How many pairs of writes had to be ordered, and what ordered them."""

    generated: int = 0
    pruned: int = 0
    solved: int = 0


@dataclass(frozen=True)
class Settings:
    """What the verdict is about: the level and its parameters."""

    level: str
    session_order: bool = True
    clock_drift_ns: int = 100_000_000


@dataclass(frozen=True)
class Result:
    """A verdict with everything that a reader of it may ask next."""

    verdict: Verdict
    settings: Settings
    transactions: int
    sessions: int
    seconds: dict[str, float] = field(default_factory=dict)  # load, build, prune, solve, explain, total
    choices: Choices = Choices()
    left_out: tuple[LeftOut, ...] = ()
    conflicts: int = 0  # dead ends the search met
