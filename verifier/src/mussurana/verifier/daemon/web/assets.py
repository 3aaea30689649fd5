"""The page's own files: read once, the same for everybody, without any data in them.

Most are in static/. What belongs to the reports as well (their style sheet, their script, the colours) is made from the
same constants, so that there is only one of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import resources

from mussurana.verifier.render.page_assets import STYLE, TELL, VERDICT_DARK, VERDICT_LIGHT
from mussurana.verifier.render.palette import DARK, LIGHT, MONOSPACE, SANS

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    kind: str
    content: bytes
    tag: str  # an ETag


def load() -> dict[str, Asset]:
    """By file name."""
    files = {
        file.name: file.read_bytes()
        for file in resources.files("mussurana.verifier.daemon.web").joinpath("static").iterdir()
        if file.name.rpartition(".")[2] in KINDS
    }
    made = {
        "palette.css": palette_css(),
        "report.css": STYLE,
        "report.js": f'"use strict";\n{TELL}\nexport {{ tell }};\n',
    }
    files |= {name: text.encode() for name, text in made.items()}
    return {
        name: Asset(KINDS[name.rpartition(".")[2]], content, entity_tag(content)) for name, content in files.items()
    }


def entity_tag(content: bytes) -> str:
    return f'"{sha256(content).hexdigest()[:24]}"'


def palette_css() -> str:
    """The colours of the pictures as CSS variables. Paper is always light."""

    def variables(colours: dict[str, str]) -> str:
        return "".join(f" --{name}: {value};" for name, value in colours.items())

    return (
        f":root {{{variables(LIGHT | VERDICT_LIGHT)} --sans: {SANS}; --monospace: {MONOSPACE}; }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{{variables(DARK | VERDICT_DARK)} }} }}\n"
    )
