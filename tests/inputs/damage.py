"""Damage: to bytes, and to trees of values as JSON and EDN have them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

PIECE_MAX = 64  # bytes that are inserted, cut or copied at a time
REPEATS_MAX = 3_000
CONTENT_BYTES_MAX = 256 << 10  # no input grows beyond it by repetition
PLACES_MAX = 20_000
POWERS = (7, 8, 15, 16, 24, 31, 32, 33, 48, 53, 61, 62, 63, 64)
DEPTHS = (30, 300, 3_000, 100_000)
DIGITS = (19, 20, 40, 400, 5_000)


def number(rng: Random) -> int:
    """One that is likely to be too much for something."""
    if rng.random() < 0.3:
        return rng.choice((0, 0, 1, 2, 3, 5, 10, 100, 1_000, 50_000))
    return (1 << rng.choice(POWERS)) * rng.choice((1, 1, 1, -1)) + rng.choice((-2, -1, -1, 0, 0, 1, 2))


def packed(rng: Random, width: int) -> bytes:
    """A number in so many bytes."""
    order: Any = "little" if rng.random() < 0.8 else "big"
    return (number(rng) % (1 << 8 * width)).to_bytes(width, order)


def flipped(rng: Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def cut_off(rng: Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def cut_out(rng: Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.randint(1, PIECE_MAX) :]


def inserted(rng: Random, content: bytes) -> bytes:
    at = rng.randint(0, len(content))
    some = rng.choice((rng.randbytes(rng.randint(1, PIECE_MAX)), bytes(rng.randint(1, PIECE_MAX)), packed(rng, 8)))
    return content[:at] + some + content[at:]


def overwritten(rng: Random, content: bytes) -> bytes:
    """With an extreme number somewhere, aligned as often as not."""
    width = rng.choice((1, 2, 4, 4, 8, 8))
    at = rng.randrange(len(content))
    at -= at % width if rng.random() < 0.7 else 0
    return (content[:at] + packed(rng, width) + content[at + width :])[: max(len(content), width)]


def repeated(rng: Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    piece = content[at : at + rng.randint(1, PIECE_MAX)]
    times = rng.randint(1, rng.choice((3, 30, REPEATS_MAX)))
    times = max(1, min(times, (CONTENT_BYTES_MAX - len(content)) // len(piece)))
    return content[:at] + piece * times + content[at:]


def spliced(rng: Random, content: bytes) -> bytes:
    """A piece from one place at another."""
    source, target = rng.randrange(len(content)), rng.randint(0, len(content))
    piece = content[source : source + rng.randint(1, PIECE_MAX)]
    return content[:target] + piece + content[target + rng.choice((0, len(piece))) :]


DAMAGES = (flipped, flipped, cut_off, cut_out, inserted, overwritten, overwritten, repeated, spliced)


def damaged(rng: Random, content: bytes) -> bytes:
    """The same bytes, changed in one place or in a few."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        content = rng.choice(DAMAGES)(rng, content) if content else rng.randbytes(rng.randint(0, PIECE_MAX))
    return content


DEEP, LONG = "\0deep\0", "\0long\0"
"""Placeholders: a value nested so deeply, or a number so long, that no encoder would write it."""


def extreme(rng: Random) -> Any:
    """A value that does not belong where it will stand."""
    simple: tuple[Any, ...] = (
        None,
        True,
        False,
        "",
        "x",
        "\x00",
        "\ud800",
        "nil",
        ":k",
        "NaN",
        "x" * 10_000,
        [],
        {},
        [[]],
        0.5,
        -0.0,
    )
    floats = (1e308, 1e-320, float("inf"), float("-inf"), float("nan"))
    made: tuple[Callable[[], Any], ...] = (
        lambda: number(rng),
        lambda: number(rng),
        lambda: rng.choice(simple),
        lambda: rng.choice(floats),
        lambda: [number(rng) for _ in range(rng.choice((1, 3, 1_000)))],
        lambda: {str(number(rng)): number(rng)},
        lambda: DEEP,
        lambda: LONG,
    )
    return rng.choice(made)()


def with_placeholders(rng: Random, text: str, quoted: Callable[[str], str]) -> str:
    """The text of a tree, with what its encoder could not write."""
    for placeholder in (DEEP, LONG):
        if quoted(placeholder) in text:
            depth, (opening, closing) = rng.choice(DEPTHS), rng.choice((("[", "]"), ("{", "}")))
            between = '"a":' if opening == "{" and rng.random() < 0.8 else ""
            deep = (opening + between) * depth + "1" + closing * rng.choice((depth, depth, 0))
            text = text.replace(quoted(placeholder), deep if placeholder == DEEP else "9" * rng.choice(DIGITS), 1)
            text = text.replace(quoted(placeholder), "[]")  # repeated they would be gigabytes
    return text


def places(tree: Any) -> list[tuple[Any, Any]]:
    """The places in a tree, or the first thousands: the list or dictionary, and the index or key in it."""
    found: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo and len(found) < PLACES_MAX:
        some = todo.pop()
        inside = list(some.items()) if isinstance(some, dict) else list(enumerate(some))
        found += [(some, at) for at, _ in inside]
        todo += [value for _, value in inside if isinstance(value, dict | list)]
    return found


def spoiled(rng: Random, tree: Any) -> Any:
    """The same tree, changed in one place or in a few."""
    tree, is_long = deepcopy(tree), False
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if not isinstance(tree, dict | list) or not (found := places(tree)):
            return extreme(rng)
        some, at = rng.choice(found)
        how = rng.choice(("extreme", "extreme", "extreme", "other", "delete", "repeat", "near"))
        if how == "delete":
            del some[at]
        elif how == "repeat" and isinstance(some, list) and not is_long:
            is_long = True  # once is enough: of what is repeated each could be repeated again
            room = CONTENT_BYTES_MAX // max(1, len(str(some[at])[:CONTENT_BYTES_MAX]) + 8)
            some[at:at] = [deepcopy(some[at])] * min(room, rng.choice((1, 2, 30, REPEATS_MAX)))
        elif how == "other":
            other, there = rng.choice(found)
            with_it = other[there] if (there in other if isinstance(other, dict) else there < len(other)) else None
            some[at] = deepcopy(with_it)
        elif how == "near" and type(some[at]) is int:
            some[at] += rng.choice((-2, -1, 1, 2))
        else:
            some[at] = extreme(rng)
    return tree
