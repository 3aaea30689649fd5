"""`*.mus`: blocks whose lengths and checksums fit, with anything in them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random

from mussurana.verifier.formats import load, native
from mussurana.verifier.history import HistoryError
from tests.inputs.damage import CONTENT_BYTES_MAX, damaged, number, packed
from tests.inputs.reader import Files, Reader, use
from tests.inputs.samples import history_for, with_extremes

NAME = "history.mus"
Block = tuple[bytes, bytes]  # kind and payload


def blocks_in(content: bytes) -> list[Block]:
    """Pre: the file is sound."""
    found, at = [], native.FILE_HEADER.size
    while at < len(content):
        kind, _, length, _, _ = native.BLOCK_HEADER.unpack_from(content, at)
        at += native.BLOCK_HEADER.size
        found.append((kind, content[at : at + length]))
        at += length
    return found


def file_of(blocks: list[Block], version: int = native.VERSION) -> bytes:
    head = native.FILE_HEADER.pack(native.MAGIC, version, 0)[:12]
    parts = [head, struct.pack("<I", zlib.crc32(head))]
    for at, (kind, payload) in enumerate(blocks):
        start = native.BLOCK_HEADER.pack(kind, at, len(payload), zlib.crc32(payload), 0)[:20]
        parts += [start, struct.pack("<I", zlib.crc32(start)), payload]
    return b"".join(parts)


def make(rng: Random) -> Files:
    history = history_for(rng, "mussurana")
    if rng.random() < 0.5:
        history = with_extremes(rng, history)
    blocks = list(native._blocks(history))
    how = rng.random()
    if how < 0.6:
        for _ in range(rng.choice((1, 1, 2, 4))):
            change(rng, blocks)
    content = file_of(blocks, native.VERSION if rng.random() < 0.98 else number(rng) % (1 << 32))
    if how > 0.8:
        content = damaged(rng, content)
    return {NAME: content}


def change(rng: Random, blocks: list[Block]) -> None:
    """Pre: there is a block."""
    if not blocks:
        return
    at = rng.randrange(len(blocks))
    kind, payload = blocks[at]
    how = rng.choice(("head", "head", "entry", "entry", "entry", "damage", "drop", "again", "swap", "kind"))
    if how == "drop":
        del blocks[at]
    elif how == "again":
        times = rng.choice((1, 1, 2, 1_000))
        blocks[at:at] = [blocks[at]] * min(times, 1 + CONTENT_BYTES_MAX // (len(payload) + 24))
    elif how == "swap":
        blocks.insert(rng.randrange(len(blocks)), blocks.pop(at))
    elif how == "kind":
        blocks[at] = rng.choice(blocks)[0], payload
    elif how == "damage":
        payload = damaged(rng, payload)
        blocks[at] = kind, payload + bytes(-len(payload) % 8) * (rng.random() < 0.8)
    elif payload:
        width = rng.choice((1, 4, 4, 8, 8))
        where = rng.randrange(24) if how == "head" else rng.randrange(len(payload))  # counts stand at the head
        where -= where % width
        blocks[at] = kind, payload[:where] + packed(rng, width) + payload[where + width :]


def read(files: Files, folder: Path, rng: Random) -> str:
    return use(load(folder / NAME), folder, rng)


READER = Reader("mus", make, read, (HistoryError,))
