"""Which way each edge goes: sides of boxes, streets and alleys, before any length is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mussurana.verifier.render.layout.placement import Placement
from mussurana.verifier.verdict import Event


@dataclass(frozen=True)
class Link:
    """An edge to route. Events say which end zone of a box it belongs to; "" is the whole side."""

    source: int
    target: int
    source_event: Event
    target_event: Event
    label_width: float


@dataclass
class Way:
    """How a link gets from its source to its target."""

    source_up: bool  # leaves through the top
    target_up: bool  # enters through the top
    first_street: int
    last_street: int
    crosses_at: Literal["source", "target", "alley"] = "source"  # whose x it has where it crosses lanes
    alley: int | None = None
    streets_crossed: tuple[int, ...] = ()  # without running along them


def find_ways(placement: Placement, links: Sequence[Link]) -> list[Way]:
    ways = [_way(placement, link) for link in links]
    _choose_alleys(placement, links, ways)
    return ways


def _way(placement: Placement, link: Link) -> Way:
    """Same lane: forwards over it, backwards under it, so that a cycle of two is a loop. Else the shortest way."""
    source_lane, target_lane = placement.lanes[link.source], placement.lanes[link.target]
    source_column, target_column = placement.columns[link.source], placement.columns[link.target]
    if source_lane == target_lane:
        over = source_column <= target_column
        street = source_lane if over else source_lane + 1
        return Way(over, over, street, street)
    down = source_lane < target_lane
    way = Way(not down, down, source_lane + down, target_lane + (not down))
    between = range(min(source_lane, target_lane) + 1, max(source_lane, target_lane))
    if not between:
        return way
    if placement.is_free(source_column, between):
        way.first_street = way.last_street
    elif placement.is_free(target_column, between):
        way.last_street = way.first_street
        way.crosses_at = "target"
    else:
        way.crosses_at = "alley"
    streets = range(between.start, between.stop + 1)
    way.streets_crossed = tuple(street for street in streets if street not in (way.first_street, way.last_street))
    return way


def _choose_alleys(placement: Placement, links: Sequence[Link], ways: Sequence[Way]) -> None:
    """Give each link that needs an alley the one with the shortest detour and the fewest runs across its way."""

    def span(link: Link) -> tuple[int, int]:
        columns = placement.columns[link.source], placement.columns[link.target]
        return min(columns), max(columns)

    for link, way in zip(links, ways, strict=True):
        if way.crosses_at != "alley":
            continue
        passed = {way.first_street, way.last_street, *way.streets_crossed}
        spans = [
            span(other)
            for other, other_way in zip(links, ways, strict=True)
            if other is not link and passed & {other_way.first_street, other_way.last_street}
        ]
        prices = [
            _alley_price(alley, span(link), spans, placement.column_count)
            for alley in range(placement.column_count + 1)
        ]
        way.alley = prices.index(min(prices))


def _alley_price(
    alley: int, own_span: tuple[int, int], other_spans: Sequence[tuple[int, int]], column_count: int
) -> tuple[float, float]:
    """Columns of detour plus runs crossed; among equals, outer alleys have more room."""
    x = alley - 0.5  # alley i is left of column i
    detour = abs(x - own_span[0]) + abs(x - own_span[1])
    crossed = sum(left < x < right for left, right in other_spans)
    return detour + crossed, -abs(alley - column_count / 2)
