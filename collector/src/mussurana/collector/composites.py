"""Rows as values (`SELECT t FROM t`, `array_agg(t)`) without the fields that are ours.

PostgreSQL sends such a row as one value, in its text format or its binary one, alone or in an array. Its type is that
of the table, which has our columns, so they are cut out of the bytes before anybody makes something of them. What is
not as expected is left as it is: a table may have been altered since its catalog was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct

from mussurana.collector.catalog import RowType

# record_out: a field that needs it is in quotes, with quotes and backslashes doubled; one that is null is empty.
_FIELD = re.compile(rb'("(?:[^"\\]|""|\\\\)*"|[^",()\\]*)[,)]')

# array_out: an element that needs it is in quotes, with a backslash before each quote and backslash. A row does, since
# with ours in it there is a comma.
_ELEMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES = re.compile(rb'(["\\])')
_QUOTED_FOR = re.compile(rb'[{},"\\ \t\n\r\v\f]')

_COUNT = Struct("!i")
_FIELD_HEAD = Struct("!Ii")  # its type, and how many bytes follow; -1: it is null
_ARRAY_HEAD = Struct("!iiI")  # dimensions, whether there are nulls, the type of the elements
_DIMENSION_BYTES = 8


def cutter_of(row_type: RowType, binary: bool) -> Callable[[bytes], bytes]:
    """What takes our fields out of values of this type."""
    if row_type.is_array:
        return _array_binary_cutter(row_type) if binary else _array_text_cutter(row_type)
    return _row_binary_cutter(row_type) if binary else _row_text_cutter(row_type)


def _row_text_cutter(row_type: RowType) -> Callable[[bytes], bytes]:
    """`(1,"a b",,17)`"""

    def cut(data: bytes) -> bytes:
        fields = _FIELD.findall(data, 1)
        if len(fields) != row_type.field_count:
            return data
        kept = [field for index, field in enumerate(fields) if index not in row_type.hidden]
        return b"(" + b",".join(kept) + b")"

    return cut


def _array_text_cutter(row_type: RowType) -> Callable[[bytes], bytes]:
    """`{"(1,17)",NULL}`"""
    cut_row = _row_text_cutter(row_type)

    def replace(match: re.Match[bytes]) -> bytes:
        row = cut_row(_ESCAPED.sub(rb"\1", match[1]))
        return b'"' + _ESCAPES.sub(rb"\\\1", row) + b'"' if _QUOTED_FOR.search(row) else row

    return lambda data: _ELEMENT.sub(replace, data)


def _row_binary_cutter(row_type: RowType) -> Callable[[bytes], bytes]:
    """A count of fields, then each with its head."""

    def cut(data: bytes) -> bytes:
        if _COUNT.unpack_from(data)[0] != row_type.field_count:
            return data
        kept = [_COUNT.pack(row_type.field_count - len(row_type.hidden))]
        start = _COUNT.size
        for index in range(row_type.field_count):
            _, length = _FIELD_HEAD.unpack_from(data, start)
            end = start + _FIELD_HEAD.size + max(length, 0)
            if index not in row_type.hidden:
                kept.append(data[start:end])
            start = end
        return b"".join(kept)

    return cut


def _array_binary_cutter(row_type: RowType) -> Callable[[bytes], bytes]:
    """A head, the dimensions, then each element after its length."""
    cut_row = _row_binary_cutter(row_type)

    def cut(data: bytes) -> bytes:
        start = _ARRAY_HEAD.size + _ARRAY_HEAD.unpack_from(data)[0] * _DIMENSION_BYTES
        kept = [data[:start]]
        while start < len(data):
            length = _COUNT.unpack_from(data, start)[0]
            start += _COUNT.size
            if length < 0:
                kept.append(_COUNT.pack(length))
                continue
            row = cut_row(data[start : start + length])
            kept += (_COUNT.pack(len(row)), row)
            start += length
        return b"".join(kept)

    return cut
