"""DOT, SVG and HTML: what they show, and that text from a history never becomes markup in them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mussurana.verifier.render.dot import counterexample_dot
from mussurana.verifier.render.html import report_html
from mussurana.verifier.render.json import result_json
from mussurana.verifier.render.palette import DARK, DASHES, LIGHT
from mussurana.verifier.render.svg import counterexample_svg
from mussurana.verifier.render.words import visible
from mussurana.verifier.verdict import Counterexample, Rejected, Result
from tests.render import samples

ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=120) | st.sampled_from(
    [
        samples.HOSTILE,
        samples.HOSTILE_ATTRIBUTE,
        samples.HOSTILE_CONTROL,
        samples.LONG_KEY,
        "</script><!--",
        '\\"',
        "&amp;",
    ]
)
GEOMETRY = {"x", "y", "cx", "cy", "r", "rx", "width", "height", "d", "viewbox", "transform"}
SVG_TAGS = {"svg", "style", "rect", "text", "g", "path", "circle", "title"}


class Markup(HTMLParser):
    """Counts elements and attributes and keeps the text of each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[tuple[str, ...]] = Counter()
        self.attributes: Counter[tuple[str, str, str | None]] = Counter()
        self.geometry: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.comments: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[(tag, *(name for name, _ in attrs))] += 1
        for name, value in attrs:
            if name in GEOMETRY:
                self.geometry.append(value or "")
            else:
                self.attributes[tag, name, value] += 1
        if tag != "meta":
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def counterexample_of(result: Result) -> Counterexample:
    assert isinstance(result.verdict, Rejected)
    return result.verdict.counterexample


@settings(max_examples=40, deadline=None)
@given(ANY_TEXT)
def test_whatever_names_are_the_page_has_the_same_elements_and_attributes(name: str) -> None:
    page, harmless = (
        Markup(report_html(samples.everywhere(name), name)),
        Markup(report_html(samples.everywhere("a"), "a")),
    )
    assert page.elements == harmless.elements
    assert page.attributes == harmless.attributes
    assert not page.comments
    assert all(re.fullmatch(r"[-MLQHhlvzrotate0-9. ()]*", value) for value in page.geometry)


@settings(max_examples=40, deadline=None)
@given(ANY_TEXT)
def test_the_page_carries_the_json_unharmed(name: str) -> None:
    result = samples.everywhere(name)
    page = report_html(result, name)
    page.encode()
    block = Markup(page).texts["script"][0]
    assert not set(block) & set("<>&")
    assert json.loads(block) == json.loads(json.dumps(result_json(result)))


@settings(max_examples=40, deadline=None)
@given(ANY_TEXT)
def test_whatever_names_are_the_svg_is_valid_and_only_its_text_differs(name: str) -> None:
    svg = counterexample_svg(counterexample_of(samples.everywhere(name)))
    harmless = counterexample_svg(counterexample_of(samples.everywhere("a")))

    def vocabulary(text: str) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        return {
            (e.tag, tuple((k, v if k.lower() not in GEOMETRY else "") for k, v in e.attrib.items()))
            for e in ET.fromstring(text.encode()).iter()
        }

    assert vocabulary(svg) == vocabulary(harmless)
    titles = [e.text for e in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert f"session {visible(name)}" in titles


@settings(max_examples=40, deadline=None)
@given(ANY_TEXT)
def test_whatever_names_are_dot_strings_close_where_they_should(name: str) -> None:
    dot = counterexample_dot(counterexample_of(samples.everywhere(name)))
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', dot)
    rest = re.sub(r'"(?:[^"\\]|\\.)*"', '""', dot)
    assert rest == re.sub(r'"(?:[^"\\]|\\.)*"', '""', counterexample_dot(counterexample_of(samples.everywhere("a"))))
    shown = {s.replace('\\"', '"').replace("\\\\", "\\").replace("&amp;", "&") for s in strings}
    assert visible(name) in shown  # the tooltip, which is the sentence itself
    assert not any(re.search(r"&(?!amp;)", s) for s in strings)


def test_the_policy_allows_exactly_the_style_and_script_of_the_page() -> None:
    page = Markup(report_html(samples.hostile(), "x"))
    (policy,) = (value for tag, name, value in page.attributes if tag == "meta" and value and "default-src" in value)

    def digest(text: str) -> str:
        return "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'"

    style, script = digest(page.texts["style"][0]), digest(page.texts["script"][1])
    assert policy == (
        f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'"
    )
    assert len(page.texts["script"]) == 2
    assert not {name for _, name, _ in page.attributes} & {"style", "onclick", "src"}
    assert "innerHTML" not in page.texts["script"][1]


@pytest.mark.parametrize("name", samples.ALL)
def test_the_page_asks_for_nothing_from_elsewhere(name: str) -> None:
    page = Markup(report_html(samples.ALL[name](), "x"))
    links = {value for _, attribute, value in page.attributes if attribute in ("href", "src", "action")}
    assert all(link and link.startswith("#case-") for link in links)
    assert "url(" not in page.texts["style"][0]
    assert "@import" not in page.texts["style"][0]


@pytest.mark.parametrize("name", samples.REJECTED)
def test_steps_and_edges_point_at_each_other(name: str) -> None:
    result = samples.REJECTED[name]()
    page = Markup(report_html(result, "x"))
    ids = [value for _, attribute, value in page.attributes.elements() if attribute == "id"]
    assert len(ids) == len(set(ids))
    targets = {value for tag, attribute, value in page.attributes if (tag, attribute) == ("a", "href")}
    steps = sum(len(case.steps) for case in counterexample_of(result).cases)
    assert len(targets) == steps
    assert {f"#{i}" for i in ids if i and "-edge-" in i} == targets


def test_the_page_tells_verdict_summary_steps_and_details() -> None:
    page = report_html(samples.write_skew(), "prod.log")
    for words in (
        '<p class="verdict rejected">rejected</p>',
        "<h1>Write skew (G2-item)</h1>",
        "T1 and T2 each read what the other then replaced, so neither can come first.",
        "T1 comes before T2, because T1 read doctors/7 at v41 and T2 replaced v41 by v60.",
        "No serial order has both.",
        "UPDATE doctors SET on_call = %s WHERE id = %s",
        "111,947 generated, 109,668 pruned, 0 solved",
        "12 × aborted transactions that nobody read",
        "Times are UTC, 2024-05-03.",
    ):
        assert words in page


def test_an_accepted_page_says_what_the_proof_is() -> None:
    assert "a serial order of 9,564 transactions" in report_html(samples.accepted(), "")
    events = report_html(samples.accepted_with_events(), "")
    assert "an order of 6 events, the begins and commits of 3 transactions" in events
    assert "<svg" not in events


def test_an_unknown_page_says_that_it_is_neither() -> None:
    page = report_html(samples.unknown(), "")
    assert "a longer --timeout may decide them" in page
    assert "no sign of an anomaly, and it is no acceptance" in page


def test_each_case_has_its_own_picture() -> None:
    page = Markup(report_html(samples.two_cases(), ""))
    assert len(page.texts["svg"]) == 2
    assert "Suppose T2 wrote x before T1 did." in page.texts["p"]


@pytest.mark.parametrize("name", samples.REJECTED)
def test_a_picture_has_a_box_per_transaction_and_a_labelled_edge_per_step(name: str) -> None:
    found = counterexample_of(samples.REJECTED[name]())
    tree = ET.fromstring(counterexample_svg(found))
    assert {e.tag.split("}")[1] for e in tree.iter()} <= SVG_TAGS
    drawn = [e.get("class", "").split() for e in tree.iter()]
    cases = max(1, len(found.cases))
    assert sum("txn" in css for css in drawn) == cases * len(found.transactions)
    kinds = [css[1] for css in drawn if css[:1] == ["edge"]]
    assert kinds == [step.kind for case in found.cases for step in case.steps]


def test_an_edge_of_a_long_key_shows_both_ends_of_it_and_has_its_sentence_as_title() -> None:
    found = counterexample_of(samples.hostile())
    svg = counterexample_svg(found)
    (edge,) = (e for e in ET.fromstring(svg).iter() if e.get("id") == "case-1-edge-4")
    texts = [text for e in edge if (text := e.text)]
    assert found.cases[0].steps[3].reason in texts
    label = texts[-1]
    assert label.startswith("wr orders/k")
    assert label.endswith("k/latest")
    assert len(label) <= 24


def test_dot_has_a_node_per_transaction_and_an_edge_per_step() -> None:
    dot = counterexample_dot(counterexample_of(samples.long_fork()))
    assert re.findall(r"^    (c0t\d) \[", dot, re.M) == ["c0t0", "c0t1", "c0t2", "c0t3"]
    assert re.findall(r"(c0t\d -> c0t\d) \[label=\"(.*?)\"", dot) == [
        ("c0t0 -> c0t2", "1. wr x"),
        ("c0t2 -> c0t1", "2. rw y"),
        ("c0t1 -> c0t3", "3. wr y"),
        ("c0t3 -> c0t0", "4. rw x"),
    ]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_edge_colour_is_legible_on_its_page(palette: dict[str, str]) -> None:
    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(a: str, b: str) -> float:
        high, low = sorted((luminance(a), luminance(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for ink in ("ink", "muted", *DASHES):
        assert contrast(palette[ink], palette["page"]) >= 4.5, ink
    assert contrast(palette["muted"], palette["box"]) >= 4.5


def test_edge_kinds_differ_without_colour() -> None:
    assert len(set(DASHES.values())) == len(DASHES)
