"""Rounds equal one check: the machine fed piece by piece says what one check of everything says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from mussurana.verifier import Settings, check
from mussurana.verifier.formats import load
from mussurana.verifier.formats.spool import AMBIGUOUS_KEYS, CLOCKS_SET_BACK, TAINTED_READS
from mussurana.verifier.history import History, Status
from mussurana.verifier.rounds.level import LevelRounds
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire import counter_of, segments, tag_of
from mussurana.wire.history_pb2 import READ, Fragment, Hello, Upload
from tests.rounds.schedule import Action, fragments, make_schedule
from tests.rounds.world import STEP_NS, Event, World

LEVELS = ("serializable", "strict-serializable", "strong-session-si", "generalized-si", "strong-si")
FOR_EVER_NS = 10**18
SPOOL_EVERY = 4
"""Of the worlds in which all counts, so many go into a spool as well; it costs as much as all else."""

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

    case: Case
    one: list[str]  # the verdict of one check, for each level
    spool: list[str]  # that of a check of the same fragments as a spool
    rounds: list[str]  # the verdict over all rounds
    machine: Verifier
    traits: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)  # by one check
    left_out_of_spool: Counter[str] = field(default_factory=Counter)
    again_late: bool = False  # a write id came again after a round had believed what came of it before

    @property
    def complaint(self) -> str:
        complaints = [
            f"{level.settings.level}: one check says {one}, the spool {spool}, the rounds {rounds}"
            for level, one, spool, rounds in zip(self.machine.levels, self.one, self.spool, self.rounds, strict=True)
            if one != spool or not self._may_say(level, one, rounds)
        ]
        if self.left_out != self.left_out_of_spool:
            complaints.append(f"one check leaves out {dict(self.left_out)}, the spool {dict(self.left_out_of_spool)}")
        counted = self._counted_by_rounds()
        if self.is_same_evidence and "rejected" not in self.rounds and self.left_out != counted:
            complaints.append(f"one check leaves out {dict(self.left_out)}, the rounds {dict(counted)}")
        return "; ".join(complaints)

    @property
    def is_same_evidence(self) -> bool:
        """Whether the rounds knew of all doubts before they concluded anything that these touch."""
        return not self.again_late and "doubts told late" not in self.traits

    def _may_say(self, level: LevelRounds, one: str, rounds: str) -> bool:
        if one == rounds or (one == "rejected" and looked_away(level)):
            return True
        if self.is_same_evidence:
            return False
        # What was believed before a doubt was heard of is more than one check has that knows of it from the start.
        if rounds == "rejected":
            return self.again_late or verdict_of(self.case.world.history(), level.settings) == "rejected"
        return self.again_late and rounds == "unknown"

    def _counted_by_rounds(self) -> Counter[str]:
        unchecked = self.machine.unchecked
        counted = Counter({reason: unchecked[reason] for reason in ("tainted", "colliding")})
        counted["clocks"] = self.machine.clocks_set_back
        return +counted


def verdict_of(history: History, settings: Settings) -> str:
    return type(check(history, settings).verdict).__name__.lower()


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
    followed = with_fragments(case)
    history, left_out = case.world.doubts.weakened(case.world)
    one = spool = [verdict_of(history, settings) for settings in case.settings]
    left_out_of_spool = left_out
    traits = world_traits(case.world)
    if +left_out or case.world.doubts.instead or not case.seed % SPOOL_EVERY:
        read = as_spool(case.world, followed)
        spool = [verdict_of(read, settings) for settings in case.settings]
        left_out_of_spool = counted_in(read)
        traits.add("spool")
    machine = Verifier(case.settings, case.limits)
    done = Run(case, one, spool, [], machine, traits, +left_out, +left_out_of_spool)
    done.traits |= {settings.level for settings in case.settings} | set(done.one)
    found: list[set[str]] = [set() for _ in case.settings]
    for now_ns, (action, some) in enumerate(followed, start=1):
        if action.what == "deliver":
            for fragment in some:
                machine.feed(case.world.collectors[action.collector].id, fragment, now_ns)
        elif action.what == "crash":
            machine = Verifier.from_state(case.settings, case.limits, machine.state())
            done.traits.add("crash")
        else:
            for verdicts_so_far, outcome in zip(found, machine.step(now_ns, force=True), strict=True):
                verdicts_so_far.add(outcome.verdict)
                if outcome.forgotten:
                    done.traits |= {"forgot", f"{outcome.level} forgot"}
                if len(outcome.violations) + outcome.further_violations > 1:
                    done.traits.add("several violations")
            done.traits |= machine_traits(machine)
            if case.stops and all("rejected" in some for some in found):
                break
    done.machine, done.again_late = machine, comes_again_late(case.world, followed)
    done.rounds = ["rejected" if "rejected" in s else "unknown" if "unknown" in s else "accepted" for s in found]
    return done


def with_fragments(case: Case) -> list[tuple[Action, list[Fragment]]]:
    """The schedule to its end, and what is delivered."""
    done, sequence = [0] * len(case.world.collectors), [0] * len(case.world.collectors)
    last = [Action("deliver", n, len(c.recorded)) for n, c in enumerate(case.world.collectors) if c.recorded]
    followed = [action for at, action in enumerate(case.schedule) if f"a{at}" not in case.without]
    made = []
    for action in (*followed, *last, Action("step")):
        some: list[Fragment] = []
        if action.what == "deliver":
            n = action.collector
            start, done[n] = done[n], action.end
            some = list(fragments(case.world, case.world.collectors[n], start, action.end, sequence[n], action.eager))
            sequence[n] += len(some)
        made.append((action, some))
    return made


def as_spool(world: World, followed: list[tuple[Action, list[Fragment]]]) -> History:
    """The same fragments on disk, and what `mussurana check` makes of them."""
    with TemporaryDirectory(prefix="mussurana-rounds-") as folder:
        for n, collector in enumerate(world.collectors):
            hello = Upload(hello=Hello(protocol=1, collector=collector.id, name=f"c{collector.tag}"))
            uploads = [
                hello,
                *(Upload(fragment=each) for action, some in followed for each in some if action.collector == n),
            ]
            appender = segments.Appender(Path(folder) / f"{n}", 1 << 30)
            appender.append([upload.SerializeToString() for upload in uploads])
            appender.close()
        return load(Path(folder), "spool")


def counted_in(spool: History) -> Counter[str]:
    """What a spool leaves out, by the same names as `Doubts.weakened`."""
    names = {TAINTED_READS: "tainted", AMBIGUOUS_KEYS: "colliding", CLOCKS_SET_BACK: "clocks"}
    ours = (each for each in spool.left_out if not each.what.startswith("statements"))
    return Counter({names.get(each.what, each.what): each.count for each in ours})


def comes_again_late(world: World, followed: list[tuple[Action, list[Fragment]]]) -> bool:
    """Whether a version that comes again comes after a round that knew of it.

    There it stood for the one that came first, or for none if it was called settled before anything came.
    """
    repeated = set(world.doubts.instead.values())
    told: set[int] = set()  # those of which something was fed, or that were to come no more
    believed: set[int] = set()
    for action, some in followed:
        for fragment in some:
            versions = np.frombuffer(fragment.op_version, "<u8").tolist()
            kinds = fragment.op_kind
            written = {version for kind, version in zip(kinds, versions, strict=True) if kind != READ} & repeated
            if written & believed:
                return True
            settled = {progress.tag: progress.settled for progress in fragment.write_ids}
            told |= {*versions, *np.frombuffer(fragment.op_previous, "<u8").tolist()} & repeated
            told |= {each for each in repeated if counter_of(each) < settled.get(tag_of(each), 0)}
        if action.what == "step":
            believed |= told
    return False


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
    return traits | world.doubts.traits(world)


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
        traits |= {"repeated"} if level.repeated_reads else set()
    return traits
