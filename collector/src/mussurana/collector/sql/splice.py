"""Putting pieces into the text of a statement, and parameters to where their placeholders came to stand.

A piece may hold `WID`, for the write id. It becomes a placeholder in the style of the statement, so that the text stays
the same from call to call; `Injection` then knows how to make the parameters of a call fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mussurana.collector.sql.tokens import FORMAT, NONE, QMARK, RAW, SQLITE, Placeholder

WID = "\0"
PARAMETER_NAME = "mussurana_wid"


ONE_FOR_ALL = "?1"
"""In SQLite, where nothing else has a number: the first parameter, as often as it is wanted. Some builds allow few."""

PARAMETERS_MAX = 65_535
"""Of a statement: PostgreSQL counts them in two bytes."""


class WrongParameters(ValueError):
    """The parameters are not those that the text asks for. The driver will refuse them."""


class Injection:
    """Adds the write id to the parameters of a call, or raises WrongParameters."""

    def __call__(self, params: Any, write_id: int) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class ByName(Injection):
    def __call__(self, params: Any, write_id: int) -> Any:
        if type(params) is not dict and not isinstance(params, Mapping):
            raise WrongParameters("no names")
        return {**params, PARAMETER_NAME: write_id}


@dataclass(frozen=True)
class AtEnd(Injection):
    """Numbered placeholders: one parameter, however often it is used."""

    count: int

    def __call__(self, params: Any, write_id: int) -> Any:
        if params is None:
            params = ()
        if not _fits(params, self.count):
            raise WrongParameters("other parameters than the text has placeholders for")
        return (*params, write_id)


@dataclass(frozen=True)
class AtPlaces(Injection):
    """Placeholders without name or number: `places` says before which of the given parameters each write id goes."""

    count: int
    places: tuple[int, ...]

    def __call__(self, params: Any, write_id: int) -> Any:
        if not self.count:
            if params:
                raise WrongParameters("parameters for a text without placeholders")
            return (write_id,) * len(self.places)
        if not _fits(params, self.count):
            raise WrongParameters("other parameters than the text has placeholders for")
        if self.places == _FIRST:
            return (write_id, *params)
        if len(self.places) == 1:
            place = self.places[0]
            return (*params[:place], write_id, *params[place:])
        return _interleave(params, self.places, write_id)


_FIRST = (0,)


def _fits(params: Any, count: int) -> bool:
    kind = type(params)  # asking for an abstract class takes longer than everything else here
    return (kind is tuple or kind is list or not isinstance(params, Mapping)) and len(params) == count


def _interleave(params: Sequence[Any], places: tuple[int, ...], write_id: int) -> list[Any]:
    result: list[Any] = []
    done = 0
    for place in places:
        result += params[done:place]
        result.append(write_id)
        done = place
    result += params[done:]
    return result


class Splice:
    """Edits of one text, in any order; those at the same place stay in the order in which they came."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._edits: list[tuple[int, int, str]] = []

    def insert(self, offset: int, piece: str) -> None:
        self._edits.append((offset, offset, piece))

    def replace(self, start: int, end: int, piece: str) -> None:
        self._edits.append((start, end, piece))

    def __bool__(self) -> bool:
        return bool(self._edits)

    def apply(self, placeholders: list[Placeholder], style: str, dialect: str) -> tuple[str, Injection | None]:
        """The new text, and what has to be done to parameters."""
        edits = sorted(self._edits, key=lambda edit: edit[0])
        takes_id = any(WID in piece for _, _, piece in edits)
        named = any(isinstance(each.item, str) for each in placeholders)
        count = 1 + max((each.item for each in placeholders if isinstance(each.item, int)), default=-1)
        numbered = style == RAW or (dialect == SQLITE and any(self._numbered(each) for each in placeholders))
        if dialect == SQLITE:
            marker = f":{PARAMETER_NAME}" if named else f"?{count + 1}" if numbered else "?"
        elif style == RAW:
            marker = f"${count + 1}"
        else:
            marker = f"%({PARAMETER_NAME})s" if named else "%s"
        pieces = [(start, piece.count(WID)) for start, _, piece in edits if WID in piece]
        is_first = all(each.start >= pieces[0][0] for each in placeholders) if pieces else False
        if marker == "?" and is_first and sum(count for _, count in pieces) > 1:
            marker, numbered = ONE_FOR_ALL, False
        doubles = takes_id and style == NONE and dialect != SQLITE
        chunks: list[str] = []
        places: list[int] = []
        done = 0
        for start, end, piece in edits:
            kept = self.text[done:start]
            if doubles:
                kept = kept.replace("%", "%%")
            before = sum(1 for each in placeholders if each.start < start)
            places += [before] * piece.count(WID)
            if doubles or style == FORMAT:  # the name of a column may have a per cent sign
                piece = piece.replace("%", "%%")
            chunks += (kept, piece.replace(WID, marker))
            done = end
        tail = self.text[done:]
        chunks.append(tail.replace("%", "%%") if doubles else tail)
        injection: Injection | None = None
        if takes_id:
            if named:
                injection = ByName()
            elif numbered:
                injection = AtEnd(count)
            else:
                places = [0] if marker == ONE_FOR_ALL else places
                injection = AtPlaces(len(placeholders) if style in (FORMAT, QMARK) else 0, tuple(places))
        return "".join(chunks), injection

    def _numbered(self, placeholder: Placeholder) -> bool:
        return placeholder.end - placeholder.start > 1
