"""The style sheet and the script of the report page.

They are constants without any data in them, so the page can allow exactly these two by their hash and nothing else.
The script only adds and removes classes and copies text; it never builds markup. The daemon's page uses the same.
"""

from __future__ import annotations

from mussurana.verifier.render.palette import DARK, DASHES, LIGHT, MONOSPACE, SANS, picture_css

VERDICT_LIGHT = {"accepted": "#00684a", "rejected": "#a8201a", "unknown": "#7a5200"}
VERDICT_DARK = {"accepted": "#4fc79d", "rejected": "#ff8a80", "unknown": "#e5b454"}

_SHAPE = f"""
* {{ box-sizing: border-box; }}
html {{ color-scheme: light dark; }}
body {{ margin: 0; font: 15px/1.55 {SANS}; overflow-wrap: anywhere; }}
header, main, footer {{ max-width: 1240px; margin: 0 auto; padding: 0 32px; }}
header {{ padding-top: 36px; }}
footer {{ padding-top: 20px; padding-bottom: 40px; font-size: 13px; }}
h1 {{ font-size: 28px; line-height: 1.25; margin: 6px 0 8px; font-weight: 650; }}
h2 {{ font-size: 18px; margin: 40px 0 10px; font-weight: 650; }}
h3 {{ font-size: 15px; margin: 28px 0 6px; font-weight: 600; }}
p {{ margin: 6px 0; }}
.verdict {{ display: inline-block; margin: 0; padding: 2px 12px; border-radius: 4px; border: 1.5px solid currentColor;
  font-size: 13px; font-weight: 700; letter-spacing: 0.08em; text-transform: uppercase; }}
.summary {{ font-size: 17px; max-width: 60em; }}
.context {{ font-size: 14px; }}
code, .mono, pre {{ font-family: {MONOSPACE}; font-size: 13px; }}
.beside {{ display: flex; flex-wrap: wrap; gap: 4px 28px; margin-top: 14px; }}
figure {{ flex: 0 1 auto; min-width: 0; margin: 0; }}
.told, figcaption {{ width: 0; min-width: 100%; }}
figcaption {{ margin-top: 6px; }}
.argument {{ flex: 1 1 400px; min-width: 0; }}
.scroll {{ overflow-x: auto; border: 1px solid; border-radius: 8px; padding: 12px 4px; }}
.picture {{ display: block; }}
.picture .edge {{ cursor: pointer; outline: none; }}
.told {{ min-height: 60px; margin: 10px 0 0; padding: 8px 12px; border-left: 4px solid; border-radius: 2px;
  font-size: 14px; }}
ol.steps {{ list-style: none; margin: 4px 0 0; padding: 0; }}
ol.steps > li {{ position: relative; padding: 7px 12px 7px 46px; border-radius: 6px; }}
.step-number {{ position: absolute; left: 12px; top: 8px; width: 22px; height: 22px; border-radius: 11px;
  font-size: 12px; line-height: 22px; font-weight: 700; text-align: center; text-decoration: none; }}
ol.steps ul {{ margin: 2px 0 0; padding-left: 18px; font-size: 14px; }}
.conclusion {{ margin: 8px 0 0 12px; font-weight: 650; }}
.facts {{ padding-left: 20px; }}
table {{ border-collapse: collapse; font-size: 14px; }}
th, td {{ text-align: left; vertical-align: top; padding: 4px 18px 4px 0; border-bottom: 1px solid; }}
th {{ font-weight: 600; white-space: nowrap; }}
.numbers td {{ font-variant-numeric: tabular-nums; }}
.transactions {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 540px), 1fr)); gap: 14px; }}
.card {{ border: 1px solid; border-radius: 8px; padding: 12px 16px; min-width: 0; break-inside: avoid; }}
.card h3 {{ margin: 0; }}
.card .where {{ margin: 0 0 6px; font-size: 13px; }}
.operations {{ list-style: none; margin: 0; padding: 0; }}
.operations li {{ overflow-wrap: anywhere; padding: 2px 0 2px 54px; text-indent: -54px; }}
.operations .verb {{ display: inline-block; width: 54px; text-indent: 0; }}
.operations .statement {{ display: block; text-indent: 0; font-size: 12px; white-space: pre-wrap; }}
details {{ margin-top: 28px; }}
summary {{ cursor: pointer; font-weight: 600; }}
pre {{ overflow-x: auto; border: 1px solid; border-radius: 8px; padding: 14px 16px; font-size: 12.5px;
  line-height: 1.5; }}
:focus-visible {{ outline: 2px solid; outline-offset: 2px; }}
.picture .edge:focus-visible .plate {{ stroke-width: 2.5; }}
.picture .edge:target .run {{ stroke-width: 3; }}
@media (max-width: 640px) {{ header, main, footer {{ padding-left: 16px; padding-right: 16px; }} }}
@media print {{
  header, main, footer {{ max-width: none; padding-left: 0; padding-right: 0; }}
  .scroll {{ overflow: visible; border: none; padding: 0; }}
  .picture {{ max-width: 100%; height: auto; }}
  .told, details {{ display: none; }}
  section.case, figure, ol.steps > li {{ break-inside: avoid; }}
  h2, h3, h2 + p {{ break-after: avoid; }}
}}
"""


def _colours(colour: dict[str, str], verdict: dict[str, str]) -> str:
    line, muted, box = colour["line"], colour["muted"], colour["box"]
    rules = [
        f"body {{ background: {colour['page']}; color: {colour['ink']}; }}",
        f".context, .where, .verb, .statement, footer, .told.idle, caption {{ color: {muted}; }}",
        f".scroll, th, td, .card, pre {{ border-color: {line}; }}",
        f".card, pre, .told {{ background: {box}; }}",
        f".told {{ border-left-color: {line}; }}",
        f"ol.steps > li.lit {{ background: {box}; box-shadow: inset 3px 0 {muted}; }}",
        f"a {{ color: {colour['wr']}; }}",
        f".step-number {{ color: {colour['page']}; }}",
        f":focus-visible {{ outline-color: {colour['wr']}; }}",
    ]
    for kind in DASHES:
        rules.append(f".{kind} > .step-number {{ background: {colour[kind]}; }}")
        rules.append(f".told.{kind} {{ border-left-color: {colour[kind]}; }}")
    rules += [f".verdict.{word} {{ color: {value}; }}" for word, value in verdict.items()]
    return "\n".join(rules) + "\n"


STYLE = (
    _SHAPE
    + _colours(LIGHT, VERDICT_LIGHT)
    + f"@media screen and (prefers-color-scheme: dark) {{\n{_colours(DARK, VERDICT_DARK)}}}\n"
    + picture_css()
)

TELL = """
function tell(section) {
  const picture = section.querySelector("svg.picture");
  const told = section.querySelector(".told");
  if (!picture || !told) return;
  const idle = told.textContent;
  const edges = [...picture.querySelectorAll(".edge")];
  const items = [...section.querySelectorAll("ol.steps > li")];
  const kinds = ["wr", "ww", "rw", "session", "realtime", "epoch"];
  let pinned = -1;

  function show(step) {
    const edge = step < 0 ? null : edges[step];
    picture.classList.toggle("telling", edge !== null);
    edges.forEach((other, n) => {
      other.classList.toggle("lit", n === step);
      other.setAttribute("aria-pressed", String(n === pinned));
    });
    items.forEach((item, n) => item.classList.toggle("lit", n === step));
    for (const box of picture.querySelectorAll(".txn")) {
      const lit = edge !== null && [edge.dataset.source, edge.dataset.target].includes(box.dataset.txn);
      box.classList.toggle("lit", lit);
      for (const op of box.querySelectorAll(".op")) {
        op.classList.toggle("lit", lit && op.dataset.key !== undefined && op.dataset.key === edge.dataset.key);
      }
    }
    kinds.forEach((kind) => told.classList.toggle(kind, edge !== null && edge.classList.contains(kind)));
    told.classList.toggle("idle", edge === null);
    told.textContent = edge === null ? idle : items[step].querySelector(".reason").textContent;
  }

  function pin(step, seen) {
    pinned = pinned === step ? -1 : step;
    show(pinned);
    if (pinned >= 0) seen.scrollIntoView({ block: "nearest" });
  }

  function listen(element, step, seen) {
    element.addEventListener("mouseenter", () => show(step));
    element.addEventListener("mouseleave", () => show(pinned));
    element.addEventListener("focusin", () => show(step));
    element.addEventListener("focusout", () => show(pinned));
    element.addEventListener("click", (event) => { event.preventDefault(); pin(step, seen); });
  }

  edges.forEach((edge, step) => {
    edge.setAttribute("tabindex", "0");
    edge.setAttribute("role", "button");
    edge.setAttribute("aria-label", "Step " + (step + 1) + ": " + items[step].querySelector(".reason").textContent);
    listen(edge, step, told);
    edge.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pin(step, told); }
    });
  });
  items.forEach((item, step) => listen(item, step, picture));
  section.addEventListener("keydown", (event) => { if (event.key === "Escape") { pinned = -1; show(-1); } });
  show(-1);
}
"""
"""What makes the edges and the steps of one case, a `section.case`, explain each other."""

SCRIPT = f"""
"use strict";
{TELL}
for (const section of document.querySelectorAll("section.case")) tell(section);
"""
