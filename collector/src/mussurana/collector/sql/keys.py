"""Names of keys: `accounts/42`, `orders/7,'x'`. A row has one name, whoever reads it and in whichever format.

Integers and UUIDs stand as they are, text in quotes, bytes in hexadecimal. Types whose text depends on the settings
of a session or is not unique (timestamps, numerics) are asked for as an expression that does not: see
`key_expression`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from mussurana.collector.catalog import Table

INTEGERS = frozenset({"integer", "bigint", "smallint", "int", "int2", "int4", "int8", "oid"})
TEXTS = frozenset({"text", "character varying", "varchar"})
PLAIN = INTEGERS | TEXTS | {"uuid", "bytea"}
"""Types whose values can be named from either format, text or binary."""

_AS_TEXT = frozenset(
    {
        "boolean",
        "character",
        "bpchar",
        "name",
        '"char"',
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "time without time zone",
    }
)
_AS_EPOCH = frozenset({"date", "timestamp without time zone", "timestamp with time zone"})

# Object identifiers of types; they are fixed in every PostgreSQL.
_BYTEA, _INT8, _INT2, _INT4, _OID, _UUID = 17, 20, 21, 23, 26, 2950
_INTEGER_OIDS = frozenset({_INT8, _INT2, _INT4, _OID})
INT8 = _INT8


def base_type(declared: str) -> str:
    """Without the length: character varying(20)."""
    return declared.partition("(")[0].strip().lower()


def key_expression(reference: str, declared: str, dialect_is_sqlite: bool) -> str | None:
    """SQL for a key column that reads the same in every session; None if there is none."""
    kind = base_type(declared)
    if dialect_is_sqlite:
        return f"+{reference}"
    if kind in PLAIN:
        return reference
    if kind in _AS_TEXT:
        return f"{reference}::text"
    if kind in _AS_EPOCH:
        return f"extract(epoch FROM {reference})::text"
    if kind in ("numeric", "decimal"):
        return f"trim_scale({reference})::text"
    return None


def is_nameable(table: Table, dialect_is_sqlite: bool) -> bool:
    """Whether all rows of a table have names that never change by themselves."""
    if not table.key_columns:
        return False
    types = table.key_types or ("text",) * len(table.key_columns)
    return all(key_expression("k", kind, dialect_is_sqlite) is not None for kind in types)


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def column_namer(oid: int, binary: bool, encoding: str) -> Callable[[bytes], str]:
    """From the bytes of a value in a PostgreSQL result to its part of a key's name."""
    if oid in _INTEGER_OIDS:
        if binary:
            signed = oid != _OID
            return lambda value: str(int.from_bytes(value, "big", signed=signed))
        return bytes.decode
    if oid == _UUID:
        return (lambda value: str(uuid.UUID(bytes=bytes(value)))) if binary else bytes.decode
    if oid == _BYTEA:
        return (lambda value: "\\x" + bytes(value).hex()) if binary else _bytea_text
    return lambda value: quote(value.decode(encoding))


def _bytea_text(value: bytes) -> str:
    if value.startswith(b"\\x"):
        return value.decode()
    plain = bytearray()  # bytea_output = 'escape'
    index = 0
    while index < len(value):
        if value[index] != 0x5C:
            plain.append(value[index])
            index += 1
        elif value[index + 1] == 0x5C:
            plain.append(0x5C)
            index += 2
        else:
            plain.append(int(value[index + 1 : index + 4], 8))
            index += 4
    return "\\x" + plain.hex()


def parameter_name(value: Any, declared: str) -> str | None:
    """What the database makes of a parameter that is compared with a key column; None if that is not certain."""
    kind = base_type(declared)
    if isinstance(value, bool) or value is None:
        return None
    if kind in INTEGERS:
        if isinstance(value, str):
            return str(int(value)) if value.strip().lstrip("+-").isdecimal() else None
        return str(int(value)) if isinstance(value, int) else None
    if kind in TEXTS:
        return quote(str(value)) if type(value) is str else None
    if kind == "uuid":
        if isinstance(value, str):
            return str(uuid.UUID(value))
        return str(value) if isinstance(value, uuid.UUID) else None
    if kind == "bytea":
        return "\\x" + bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else None
    return None


def value_name(value: Any) -> str:
    """From a value of SQLite, whose types belong to values and not to columns."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return repr(value)
