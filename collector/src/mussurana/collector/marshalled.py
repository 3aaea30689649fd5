"""Reads what the interpreter's `marshal` wrote, of which only plain values are taken.

`marshal` itself is for files that nobody else could have written: damaged ones may have it ask for gigabytes, make
objects that hold themselves, or end the interpreter. The journal of a process that was killed is read with this
instead. It takes no more memory than some times the bytes that it is given.

A value is a letter, whose upper bit says that the value is referred to later by its place among all that have the bit,
and then, little-endian:

    N F T        None, False, True          i  a number of 32 bits      l  count of digits of 15 bits (negative with
    s            length (4), bytes             the number), digits (2 each)
    u t          length (4), UTF-8          a A  length (4), ASCII      z Z  length (1), ASCII
    ( [          count (4), values          )  count (1), values        r  place (4) of a value that is there already
"""

from __future__ import annotations

import struct
from typing import Any

DEPTH_MAX = 8
"""Records are nested three deep."""

DIGITS_MAX = 5
"""75 bits. No number in a record has more than 64."""

REFERRED = 0x80
INT, SMALL = struct.Struct("<i"), struct.Struct("<H")
CONSTANTS = {ord("N"): None, ord("F"): False, ord("T"): True}
LONG_TEXTS = {ord("u"): "utf-8", ord("t"): "utf-8", ord("a"): "ascii", ord("A"): "ascii"}
SHORT_TEXTS = b"zZ"
LONG_LISTS, SHORT_TUPLE = b"([", ord(")")
_MISSING = object()


def loads(content: bytes) -> Any:
    """The value; ValueError where the bytes are not one plain value."""
    reader = _Marshalled(content)
    try:
        value = reader.value(0)
    except (IndexError, struct.error):
        raise ValueError("it ends too early") from None
    if reader.at != len(content):
        raise ValueError("something follows it")
    return value


class _Marshalled:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0
        self._referred: list[Any] = []

    def value(self, depth: int) -> Any:
        letter = self._content[self.at]
        self.at += 1
        place = -1
        if letter & REFERRED:
            letter &= ~REFERRED
            place = len(self._referred)
            self._referred.append(_MISSING)  # until it is complete, so that nothing holds itself
        value = self._value(letter, depth)
        if place >= 0:
            self._referred[place] = value
        return value

    def _value(self, letter: int, depth: int) -> Any:
        if letter in CONSTANTS:
            return CONSTANTS[letter]
        if letter == ord("i"):
            return self._int()
        if letter == ord("l"):
            return self._long()
        if letter == ord("s"):
            return self._bytes(self._int())
        if letter in LONG_TEXTS:
            return self._bytes(self._int()).decode(LONG_TEXTS[letter], "surrogatepass")
        if letter in SHORT_TEXTS:
            return self._bytes(self._byte()).decode("ascii")
        if letter == ord("r"):
            return self._reference()
        if letter in LONG_LISTS or letter == SHORT_TUPLE:
            count = self._byte() if letter == SHORT_TUPLE else self._int()
            if depth >= DEPTH_MAX or not 0 <= count <= len(self._content) - self.at:
                raise ValueError("no record is nested so deeply, or has so many values")
            values = [self.value(depth + 1) for _ in range(count)]
            return values if letter == ord("[") else tuple(values)
        raise ValueError(f"no record has a value of type {letter}")

    def _byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _int(self) -> int:
        (number,) = INT.unpack_from(self._content, self.at)
        self.at += INT.size
        return int(number)

    def _long(self) -> int:
        count = self._int()
        if abs(count) > DIGITS_MAX:
            raise ValueError("no number in a record has so many digits")
        digits = [SMALL.unpack_from(self._content, self.at + SMALL.size * at)[0] for at in range(abs(count))]
        self.at += SMALL.size * abs(count)
        number: int = sum(digit << 15 * at for at, digit in enumerate(digits))
        return number if count >= 0 else -number

    def _bytes(self, length: int) -> bytes:
        if not 0 <= length <= len(self._content) - self.at:
            raise ValueError("it ends too early")
        self.at += length
        return self._content[self.at - length : self.at]

    def _reference(self) -> Any:
        place = self._int()
        if not 0 <= place < len(self._referred) or self._referred[place] is _MISSING:
            raise ValueError("it refers to a value that is not there")
        return self._referred[place]
