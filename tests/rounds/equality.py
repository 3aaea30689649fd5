"""Rounds equal one check: the machine fed piece by piece says what one check of everything says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from mussurana.verifier import Accepted, Rejected, Settings, check
from mussurana.verifier.history import Status
from mussurana.verifier.rounds.level import LevelRounds
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from tests.rounds.schedule import Action, fragments, make_schedule
from tests.rounds.world import STEP_NS, Event, World

LEVELS = ("serializable", "strict-serializable", "strong-session-si", "generalized-si", "strong-si")
FOR_EVER_NS = 10**18
PATIENT = Limits(
    round_interval_ns=0,
    wait_ns_max=FOR_EVER_NS,
    silence_ns_max=FOR_EVER_NS,
    in_doubt_ns_max=FOR_EVER_NS,
    aborted_ns_max=0,
)


@dataclass(frozen=True)
class Case:
    """A world, how it travels, and what it is checked for."""

    seed: int
    world: World
    schedule: list[Action]
    settings: list[Settings]
    limits: Limits
    stops: bool  # at the first violation, as it would be found by one check
    without: frozenset[str] = frozenset()

    @property
    def replay(self) -> str:
        without = ",".join(sorted(self.without, key=lambda part: (part[0], int(part[1:]))))
        return f"python -m tests.rounds --seed {self.seed} --cases 1" + (f" --without {without}" if without else "")


@dataclass
class Run:
    """What came of a case."""

    one: list[str]  # the verdict of one check, for each level
    rounds: list[str]  # the verdict over all rounds
    machine: Verifier
    traits: set[str] = field(default_factory=set)

    @property
    def complaint(self) -> str:
        return "; ".join(
            f"{level.settings.level}: one check says {one}, the rounds say {rounds}"
            for level, one, rounds in zip(self.machine.levels, self.one, self.rounds, strict=True)
            if one != rounds and not (one == "rejected" and rounds == "accepted" and looked_away(level))
        )


def looked_away(level: LevelRounds) -> bool:
    """Without session order, what is older than the machine's memory is not followed: a violation may stay unseen."""
    return level.settings.level == "generalized-si" and bool(level.left_out_txns or level.unchecked_reads)


def make_case(seed: int, without: frozenset[str] = frozenset()) -> Case:
    world = World(seed, without)
    rng = Random(-1 - seed)
    settings = [_random_settings(rng)]
    while rng.random() < 0.1:
        settings.append(_random_settings(rng))
    limits = replace(
        PATIENT,
        snapshot_age_ns_max=rng.choice((5, 20, 100)) * STEP_NS,
        aborted_ns_max=rng.choice((0, FOR_EVER_NS)),
    )
    stops = rng.random() < 0.8
    return Case(seed, world, make_schedule(world, rng), settings, limits, stops, without)


def _random_settings(rng: Random) -> Settings:
    return Settings(rng.choice((*LEVELS, "serializable")), clock_drift_ns=rng.choice((0, 0, 1, 3, 20)) * STEP_NS)


def run(case: Case) -> Run:
    history = case.world.history()
    verdicts = [check(history, settings).verdict for settings in case.settings]
    one = [
        "accepted" if isinstance(v, Accepted) else "rejected" if isinstance(v, Rejected) else "unknown"
        for v in verdicts
    ]
    machine = Verifier(case.settings, case.limits)
    found: list[set[str]] = [set() for _ in case.settings]
    traits = world_traits(case.world) | {settings.level for settings in case.settings} | set(one)
    done, sequence = [0] * len(case.world.collectors), [0] * len(case.world.collectors)
    last = [Action("deliver", n, len(c.recorded)) for n, c in enumerate(case.world.collectors) if c.recorded]
    followed = [action for at, action in enumerate(case.schedule) if f"a{at}" not in case.without]
    for now_ns, action in enumerate([*followed, *last, Action("step")], start=1):
        if action.what == "deliver":
            collector = case.world.collectors[action.collector]
            start, done[action.collector] = done[action.collector], action.end
            for fragment in fragments(
                case.world, collector, start, action.end, sequence[action.collector], action.eager
            ):
                machine.feed(collector.id, fragment, now_ns)
                sequence[action.collector] = fragment.sequence
        elif action.what == "crash":
            machine = Verifier.from_state(case.settings, case.limits, machine.state())
            traits.add("crash")
        else:
            for verdicts_so_far, outcome in zip(found, machine.step(now_ns, force=True), strict=True):
                verdicts_so_far.add(outcome.verdict)
                if outcome.forgotten:
                    traits |= {"forgot", f"{outcome.level} forgot"}
                if len(outcome.violations) + outcome.further_violations > 1:
                    traits.add("several violations")
            traits |= machine_traits(machine)
            if case.stops and all("rejected" in some for some in found):
                break
    rounds = ["rejected" if "rejected" in s else "unknown" if "unknown" in s else "accepted" for s in found]
    return Run(one, rounds, machine, traits)


def world_traits(world: World) -> set[str]:
    """What a world has, for the test that worlds have everything."""
    txns = [txn for txn in world.order if world.has(txn)]
    seen = {op.seen for txn in txns if txn.status == Status.COMMITTED for op in txn.ops}
    in_doubt = [op.version for txn in txns if txn.status == Status.IN_DOUBT for op in txn.ops if op.is_write]
    events = [item for collector in world.collectors for item in collector.recorded if isinstance(item, Event)]
    opened = [event.session for event in events if event.what == "open"]
    traits = {event.what for event in events}
    traits |= {"in doubt and seen"} if seen.intersection(in_doubt) else set()
    traits |= {"in doubt and not seen"} if not seen.issuperset(in_doubt) else set()
    traits |= {"reopened"} if any(opened.count(session) > 1 for session in opened) else set()
    traits |= {"lost a race"} if any(txn.is_fence and txn.status == Status.ABORTED for txn in txns) else set()
    traits |= {"fence in doubt"} if any(txn.is_fence and txn.status == Status.IN_DOUBT for txn in txns) else set()
    closed = [txn for txn in txns if txn.is_fence and not txn.ops[-1].is_write]
    traits |= {"closing fence"} if world.closing_fences and closed and "close" in traits else set()
    traits |= {"epochs not told"} if not all(collector.tells_epochs for collector in world.collectors) else set()
    traits |= {"clocks differ"} if any(collector.skew_ns for collector in world.collectors) else set()
    return traits


def machine_traits(machine: Verifier) -> set[str]:
    """What a machine has in its memory after a round."""
    traits = {"waiting"} if len(machine.admission.pool) else set()
    traits |= {"two levels"} if len(machine.levels) > 1 else set()
    for level in machine.levels:
        ops = np.diff(level.retained.op_start[: level.past + 1])
        traits |= {"kept undecided"} if (ops > 0).any() else set()
        traits |= {"time witness"} if (ops == 0).any() else set()
        traits |= {"closed key"} if level.real_key else set()
        traits |= {"left out"} if level.unchecked_reads else set()
    return traits
