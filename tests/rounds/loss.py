"""No false alarm: a database that keeps its promise, and a recording of it that arrives in tatters.

Gaps, lost fragments, collectors that die or were there before the verifier, waits that end, commits in doubt that
nobody asks about in time, sessions that fall silent, clocks that are days apart where none is asked, and little room
for anything. All of it makes the history weaker; none of it may ever lead to a rejection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from mussurana.verifier import Rejected, Settings, check
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from tests.rounds.schedule import Action, fragments, make_schedule
from tests.rounds.world import STEP_NS, Shape, World

KEPT_BY = {  # the levels that each kind of database keeps
    "serial": (
        "serializable",
        "serializable",
        "strict-serializable",
        "strong-session-si",
        "generalized-si",
        "strong-si",
    ),
    "snapshot": ("strong-session-si", "generalized-si", "strong-si"),
    "stale snapshot": ("generalized-si",),
}


@dataclass(frozen=True)
class LossCase:
    seed: int
    world: World
    schedule: list[Action]
    settings: Settings
    limits: Limits
    step_ns: int  # how much time passes between actions
    without: frozenset[str] = frozenset()

    @property
    def replay(self) -> str:
        without = ",".join(sorted(self.without, key=lambda part: (part[0], int(part[1:]))))
        told = f"python -m tests.rounds --loss --seed {self.seed} --cases 1"
        return told + (f" --without {without}" if without else "")


@dataclass
class LossRun:
    machine: Verifier
    complaint: str = ""
    traits: set[str] = field(default_factory=set)


def make_loss(seed: int, without: frozenset[str] = frozenset(), era: int = 0, level: str = "") -> LossCase:
    rng = Random(-1 - seed)
    style = rng.choice(("serial", "serial", "serial", "snapshot", "stale snapshot"))
    chosen = rng.choice(KEPT_BY[style])
    if level:
        style, chosen = rng.choice([style for style, kept in KEPT_BY.items() if level in kept]), level
    level = chosen
    shape = replace(Shape.random(rng), style=style, spoilt=0.0, txns=rng.choice((25, 40, 80)))
    if style == "serial" and not level.endswith("serializable"):
        shape = replace(shape, focus=1.0)  # else a transaction sees what was committed after it began
    settings = Settings(level, clock_drift_ns=2 * shape.skew_ns)
    if level == "serializable" and rng.random() < 0.5:
        shape = replace(shape, skew_ns=10**6 * STEP_NS)  # it looks at no clock
    world = World(seed, without, shape, era, unseen_writes=True)
    schedule = _spoil(make_schedule(world, rng), rng)
    short, long = 3, 10**6
    limits = Limits(
        round_interval_ns=0,
        wait_ns_max=rng.choice((short, long)),
        waiting_txns_max=rng.choice((3, long)),
        silence_ns_max=rng.choice((short, 4 * short, long)),
        in_doubt_ns_max=rng.choice((short, long)),
        aborted_ns_max=rng.choice((0, short, long)),
        retained_txns_max=rng.choice((10, long, long)),
        snapshot_age_ns_max=rng.choice((5, 20)) * STEP_NS,
    )
    return LossCase(seed, world, schedule, settings, limits, 1, without)


def keeps_promise(case: LossCase) -> bool:
    """Whether the database did nothing wrong, which the shrinking of a case might change."""
    followed = [Action("deliver", n, len(each.recorded)) for n, each in enumerate(case.world.collectors)]
    for action in followed:
        collector = case.world.collectors[action.collector]
        list(fragments(case.world, collector, 0, action.end, 0, True, tells_always=True))
    history, _ = case.world.doubts.weakened(case.world)
    return not isinstance(check(history, case.settings).verdict, Rejected)


def _spoil(schedule: list[Action], rng: Random) -> list[Action]:
    """Decide what happens to each fragment."""
    gaps, losses = rng.choice((0.0, 0.05, 0.2)), rng.choice((0.0, 0.05, 0.2))
    dies_at = {n: rng.choice((0.5, 0.8)) if rng.random() < 0.2 else 1.1 for n in range(3)}
    unheard = {n: rng.choice((0.1, 0.3)) if rng.random() < 0.2 else 0.0 for n in range(3)}
    spoilt = []
    for at, action in enumerate(schedule):
        fate, progress = "arrives", at / len(schedule)
        if action.what == "deliver":
            chance = rng.random()
            if progress > dies_at[action.collector]:
                fate = "never sent"
            elif progress < unheard[action.collector]:
                fate = "unheard"
            elif chance < gaps:
                fate = "gap"
            elif chance < gaps + losses:
                fate = "lost"
        spoilt.append(replace(action, fate=fate))
    return spoilt


def run_loss(case: LossCase) -> LossRun:
    followed = [(case, action) for at, action in enumerate(case.schedule) if f"a{at}" not in case.without]
    return _run(case, followed)


def run_renewed(seed: int) -> LossRun:
    """A world, and another one in its place with all its rows made anew; of the first one some is heard of late.

    All collectors tell epochs, and of the second world nothing is lost: otherwise it might look like the first.
    """
    rng = Random(f"renewed {seed}")
    level = rng.choice(("serializable", "serializable", "strict-serializable", "strong-session-si", "strong-si"))
    case, later = make_loss(seed, level=level), make_loss(-1 - seed, era=1, level=level)
    for collector in (*case.world.collectors, *later.world.collectors):
        collector.tells_epochs = True
    drift_ns = max(each.settings.clock_drift_ns for each in (case, later))
    case = replace(case, settings=replace(case.settings, clock_drift_ns=drift_ns))
    followed = [(case, action) for action in case.schedule]
    followed += [(later, replace(action, fate="arrives")) for action in later.schedule]
    for at in range(len(case.schedule) - 1, max(len(case.schedule) - rng.choice((0, 1, 5)), 0) - 1, -1):
        to = rng.randrange(at, len(followed))
        if all(each is later for each, _ in followed[at + 1 : to + 1]):
            followed.insert(to, followed.pop(at))
    return _run(case, followed)


def _run(case: LossCase, followed: list[tuple[LossCase, Action]]) -> LossRun:
    machine = Verifier([case.settings], case.limits)
    run = LossRun(machine, traits={case.settings.level})
    done, sequence = Counter[bytes](), Counter[bytes]()
    steps = [(case, Action("step"))] * 6  # until all that waits has waited long enough
    for now_ns, (of, action) in enumerate([*followed, *steps], start=1):
        run.traits.add(action.fate)
        if action.what == "deliver" and action.fate != "never sent":
            collector = of.world.collectors[action.collector]
            id, gap = collector.id, action.fate == "gap"
            sent = list(fragments(of.world, collector, done[id], action.end, sequence[id], action.eager, gap, True))
            done[id] = action.end
            if action.fate == "lost":
                machine.lose(id, sequence[id] + 1, sequence[id] + len(sent), now_ns)
            for fragment in sent if action.fate in ("arrives", "gap") else ():
                machine.feed(id, fragment, now_ns)
            sequence[id] += len(sent)
        elif action.what == "crash":
            machine = run.machine = Verifier.from_state([case.settings], case.limits, machine.state())
        elif action.what == "step":
            for outcome in machine.step(now_ns, force=True):
                if outcome.forgotten:
                    run.traits.add("forgot")
                if outcome.verdict == "rejected":
                    told = [violation.counterexample.summary for violation in outcome.violations]
                    run.complaint = f"{outcome.level}: rejected, though the database did nothing wrong: {told}"
                    return run
    gauges = machine.gauges()
    run.traits |= {"unknown"} if gauges.unknown_txns else set()
    run.traits |= {"begun anew"} if machine.begun_anew else set()
    run.traits |= {"unfenced"} if machine.unchecked["unfenced"] else set()
    run.traits |= {"given up"} if machine.admission.given_up_txns else set()
    run.traits |= {"unchecked"} if any(gauges.unchecked_reads.values()) else set()
    return run
