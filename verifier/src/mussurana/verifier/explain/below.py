"""What a counterexample says first of transactions that ran below the level that is checked.

A database promises a transaction what it ran at and no more. PostgreSQL's REPEATABLE READ is snapshot isolation. What
no level allows (dirty writes, reads of what was rolled back, circular information flow) is a broken promise at each.
"""

from __future__ import annotations

from collections.abc import Sequence

from mussurana.verifier.history import Isolation
from mussurana.verifier.levels import LEVELS
from mussurana.verifier.verdict import ShownTransaction

_ALLOWED_BELOW = ("G-single", "G2")
"""What begins like this, in Adya's names, is no anomaly at READ COMMITTED."""

_FENCES = {"fence", "the fence"}
"""Keys that are ours: each is one row, of which every level promises what is asked of it."""


def below(transactions: Sequence[ShownTransaction], level: str, adya: str) -> str:
    """The sentence, with a space after it; empty if all ran at the level, or nobody knows."""
    if not adya.startswith(_ALLOWED_BELOW):
        return ""
    needed = Isolation.REPEATABLE_READ if LEVELS[level].split else Isolation.SERIALIZABLE
    lower: dict[str, list[str]] = {}
    for txn in transactions:
        if {operation.key for operation in txn.operations} <= _FENCES:
            continue
        if txn.isolation and Isolation[txn.isolation.replace(" ", "_")] < needed:
            lower.setdefault(txn.isolation, []).append(txn.label)
    if not lower:
        return ""
    ran = " and ".join(f"{_listed(labels)} ran at {isolation}" for isolation, labels in lower.items())
    them = "it" if sum(map(len, lower.values())) == 1 else "them"
    return f"{ran}, so the database did not promise {them} this. "


def _listed(labels: Sequence[str]) -> str:
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last
