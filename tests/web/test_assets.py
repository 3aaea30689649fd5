"""The page's own files: colours that can be read, and that they come with the package."""

from __future__ import annotations

import re

import pytest

from mussurana.verifier.daemon.web import assets
from mussurana.verifier.render.page_assets import VERDICT_DARK, VERDICT_LIGHT
from mussurana.verifier.render.palette import DARK, LIGHT

LEGIBLE = 4.5
"""Contrast of text, by the Web Content Accessibility Guidelines."""


def luminance(colour: str) -> float:
    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[place : place + 2], 16)) for place in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [{**LIGHT, **VERDICT_LIGHT}, {**DARK, **VERDICT_DARK}], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "muted", "wr", "accepted", "rejected", "unknown"])
def test_text_can_be_read_on_every_ground(theme: dict[str, str], name: str) -> None:
    for ground in ("page", "box"):
        assert contrast(theme[name], theme[ground]) >= LEGIBLE, f"{name} on {ground}"


def test_style_sheets_use_colours_of_the_palette_only() -> None:
    files = assets.load()
    defined = set(re.findall(r"--([a-z]+):", files["palette.css"].content.decode()))
    for name in ("page.css", "overview.css", "violation.css"):
        text = files[name].content.decode()
        assert set(re.findall(r"var\(--([a-z]+)\)", text)) <= defined
        assert not re.findall(r"#[0-9a-f]{3,8}\b(?![^{]*\{)|rgba?\(", text), f"{name} has a colour of its own"


def test_verdicts_differ_in_shape_and_not_only_in_colour() -> None:
    icons = assets.load()["icons.js"].content.decode()
    shapes = dict(re.findall(r'^  (\w+): \["([^"]+)"', icons, re.MULTILINE))
    assert len({shapes[verdict] for verdict in ("accepted", "rejected", "unknown", "trouble")}) == 4


def test_the_same_files_have_the_same_tags() -> None:
    assert {name: asset.tag for name, asset in assets.load().items()} == {
        name: asset.tag for name, asset in assets.load().items()
    }
