"""Isolation levels: what each one demands of an order of events.

All levels share one representation (design 3.2): a transaction has a begin and a commit; whoever read a version began
after its writer committed, and began before the next writer of that key committed; writers of one key do not overlap,
but for one that begins the row anew.
Serializability is the case in which a transaction's begin and commit are one event. What differs between levels is
declared in one small module each:

`split`            begin and commit are separate events (snapshot isolation) or one (serializability)
`session_order`    what a session's earlier transaction precedes: the begin of its later ones, or nothing
`real_time`        which pairs of events keep the order that the clocks prove

Definitions for users, with examples, are in docs/levels.md; Viper section 5 has those of the snapshot family.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    name: str
    summary: str  # for --help and the README
    promise: str  # completes "No ... order explains this", for people who read a rejection
    split: bool
    session_order: bool
    real_time: tuple[
        tuple[str, str], ...
    ] = ()  # ("commit", "begin"): commits precede the begins that clocks prove later


def _all() -> dict[str, Level]:
    from mussurana.verifier.levels import (
        adya_si,
        generalized_si,
        serializable,
        strict_serializable,
        strong_session_si,
        strong_si,
    )

    modules = (serializable, strict_serializable, strong_si, strong_session_si, generalized_si, adya_si)
    return {module.LEVEL.name: module.LEVEL for module in modules}


LEVELS: dict[str, Level] = _all()
