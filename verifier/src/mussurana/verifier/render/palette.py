"""Colours and CSS of the pictures, for light and dark screens and for paper.

Edge colours are from Okabe and Ito's set for colour-blind readers, darkened or lightened until text in them is legible
(contrast at least 4.5 to 1); every kind also has its own dash pattern and its label. Colours are written out rather
than kept in CSS variables, because viewers of stand-alone SVG files often do not know those.
"""

from __future__ import annotations

from mussurana.verifier.verdict import EdgeKind

DASHES: dict[EdgeKind, str] = {
    "wr": "none",
    "ww": "9 3",
    "rw": "4 3",
    "session": "1.5 3.5",
    "realtime": "10 3 2 3",
    "epoch": "14 4",
}

LIGHT = {
    "page": "#ffffff",
    "ink": "#1d232b",
    "muted": "#5c6672",
    "line": "#c9d0d8",
    "box": "#f5f7f9",
    "zone": "#e6eaef",
    "wr": "#0067a3",
    "ww": "#a84300",
    "rw": "#a3246f",
    "session": "#4a535e",
    "realtime": "#00704f",
    "epoch": "#6b4fa8",
}
DARK = {
    "page": "#14181d",
    "ink": "#e4e8ed",
    "muted": "#98a3b0",
    "line": "#3b444f",
    "box": "#1e242b",
    "zone": "#2a323b",
    "wr": "#62b6ef",
    "ww": "#f0985a",
    "rw": "#ea8fc4",
    "session": "#b4bec9",
    "realtime": "#4fc79d",
    "epoch": "#b9a3ee",
}

MONOSPACE = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace'
SANS = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif'

_SHAPE = f"""
.picture text {{ font: 12px {MONOSPACE}; }}
.picture .heading {{ font: 600 15px {SANS}; }}
.picture .said {{ font: 12px {MONOSPACE}; }}
.picture .name {{ font-weight: 700; }}
.picture .count {{ font-size: 11px; font-weight: 700; text-anchor: middle; }}
.picture .end {{ text-anchor: end; }}
.picture .middle {{ text-anchor: middle; }}
.picture .box {{ stroke-width: 1.25; }}
.picture .aborted .box, .picture .doubt .box {{ stroke-dasharray: 5 4; }}
.picture .lane {{ stroke-width: 2; fill: none; }}
.picture .run {{ fill: none; stroke-width: 1.75; stroke-linejoin: round; }}
.picture .reach {{ fill: none; stroke: transparent; stroke-width: 14; pointer-events: stroke; }}
.picture .edge:hover .run, .picture .edge.lit .run {{ stroke-width: 3; }}
.picture .edge.lit .plate {{ stroke-width: 1.5; }}
.picture .plate {{ stroke-width: 0; }}
.picture.telling .edge:not(.lit), .picture.telling .txn:not(.lit) text {{ opacity: 0.3; }}
.picture.telling .txn:not(.lit) .box {{ stroke-opacity: 0.3; }}
.picture .txn.lit .box {{ stroke-width: 2.25; }}
.picture .txn.lit .op.lit text {{ font-weight: 700; }}
"""


def _kind_dashes() -> str:
    return "".join(f".picture .{kind} .run {{ stroke-dasharray: {dash}; }}\n" for kind, dash in DASHES.items())


def _colours(colour: dict[str, str]) -> str:
    rules = [
        f".picture text {{ fill: {colour['ink']}; }}",
        f".picture .muted {{ fill: {colour['muted']}; }}",
        f".picture .ground, .picture .plate {{ fill: {colour['page']}; }}",
        f".picture .box {{ fill: {colour['box']}; stroke: {colour['muted']}; }}",
        f".picture .zone {{ fill: {colour['zone']}; }}",
        f".picture .lane {{ stroke: {colour['line']}; }}",
        f".picture .lane-end {{ fill: {colour['line']}; }}",
        f".picture .txn.lit .box {{ stroke: {colour['ink']}; }}",
    ]
    for kind in DASHES:
        rules += [
            f".picture .{kind} .run {{ stroke: {colour[kind]}; }}",
            f".picture .{kind} .plate {{ stroke: {colour[kind]}; }}",
            f".picture .{kind} .tip, .picture .{kind} .word, .picture .{kind} .badge {{ fill: {colour[kind]}; }}",
            f".picture .{kind} .count {{ fill: {colour['page']}; }}",
        ]
    return "\n".join(rules) + "\n"


def picture_css() -> str:
    """Rules for everything inside `.picture`. Paper is always light."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{_colours(DARK)}}}\n"
    return _SHAPE + _kind_dashes() + _colours(LIGHT) + dark
