"""What a statement says about rows that are not there, where it says so exactly.

Only a condition on the whole primary key and on nothing else is exact: `id = %s`, `id IN (%s, %s)`, `id = ANY(%s)`,
and a range of whole numbers. Any other condition may be what kept a row away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mussurana.collector.catalog import Table
from mussurana.collector.sql.keys import INTEGERS, PLAIN, base_type
from mussurana.collector.sql.tokens import Token

KEYS_MAX = 64
"""Of one statement. A wider range says something about too many keys to be worth it."""

EQUAL, IN, ANY, RANGE = "=", "IN", "ANY", "RANGE"


@dataclass(frozen=True, slots=True)
class Operand:
    """A parameter, by name or number, or a value in the text."""

    item: str | int | None
    value: Any = None

    def of(self, params: Any) -> Any:
        return self.value if self.item is None else params[self.item]


@dataclass(frozen=True, slots=True)
class Absence:
    table: Table
    kind: str
    operands: tuple[Operand, ...]
    low_inclusive: bool = True
    high_inclusive: bool = True

    @property
    def expected(self) -> int:
        """If there are at least so many rows, none is absent."""
        return len(self.operands) if self.kind == IN else 1 if self.kind == EQUAL else KEYS_MAX

    def keys(self, params: Any) -> Sequence[tuple[Any, ...]]:
        """The keys that were asked for, as the parameters give them. May raise; then nothing is known."""
        values = [operand.of(params) for operand in self.operands]
        if self.kind == EQUAL:
            return (tuple(values),)
        if self.kind == IN:
            return [(value,) for value in values[:KEYS_MAX]]
        if self.kind == ANY:
            (several,) = values
            if not isinstance(several, list | tuple) or len(several) > KEYS_MAX:
                return ()
            return [(value,) for value in several]
        low, high = values
        if type(low) is not int or type(high) is not int:
            return ()
        first = low if self.low_inclusive else low + 1
        end = high + 1 if self.high_inclusive else high
        return [(value,) for value in range(first, end)] if end - first <= KEYS_MAX else ()


def find_absence(tokens: list[Token], where: tuple[int, int], table: Table, alias: str) -> Absence | None:
    """What the condition in tokens [where) asks of the primary key; None if it asks for anything else."""
    index, end = where
    if index == end or table.row_security or not table.key_types:
        return None
    if table.is_part or table.is_whole:  # it may be in another part, or have left with one that was detached
        return None
    if any(base_type(kind) not in PLAIN for kind in table.key_types):
        return None
    equal: dict[str, Operand] = {}
    bounds: dict[str, tuple[Operand, bool]] = {}
    found: Absence | None = None
    while index < end:
        column, index = _column(tokens, index, end, alias)
        if column not in table.key_columns or index >= end:
            return None
        word = tokens[index].word or tokens[index].text
        operand: Operand | None
        if word == "=" and _text(tokens, index + 1) == "ANY" and _text(tokens, index + 2) == "(":
            operand, after = _operand(tokens, index + 3, end)
            if operand is None or after != tokens[index + 2].closing:
                return None
            found, index = Absence(table, ANY, (operand,)), after + 1
        elif word == "=":
            operand, index = _operand(tokens, index + 1, end)
            if operand is None or column in equal:
                return None
            equal[column] = operand
        elif word == "IN" and _text(tokens, index + 1) == "(":
            operands, after = [], tokens[index + 1].closing
            index += 2
            while index < after:
                operand, index = _operand(tokens, index, after)
                if operand is None or (index < after and tokens[index].word != ","):
                    return None
                operands.append(operand)
                index += 1
            found, index = Absence(table, IN, tuple(operands)), after + 1
        elif word == "BETWEEN":
            low, index = _operand(tokens, index + 1, end)
            if low is None or _text(tokens, index) != "AND":
                return None
            high, index = _operand(tokens, index + 1, end)
            if high is None or bounds:
                return None
            bounds = {"low": (low, True), "high": (high, True)}
        elif word in ("<", "<=", ">", ">="):
            side = "low" if word[0] == ">" else "high"
            operand, index = _operand(tokens, index + 1, end)
            if operand is None or side in bounds:
                return None
            bounds[side] = (operand, len(word) == 2)
        else:
            return None
        if index < end and tokens[index].word != "AND":
            return None
        index += 1
    if equal and not bounds and found is None and set(equal) == set(table.key_columns):
        return Absence(table, EQUAL, tuple(equal[column] for column in table.key_columns))
    if len(table.key_columns) > 1 or equal:
        return None
    if found is not None:
        return found if not bounds else None
    if len(bounds) == 2 and base_type(table.key_types[0]) in INTEGERS:
        (low, low_inclusive), (high, high_inclusive) = bounds["low"], bounds["high"]
        return Absence(table, RANGE, (low, high), low_inclusive, high_inclusive)
    return None


def _column(tokens: list[Token], index: int, end: int, alias: str) -> tuple[str, int]:
    if index + 2 < end and tokens[index + 1].word == ".":
        if tokens[index].name != alias or not tokens[index + 2].is_name:
            return "", end
        return tokens[index + 2].name, index + 3
    return (tokens[index].name, index + 1) if tokens[index].is_name else ("", end)


def _operand(tokens: list[Token], index: int, end: int) -> tuple[Operand | None, int]:
    """A parameter or literal with or without a cast, and the index after it."""
    if index >= end:
        return None, index
    token = tokens[index]
    if token.placeholder is not None:
        operand = Operand(token.placeholder.item)
    elif token.literal:
        value: Any = int(token.text) if token.text.isdecimal() else None
        if value is None:
            return None, index
        operand = Operand(None, value)
    else:
        return None, index
    index += 1
    if index < end and tokens[index].text == "::":
        index += 2  # the name of a type; one with a length may change the value, and is not let through below
        while index < end and tokens[index].word in ("[", "]", "VARYING"):
            index += 1
    return operand, index


def _text(tokens: list[Token], index: int) -> str:
    return tokens[index].word if index < len(tokens) else ""
