"""Which row of a street each edge takes, and where on the row its label stands.

Rows never hold two things at the same place. The order of rows decides how many lines cross, so orders are tried and
the cheapest is taken; a picture has few edges, so this takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

_GAP = 10.0  # between things on the same row
_CLEARANCE = 5.0  # between a label and a line of another edge
_ROW_ORDERS_MAX = 4  # edges in a street up to which all orders of rows are tried; beyond, neighbours are exchanged

# What a flaw costs when rows and labels are chosen. Only the order of magnitude matters.
_COST_COVERED = 1000.0  # a label on another label or run, or two lines on top of each other
_COST_LINE_UNDER_LABEL = 60.0
_COST_CROSSING = 20.0
_COST_ROW = 8.0
_COST_OFF_CENTRE = 0.05  # per unit of length


@dataclass
class Run:
    """An edge's piece of a street: it comes in at `start` and goes out at `end`."""

    link: int
    start: float
    start_above: bool  # reaches the row from above
    end: float
    end_above: bool
    label_width: float  # 0 where the label is in another street

    @property
    def left(self) -> float:
        return min(self.start, self.end)

    @property
    def right(self) -> float:
        return max(self.start, self.end)

    @property
    def reserved(self) -> tuple[float, float]:
        """What the run takes of its row, with a centred label."""
        middle = (self.start + self.end) / 2
        half = max(self.right - self.left, self.label_width) / 2 + _GAP / 2
        return middle - half, middle + half

    def stubs(self) -> tuple[tuple[float, bool], tuple[float, bool]]:
        return (self.start, self.start_above), (self.end, self.end_above)


@dataclass
class Street:
    """The chosen rows: for each run its row and the middle of its label."""

    cost: float
    rows: list[int]
    label_middles: list[float]
    row_count: int


def arrange(runs: list[Run], passing: list[float]) -> Street:
    """The best rows found for the runs of a street; `passing` are the x of edges that only cross it."""
    if not runs:
        return Street(0.0, [], [], 0)
    if len(runs) <= _ROW_ORDERS_MAX:
        return min((_try(runs, passing, order) for order in permutations(range(len(runs)))), key=lambda s: s.cost)
    order = sorted(range(len(runs)), key=lambda n: runs[n].right - runs[n].left)
    best = _try(runs, passing, order)
    improved = True
    while improved:
        improved = False
        for i in range(len(order) - 1):
            exchanged = [*order[:i], order[i + 1], order[i], *order[i + 2 :]]
            attempt = _try(runs, passing, exchanged)
            if attempt.cost < best.cost:
                best, order, improved = attempt, exchanged, True
    return best


def _try(runs: list[Run], passing: list[float], order: Sequence[int]) -> Street:
    """Give runs, in this order, the first row from the top with room for them; then place the labels."""
    rows = [0] * len(runs)
    taken: list[list[tuple[float, float]]] = []
    for number in order:
        left, right = runs[number].reserved
        row = next((r for r, spans in enumerate(taken) if all(right <= a or left >= b for a, b in spans)), len(taken))
        if row == len(taken):
            taken.append([])
        taken[row].append((left, right))
        rows[number] = row
    cost = len(taken) * _COST_ROW + _line_cost(runs, rows) + _passing_cost(runs, passing)
    middles: list[float] = []
    labels: list[tuple[int, float, float]] = []
    for number, run in enumerate(runs):
        if not run.label_width:
            middles.append((run.start + run.end) / 2)
            continue
        uprights = [*passing, *_uprights(runs, rows, rows[number], number)]
        on_row = [(other.left, other.right) for n, other in enumerate(runs) if rows[n] == rows[number] and n != number]
        on_row += [(left, right) for row, left, right in labels if row == rows[number]]
        label_cost, middle = min(_label_choices(run, uprights, on_row))
        cost += label_cost
        middles.append(middle)
        labels.append((rows[number], middle - run.label_width / 2, middle + run.label_width / 2))
    return Street(cost, rows, middles, len(taken))


def _spans(above: bool, own_row: int, row: int) -> bool:
    """Whether a line that comes to `own_row` from above (or below) passes `row`."""
    return row < own_row if above else row > own_row


def _uprights(runs: list[Run], rows: list[int], row: int, apart_from: int) -> list[float]:
    return [
        x
        for number, run in enumerate(runs)
        for x, above in run.stubs()
        if number != apart_from and _spans(above, rows[number], row)
    ]


def _line_cost(runs: list[Run], rows: list[int]) -> float:
    """Crossings of runs with the uprights of others, and uprights that would lie on top of each other."""
    cost = 0.0
    for number, run in enumerate(runs):
        uprights = _uprights(runs, rows, rows[number], number)
        cost += _COST_CROSSING * sum(run.left < x < run.right for x in uprights)
        for other in range(number):
            for x, above in run.stubs():
                for other_x, other_above in runs[other].stubs():
                    facing = above != other_above and abs(x - other_x) < _GAP / 2
                    upper, lower = (rows[number], rows[other]) if above else (rows[other], rows[number])
                    cost += _COST_COVERED * (facing and upper >= lower)
    return cost


def _passing_cost(runs: list[Run], passing: list[float]) -> float:
    return _COST_CROSSING * sum(run.left < x < run.right for run in runs for x in passing)


def _label_choices(run: Run, uprights: list[float], on_row: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Costs and middles of the places for a label: along its run, or, where that is short, also beside it."""
    centre = (run.start + run.end) / 2
    half = run.label_width / 2
    slack = (run.right - run.left - run.label_width) / 2 - _GAP
    middles = [centre]
    if slack > 0:
        steps = int(slack // 12)
        middles += [centre + 12 * k for k in range(-steps, steps + 1)]
    else:
        middles += [run.left - half - _GAP / 2, run.right + half + _GAP / 2]
    choices = []
    for middle in middles:
        left, right = middle - half - _CLEARANCE, middle + half + _CLEARANCE
        cost = _COST_OFF_CENTRE * abs(middle - centre)
        cost += _COST_LINE_UNDER_LABEL * sum(left < x < right for x in uprights)
        cost += _COST_COVERED * sum(left < b and a < right for a, b in on_row)
        choices.append((cost, middle))
    return choices
