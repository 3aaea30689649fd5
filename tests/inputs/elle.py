"""Histories of Jepsen and Elle, as EDN and as JSON: other values, deeper, longer, elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from mussurana.verifier.formats import edn, load
from mussurana.verifier.history import HistoryError
from tests.inputs.damage import damaged, spoiled, with_placeholders
from tests.inputs.reader import Files, Reader, use
from tests.inputs.samples import saved

EDN_PIECES = (
    "#_",
    "#inst ",
    ";",
    "\\c ",
    "##NaN ",
    "##Inf",
    "{:a",
    "#{",
    "1N",
    "1M",
    "1e999",
    "+",
    ":",
    '"',
    "[:r 1 [",
)


def make_edn(rng: Random) -> Files:
    text = saved(rng, "elle-edn", "history.edn")["history.edn"].decode()
    if rng.random() < 0.7:
        forms = [form for _, form in edn.parse(text, Path())]
        text = edn_text(rng, spoiled(rng, forms))
    if rng.random() < 0.2:
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(EDN_PIECES) * rng.choice((1, 1, 3, 5_000)) + text[at:]
    content = text.encode(errors="surrogatepass")
    return {"history.edn": damaged(rng, content) if rng.random() < 0.3 else content}


def edn_text(rng: Random, forms: Any) -> str:
    some = forms if isinstance(forms, list) else [forms]
    return with_placeholders(rng, "\n".join(map(edn.notation, some)), edn.quoted)


def make_json(rng: Random) -> Files:
    text = saved(rng, "elle-json", "history.json")["history.json"].decode()
    if rng.random() < 0.8:
        tree = spoiled(rng, json.loads(text))
        text = with_placeholders(rng, json.dumps(tree), json.dumps)
        if rng.random() < 0.3 and isinstance(tree, list):
            text = "\n".join(with_placeholders(rng, json.dumps(each), json.dumps) for each in tree)
    content = text.encode(errors="surrogatepass")
    return {"history.json": damaged(rng, content) if rng.random() < 0.3 else content}


def read(files: Files, folder: Path, rng: Random) -> str:
    (name,) = files
    return use(load(folder / name), folder, rng)


EDN = Reader("elle-edn", make_edn, read, (HistoryError,))
JSON = Reader("elle-json", make_json, read, (HistoryError,))
