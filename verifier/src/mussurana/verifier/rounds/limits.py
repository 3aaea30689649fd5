"""Every bound of the round machine, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Limits:
    round_interval_ns: int = SECOND_NS // 4
    """A round is due when something is new and the last one is this long ago. Shorter means less lag and more work,
    since each round looks at what is retained as well."""

    round_txns_max: int = 50_000
    """A round is due at once when so many are new: about a third of a second of checking."""

    wait_ns_max: int = 30 * SECOND_NS
    """How long a transaction waits for the writer of something it saw; then that counts as not seen."""

    waiting_txns_max: int = 1_000_000
    """How many may wait; beyond it the oldest stop waiting. About 300 bytes each."""

    silence_ns_max: int = 60 * SECOND_NS
    """A session of which nothing was heard for so long no longer holds back forgetting; it has to fence when it comes
    back."""

    in_doubt_ns_max: int = 10 * SECOND_NS
    """How long a commit in doubt that nobody saw is remembered. It holds back forgetting for all it touches."""

    aborted_ns_max: int = 10 * SECOND_NS
    """How long rolled-back transactions are remembered, so that reads of them get their right name."""

    collector_silence_ns_max: int = 30 * 24 * 3600 * SECOND_NS
    """How long a collector that was not heard of is known by its number, names and sessions; some hundred bytes, and as
    many for each of its statements. Every process is a new one, so they would add up. As long as `daemon/sequences.py`
    remembers which of its fragments have been here."""

    snapshot_age_ns_max: int = 10 * SECOND_NS
    """Only without session order (generalized-si): older snapshots are not followed but count as unknown."""

    alarm_wait_ns_max: int = 5 * SECOND_NS
    """How long an alarm waits for collectors that may still say that they wrote unseen. Those at work are heard twice a
    second."""

    retained_txns_max: int = 2_000_000
    """Transactions that a level remembers, about 400 bytes each. Beyond it the older half is left out of the check, as
    if it had been lost: a session that never fences, or blind writes at a snapshot level, may come to that."""

    violations_explained_max: int = 8
    """Counterexamples per round. When a database breaks its promise all the time, the rest is only counted."""

    search_calls_max: int = 20
    """How long a search may take, in units of about a second. The next round has twice as long for the same. If that is
    not enough, what the search was about is left out, so whoever makes a history that is hard to order keeps others
    waiting for a minute. What databases do is ordered in milliseconds."""

    explained_txns_max: int = 50_000
    """Transactions that are looked at to explain the violations of a round, each as often as it is: some seconds. An
    explanation takes a few hundred; a contradiction that rests on thousands is told as it is."""
