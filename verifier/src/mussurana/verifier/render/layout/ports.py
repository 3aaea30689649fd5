"""Where edges meet the sides of boxes.

Ports on a side are in the order of where their edges go, so that edges need not cross right at the box. Then they move
a little: so that edges within a column run straight, and so that no two edges come from opposite sides of a street on
the same line.
"""

from __future__ import annotations

from collections.abc import Sequence

from mussurana.verifier.render.layout.grid import Grid
from mussurana.verifier.render.layout.ways import Link, Way
from mussurana.verifier.verdict import Event

Port = tuple[int, bool]  # number of the link, whether it is the link's source end

_SPREAD = 1.15  # 1 would leave half a port distance at both ends of a side; corners need less
_DISTANCE_MIN = 18.0  # between ports of a side that are moved
_ZONE_DISTANCE_MIN = 7.0  # the same within the narrow zone of an event
_FACING_DISTANCE_MIN = 6.0  # between ports on opposite sides of a street
_MARGIN = 5.0  # to the end of a side
_FAR = 1e6  # beyond any picture


def place_ports(grid: Grid, links: Sequence[Link], ways: Sequence[Way]) -> dict[Port, float]:
    """The x of both ends of every link."""
    sides: dict[tuple[int, bool, Event], list[tuple[float, Port]]] = {}
    for number, (link, way) in enumerate(zip(links, ways, strict=True)):
        for is_source in (True, False):
            side = _side(link, way, is_source)
            sides.setdefault(side, []).append((_heading(grid, link, way, is_source), (number, is_source)))
    ports: dict[Port, float] = {}
    for (txn, _, event), meeting in sides.items():
        left, width = grid.side(txn, event)
        for place, (_, port) in enumerate(sorted(meeting)):
            ports[port] = left + width * (0.5 + ((place + 0.5) / len(meeting) - 0.5) * _SPREAD)
    neighbours = {port: [p for _, p in meeting if p != port] for meeting in sides.values() for _, port in meeting}
    _straighten(grid, links, ways, ports, neighbours)
    _separate(grid, links, ways, ports, neighbours)
    return ports


def _side(link: Link, way: Way, is_source: bool) -> tuple[int, bool, Event]:
    if is_source:
        return link.source, way.source_up, link.source_event
    return link.target, way.target_up, link.target_event


def _heading(grid: Grid, link: Link, way: Way, is_source: bool) -> float:
    """The x towards which the link leaves this end, for sorting."""
    txn, other = (link.source, link.target) if is_source else (link.target, link.source)
    if grid.placement.lanes[txn] == grid.placement.lanes[other]:
        # Arches nest: the one that goes furthest starts furthest back.
        return (_FAR if grid.middle(other) > grid.middle(txn) else -_FAR) - grid.middle(other)
    return grid.middle(other) if way.alley is None else grid.alley_middle[way.alley]


def _fits(
    grid: Grid,
    links: Sequence[Link],
    ports: dict[Port, float],
    neighbours: dict[Port, list[Port]],
    port: Port,
    x: float,
) -> bool:
    """Whether a port could move to x: still on its side, in the same order and not too close to the others there."""
    number, is_source = port
    link = links[number]
    txn, event = (link.source, link.source_event) if is_source else (link.target, link.target_event)
    left, width = grid.side(txn, event)
    distance_min = _ZONE_DISTANCE_MIN if event else _DISTANCE_MIN
    if not left + _MARGIN <= x <= left + width - _MARGIN:
        return False
    others = [ports[other] for other in neighbours[port]]
    return all(abs(x - other) >= distance_min and (x < other) == (ports[port] < other) for other in others)


def _straighten(
    grid: Grid,
    links: Sequence[Link],
    ways: Sequence[Way],
    ports: dict[Port, float],
    neighbours: dict[Port, list[Port]],
) -> None:
    """Bring both ends of an edge within a column to the same x, where the others leave room."""
    columns = grid.placement.columns
    for number, (link, way) in enumerate(zip(links, ways, strict=True)):
        if columns[link.source] != columns[link.target] or way.first_street != way.last_street:
            continue
        if link.source == link.target or link.source_event != link.target_event:
            continue
        source, target = (number, True), (number, False)
        crowded, movable = (source, target) if len(neighbours[source]) > len(neighbours[target]) else (target, source)
        if _fits(grid, links, ports, neighbours, movable, ports[crowded]):
            ports[movable] = ports[crowded]


def _separate(
    grid: Grid,
    links: Sequence[Link],
    ways: Sequence[Way],
    ports: dict[Port, float],
    neighbours: dict[Port, list[Port]],
) -> None:
    """Move a port aside where another edge comes towards it through the same street at the same x."""

    def street_and_side(port: Port) -> tuple[int, bool]:
        way = ways[port[0]]
        return (way.first_street, way.source_up) if port[1] else (way.last_street, way.target_up)

    def is_faced(port: Port, x: float) -> bool:
        street, up = street_and_side(port)
        return any(
            other[0] != port[0]
            and street_and_side(other) == (street, not up)
            and abs(x - ports[other]) < _FACING_DISTANCE_MIN
            for other in ports
        )

    for port in ports:
        is_straight = ports[port[0], True] == ports[port[0], False]
        if is_straight or not is_faced(port, ports[port]):
            continue
        for offset in (12.0, -12.0, 24.0, -24.0, 36.0, -36.0, 7.0, -7.0):
            x = ports[port] + offset
            if not is_faced(port, x) and _fits(grid, links, ports, neighbours, port, x):
                ports[port] = x
                break
