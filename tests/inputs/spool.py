"""Spools as `mussurana check` reads them: whole records with damaged fragments in them, and damaged records."""

from __future__ import annotations

from pathlib import Path
from random import Random

from mussurana.verifier.formats import load
from mussurana.verifier.history import HistoryError
from mussurana.wire import segments
from mussurana.wire.history_pb2 import Fragment, Hello, Upload
from tests.inputs.damage import CONTENT_BYTES_MAX, damaged, number
from tests.inputs.fragment import changed, set_scalar
from tests.inputs.reader import Files, Reader, use
from tests.inputs.samples import any_world

FOLDER = "spool"


def segment_of(number: int, payloads: list[bytes], version: int = segments.VERSION) -> bytes:
    head = segments.FILE_HEADER.pack(segments.MAGIC, version, number)
    return head + b"".join(map(segments.frame, payloads))


def uploads(rng: Random, share: float) -> dict[bytes, list[bytes]]:
    """What each collector of some deployment has spooled, a share of it changed."""
    case, followed = any_world(rng)
    made: dict[bytes, list[bytes]] = {collector.id: [] for collector in case.world.collectors}
    for action, some in followed:
        for fragment in some:
            if rng.random() < share:
                fragment = parsed(changed(rng, fragment)) or fragment
                if rng.random() < 0.1:
                    fragment.sequence = number(rng) % (1 << 64)
            payload = Upload(fragment=fragment).SerializeToString()
            made[case.world.collectors[action.collector].id].append(payload)
    return made


def parsed(content: bytes) -> Fragment | None:
    fragment = Fragment()
    try:
        fragment.ParseFromString(content)
    except Exception:
        return None
    return fragment


def hello(rng: Random, id: bytes, share: float = 0.1) -> bytes:
    made = Hello(protocol=1, collector=id, name="c", first_sequence=1)
    if rng.random() < share:
        made.collector = rng.choice((b"", id + b"x", id[:3]))
    if rng.random() < share:
        set_scalar(rng, made)
    return Upload(hello=made).SerializeToString()


def folder_of(rng: Random, id: bytes, payloads: list[bytes]) -> Files:
    """Segments, begun anew somewhere, with some of their bytes damaged."""
    files: Files = {}
    at, count = 0, 0
    while at < len(payloads) or not files:
        end = at + rng.choice((1, 5, 1_000))
        some = payloads[at:end]
        if rng.random() < 0.95:
            some = [hello(rng, id), *some]
        if some and rng.random() < 0.1:
            where = rng.randrange(len(some))
            some[where : where + 1] = rng.choice(
                (
                    [damaged(rng, some[where])],
                    [b""],
                    [some[where]] * min(rng.choice((2, 2_000)), 2 + CONTENT_BYTES_MAX // (1 + len(some[where]))),
                    [],
                    some[::-1],
                )
            )
        count = (count + 1 if rng.random() < 0.97 else number(rng)) % (1 << 32)
        version = segments.VERSION if rng.random() < 0.98 else number(rng) % (1 << 32)
        content = segment_of(count, some, version)
        files[f"{count:08d}.seg"] = damaged(rng, content) if rng.random() < 0.1 else content
        at = end
    return files


def make(rng: Random) -> Files:
    share = rng.choice((0.05, 0.2, 0.5))
    made: Files = {}
    for n, (id, payloads) in enumerate(uploads(rng, share).items()):
        folder = f"{FOLDER}/{n}" if rng.random() < 0.98 else FOLDER
        made |= {f"{folder}/{name}": content for name, content in folder_of(rng, id, payloads).items()}
    return made


def read(files: Files, folder: Path, rng: Random) -> str:
    return use(load(folder / FOLDER, "spool"), folder, rng)


READER = Reader("spool", make, read, (HistoryError,))
