"""A violation that the daemon found, as people take it away: a page, a picture, text, and what the web page shows.

Here it is the object of `daemon.journal.violation_json`: what a webhook sends and what is stored.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from mussurana.verifier.render.daemon import explanation_text
from mussurana.verifier.render.html import Report, counterexample_html, headline, page_html, plain_html, said
from mussurana.verifier.render.json import counterexample_from_json
from mussurana.verifier.render.svg import counterexample_svg
from mussurana.wire import query_pb2 as wire

_FIELDS = tuple(field.name for field in wire.Violation.DESCRIPTOR.fields)


def violation_page(violation: dict[str, Any]) -> str:
    """Self-contained, as `mussurana check --html` makes them."""
    found = counterexample_from_json(violation["counterexample"])
    finding = datetime.fromtimestamp(violation["found_ns"] / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    where = f"in round {violation['round']:,}, epoch {violation['epoch']:,}, found {finding}"
    context = (
        f"Verified for <code>{said(violation['level'])}</code> {where}. Violation <code>{said(violation['id'])}</code>."
    )
    return page_html(
        Report(
            word="rejected",
            headline=headline(found),
            summary=found.summary,
            context=context,
            body=counterexample_html(found),
            plain=violation_text(violation),
            data=violation,
        )
    )


def violation_svg(violation: dict[str, Any]) -> str:
    return counterexample_svg(counterexample_from_json(violation["counterexample"]))


def violation_text(violation: dict[str, Any]) -> str:
    """As `mussurana explain` prints it."""
    shown = wire.Violation(**{name: violation[name] for name in _FIELDS})
    return explanation_text(wire.ExplainReply(violation=shown, counterexample=json.dumps(violation["counterexample"])))


def violation_story(violation: dict[str, Any]) -> str:
    """HTML for inside a page that has the style sheet and the script of a report."""
    found = counterexample_from_json(violation["counterexample"])
    return f"{counterexample_html(found)}\n{plain_html(violation_text(violation))}"


def violation_headline(violation: dict[str, Any]) -> str:
    return headline(counterexample_from_json(violation["counterexample"]))
