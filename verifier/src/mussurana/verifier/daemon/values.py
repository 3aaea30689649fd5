"""What the value of an option may be: each takes what a file, a variable or a flag has, or says what was expected."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path

from mussurana.verifier.levels import LEVELS

ONLINE_LEVELS = tuple(name for name in LEVELS if name != "adya-si")
"""adya-si knows no order in time or session, so nothing could ever be forgotten."""


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def path(value: object) -> Path | None:
    return Path(text(value)).expanduser() if value != "" else None


def flag(value: object) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def number(minimum: float, maximum: float, kind: type[int] | type[float] = int) -> Callable[[object], int | float]:
    def parse(value: object) -> int | float:
        if isinstance(value, str):
            try:
                value = kind(value)
            except ValueError:
                value = None
        is_number = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
        if not is_number or not minimum <= value <= maximum:  # type: ignore[operator]
            what = "a number" if kind is float else "a whole number"
            raise ValueError(f"expected {what} from {minimum:,} to {maximum:,}")
        return kind(value)  # type: ignore[call-overload, arg-type]

    return parse


def one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return str(value)

    return parse


def levels(value: object) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise ValueError("expected a list of levels")
    for name in names:
        if name not in ONLINE_LEVELS:
            raise ValueError(f"{name!r} is none of {', '.join(ONLINE_LEVELS)}")
    if len(set(names)) < len(names):
        raise ValueError("a level is named twice")
    return tuple(names)


def address(value: object) -> str:
    host, _, port = text(value).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("expected HOST:PORT, such as 127.0.0.1:7701 or [::1]:7701")
    return text(value)


def optional_address(value: object) -> str:
    return address(value) if value != "" else ""


def url(value: object) -> str:
    if value != "" and not text(value).startswith(("http://", "https://")):
        raise ValueError("expected an address that starts with http:// or https://")
    return text(value)


def is_loopback(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
