"""How a recorded world travels: cut into fragments, some collectors late, with rounds and crashes in between.

A schedule follows from a seed. It can be followed without some of its actions (a5): a fragment that is left out goes
together with the collector's next one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from mussurana.wire import FENCE_KEY
from mussurana.wire import history_pb2 as wire
from tests.rounds.doubts import NEW_ROW, NOT_RECORDED, Doubts
from tests.rounds.world import Collector, Event, Item, Transaction, World


@dataclass(frozen=True)
class Action:
    what: str  # deliver, step, crash
    collector: int = 0
    end: int = 0  # deliver up to this item of what the collector recorded
    eager: bool = True  # say of all write ids that are settled that they are
    fate: str = "arrives"  # or "gap": its transactions are dropped, as the collector says; or "lost": all of it is


def make_schedule(world: World, rng: Random) -> list[Action]:
    """Everything that was recorded, in an order that fits each collector's own; steps and crashes at random."""
    often, crashes = rng.choice((0.1, 0.5, 1.0)), rng.choice((0.0, 0.0, 0.1))
    lazy = rng.choice((0.0, 0.0, 0.5))
    at = dict.fromkeys(range(len(world.collectors)), 0)
    late, until = -1, 0.0
    if len(at) > 1 and rng.random() < 0.4:
        late, until = rng.randrange(len(at)), rng.choice((0.5, 0.9, 1.0))
    total = sum(len(collector.recorded) for collector in world.collectors)
    actions = []
    while open_ones := [n for n, place in at.items() if place < len(world.collectors[n].recorded)]:
        others = [n for n in open_ones if n != late]
        others_done = sum(place for n, place in at.items() if n != late)
        if others and others_done < until * (total - len(world.collectors[late].recorded)):
            open_ones = others
        chosen = rng.choice(open_ones)
        end = min(at[chosen] + rng.choice((1, 2, 3, 5, 10, 100)), len(world.collectors[chosen].recorded))
        at[chosen] = end
        actions.append(Action("deliver", chosen, end, rng.random() >= lazy))
        if rng.random() < crashes:
            actions.append(Action("crash"))
        if rng.random() < often:
            actions.append(Action("step"))
    return actions


def fragments(
    world: World,
    collector: Collector,
    start: int,
    end: int,
    sequence: int,
    eager: bool,
    gap: bool = False,
    tells_always: bool = False,
) -> Iterator[wire.Fragment]:
    """These items as fragments, more than one where their order asks for it. The first gets the next sequence.

    In a gap only the events of sessions are told, and what the transactions may have written. With `tells_always` each
    fragment tells all names and taints, else only one in which they are new.
    """
    rank = {"open": 0, "idle": 2, "close": 2}
    runs: list[list[Item]] = [[]]
    for item in filter(world.has, collector.recorded[start:end]):
        before = runs[-1][-1] if runs[-1] else None
        ranks = [rank[one.what] if isinstance(one, Event) else 1 for one in (before, item) if one is not None]
        if len(ranks) == 2 and ranks[0] > ranks[1]:
            runs.append([])
        runs[-1].append(item)
    rest = [item for item in collector.recorded[end:] if world.has(item)]
    for at, run in enumerate(runs, start=1):
        later = [*(item for items in runs[at:] for item in items), *rest]
        fragment = _fragment(collector, sequence + at, run, later, eager or not rest, gap, world.doubts)
        _tell_doubts(world, fragment, run, tells_always)
        yield fragment


def _tell_doubts(world: World, fragment: wire.Fragment, run: list[Item], always: bool) -> None:
    doubts = world.doubts
    if always or (doubts.early and fragment.sequence == 1):
        doubts.tell(fragment, world.keys, True)
    elif not doubts.early:
        used = [op.key for item in run if isinstance(item, Transaction) for op in item.ops]
        doubts.tell(fragment, dict.fromkeys(used), run[-1].drawn >= doubts.told_at if run else False)


def _fragment(
    collector: Collector, sequence: int, run: list[Item], later: list[Item], eager: bool, gap: bool, doubts: Doubts
) -> wire.Fragment:
    fragment = wire.Fragment(sequence=sequence, sealed_ns=sequence)
    unsent = [op.version for txn in later if isinstance(txn, Transaction) for op in txn.ops if op.is_write]
    settled = min((version & 0xFFFFFFFF for version in unsent), default=collector.counter + 1)
    drawn = max((item.drawn for item in run), default=collector.counter) + 1
    fragment.write_ids.add(tag=collector.tag, settled=settled if eager else max(1, settled - 20), drawn=drawn)
    what = {"open": wire.SessionEvent.OPEN, "idle": wire.SessionEvent.IDLE, "close": wire.SessionEvent.CLOSE}
    for item in run:
        if isinstance(item, Event):
            fragment.session_event.add(what=what[item.what], session=item.session.number, fenced=item.what == "open")
    txns = [item for item in run if isinstance(item, Transaction)]
    if gap and txns:
        written = [op.version & 0xFFFFFFFF for txn in txns for op in txn.ops if op.is_write]
        told = fragment.gap.add(reason="spool full", txn_count=len(txns))
        for counter in written:
            told.write_ids.add(tag=collector.tag, first=counter, end=counter + 1)
    write_columns(fragment, [] if gap else txns, doubts)
    return fragment


def write_columns(fragment: wire.Fragment, txns: list[Transaction], doubts: Doubts) -> None:
    ops = [op for txn in txns for op in txn.ops]
    writes = {NOT_RECORDED: wire.WRITE, NEW_ROW: wire.INSERT}
    kinds: list[int] = [writes.get(op.previous, wire.UPDATE) if op.is_write else wire.READ for op in ops]

    def pack(code: str, values: list[int]) -> bytes:
        return struct.pack(f"<{len(values)}{code}", *values)

    fragment.txn_count = len(txns)
    fragment.txn_session = pack("I", [txn.session.number for txn in txns])
    fragment.txn_status = pack("B", [txn.status for txn in txns])
    fragment.txn_begin_ns = pack("q", [doubts.times(txn)[0] for txn in txns])
    fragment.txn_begun_ns = pack("q", [doubts.times(txn)[1] for txn in txns])
    fragment.txn_commit_ns = pack("q", [doubts.times(txn)[2] for txn in txns])
    fragment.txn_committed_ns = pack("q", [doubts.times(txn)[3] for txn in txns])
    fragment.txn_op_count = pack("I", [len(txn.ops) for txn in txns])
    fragment.op_kind = pack("B", kinds)
    fragment.op_key = pack("Q", [doubts.key(op.key) for op in ops])
    fragment.op_version = pack("Q", [doubts.version(op.version) for op in ops])
    replaced = [op.previous for op in ops if op.is_write and op.previous >= 0]
    fragment.op_previous = pack("Q", [doubts.version(version) for version in replaced])
    if txns and txns[0].session.collector.tells_epochs:
        fragment.fence_epoch = pack("Q", [op.epoch for op in ops if op.key == FENCE_KEY])
