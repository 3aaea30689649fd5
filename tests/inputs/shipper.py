"""What the shipper reads of a process that was killed: segments, its journal of commits, which sessions were open.

It completes the folder and reads all of it. Whatever it comes upon, what it sends are fragments in order.
"""

from __future__ import annotations

import marshal
import zlib
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from mussurana.collector import journal
from mussurana.collector.abandoned import complete
from mussurana.collector.spool import DESTINATION, SHIPPED, Destination, Shipped
from mussurana.collector.spool_reader import SpoolReader
from mussurana.wire.history_pb2 import Upload
from tests.inputs.damage import damaged, extreme, number, spoiled
from tests.inputs.reader import Files, Reader
from tests.inputs.spool import folder_of, uploads

TAG = 7
UPLOADS_MAX = 110_000
"""More than any folder here holds, with a gap for each fragment that is missing."""


def make(rng: Random) -> Files:
    made = uploads(rng, rng.choice((0.05, 0.3)))
    id, payloads = rng.choice(list(made.items()))
    folder = f"{id.hex()}-{TAG:08x}"
    files = folder_of(rng, id, payloads if rng.random() < 0.9 else [])
    for turn in range(2):
        if rng.random() < 0.7:
            files[f"journal-{turn}"] = commits(rng)
    if rng.random() < 0.5:
        text = " ".join(str(number(rng)) for _ in range(rng.choice((0, 1, 5)))).encode()
        files["00000001.sessions"] = rng.choice((text, text, b"9" * 5_000, b"\xff", "\u0663 \u00b2".encode()))
    if rng.random() < 0.2:
        files[SHIPPED] = rng.randbytes(rng.choice((0, 31, 32, 33)))
        files[DESTINATION] = rng.choice(
            (damaged(rng, b'{"verifier": "127.0.0.1:1", "token_file": ""}'), b"[" * 100_000)
        )
    if rng.random() < 0.2:
        files["secret"] = rng.randbytes(rng.choice((0, 32, 100_000)))
    return {f"{folder}/{name}": content for name, content in files.items()}


def commits(rng: Random) -> bytes:
    """A journal: transactions, how they ended, and which are in the spool."""
    parts = []
    for n in range(1, rng.randint(1, 8)):
        kinds = bytes(rng.randrange(6) for _ in range(rng.randint(0, 4)))
        keys = b"".join((rng.randrange(1, 5)).to_bytes(8, "little") for _ in kinds)
        versions = b"".join(((TAG << 32) + 10 * n + at).to_bytes(8, "little") for at, _ in enumerate(kinds))
        replaced = bytes(8 * sum(kind in (2, 3) for kind in kinds))
        columns = (kinds, keys, versions, replaced, bytes(4 * len(kinds)))
        undone = columns if rng.random() < 0.2 else None
        times = tuple(10**18 + n + at for at in range(4))
        content: Any = (n, n % 3, f"conn {n % 3}", 2, times, 0, columns, undone, [], 0, b"", [(1, "SELECT 1")])
        parts.append(record(rng, journal.TXN, content))
        if rng.random() < 0.5:
            parts.append(record(rng, journal.END, (n, rng.randrange(3), 10**18)))
        if rng.random() < 0.2:
            parts.append(record(rng, journal.DONE, tuple(range(n))))
    content = b"".join(parts)
    return damaged(rng, content) if content and rng.random() < 0.2 else content


def record(rng: Random, what: int, content: Any) -> bytes:
    """One record, sound or not, with the checksum that it needs."""
    if rng.random() < 0.15:
        content = as_tuples(spoiled(rng, as_lists(content)))
    elif rng.random() < 0.03:
        content = extreme(rng)
    elif rng.random() < 0.03:
        content = cyclic(rng)
    try:
        payload = marshal.dumps(content)
    except ValueError:
        payload = b""
    if rng.random() < 0.1:
        payload = rng.choice((damaged(rng, payload), ENEMY_MARSHAL[rng.randrange(len(ENEMY_MARSHAL))]))
    if rng.random() < 0.03:
        what = number(rng) % (1 << 32)
    return journal.HEADER.pack(journal.MAGIC, len(payload), zlib.crc32(payload), what) + payload


ENEMY_MARSHAL = (
    b"(\xff\xff\xff\x7f",  # a tuple of two billion
    b"[\xff\xff\xff\x7f",
    b"s\xff\xff\xff\x7f",
    b"l\xff\xff\xff\x7f",
    b"\xa9\x01r\x00\x00\x00\x00",  # a tuple in itself
    b"\xdb\x01\x00\x00\x00r\x00\x00\x00\x00",  # a list in itself
    b"r\xff\xff\xff\x7f",
    b"(\x01\x00\x00\x00" * 1_900 + b"N",
    b")\x01" * 100_000 + b"N",
    marshal.dumps(compile("1", "", "eval")),
)


def as_lists(content: Any) -> Any:
    return [as_lists(each) for each in content] if isinstance(content, tuple | list) else content


def as_tuples(content: Any) -> Any:
    return tuple(as_tuples(each) for each in content) if isinstance(content, list) else content


def cyclic(rng: Random) -> Any:
    """A list that holds itself, and one that doubles with each level."""
    if rng.random() < 0.5:
        links: list[Any] = [1]
        links.append(links)
        return tuple(links)
    doubled: Any = (1,)
    for _ in range(rng.choice((5, 20, 60))):
        doubled = (doubled, doubled)
    return doubled


def read(files: Files, folder: Path, rng: Random) -> str:
    (path,) = folder.iterdir()
    Shipped.read(path)
    with suppress(OSError, ValueError, TypeError):  # then it is not shipped
        Destination.read(path)
    last = complete(path)
    if complete(path) < last:
        return "completing it twice loses fragments"
    reader = SpoolReader(path)
    Upload.FromString(reader.hello(reader.first_sequence))
    after = reader.first_sequence - 1
    for count, found in enumerate(reader.read(after)):
        if found is None:
            break
        sequence, payload = found
        if sequence != after + 1:
            return f"after fragment {after} comes {sequence}"
        if Upload.FromString(payload).fragment.sequence != sequence:
            return f"fragment {sequence} says that it is another one"
        after = sequence
        if count >= UPLOADS_MAX:
            return f"more than {UPLOADS_MAX:,} fragments, of which {after} was the last"
        if rng.random() < 0.02:
            reader.refuse(sequence, "no")
    reader.acknowledge(after)
    for count, found in enumerate(SpoolReader(path).read(0)):
        if found is None or count >= 1_000:
            break
    return ""


READER = Reader("shipper", make, read, ())
