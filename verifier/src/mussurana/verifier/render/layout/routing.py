"""How edges run between the boxes of a picture: corner points and label boxes, put together from all decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mussurana.verifier.render.layout.grid import make_grid, tracks
from mussurana.verifier.render.layout.placement import Placement
from mussurana.verifier.render.layout.ports import Port, place_ports
from mussurana.verifier.render.layout.streets import Run, Street, arrange
from mussurana.verifier.render.layout.ways import Link, Way, find_ways

LABEL_HEIGHT = 20.0
_ROW_HEIGHT = 26.0
_STREET_PADDING = 22.0  # between a box and the first row: room for a rounded corner and an arrow head
_LABELLED_UPRIGHT_PADDING = 34.0  # the same where a label sits on an upright line, so that enough of the line shows
_STREET_HEIGHT_MIN = 30.0
_OUTER_STREET_HEIGHT_MIN = 12.0
_LINE_BESIDE_LABEL = 48.0  # of a run, both sides together


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Route:
    """Corner points from source to target, and the box of the label."""

    points: tuple[tuple[float, float], ...]
    label: Box


@dataclass(frozen=True)
class Layout:
    boxes: tuple[Box, ...]
    routes: tuple[Route, ...]
    lane_middles: tuple[float, ...]
    left: float  # of everything, labels included
    right: float
    height: float


def route(
    placement: Placement,
    widths: Sequence[float],
    heights: Sequence[float],
    links: Sequence[Link],
    event_zone_width: float,
) -> Layout:
    """Positions of boxes, edges and labels.

    Pre:  `widths` is one width per column, `heights` one height per transaction.
    Post: no label and no inner point of a route lies in a box; all y are in 0 .. height, all x in left .. right.
    """
    ways = find_ways(placement, links)
    no_room = [0.0] * (placement.column_count + 1)
    narrow = make_grid(placement, widths, event_zone_width, ways, no_room)
    room = _room_for_labels(placement, links, ways, place_ports(narrow, links, ways))
    grid = make_grid(placement, widths, event_zone_width, ways, room)
    ports = place_ports(grid, links, ways)
    track = tracks(grid, ways)

    street_count = len(placement.sessions) + 1
    runs: list[list[Run]] = [[] for _ in range(street_count)]
    passing: list[list[float]] = [[] for _ in range(street_count)]
    for number, (link, way) in enumerate(zip(links, ways, strict=True)):
        for street_number, run in _runs(number, link, way, ports, track):
            runs[street_number].append(run)
        crossing_x = track[number] if way.crosses_at == "alley" else ports[number, way.crosses_at == "source"]
        for street_number in way.streets_crossed:
            passing[street_number].append(crossing_x)
    streets = [arrange(in_street, through) for in_street, through in zip(runs, passing, strict=True)]

    row_y, lane_middles, height = _stack(placement, heights, runs, streets)
    boxes = tuple(
        Box(grid.column_left[column], lane_middles[lane] - heights[txn] / 2, widths[column], heights[txn])
        for txn, (column, lane) in enumerate(zip(placement.columns, placement.lanes, strict=True))
    )
    routes = tuple(
        _trace(number, link, way, boxes, ports, runs, streets, row_y)
        for number, (link, way) in enumerate(zip(links, ways, strict=True))
    )
    left = [x for r in routes for x in (r.label.x, *(x for x, _ in r.points))]
    right = [x for r in routes for x in (r.label.x + r.label.width, *(x for x, _ in r.points))]
    right += [box.x + box.width for box in boxes]
    return Layout(boxes, routes, tuple(lane_middles), min([0.0, *left]), max([0.0, *right]), height)


def _room_for_labels(
    placement: Placement, links: Sequence[Link], ways: Sequence[Way], ports: dict[Port, float]
) -> list[float]:
    """How much wider alleys must be for edges from one column to another to show some line beside their label."""
    room = [0.0] * (placement.column_count + 1)
    for number, (link, way) in enumerate(zip(links, ways, strict=True)):
        left, right = sorted((placement.columns[link.source], placement.columns[link.target]))
        if left == right or way.first_street != way.last_street:
            continue
        length = abs(ports[number, True] - ports[number, False])
        missing = link.label_width + _LINE_BESIDE_LABEL - length - sum(room[left + 1 : right + 1])
        room[right] += max(0.0, missing)
    return room


def _runs(
    number: int, link: Link, way: Way, ports: dict[Port, float], track: dict[int, float]
) -> list[tuple[int, Run]]:
    """The pieces of an edge that lie in streets, from source to target."""
    start, end = ports[number, True], ports[number, False]
    # Leaving through the bottom means reaching the row from above, and the same for entering.
    start_above, end_above = not way.source_up, not way.target_up
    if way.first_street == way.last_street:
        return [(way.first_street, Run(number, start, start_above, end, end_above, link.label_width))]
    track_x = track[number]
    down = way.first_street < way.last_street
    first = Run(number, start, start_above, track_x, not down, 0.0)
    last = Run(number, track_x, down, end, end_above, 0.0)
    labelled = first if first.right - first.left >= last.right - last.left else last
    labelled.label_width = link.label_width
    return [(way.first_street, first), (way.last_street, last)]


def _stack(
    placement: Placement, heights: Sequence[float], runs: Sequence[Sequence[Run]], streets: Sequence[Street]
) -> tuple[list[list[float]], list[float], float]:
    """The y of every row of every street, the middle of every lane, and the height of all."""
    lane_heights = [0.0] * len(placement.sessions)
    for lane, height in zip(placement.lanes, heights, strict=True):
        lane_heights[lane] = max(lane_heights[lane], height)
    row_y: list[list[float]] = []
    lane_middles: list[float] = []
    y = 0.0
    for number, street in enumerate(streets):
        has_upright_label = any(run.label_width > run.right - run.left for run in runs[number])
        height = _street_height(street.row_count, has_upright_label, outer=number in (0, len(streets) - 1))
        first = y + (height - (street.row_count - 1) * _ROW_HEIGHT) / 2
        row_y.append([first + row * _ROW_HEIGHT for row in range(street.row_count)])
        y += height
        if number < len(lane_heights):
            lane_middles.append(y + lane_heights[number] / 2)
            y += lane_heights[number]
    return row_y, lane_middles, y


def _street_height(row_count: int, has_upright_label: bool, outer: bool) -> float:
    if row_count == 0:
        return _OUTER_STREET_HEIGHT_MIN if outer else _STREET_HEIGHT_MIN
    padding = _LABELLED_UPRIGHT_PADDING if has_upright_label else _STREET_PADDING
    return 2 * padding + (row_count - 1) * _ROW_HEIGHT


def _trace(
    number: int,
    link: Link,
    way: Way,
    boxes: Sequence[Box],
    ports: dict[Port, float],
    runs: list[list[Run]],
    streets: list[Street],
    row_y: list[list[float]],
) -> Route:
    """The corner points of one edge, now that everything has its place."""
    source, target = boxes[link.source], boxes[link.target]
    points = [(ports[number, True], source.y if way.source_up else source.y + source.height)]
    label = Box(0.0, 0.0, 0.0, 0.0)
    for street in dict.fromkeys((way.first_street, way.last_street)):
        place = next(n for n, run in enumerate(runs[street]) if run.link == number)
        run = runs[street][place]
        y = row_y[street][streets[street].rows[place]]
        points += [(run.start, y), (run.end, y)]
        if run.label_width:
            middle = streets[street].label_middles[place]
            label = Box(middle - run.label_width / 2, y - LABEL_HEIGHT / 2, run.label_width, LABEL_HEIGHT)
    points.append((ports[number, False], target.y if way.target_up else target.y + target.height))
    return Route(tuple(points), label)
