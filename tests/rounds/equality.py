"""Rounds equal one check: the machine fed piece by piece says what one check of everything says."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from mussurana.verifier import Accepted, Rejected, Settings, check
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from tests.rounds.world import STEP_NS, World

LEVELS = ("serializable", "strict-serializable", "strong-session-si", "generalized-si", "strong-si")
PATIENT = Limits(
    round_interval_ns=0,
    wait_ns_max=10**18,
    silence_ns_max=10**18,
    in_doubt_ns_max=10**18,
    aborted_ns_max=0,
)


def random_settings(rng: Random) -> Settings:
    return Settings(rng.choice(LEVELS), clock_drift_ns=rng.choice((0, 0, 1, 3)) * STEP_NS)


def verdicts(seed: int) -> tuple[str, str, Verifier, int]:
    """(verdict of one check, verdict of the rounds, the machine, how many transactions it forgot)."""
    world = World(seed)
    rng = Random(-1 - seed)
    settings = random_settings(rng)
    whole = check(world.history(), settings).verdict
    one = "accepted" if isinstance(whole, Accepted) else "rejected" if isinstance(whole, Rejected) else "unknown"
    limits = replace(PATIENT, snapshot_age_ns_max=rng.choice((5, 20, 100)) * STEP_NS)
    machine = Verifier([settings], limits)
    found, forgotten, now_ns = set(), 0, 1
    often, crashes = rng.choice((0.1, 0.5, 1.0)), rng.choice((0.0, 0.1))
    for collector, fragment in world.fragments(rng):
        machine.feed(collector, fragment, now_ns)
        now_ns += 1
        if rng.random() < crashes:
            machine = Verifier.from_state([settings], limits, machine.state())
        if rng.random() < often:
            for outcome in machine.step(now_ns, force=True):
                found.add(outcome.verdict)
                forgotten += outcome.forgotten
    for outcome in machine.step(now_ns + 1, force=True):
        found.add(outcome.verdict)
        forgotten += outcome.forgotten
    level = machine.levels[0]
    if (
        settings.level == "generalized-si"
        and (level.left_out_txns or level.unchecked_reads)
        and not found - {"accepted"}
    ):
        found.add("unknown")  # a snapshot that was older than the machine's memory
    rounds = "rejected" if "rejected" in found else "unknown" if "unknown" in found else "accepted"
    return one, rounds, machine, forgotten
