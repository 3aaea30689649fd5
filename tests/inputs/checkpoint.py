"""Checkpoints: descriptions and states that are whole and say something else.

A state that is understood becomes a machine, and that is fed, steps, and is saved again.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from random import Random

import numpy as np

from mussurana.verifier import Settings
from mussurana.verifier.daemon.checkpoint import MAGIC, VERSION, Checkpoint, CheckpointError, Checkpoints
from mussurana.verifier.daemon.log import START
from mussurana.verifier.daemon.sequences import Last, Sequences
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.state import StateError
from mussurana.wire.segments import Position
from tests.inputs.damage import damaged, number, spoiled, with_placeholders
from tests.inputs.fragment import SECOND_NS, Player
from tests.inputs.reader import Files, Reader
from tests.inputs.samples import any_world
from tests.rounds.equality import LEVELS

BEFORE, NAME = "checkpoints/00000001.ckpt", "checkpoints/00000002.ckpt"


def make(rng: Random) -> Files:
    settings = [Settings(level, clock_drift_ns=SECOND_NS) for level in rng.sample(LEVELS, rng.choice((1, 1, 2)))]
    machine, rest = half_fed(rng, settings)
    state = machine.state()
    how = rng.random()
    if how < 0.75:
        state = another_state(rng, state)
    about = Checkpoint(
        Position(1, 16), Position(1, 16), 5, 10**18, 10**18, [each.level for each in settings], fed(), state
    )
    _, _, length, description, _ = about.to_bytes()
    if how > 0.6:
        text = with_placeholders(rng, json.dumps(spoiled(rng, json.loads(description))), json.dumps)
        description = text.encode(errors="surrogatepass")
        length = struct.pack("<Q", len(description) if rng.random() < 0.9 else number(rng) % (1 << 64))
    crc32 = zlib.crc32(state, zlib.crc32(description, zlib.crc32(length)))
    version = VERSION if rng.random() < 0.98 else number(rng) % (1 << 32)
    content = MAGIC + struct.pack("<II", version, crc32) + length + description + state
    if rng.random() < 0.1:
        content = damaged(rng, content)
    if rng.random() < 0.5:
        rest[BEFORE] = damaged(rng, content) if rng.random() < 0.3 else content
    return {NAME: content, "plan.json": json.dumps([[s.level, s.clock_drift_ns] for s in settings]).encode(), **rest}


def fed() -> Sequences:
    return Sequences({bytes([n]) * 16: Last(n + 1, 10**18, bytes(32)) for n in range(2)})


def half_fed(rng: Random, settings: list[Settings]) -> tuple[Verifier, Files]:
    """A machine with something in its memory, and what comes after that."""
    _, followed = any_world(rng)
    player = Player(settings, Limits())
    until = rng.randrange(len(followed) + 1)
    rest: Files = {}
    for at, (action, fragments) in enumerate(followed):
        for fragment in fragments:
            content = fragment.SerializeToString()
            if at < until:
                player.feed(bytes([action.collector + 1]) * 16, content)
            else:
                rest[f"{len(rest):04d}-{action.collector}.bin"] = content
        if at < until and rng.random() < 0.5:
            player.step(rng.choice((0.1, 0.1, 20)))
    return player.machine, rest


def another_state(rng: Random, state: bytes) -> bytes:
    """The same columns and texts, but for a few."""
    columns = dict(np.load(io.BytesIO(state)))
    text = json.loads(columns.pop("text").tobytes())
    compressed = rng.random() < 0.05
    if rng.random() < 0.5:
        text = spoiled(rng, text)
    encoded = with_placeholders(rng, json.dumps(text), json.dumps)
    for name in rng.sample(sorted(columns), rng.choice((0, 1, 1, 2, 4))):
        column = another_column(rng, columns[name])
        if column is None:
            del columns[name]
        else:
            columns[name] = column
    if rng.random() < 0.1:
        columns[rng.choice((*columns, "other"))] = np.zeros(rng.choice((1, 50_000_000 if compressed else 3)), np.int64)
    columns["text"] = np.frombuffer(encoded.encode(errors="surrogatepass"), np.uint8)
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **columns)
    content = out.getvalue()
    if rng.random() < 0.1:
        content = content.replace(b"'shape': (", b"'shape': (" + b"9" * rng.choice((3, 9, 12)), 1)
    if rng.random() < 0.15:
        content = damaged(rng, content)
    return content


def another_column(rng: Random, column: np.ndarray) -> np.ndarray | None:
    how = rng.choice(("entry", "entry", "entry", "type", "length", "shape", "order", "none"))
    if how == "none":
        return None
    if how == "type":
        return column.astype(rng.choice(("<i8", "<u8", "<i4", "u1", "<f8", "S3", "bool", "<c16", "M8[ns]")))
    if how == "shape":
        return rng.choice((column[:, None], np.array(5), column[None], np.zeros((0, 7))))
    if how == "length" or not len(column):
        return np.concatenate([column, column[:1], column[:1]])[: rng.choice((len(column) + 1, len(column) // 2, 0))]
    column = column.copy()
    if how == "order":
        return column[::-1]
    for _ in range(rng.choice((1, 1, 5))):
        wanted = rng.choice((number(rng), int(column[rng.randrange(len(column))])))
        info = np.iinfo(column.dtype)
        column[rng.randrange(len(column))] = min(max(wanted, int(info.min)), int(info.max))
    return column


def read(files: Files, folder: Path, rng: Random) -> str:
    checkpoints = Checkpoints(folder / "checkpoints")
    found = checkpoints.load()
    if checkpoints.log_needed < START or checkpoints.journal_needed < START:
        return "a checkpoint that needs what was before everything"
    if found is None:
        raise CheckpointError("passed over")
    settings = [Settings(level, clock_drift_ns=drift) for level, drift in json.loads(files["plan.json"])]
    machine = Verifier.from_state(settings, Limits(), found.state)
    found.fed.forget(found.now_ns)
    player = Player(settings, Limits(), machine)
    if complaint := player.step(0.1):
        return complaint
    for name, content in sorted(files.items()):
        if name.endswith(".bin"):
            complaint = player.feed(bytes([int(name[-5]) + 1]) * 16, content)
            complaint = complaint or (player.step(rng.choice((0.1, 20))) if rng.random() < 0.3 else "")
            if complaint:
                return complaint
    for seconds in (0.1, *[20] * 17, 10**7):
        if complaint := player.step(seconds):
            return complaint
    Checkpoints(folder / "others").write(found)
    return player.looked_at()


READER = Reader("checkpoint", make, read, (CheckpointError, StateError))
