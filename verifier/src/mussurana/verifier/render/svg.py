"""A counterexample as a picture: sessions are lines, transactions are boxes along them, steps are labelled edges.

`case_svg` draws one case for embedding in a page; `counterexample_svg` is a file of its own, with all cases and their
sentences. What stands where is decided in `layout/`.

Text from the history only ever becomes XML character data, by way of `_text` and `_title`, so it cannot become markup;
attributes hold numbers and words of this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from mussurana.verifier.render.layout.placement import Placement, place
from mussurana.verifier.render.layout.routing import Box, Layout, Route, route
from mussurana.verifier.render.layout.ways import Link
from mussurana.verifier.render.palette import picture_css
from mussurana.verifier.render.words import (
    KIND_MEANING,
    KIND_WORDS,
    Clock,
    anomaly_title,
    cells,
    count,
    elide,
    elide_statement,
    keys_that_matter,
    shorten_operations,
    transaction_place,
    verb,
    visible,
    wrap,
)
from mussurana.verifier.verdict import Case, Counterexample, EdgeKind, ShownOperation, ShownTransaction, Step

_CELL = 7.25  # width of a character in the 12 px font; the widest of the usual monospace fonts
_LINE = 18.0
_PADDING = 12.0
_BOX_CELLS_MAX = 34
_BOX_CELLS_MIN = 17
_VERB_CELLS = 6
_OPERATIONS_MAX = 9
_SESSION_CELLS_MAX = 20
_LABEL_CELLS_MAX = 24
_EVENT_ZONE_WIDTH = 26.0
_EVENT_BOX_HEIGHT_MIN = 53.0  # "commit", turned
_CORNER = 12.0
_TIP_LENGTH = 9.0
_MARGIN = 16.0
_STATEMENT_CELLS_MAX = 2000  # in a tooltip
_PICTURE_WIDTH_MIN = 480.0  # so that a caption below it has reasonable lines
_SENTENCE_CELLS_MIN = 100


@dataclass(frozen=True)
class _Line:
    """One line of a box: an operation cut to fit, and all of it for the tooltip."""

    verb: str
    access: str
    whole: str
    key_number: int | None


@dataclass(frozen=True)
class _BoxText:
    label: str
    aside: str
    whole_aside: str
    status: str
    times: str
    lines: tuple[_Line, ...]

    @property
    def cell_count(self) -> int:
        head = cells(self.label) + 2 + cells(self.aside) + (cells(self.status) + 2 if self.status else 0)
        lines = [_VERB_CELLS * bool(line.verb) + cells(line.access) for line in self.lines]
        return max([_BOX_CELLS_MIN, head, cells(self.times), *lines])

    @property
    def height(self) -> float:
        return _LINE * (1 + bool(self.times) + len(self.lines)) + 2 * _PADDING - 7


class Picture:
    """Everything about a counterexample that its cases share: what the boxes say and where they stand."""

    def __init__(self, counterexample: Counterexample) -> None:
        self.counterexample = counterexample
        self.clock = Clock(counterexample.transactions)
        self.placement: Placement = place(counterexample)
        self.has_events = any(s.source_event or s.target_event for case in counterexample.cases for s in case.steps)
        keys = dict.fromkeys(op.key for txn in counterexample.transactions for op in txn.operations)
        self.key_numbers = {key: number for number, key in enumerate(keys)}
        matter = keys_that_matter(counterexample)
        self.boxes = [self._box_text(txn, matter) for txn in counterexample.transactions]
        zones = 2 * _EVENT_ZONE_WIDTH if self.has_events else 0.0
        self.widths = [0.0] * self.placement.column_count
        for column, box in zip(self.placement.columns, self.boxes, strict=True):
            self.widths[column] = max(self.widths[column], box.cell_count * _CELL + 2 * _PADDING + zones)

    def _box_text(self, txn: ShownTransaction, matter: frozenset[str]) -> _BoxText:
        whole_aside = txn.name or transaction_place(txn)
        status = "" if txn.status == "committed" else txn.status
        aside_cells = _BOX_CELLS_MAX - cells(txn.label) - 4 - cells(status)
        return _BoxText(
            label=visible(txn.label),
            aside=elide(whole_aside, aside_cells),
            whole_aside=f"{txn.session} / {transaction_place(txn)}"
            + (f" / {txn.name}" if txn.name else "")
            + (f" / {txn.isolation.lower()}" if txn.isolation else ""),
            status=status,
            times=elide(self.clock.span(txn), _BOX_CELLS_MAX),
            lines=tuple(self._line(o) for o in shorten_operations(txn.operations, matter, _OPERATIONS_MAX)),
        )

    def _line(self, operation: ShownOperation | int) -> _Line:
        if isinstance(operation, int):
            words = f"… {count(operation, 'more operation')} …"
            return _Line("", words, words, None)
        room = _BOX_CELLS_MAX - _VERB_CELLS
        versions = visible(operation.version)
        if operation.previous:
            versions = f"{visible(operation.previous)} → {versions}"
        key = elide(operation.key, max(room // 2, room - 1 - cells(versions)))
        versions = elide(versions, room - 1 - cells(key))
        whole = f"{verb(operation)} {operation.key} {operation.version}"
        if operation.previous:
            whole += f", replacing {operation.previous}"
        if operation.statement:
            whole += f": {elide_statement(operation.statement, _STATEMENT_CELLS_MAX)}"
        return _Line(verb(operation), f"{key} {versions}", whole, self.key_numbers[operation.key])

    def layout(self, case: Case) -> Layout:
        links = [
            Link(s.source, s.target, s.source_event, s.target_event, _label_width(_label_words(s))) for s in case.steps
        ]
        zone = _EVENT_ZONE_WIDTH if self.has_events else 0.0
        height_min = _EVENT_BOX_HEIGHT_MIN if self.has_events else 0.0
        heights = [max(box.height, height_min) for box in self.boxes]
        return route(self.placement, self.widths, heights, links, zone)


@dataclass(frozen=True)
class _Drawing:
    """SVG elements with the room they take, from (0, 0)."""

    body: str
    width: float
    height: float


def case_svg(picture: Picture, case: Case, name: str) -> str:
    """An `<svg>` element for a page that has `picture_css()`. `name`, an id, tells the pictures of a page apart."""
    drawing = _draw_case(picture, case, name)
    return _svg(drawing, name, attributes='role="group" aria-label="The transactions and the order between them"')


def counterexample_svg(counterexample: Counterexample) -> str:
    """A stand-alone SVG file: a heading, then each case as a picture with its sentences."""
    picture = Picture(counterexample)
    cases = counterexample.cases or (Case((), (), ""),)
    drawings = [_draw_case(picture, case, f"case-{number}") for number, case in enumerate(cases, 1)]
    width = max(*(d.width for d in drawings), _SENTENCE_CELLS_MIN * _CELL + 2 * _MARGIN)
    line_cells = int((width - 2 * _MARGIN) / _CELL)
    parts = [_text(_MARGIN, 28.0, elide(anomaly_title(counterexample), line_cells), "heading")]
    y = 28.0

    def say(sentence: str, indent: float = 0.0) -> None:
        nonlocal y
        for line in wrap(sentence, line_cells - int(indent / _CELL)):
            y += _LINE
            parts.append(_text(_MARGIN + indent, y, line, "said"))

    say(counterexample.summary)
    for fact in counterexample.facts:
        say(fact)
    for number, (case, drawing) in enumerate(zip(cases, drawings, strict=True), 1):
        if len(cases) > 1 or case.assumptions:
            y += _LINE / 2
            say((f"Case {number} of {len(cases)}. " if len(cases) > 1 else "") + " ".join(case.assumptions))
        y += _LINE / 2
        parts.append(f'<g transform="translate(0 {y:.1f})">{drawing.body}</g>')
        y += drawing.height
        for step_number, step in enumerate(case.steps, 1):
            say(f"{step_number}. {step.reason}")
        if case.conclusion:
            say(case.conclusion)
    body = f"<style>{escape(picture_css())}</style>"
    body += f'<rect class="ground" width="{width:.1f}" height="{y + _MARGIN:.1f}"/>' + "".join(parts)
    return _svg(_Drawing(body, width, y + _MARGIN), "counterexample", attributes='role="img"') + "\n"


def _svg(drawing: _Drawing, name: str, attributes: str) -> str:
    width, height = f"{drawing.width:.0f}", f"{drawing.height:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" id="{name}" {attributes} '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">{drawing.body}</svg>'
    )


def _draw_case(picture: Picture, case: Case, name: str) -> _Drawing:
    layout = picture.layout(case)
    placement = picture.placement
    names = [elide(session, _SESSION_CELLS_MAX) for session in placement.sessions]
    names_width = max((cells(session) for session in names), default=0) * _CELL + 10
    # Labels may stick out to the left of the first column, but only over streets, where no session name stands.
    shift = _MARGIN + max(names_width, -layout.left)
    lanes_right = shift + layout.right + 26
    parts = []
    for session, short, y in zip(placement.sessions, names, layout.lane_middles, strict=True):
        parts.append(_lane(shift, lanes_right, y, short, session))
    for number, (text, box) in enumerate(zip(picture.boxes, layout.boxes, strict=True)):
        parts.append(_box(number, text, _shifted(box, shift), picture.has_events))
    for number, (step, routed) in enumerate(zip(case.steps, layout.routes, strict=True)):
        parts.append(_edge(number, step, routed, shift, name, picture))
    kinds = list(dict.fromkeys(step.kind for step in case.steps))
    legend, legend_width = _legend(kinds, layout.height + 14)
    height = layout.height + (14 + _LINE * len(kinds) + 8 if kinds else 8)
    return _Drawing("".join(parts) + legend, max(lanes_right + _MARGIN, legend_width, _PICTURE_WIDTH_MIN), height)


def _shifted(box: Box, shift: float) -> Box:
    return Box(box.x + shift, box.y, box.width, box.height)


def _text(x: float, y: float, text: str, css: str = "", more: str = "") -> str:
    class_attribute = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{class_attribute}{more}>{escape(visible(text))}</text>'


def _title(text: str) -> str:
    return f"<title>{escape(visible(text))}</title>"


def _lane(left: float, right: float, y: float, short: str, session: str) -> str:
    tip = f"M{right:.1f} {y:.1f}l-8 -4.5v9z"
    return (
        f'<g>{_title("session " + session)}<path class="lane" d="M{left:.1f} {y:.1f}H{right - 6:.1f}"/>'
        f'<path class="lane-end" d="{tip}"/>{_text(left - 10, y + 4, short, "end name")}</g>'
    )


def _box(number: int, text: _BoxText, box: Box, has_events: bool) -> str:
    status_class = {"": "", "aborted": " aborted", "in doubt": " doubt"}[text.status]
    zone = _EVENT_ZONE_WIDTH if has_events else 0.0
    left, right = box.x + zone + _PADDING, box.x + box.width - zone - _PADDING
    y = box.y + _PADDING + 9
    frame = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6"'
    parts = [f'<rect class="box" {frame}/>']
    if has_events:
        parts += [_zone(box.x, box, "begin"), _zone(box.x + box.width - zone, box, "commit")]
    head = _text(left, y, text.label, "name")
    if text.status:
        head += _text(left + (cells(text.label) + 2) * _CELL, y, text.status)
    parts.append(f"<g>{_title(text.whole_aside)}{head}{_text(right, y, text.aside, 'end muted')}</g>")
    if text.times:
        y += _LINE
        parts.append(_text(left, y, text.times, "muted"))
    for line in text.lines:
        y += _LINE
        key = "" if line.key_number is None else f' data-key="{line.key_number}"'
        words = _text(left, y, line.verb, "muted") if line.verb else ""
        words += _text(left + _VERB_CELLS * _CELL * bool(line.verb), y, line.access, "" if line.verb else "muted")
        parts.append(f'<g class="op"{key}>{_title(line.whole)}{words}</g>')
    return f'<g class="txn{status_class}" data-txn="{number}">{"".join(parts)}</g>'


def _zone(x: float, box: Box, word: str) -> str:
    """A strip at the end of a box that stands for its begin or its commit; edges of that event meet the strip."""
    middle_x, middle_y = x + _EVENT_ZONE_WIDTH / 2 + 4, box.y + box.height / 2
    strip = f'x="{x + 1.5:.1f}" y="{box.y + 1.5:.1f}" width="{_EVENT_ZONE_WIDTH - 3:.1f}" height="{box.height - 3:.1f}"'
    turned = f' transform="rotate(-90 {middle_x:.1f} {middle_y:.1f})"'
    return f'<rect class="zone" {strip} rx="4"/>{_text(middle_x, middle_y, word, "middle muted", turned)}'


def _label_words(step: Step) -> str:
    kind = KIND_WORDS[step.kind]
    return f"{kind} {elide(step.key, _LABEL_CELLS_MAX - cells(kind) - 1)}" if step.key else kind


def _label_width(words: str) -> float:
    return cells(words) * _CELL + 32


def _edge(number: int, step: Step, routed: Route, shift: float, name: str, picture: Picture) -> str:
    points = [(x + shift, y) for x, y in routed.points]
    label = _shifted(routed.label, shift)
    (_, before_y), (tip_x, tip_y) = points[-2], points[-1]
    back = _TIP_LENGTH if before_y > tip_y else -_TIP_LENGTH
    line = _rounded([*points[:-1], (tip_x, tip_y + back * 0.8)])
    tip = f"M{tip_x:.1f} {tip_y:.1f}l-4.8 {back:.1f}h9.6z"
    start_x, start_y = points[0]
    middle_y = label.y + label.height / 2
    plate = f'x="{label.x:.1f}" y="{label.y:.1f}" width="{label.width:.1f}" height="{label.height:.1f}" rx="10"'
    key = picture.key_numbers.get(step.key)
    key_attribute = "" if not step.key or key is None else f' data-key="{key}"'
    return (
        f'<g class="edge {step.kind}" id="{name}-edge-{number + 1}" data-step="{number}" data-source="{step.source}" '
        f'data-target="{step.target}"{key_attribute}>{_title(step.reason)}'
        f'<path class="reach" d="{line}"/><path class="run" d="{line}"/><path class="tip" d="{tip}"/>'
        f'<circle class="tip" cx="{start_x:.1f}" cy="{start_y:.1f}" r="3"/>'
        f'<rect class="plate" {plate}/>'
        f'<circle class="badge" cx="{label.x + 11:.1f}" cy="{middle_y:.1f}" r="8"/>'
        f"{_text(label.x + 11, middle_y + 4, str(number + 1), 'count')}"
        f"{_text(label.x + 24, middle_y + 4, _label_words(step), 'word')}</g>"
    )


def _rounded(points: list[tuple[float, float]]) -> str:
    """A path along the points with round corners; every segment is horizontal or vertical."""
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (ax, ay), (bx, by), (cx, cy) in zip(points, points[1:], points[2:], strict=False):
        before, after = abs(bx - ax) + abs(by - ay), abs(cx - bx) + abs(cy - by)
        radius = min(_CORNER, before / 2, after / 2)
        if radius < 0.5 or (ax == bx) == (bx == cx):
            path.append(f"L{bx:.1f} {by:.1f}")
            continue
        into_x, into_y = bx - (bx - ax) / before * radius, by - (by - ay) / before * radius
        out_x, out_y = bx + (cx - bx) / after * radius, by + (cy - by) / after * radius
        path.append(f"L{into_x:.1f} {into_y:.1f}Q{bx:.1f} {by:.1f} {out_x:.1f} {out_y:.1f}")
    path.append(f"L{points[-1][0]:.1f} {points[-1][1]:.1f}")
    return "".join(path)


def _legend(kinds: Sequence[EdgeKind], y: float) -> tuple[str, float]:
    """A line for each kind of edge in the picture, and how wide it is with its margins."""
    rows = []
    words_left = _MARGIN + 40
    meaning_left = words_left + (max((cells(KIND_WORDS[kind]) for kind in kinds), default=0) + 2) * _CELL
    for kind in kinds:
        y += _LINE
        sample = f"M{_MARGIN:.1f} {y - 4:.1f}h30"
        words = _text(words_left, y, KIND_WORDS[kind], "word name")
        meaning = _text(meaning_left, y, KIND_MEANING[kind], "muted")
        rows.append(f'<g class="{kind}"><path class="run" d="{sample}"/>{words}{meaning}</g>')
    meaning_width = max((cells(KIND_MEANING[kind]) for kind in kinds), default=0) * _CELL
    return "".join(rows), meaning_left + meaning_width + _MARGIN
