"""What the round machine tells the outside: plain values, for the daemon to store, count and show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mussurana.verifier.history import Ints
from mussurana.verifier.verdict import Choices, Counterexample

VerdictName = Literal["accepted", "rejected", "unknown"]


@dataclass(frozen=True)
class Violation:
    """A rejection. The same transactions at the same level have the same id, however often they are found."""

    id: str
    level: str
    round: int
    epoch: int
    found_ns: int
    counterexample: Counterexample


@dataclass(frozen=True)
class Unchecked:
    """Reads of a round that could not be checked because of what a collector claims."""

    reason: str
    """`tainted`: it wrote to the table unseen. `contested`: it uses another collector's write ids. `colliding`: it told
    another name of a key that has one."""

    collector: str
    table: str  # empty for any
    reads: int


@dataclass(frozen=True)
class RoundOutcome:
    """One round at one level."""

    number: int  # 1, 2, 3, ...
    level: str
    verdict: VerdictName
    reason: str  # why unknown; else empty
    violations: tuple[Violation, ...]  # of this round, each set aside before the rest was checked again
    further_violations: int  # transactions set aside without a counterexample, because there were too many
    epoch: int  # the last epoch that all sessions have passed
    txn_count: int  # transactions that were new in this round
    committed_ns: Ints  # when each of them committed, as its collector saw it; the lag is now less this
    retained: int  # transactions kept for the next round
    forgotten: int  # transactions that this round let go
    seconds: dict[str, float]  # by phase: admit, build, prune, solve, explain, forget, total
    choices: Choices = field(default_factory=Choices)
    read_count: int = 0  # reads in the transactions that were new, checked or not
    unchecked: tuple[Unchecked, ...] = ()  # those left unchecked by somebody's claim; most reads first
    failure: str = ""  # an error in the program that this round came upon, if any


@dataclass(frozen=True)
class Gauges:
    """Where the machine stands, for metrics and the status command."""

    retained: dict[str, int]  # by level: transactions in the next round whatever arrives
    waiting: int  # transactions that wait for the writer of something they read, or behind one that does
    waiting_since_ns: int  # when the oldest of them arrived; 0 for none
    epoch: dict[str, int]  # by level: the last epoch that all sessions have passed
    epoch_reached_ns: dict[str, int]  # by level: when that was
    table_keys: dict[str, int]  # by level: keys in the version table
    sessions_open: int
    sessions_idle: int  # idle, closed or given up
    unknown_txns: int  # in total: those with a read that could not be checked, at the level with the most of them
    unchecked_reads: dict[str, int]  # in total, by reason, at the level with the most of them
    lost_txns: int  # in total: in declared gaps
    lost_fragments: int  # in total: not kept by their collector, damaged, or not understood
    clashing_tags: int  # in total: tags of write ids that two collectors drew
    begun_anew: int  # in total: how often all was let go, because no fence could prove its place
    in_doubt: int  # waiting for evidence
    alarms_waiting: int = 0  # violations that are found and not told yet
    ignored_claims: int = 0  # in total: words of collectors on versions that are not theirs
    unchecked_by: dict[tuple[str, str], int] = field(default_factory=dict)  # in total, by collector and table
    clocks_set_back: int = 0  # in total: transactions whose own times went backwards, so that none of them is used
