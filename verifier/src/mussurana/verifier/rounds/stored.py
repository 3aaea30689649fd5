"""Whether what was read from a file is what the dataclass says that it is.

Nobody asks that of values that this program made itself. But a file may be damaged where no checksum tells, or be made
by somebody else, and what has the wrong type would fail much later, in the middle of something.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any

INT_BITS = 63
"""Numbers go into columns of 64 bits with a sign."""


def conforms(value: object, kind: Any) -> bool:
    """Whether a value, and all that is in it, has this type. Whole numbers have to fit into 64 bits."""
    if kind is Any:
        return True
    if kind is int:
        return type(value) is int and -(1 << INT_BITS) <= value < 1 << INT_BITS
    if kind is float:
        return conforms(value, int) or (type(value) is float and isfinite(value))
    if kind in (str, bool, bytes, type(None)):
        return type(value) is kind
    if is_dataclass(kind):
        inside = _fields(typing.cast(type, kind))
        return isinstance(value, typing.cast(type, kind)) and all(
            conforms(getattr(value, name), inner) for name, inner in inside.items()
        )
    return _conforms_inside(value, typing.get_origin(kind), typing.get_args(kind))


def _conforms_inside(value: object, origin: Any, inner: tuple[Any, ...]) -> bool:
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, each) for each in inner)
    if origin is typing.Literal:
        return isinstance(value, str) and value in inner
    if origin is dict:
        return isinstance(value, dict) and all(
            conforms(k, inner[0]) and conforms(v, inner[1]) for k, v in value.items()
        )
    if origin is tuple and inner[-1:] != (...,):
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(conforms, value, inner))
    assert origin in (tuple, list, set), origin
    return isinstance(value, origin) and all(conforms(each, inner[0]) for each in value)


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
