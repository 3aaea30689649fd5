"""Extensible data notation, as much of it as histories use.

One regular expression finds the tokens and a stack of open brackets builds the forms, so that depth costs no
recursion. Tags (`#inst`, `#jepsen.history.Op`) are passed over: what follows them is read as it is. Characters and
symbols are read as strings.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from mussurana.verifier.formats.places import bad_text
from mussurana.verifier.history import HistoryError

Form = Any
"""None, bool, int, float, str, Keyword, list (for vectors, lists and sets) or Map."""


class Keyword(str):
    """`:name`, without its colon."""

    __slots__ = ()


class Map(dict[Form, Form]):
    """A map that knows where in the text it starts."""

    __slots__ = ("position",)
    position: int


TOKEN = re.compile(
    r"""[\s,]*(?:
      (\[:[a-z]+\ [0-9]+\ (?:[0-9]+|nil|\[[0-9\ ]*\])\])           # 1: an operation, such as [:r 5 [1 2]]: the bulk
    | (\[[0-9\ ]*\])                                              # 2: a vector of plain numbers
    | ([+-]?[0-9]+)N?(?=[\s,;"\[\]{}()]|\Z)                       # 3: integer
    | (:[^\s,;"\[\]{}()]+)                                        # 4: keyword
    | ([\[({]|\#\{)                                               # 5: opening
    | ([\])}])                                                    # 6: closing
    | ("(?:[^"\\]|\\.)*")                                         # 7: string
    | (\#(?!\#)[^\s,;"\[\]{}()]*)                                 # 8: tag
    | ([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)M?(?=[\s,;"\[\]{}()]|\Z)   # 9: other number
    | (\#\#[A-Za-z]+|[^\s,;"\[\]{}()\#:][^\s,;"\[\]{}()]*)         # 10: symbol
    | ;[^\n]* | \Z                                                # nothing
    | (.)                                                         # 11: anything else
    )""",
    re.VERBOSE | re.DOTALL,
)
OPERATION, NUMBERS, INTEGER, KEYWORD, OPENING, CLOSING, STRING, TAG, NUMBER, SYMBOL, OTHER = range(1, 12)

CLOSES = {"[": "]", "(": ")", "{": "}", "#{": "}"}
SYMBOLS = {"nil": None, "true": True, "false": False}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"'}


def parse(text: str, path: Path) -> list[tuple[int, Form]]:
    """All forms at the top level, with their positions."""
    top: list[Form] = []
    positions: list[int] = []
    items = top
    open_brackets: list[tuple[str, int, list[Form]]] = []
    tag_at = -1
    for match in TOKEN.finditer(text):
        kind = match.lastindex
        if kind is None:
            continue
        token = match[kind]
        position = match.start(kind)
        if kind == TAG:
            if token.startswith("#_"):
                raise bad_text(path, text, position, "discarded forms (#_) are not supported; delete it")
            tag_at = position
            continue
        if kind == CLOSING:
            if not open_brackets:
                raise bad_text(path, text, position, f"'{token}' closes nothing")
            opening, opened_at, outside = open_brackets.pop()
            if token != CLOSES[opening]:
                raise bad_text(path, text, position, f"expected '{CLOSES[opening]}', found '{token}'")
            if tag_at >= 0:
                raise bad_text(path, text, tag_at, "expected a form after this tag")
            outside.append(_as_map(items, opened_at, text, path) if opening == "{" else items)
            items = outside
            continue
        if items is top:
            positions.append(position)
        tag_at = -1
        if kind == OPENING:
            open_brackets.append((token, position, items))
            items = []
            continue
        if kind == OTHER:
            what = "this string does not end" if token == '"' else f"expected a form, found {token!r}"
            raise bad_text(path, text, position, what)
        try:
            items.append(_simple_form(kind, token))
        except ValueError:  # Python converts no numbers of more than 4,300 digits
            raise bad_text(path, text, position, "this number has too many digits") from None
    if open_brackets:
        raise bad_text(path, text, open_brackets[-1][1], f"this '{open_brackets[-1][0]}' is never closed")
    if tag_at >= 0:
        raise bad_text(path, text, tag_at, "expected a form after this tag")
    return list(zip(positions, top, strict=True))


def _simple_form(kind: int, token: str) -> Form:
    if kind == OPERATION:
        name, key, value = token[2:-1].split(" ", 2)
        if value[0] == "[":
            return [_keyword(name), int(key), _numbers(value)]
        return [_keyword(name), int(key), None if value == "nil" else int(value)]
    if kind == NUMBERS:
        return _numbers(token)
    if kind == INTEGER:
        return int(token)
    if kind == KEYWORD:
        return _keyword(token[1:])
    if kind == STRING:
        return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescape, token[1:-1], flags=re.DOTALL)
    if kind == NUMBER:
        return float(token)
    return SYMBOLS.get(token, token)


def _numbers(token: str) -> list[int]:
    return [int(digits) for digits in token[1:-1].split()]


@lru_cache(maxsize=1000)
def _keyword(name: str) -> Keyword:
    return Keyword(name)


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape[1:], 16)) if len(escape) == 5 else ESCAPES.get(escape, escape)


def _as_map(items: list[Form], position: int, text: str, path: Path) -> Map:
    if len(items) % 2:
        raise bad_text(path, text, position, "expected keys and values in turn: this map has a key without a value")
    keys = [key if isinstance(key, (str, int, float)) else printed(key) for key in items[::2]]
    result = Map(zip(keys, items[1::2], strict=True))
    result.position = position
    return result


PLAIN = re.compile(r"(?!(?:nil|true|false)\Z)[^\W\d][^\x00-\x1f\"\\\ud800-\udfff]*")


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=any("\ud800" <= character <= "\udfff" for character in text))


def printed(form: Form) -> str:
    """The form as people write it; strings without quotes where they cannot be taken for anything else."""
    if form is None:
        return "nil"
    if isinstance(form, bool):
        return "true" if form else "false"
    if isinstance(form, Keyword):
        return f":{form}"
    if isinstance(form, str):
        return form if PLAIN.fullmatch(form) else quoted(form)
    if isinstance(form, dict):
        return "{" + ", ".join(f"{printed(key)} {printed(value)}" for key, value in form.items()) + "}"
    if isinstance(form, list):
        return "[" + " ".join(printed(item) for item in form) + "]"
    return repr(form)


def notation(form: Form) -> str:
    """The form in the notation itself, to be parsed again."""
    if isinstance(form, list):
        return "[" + " ".join(notation(item) for item in form) + "]"
    if isinstance(form, dict):
        return "{" + ", ".join(f"{notation(key)} {notation(value)}" for key, value in form.items()) + "}"
    if isinstance(form, str) and not isinstance(form, Keyword):
        return quoted(form)
    return printed(form)


def named(name: str) -> Form:
    """The form whose printed form is `name`; ValueError where there is none."""
    if PLAIN.fullmatch(name):
        return name
    try:
        forms = parse(name, Path())
    except HistoryError:
        raise ValueError(name) from None
    if len(forms) != 1 or printed(forms[0][1]) != name:
        raise ValueError(name)
    return forms[0][1]
