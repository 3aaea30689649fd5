"""Rows as values lose our fields and nothing else. The server's own way of writing them is repeated here, slowly."""

from __future__ import annotations

import random
import struct

import pytest

from mussurana.collector.catalog import RowType
from mussurana.collector.composites import cutter_of

Field = bytes | None
Row = tuple[Field, ...]

VALUES: tuple[Field, ...] = (
    None,
    b"",
    b"1",
    b"a b",
    b'"',
    b"\\",
    b"(,)",
    b"{}",
    b"NULL",
    "é".encode(),
    b"\n",
    b'x"\\"y',
)


def row_text(row: Row) -> bytes:
    """record_out"""
    return b"(" + b",".join(map(field_text, row)) + b")"


def field_text(field: Field) -> bytes:
    if field is None:
        return b""
    if field and not any(character in b'"\\(),' or chr(character).isspace() for character in field):
        return field
    return b'"' + field.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'


def array_text(rows: list[Row | None]) -> bytes:
    """array_out"""
    return b"{" + b",".join(b"NULL" if row is None else element_text(row_text(row)) for row in rows) + b"}"


def element_text(text: bytes) -> bytes:
    if not any(character in b'"\\{},' or chr(character).isspace() for character in text):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def sized(data: bytes | None) -> bytes:
    return struct.pack("!i", -1) if data is None else struct.pack("!i", len(data)) + data


def row_binary(row: Row) -> bytes:
    """record_send"""
    return struct.pack("!i", len(row)) + b"".join(struct.pack("!I", 25) + sized(field) for field in row)


def array_binary(rows: list[Row | None]) -> bytes:
    """array_send, of one dimension"""
    head = struct.pack("!iiIii", 1, None in rows, 16385, len(rows), 1) if rows else struct.pack("!iiI", 0, 0, 16385)
    return head + b"".join(sized(None if row is None else row_binary(row)) for row in rows)


@pytest.mark.parametrize("seed", range(50))
def test_what_is_left_is_what_the_server_would_have_sent(seed: int) -> None:
    rng = random.Random(seed)
    field_count = rng.randrange(2, 6)
    hidden = frozenset(rng.sample(range(field_count), rng.randrange(1, min(3, field_count))))
    rows: list[Row | None] = [
        None if rng.random() < 0.2 else tuple(rng.choice(VALUES) for _ in range(field_count)) for _ in range(4)
    ]
    visible: list[Row | None] = [
        None if row is None else tuple(field for index, field in enumerate(row) if index not in hidden) for row in rows
    ]
    one, many = RowType(field_count, hidden), RowType(field_count, hidden, is_array=True)
    for row, expected in zip(rows, visible, strict=True):
        if row is not None and expected is not None:
            assert cutter_of(one, binary=False)(row_text(row)) == row_text(expected)
            assert cutter_of(one, binary=True)(row_binary(row)) == row_binary(expected)
    for whole, rest in ((rows, visible), ([], [])):
        assert cutter_of(many, binary=False)(array_text(whole)) == array_text(rest)
        assert cutter_of(many, binary=True)(array_binary(whole)) == array_binary(rest)


def test_rows_of_another_shape_stay_as_they_are() -> None:
    row_type = RowType(3, frozenset({2}))
    assert cutter_of(row_type, binary=False)(b"(1,2)") == b"(1,2)"
    assert cutter_of(row_type, binary=True)(row_binary((b"1", b"2"))) == row_binary((b"1", b"2"))
