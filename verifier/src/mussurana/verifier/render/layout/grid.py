"""The x of columns and alleys, given what has to fit into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mussurana.verifier.render.layout.placement import Placement
from mussurana.verifier.render.layout.ways import Way
from mussurana.verifier.verdict import Event

_ALLEY_WIDTH = 46.0
_TRACK_WIDTH = 14.0  # for each edge that runs down an alley


@dataclass(frozen=True)
class Grid:
    placement: Placement
    widths: Sequence[float]  # of columns
    event_zone_width: float  # of the begin and the commit zone of a box; 0 where boxes have none
    column_left: tuple[float, ...]
    alley_middle: tuple[float, ...]

    def middle(self, txn: int) -> float:
        column = self.placement.columns[txn]
        return self.column_left[column] + self.widths[column] / 2

    def side(self, txn: int, event: Event) -> tuple[float, float]:
        """Left end and width of the part of a box's top or bottom where edges of this event meet it."""
        column = self.placement.columns[txn]
        left, width = self.column_left[column], self.widths[column]
        if not event:
            return left, width
        return (left if event == "begin" else left + width - self.event_zone_width), self.event_zone_width


def make_grid(
    placement: Placement,
    widths: Sequence[float],
    event_zone_width: float,
    ways: Sequence[Way],
    room: Sequence[float],
) -> Grid:
    """Columns side by side, alleys as wide as their edges need and `room` more. The first alley starts at 0."""
    column_left: list[float] = []
    alley_middle: list[float] = []
    x = 0.0
    for alley in range(placement.column_count + 1):
        edges = sum(way.alley == alley for way in ways)
        outer = alley in (0, placement.column_count)
        width = (_ALLEY_WIDTH / 2 if outer else _ALLEY_WIDTH) + edges * _TRACK_WIDTH + room[alley]
        alley_middle.append(x + width / 2)
        x += width
        if alley < placement.column_count:
            column_left.append(x)
            x += widths[alley]
    return Grid(placement, widths, event_zone_width, tuple(column_left), tuple(alley_middle))


def tracks(grid: Grid, ways: Sequence[Way]) -> dict[int, float]:
    """The x of each link that crosses lanes in an alley."""
    found: dict[int, float] = {}
    for alley, middle in enumerate(grid.alley_middle):
        users = [number for number, way in enumerate(ways) if way.alley == alley]
        for place, number in enumerate(users):
            found[number] = middle + (place - (len(users) - 1) / 2) * _TRACK_WIDTH
    return found
