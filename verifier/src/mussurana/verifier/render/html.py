"""A result as one self-contained HTML page, to be attached to a ticket.

No network, no fonts to load, light and dark, keyboard and printer. The content security policy allows the page's own
style sheet and script by their hashes and nothing else, so even a mistake in escaping could not run anything.

All text from the history goes through `said`; the only element content that is not HTML text is the JSON data block,
where `<`, `>` and `&` are written as JSON escapes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Any

from mussurana.verifier.render.json import result_json
from mussurana.verifier.render.page_assets import SCRIPT, STYLE
from mussurana.verifier.render.svg import Picture, case_svg
from mussurana.verifier.render.text import result_text
from mussurana.verifier.render.words import (
    Clock,
    anomaly_title,
    count,
    duration,
    elide,
    keys_that_matter,
    shorten_operations,
    size_phrase,
    transaction_place,
    verb,
    verdict_word,
    visible,
)
from mussurana.verifier.verdict import (
    Accepted,
    Case,
    Counterexample,
    Rejected,
    Result,
    ShownOperation,
    ShownTransaction,
    Step,
)

_OPERATIONS_MAX = 200  # per transaction in the list below the picture; the JSON block has them all
_HEADING_CELLS_MAX = 120
_IDLE = "Point at an edge or a step, or move to it with the Tab key, to see why it is there; click to keep it."


@dataclass(frozen=True)
class Report:
    """What a page says. `context` and `body` are HTML; everything else is text."""

    word: str  # accepted, rejected, unknown
    headline: str
    summary: str
    context: str
    body: str
    plain: str  # the same as text
    data: dict[str, Any]  # the same as JSON


def report_html(result: Result, source: str) -> str:
    """The page. `source` says where the history came from; it may be empty."""
    title, summary, body = _content(result)
    return page_html(
        Report(
            word=verdict_word(result.verdict),
            headline=title,
            summary=summary,
            context=_context(result, source),
            body=f"{body}\n{_details(result)}",
            plain=result_text(result, source),
            data=result_json(result),
        )
    )


def page_html(report: Report) -> str:
    title = f"{report.word}: {report.headline}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy()}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{said(elide(title, _HEADING_CELLS_MAX))}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<p class="verdict {report.word}">{report.word}</p>
<h1>{said(elide(report.headline, _HEADING_CELLS_MAX))}</h1>
<p class="summary">{said(report.summary)}</p>
<p class="context">{report.context}</p>
</header>
<main>
{report.body}
{plain_html(report.plain)}
</main>
<footer>Written by mussurana. The page needs no network; the result as JSON is in its source, in the element
<code>#result</code>.</footer>
<script type="application/json" id="result">{_json_block(report.data)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def plain_html(text: str) -> str:
    """The same in plain text, folded away."""
    return f"""<details><summary>As plain text</summary>
<pre tabindex="0">{escape(text)}</pre>
</details>"""


def _policy() -> str:
    return (
        f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def said(text: str) -> str:
    """Text as HTML, visible and without any meaning to the parser."""
    return escape(visible(text))


def _json_block(data: dict[str, Any]) -> str:
    """JSON that a `</script>`, `<!--` or `&` in the data cannot get out of."""
    text = json.dumps(data)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _context(result: Result, source: str) -> str:
    parts = [f"Checked for <code>{said(result.settings.level)}</code>: {said(size_phrase(result))}"]
    if source:
        parts.append(f"from <code>{said(elide(source, _HEADING_CELLS_MAX))}</code>")
    if "total" in result.seconds:
        parts.append(f"in {duration(result.seconds['total'])}")
    return " ".join(parts) + "."


def _content(result: Result) -> tuple[str, str, str]:
    """Headline, summary sentence and the part of the page that depends on the verdict."""
    verdict = result.verdict
    if isinstance(verdict, Rejected):
        found = verdict.counterexample
        return headline(found), found.summary, counterexample_html(found)
    if isinstance(verdict, Accepted):
        level = visible(result.settings.level)
        return f"The history is {level}", "There is an order that explains every read.", _witness(verdict)
    return "No answer", verdict.reason, _NO_ANSWER


def headline(found: Counterexample) -> str:
    title = anomaly_title(found)
    return title[:1].upper() + title[1:]


def _witness(verdict: Accepted) -> str:
    length = len(verdict.witness.order)
    if verdict.witness.events:
        order = f"an order of {count(length, 'event')}, the begins and commits of {count(length // 2, 'transaction')}"
        rule = "each transaction sees what was committed before its begin"
    else:
        order = f"a serial order of {count(length, 'transaction')}"
        rule = "run one after the other in this order, each reads exactly what it read"
    return (
        f"<h2>The proof</h2><p>The proof is {order}: {rule}.</p>"
        "<p><code>mussurana check --certificate FILE</code> writes it down, and "
        "<code>mussurana audit FILE HISTORY</code> replays it without using the engine that found it.</p>"
    )


_NO_ANSWER = (
    "<h2>What this means</h2><p>The check ended without a proof in either direction. "
    "This is no sign of an anomaly, and it is no acceptance.</p>"
)


def counterexample_html(found: Counterexample) -> str:
    """What is wrong, why no order exists, the transactions: the part of the page below its heading."""
    parts: list[str] = []
    if found.facts:
        facts = "".join(f"<li>{said(fact)}</li>" for fact in found.facts)
        parts.append(f'<h2>What is wrong</h2><ul class="facts">{facts}</ul>')
    if found.transactions:
        picture = Picture(found)
        if found.cases:
            parts.append("<h2>Why no order exists</h2>")
        if len(found.cases) > 1:
            parts.append(f"<p>One of {len(found.cases)} cases must hold, and each is impossible.</p>")
        cases = found.cases or (Case((), (), ""),)
        parts += [_case(picture, case, number, len(cases)) for number, case in enumerate(cases, 1)]
    parts.append(_transactions(found))
    return "\n".join(parts)


def _case(picture: Picture, case: Case, number: int, cases: int) -> str:
    name = f"case-{number}"
    heading = f"<h3>Case {number} of {cases}</h3>" if cases > 1 else ""
    assumptions = "".join(f"<p>{said(assumption)}</p>" for assumption in case.assumptions)
    svg = case_svg(picture, case, name)
    scroll = '<div class="scroll" tabindex="0" role="region" aria-label="Picture of the transactions">'
    told = f'<p class="told idle" aria-live="polite">{_IDLE}</p>' if case.steps else ""
    steps = "".join(_step(step, place, name) for place, step in enumerate(case.steps, 1))
    listed = f'<ol class="steps">{steps}</ol>' if steps else ""
    conclusion = f'<p class="conclusion">{said(case.conclusion)}</p>' if case.conclusion else ""
    caption = f'<figcaption class="context">{said(_caption(picture))}</figcaption>'
    return (
        f'<section class="case">{heading}{assumptions}<div class="beside">'
        f"<figure>{scroll}{svg}</div>{told}{caption}</figure>"
        f'<div class="argument">{listed}{conclusion}</div></div></section>'
    )


def _caption(picture: Picture) -> str:
    if picture.placement.by_time:
        order = "Time goes from left to right; transactions above one another overlapped."
    else:
        order = "Sessions go from left to right; not all times are known, so distances mean nothing."
    return f"{order} {picture.clock.note}".rstrip()


def _step(step: Step, place: int, name: str) -> str:
    return (
        f'<li class="{step.kind}" id="{name}-step-{place}">'
        f'<a class="step-number" href="#{name}-edge-{place}" aria-label="Step {place} in the picture">{place}</a>'
        f'<span class="reason">{said(step.reason)}</span></li>'
    )


def _transactions(found: Counterexample) -> str:
    clock = Clock(found.transactions)
    keys = keys_that_matter(found)
    cards = "".join(_card(txn, clock, keys) for txn in found.transactions)
    return f'<h2>The transactions</h2><div class="transactions">{cards}</div>' if cards else ""


def _card(txn: ShownTransaction, clock: Clock, keys: frozenset[str]) -> str:
    status = "" if txn.status == "committed" else f" ({txn.status})"
    where = [f"session {txn.session}", transaction_place(txn), txn.name, clock.span(txn), txn.isolation.lower()]
    operations = "".join(_operation(o) for o in shorten_operations(txn.operations, keys, _OPERATIONS_MAX))
    return (
        f'<div class="card"><h3>{said(txn.label + status)}</h3>'
        f'<p class="where">{said(" · ".join(filter(None, where)))}</p>'
        f'<ul class="operations mono">{operations}</ul></div>'
    )


def _operation(operation: ShownOperation | int) -> str:
    if isinstance(operation, int):
        return f'<li class="verb">… {count(operation, "more operation")} …</li>'
    versions = operation.version
    if operation.previous:
        versions = f"{operation.previous} → {versions}"
    sql = " ".join(operation.statement.split())  # as libraries break it into lines, it would mostly be air
    statement = f'<span class="statement">{said(sql)}</span>' if operation.statement else ""
    return f'<li><span class="verb">{verb(operation)}</span>{said(f"{operation.key} {versions}")}{statement}</li>'


def _details(result: Result) -> str:
    settings, choices = result.settings, result.choices
    rows = [
        ("Level", settings.level),
        ("Session order", "kept" if settings.session_order else "not required"),
        ("Clock drift allowed", duration(settings.clock_drift_ns / 1e9) + ", where the level looks at time"),
        ("Transactions", f"{result.transactions:,}"),
        ("Sessions", f"{result.sessions:,}"),
        ("Choices", f"{choices.generated:,} generated, {choices.pruned:,} pruned, {choices.solved:,} solved"),
        ("Dead ends in the search", f"{result.conflicts:,}"),
        (
            "Time",
            ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in result.seconds.items()) or "not measured",
        ),
    ]
    rows += [("Left out", f"{left_out.count:,} × {left_out.what}") for left_out in result.left_out]
    if not result.left_out:
        rows.append(("Left out", "nothing"))
    cells = "".join(f'<tr><th scope="row">{said(name)}</th><td>{said(value)}</td></tr>' for name, value in rows)
    return f'<h2>Details</h2><table class="numbers">{cells}</table>'
