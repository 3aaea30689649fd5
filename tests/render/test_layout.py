"""Where things stand in a picture: nothing covers a box or a label, and order can be read from left to right."""

from __future__ import annotations

import random
from itertools import pairwise
from time import perf_counter

import pytest

from mussurana.verifier.render.layout.placement import place
from mussurana.verifier.render.layout.routing import Box, Layout
from mussurana.verifier.render.layout.streets import Run, arrange
from mussurana.verifier.render.svg import Picture
from mussurana.verifier.verdict import (
    Case,
    Counterexample,
    EdgeKind,
    Event,
    Rejected,
    Result,
    ShownOperation,
    ShownTransaction,
    Step,
)
from tests.render import samples


def counterexample_of(result: Result) -> Counterexample:
    assert isinstance(result.verdict, Rejected)
    return result.verdict.counterexample


def overlap(a: Box, b: Box) -> bool:
    slack = 0.01
    return (
        a.x < b.x + b.width - slack
        and b.x < a.x + a.width - slack
        and a.y < b.y + b.height - slack
        and b.y < a.y + a.height - slack
    )


def segments(layout: Layout, number: int) -> list[Box]:
    return [
        Box(min(ax, bx), min(ay, by), abs(ax - bx), abs(ay - by))
        for (ax, ay), (bx, by) in pairwise(layout.routes[number].points)
    ]


def check_nothing_is_covered(layout: Layout) -> None:
    labels = [route.label for route in layout.routes]
    for number, label in enumerate(labels):
        assert not any(overlap(label, box) for box in layout.boxes), "a label covers a box"
        assert not any(overlap(label, other) for other in labels[:number]), "a label covers a label"
        for line in segments(layout, number):
            assert not any(overlap(line, box) for box in layout.boxes), "an edge runs through a box"
            assert line.width == 0 or line.height == 0
    for number, box in enumerate(layout.boxes):
        assert not any(overlap(box, other) for other in layout.boxes[:number]), "a box covers a box"
        assert layout.left <= box.x
        assert box.x + box.width <= layout.right
        assert 0 <= box.y <= box.y + box.height <= layout.height


def lines_under_labels(layout: Layout) -> int:
    return sum(
        overlap(line, route.label)
        for number, route in enumerate(layout.routes)
        for other in range(len(layout.routes))
        if other != number
        for line in segments(layout, other)
    )


def random_counterexample(seed: int) -> Counterexample:
    rng = random.Random(seed)
    size = rng.randint(2, 9)
    session_count = rng.randint(1, size)
    has_times, has_events = rng.random() < 0.4, rng.random() < 0.3
    positions: dict[str, int] = {}
    transactions = []
    for n in range(size):
        session = f"s{rng.randrange(session_count)}"
        positions[session] = positions.get(session, -1) + 1
        begin_ns = rng.randrange(100)
        begin, end = (begin_ns, begin_ns + rng.randrange(60)) if has_times else (None, None)
        operations = tuple(ShownOperation("read", "k" * rng.randint(1, 40), "1") for _ in range(rng.randint(0, 4)))
        transactions.append(
            ShownTransaction(f"T{n + 1}", n, session, positions[session], "", "committed", begin, end, operations)
        )
    cycle = rng.sample(range(size), rng.randint(2, size))
    kinds: list[EdgeKind] = ["wr", "ww", "rw"]
    events: list[Event] = ["begin", "commit"] if has_events else [""]
    steps = tuple(
        Step(
            source, target, rng.choice(events), rng.choice(events), rng.choice(kinds), "k" * rng.randint(1, 30), "Why."
        )
        for source, target in pairwise([*cycle, cycle[0]])
    )
    return Counterexample("anomaly", "", "Summary.", tuple(transactions), (Case((), steps, "No."),))


@pytest.mark.parametrize("name", samples.REJECTED)
def test_in_the_samples_nothing_is_covered(name: str) -> None:
    found = counterexample_of(samples.REJECTED[name]())
    for case in found.cases:
        layout = Picture(found).layout(case)
        check_nothing_is_covered(layout)
        assert lines_under_labels(layout) == 0


def test_in_random_pictures_no_box_and_no_label_is_covered() -> None:
    covered = edges = 0
    for seed in range(300):
        found = random_counterexample(seed)
        layout = Picture(found).layout(found.cases[0])
        check_nothing_is_covered(layout)
        covered += lines_under_labels(layout)
        edges += len(layout.routes)
    assert covered < edges / 50, "labels should rarely have to sit on another edge's line"


def test_a_label_goes_to_the_free_side_of_its_line() -> None:
    upright = Run(link=0, start=100, start_above=True, end=100, end_above=False, label_width=80)
    street = arrange([upright], passing=[130, 170])
    assert street.label_middles[0] < 100, "a label of 80 fits neither on the line nor right of it"


def test_a_label_rather_sits_on_a_line_than_on_a_run_of_its_row() -> None:
    upright = Run(link=0, start=100, start_above=True, end=100, end_above=False, label_width=80)
    before = Run(link=1, start=0, start_above=False, end=50, end_above=False, label_width=0)
    after = Run(link=2, start=150, start_above=False, end=200, end_above=False, label_width=0)
    street = arrange([upright, before, after], passing=[130])
    assert (street.row_count, street.label_middles[0]) == (1, 100)


def test_a_cycle_of_two_is_drawn_as_two_separate_lines() -> None:
    for sample in (samples.write_skew, samples.same_session, samples.snapshot_events, samples.lost_update):
        found = counterexample_of(sample())
        layout = Picture(found).layout(found.cases[0])
        there, back = segments(layout, 0), segments(layout, 1)
        grown = [Box(line.x - 3, line.y - 3, line.width + 6, line.height + 6) for line in there]
        assert not any(overlap(a, b) for a in grown for b in back)


def test_edges_within_a_session_arch_over_it_and_back_under_it() -> None:
    found = counterexample_of(samples.same_session())
    layout = Picture(found).layout(found.cases[0])
    top = min(box.y for box in layout.boxes)
    bottom = max(box.y + box.height for box in layout.boxes)
    assert layout.routes[0].label.y + layout.routes[0].label.height < top
    assert layout.routes[1].label.y > bottom


def test_an_edge_of_an_event_meets_its_end_of_the_box() -> None:
    found = counterexample_of(samples.snapshot_events())
    layout = Picture(found).layout(found.cases[0])
    commit_x, begin_x = layout.routes[0].points[0][0], layout.routes[0].points[-1][0]
    t1, t2 = layout.boxes
    assert t1.x <= begin_x <= t1.x + 30
    assert t2.x + t2.width - 30 <= commit_x <= t2.x + t2.width


def test_what_ended_before_stands_left_of_what_began_after() -> None:
    placement = place(counterexample_of(samples.stale_read_in_real_time()))
    assert placement.by_time
    assert placement.columns == (0, 1)


def test_what_overlapped_shares_a_column() -> None:
    assert place(counterexample_of(samples.write_skew())).columns == (0, 0)


def test_without_times_sessions_and_readers_go_to_the_right() -> None:
    placement = place(counterexample_of(samples.broken_session()))
    assert not placement.by_time
    assert placement.columns == (0, 1, 2)
    assert placement.lanes == (0, 1, 1)


def test_lanes_are_ordered_so_that_few_edges_cross_others() -> None:
    placement = place(counterexample_of(samples.long_fork()))
    between = [
        abs(placement.lanes[step.source] - placement.lanes[step.target]) - 1
        for step in counterexample_of(samples.long_fork()).cases[0].steps
    ]
    assert sum(between) == 2, "a cycle through four lanes has one edge back over two of them"


@pytest.mark.parametrize("sessions", [1, 1_000])
def test_a_thousand_transactions_are_placed_at_once(sessions: int) -> None:
    """Nobody reads such a picture, but a page has one, and must not take minutes or end in an error for it."""
    shown = [ShownTransaction(f"T{n}", n, f"s{n % sessions}", n, "", "committed", None, None, ()) for n in range(1_000)]
    steps = tuple(Step(n, (n + 1) % 1_000, "commit", "commit", "rw", "x", "Because.") for n in range(1_000))
    started = perf_counter()
    placed = place(Counterexample("write skew", "G2-item", "", tuple(shown), (Case((), steps, ""),)))
    assert perf_counter() - started < 5
    assert placed.column_count == 1_000 // sessions
