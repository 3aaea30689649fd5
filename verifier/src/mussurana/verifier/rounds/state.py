"""The whole round machine as bytes, for a checkpoint: columns as numpy writes them, the rest as JSON.

A machine that was restored goes on exactly as the one that was saved would have.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mussurana.verifier.rounds.alarms import Alarm, Saw
from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.collisions import Collisions
from mussurana.verifier.rounds.ended import EndedTags
from mussurana.verifier.rounds.fences import Border
from mussurana.verifier.rounds.level import LevelRounds
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.lost import LostVersions
from mussurana.verifier.rounds.machine import Collector, Session, Verifier
from mussurana.verifier.rounds.sound import complaints
from mussurana.verifier.rounds.table import VersionTable
from mussurana.verifier.rounds.taints import Taint
from mussurana.verifier.verdict import Settings
from mussurana.wire import FENCE_KEY

VERSION = 3

COLUMN_HEADER = re.compile(
    rb"\x93NUMPY\x01\0..\{'descr': '([<|][iu][1248])', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n",
    re.DOTALL,
)
"""How numpy begins a column of whole numbers."""


class StateError(Exception):
    """Bytes that are not the state of a machine with these levels."""


def snapshot(machine: Verifier) -> Callable[[], bytes]:
    """What the machine holds now, to be made bytes of by whoever has the time.

    Columns are never changed in place, but for those of the version table, which is copied.
    """
    columns: dict[str, np.ndarray] = {}
    progress = machine.admission.progress
    _put_batch(columns, "pool", Batch.join([machine.admission.pool, *machine.admission.fresh()]))
    _put_lost(columns, "lost", machine.lost)
    columns["ahead"] = progress.ahead()
    columns["contested.key"], columns["contested.version"] = machine.owners.pair_key, machine.owners.pair_version
    columns["again"] = machine.admission.again
    columns["xids.key"], columns["xids.version"] = machine.initial_xids.table.entries()
    columns["ended.first"], columns["ended.owner"] = progress.ended.first, progress.ended.owner
    for at, level in enumerate(machine.levels):
        name = f"level{at}"
        _put_batch(columns, name, level.retained)
        _put_lost(columns, f"{name}.lost", level.lost)
        _put_lost(columns, f"{name}.repeated", level.repeated)
    tables = [level.table.copy() for level in machine.levels]
    text = {
        "version": VERSION,
        "levels": [asdict(level.settings) for level in machine.levels],
        "memory": [
            {
                "past": level.past,
                "real_key": list(level.real_key.items()),
                "unchecked_reads": level.unchecked_reads,
                "contested_reads": level.contested_reads,
                "repeated_reads": level.repeated_reads,
                "budget": level.budget,
                "forgot_anything": level.forgot_anything,
                "memory_ns": level.memory_ns,
                "left_out_txns": level.left_out_txns,
                "failures": level.failures,
                "border": asdict(level.border),
            }
            for level in machine.levels
        ],
        "collectors": [
            {
                "id": collector.id.hex(),
                "number": collector.number,
                "sequence": collector.sequence,
                "name": collector.name,
                "sealed_ns": collector.sealed_ns,
                "heard_ns": collector.heard_ns,
                "sessions": list(collector.sessions.items()),
                "statements": list(collector.statements.items()),
                "lost_from": list(collector.lost_from.items()),
                "is_whole": collector.is_whole,
                "xid_horizon": collector.xid_horizon,
            }
            for collector in machine.collectors.values()
        ],
        "sessions": [
            (number, {**vars(session), "collector": session.collector.hex()})
            for number, session in machine.sessions.items()
        ],
        "clashing_tags": [(tag, contester.hex()) for tag, contester in machine.owners.contester.items()],
        "tags": [(tag, owner.hex()) for tag, owner in machine.owners.of.items()],
        "held_tags": sorted(set(machine.owners.of) - machine.owners.proved),
        "disputed_tags": sorted(machine.owners.disputed),
        "claimed_tags": [(collector.id.hex(), sorted(collector.tags)) for collector in machine.collectors.values()],
        "settled": list(progress.settled.items()),
        "drawn": list(progress.drawn.items()),
        "horizons": list(progress.horizons),
        "given_up_txns": machine.admission.given_up_txns,
        "key_names": list(machine.key_names.items()),
        "unchecked": dict(machine.unchecked),
        "taints": [(taint.collector.hex(), taint.table, told_ns) for taint, told_ns in machine.taints.told_ns.items()],
        "blamed": [(taint.collector.hex(), taint.table, reads) for taint, reads in machine.blamed.items()],
        "ignored_claims": machine.ignored_claims,
        "colliding_keys": [(key, told_by.hex()) for key, told_by in machine.collisions.told_by.items()],
        "every_key_collides": None if machine.collisions.every_by is None else machine.collisions.every_by.hex(),
        "clocks_set_back": machine.clocks_set_back,
        "alarms": [asdict(alarm) for alarm in machine.alarms.by_id.values()],
        "moved_tables": sorted(machine.moved.tables),
        **{name: getattr(machine, name) for name in _NUMBERS},
    }

    def to_bytes() -> bytes:
        for at, table in enumerate(tables):
            columns[f"level{at}.table_key"], columns[f"level{at}.table_version"] = table.entries()
        columns["text"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
        out = io.BytesIO()
        np.savez(out, allow_pickle=False, **columns)
        return out.getvalue()

    return to_bytes


_NUMBERS = (
    *("collectors_made", "sessions_made", "lost_txns", "lost_fragments"),
    *("rounds", "last_round_ns", "resumed_ns", "fenced_epoch", "proven_ns", "begun_anew"),
    *("epoch", "epoch_reached_ns"),
)


def restore(levels: Sequence[Settings], limits: Limits | None, state: bytes) -> Verifier:
    """The machine that was saved. Raises StateError where the bytes are none, or are of other levels."""
    try:
        columns = columns_in(state)
        text = json.loads(columns["text"].tobytes())
        if text["version"] == 1:
            _add_to_version_1(text, columns)
        if text["version"] in (1, 2):
            _add_to_version_2(text, columns)
        elif text["version"] != VERSION:
            raise StateError(f"state of version {text['version']}; this program reads version {VERSION}")
        if text["levels"] != [asdict(settings) for settings in levels]:
            raise StateError("the levels to check have changed since this state was saved")
        machine = _machine(levels, limits, columns, text)
        wrong = next(complaints(machine), "")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StateError(f"not the state of a verifier: {type(error).__name__}: {error}") from error
    if wrong:
        raise StateError(f"not the state of a verifier: {wrong}")
    return machine


def columns_in(state: bytes) -> dict[str, np.ndarray]:
    """The columns in an archive of numpy's, as `snapshot` writes them. They take no more memory than the archive.

    numpy itself makes room for what an archive says that it holds, which may be any number of gigabytes.
    """
    columns: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(state)) as archive:
            left = len(state)
            for info in archive.infolist():
                left -= info.file_size
                if info.compress_type != zipfile.ZIP_STORED or left < 0:
                    raise ValueError("it is packed tighter than a state is")
                columns[info.filename.removesuffix(".npy")] = _column(archive.read(info))
    except (zipfile.BadZipFile, struct.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"it is no archive: {error}") from error
    return columns


def _column(content: bytes) -> np.ndarray:
    header = COLUMN_HEADER.match(content)
    if header is None:
        raise ValueError("a column is none of numbers")
    return np.frombuffer(content, header[1].decode(), int(header[2]), header.end()).copy()


def _machine(
    levels: Sequence[Settings], limits: Limits | None, columns: dict[str, np.ndarray], text: dict[str, Any]
) -> Verifier:
    machine = Verifier(levels, limits)
    admission = machine.admission
    admission.pool = _get_batch(columns, "pool")
    admission.given_up_txns = text["given_up_txns"]
    for tag, first in text["settled"]:
        admission.progress.settled[tag] = first
    admission.progress.deliver(_long(columns["ahead"]))
    admission.progress.ended = EndedTags(_long(columns["ended.first"]), _long(columns["ended.owner"]))
    admission.progress.drawn = dict(text.get("drawn", ()))
    admission.progress.horizons = tuple(text.get("horizons", ()))
    if "again" in columns:
        admission.again = _long(columns["again"])
        _fill(machine.initial_xids.table, columns, "xids.key", "xids.version")
    machine.lost = _get_lost(columns, "lost")
    for at, (level, memory) in enumerate(zip(machine.levels, text["memory"], strict=True)):
        _restore_level(level, f"level{at}", columns, memory)
    for one in text["collectors"]:
        one = {**one, "id": bytes.fromhex(one["id"])}
        for name in ("sessions", "statements", "lost_from"):
            one[name] = dict(one[name])
        machine.collectors[one["id"]] = Collector(**one)
    machine.sessions = {
        number: Session(**{**one, "collector": bytes.fromhex(one["collector"])}) for number, one in text["sessions"]
    }
    _restore_claims(machine, columns, text)
    machine.key_names = dict(text["key_names"])
    machine.names_length = sum(map(len, machine.key_names.values()))
    machine.unchecked |= {name: text["unchecked"].get(name, 0) for name in machine.unchecked}
    machine.collisions = _collisions(text.get("colliding_keys", ()), text.get("every_key_collides"))
    machine.clocks_set_back = text.get("clocks_set_back", 0)
    machine.moved.tables |= set(text.get("moved_tables", ()))
    for name in _NUMBERS:
        setattr(machine, name, text[name])
    return machine


def _collisions(keys: Iterable[Any], every_by: str | None) -> Collisions:
    """Of keys that an earlier version of the program noted nobody knows any more who told their second names."""
    pairs: Iterable[tuple[int, str]] = ((each, "") if isinstance(each, int) else each for each in keys)
    told_by = {key: bytes.fromhex(collector) for key, collector in pairs}
    return Collisions(told_by, None if every_by is None else bytes.fromhex(every_by))


def _restore_claims(machine: Verifier, columns: dict[str, np.ndarray], text: dict[str, Any]) -> None:
    """Whose word counts for what. A state that says no more than whose a tag is took the first claimer for its owner,
    and held for lost what two collectors wrote under one tag."""
    owners = machine.owners
    owners.of = {tag: bytes.fromhex(owner) for tag, owner in text["tags"]}
    owners.proved = set(owners.of) - set(text.get("held_tags", ()))
    owners.disputed = set(text.get("disputed_tags", ()))
    if "claimed_tags" in text:
        owners.contester = {tag: bytes.fromhex(contester) for tag, contester in text["clashing_tags"]}
        owners.pair_key, owners.pair_version = (_long(columns[f"contested.{name}"]) for name in ("key", "version"))
    claimed = text.get("claimed_tags") or [(owner, [tag]) for tag, owner in text["tags"]]
    for collector, tags in claimed:
        machine.collectors[bytes.fromhex(collector)].tags.update(tags)
    for collector, table, told_ns in text.get("taints", ()):
        machine.taints.tell(Taint(bytes.fromhex(collector), table), told_ns)
    for table in text.get("tainted_tables", ()):  # nobody knows any more who told these
        machine.taints.tell(Taint(b"", table), text["last_round_ns"])
    machine.blamed.update({Taint(bytes.fromhex(id), table): reads for id, table, reads in text.get("blamed", ())})
    machine.ignored_claims = text.get("ignored_claims", 0)
    for alarm in text.get("alarms", ()):
        saw = [Saw(**one) for one in alarm["saw"]]
        machine.alarms.by_id[alarm["id"]] = Alarm(**{**alarm, "saw": saw})


def _add_to_version_1(text: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    """What the first version did not know of: when collectors were heard, those that were forgotten, downtime."""
    for one in text["collectors"]:
        one["heard_ns"] = text["last_round_ns"]
    text["unchecked"].pop("clashing write ids", None)
    text.update(collectors_made=len(text["collectors"]), resumed_ns=0, clashing_tags=[])
    columns["ended.first"] = columns["ended.owner"] = np.zeros(0, np.int64)


def _add_to_version_2(text: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    """What the second version did not know of: the epochs of fences. The next that follow by version will tell them."""
    for name in ("pool", *(f"level{at}" for at in range(len(text["levels"])))):
        columns[f"{name}.epoch"] = np.zeros(len(columns[f"{name}.session"]), np.int64)
    for at, memory in enumerate(text["memory"]):
        is_fence = columns[f"level{at}.table_key"] == FENCE_KEY
        version = int(columns[f"level{at}.table_version"][is_fence].max(initial=0))
        memory["border"] = asdict(Border(version, -1, version))
    text.update(fenced_epoch=0, proven_ns=text["last_round_ns"], begun_anew=0)


def _restore_level(level: LevelRounds, name: str, columns: dict[str, np.ndarray], memory: dict[str, Any]) -> None:
    level.retained = _get_batch(columns, name)
    level.lost = _get_lost(columns, f"{name}.lost")
    if f"{name}.repeated.start" in columns:
        level.repeated = _get_lost(columns, f"{name}.repeated")
        level.repeated_reads = memory["repeated_reads"]
    _fill(level.table, columns, f"{name}.table_key", f"{name}.table_version")
    level.real_key = dict(memory["real_key"])
    for field in ("past", "unchecked_reads", "budget", "forgot_anything", "memory_ns", "left_out_txns"):
        setattr(level, field, memory[field])
    level.contested_reads = memory.get("contested_reads", 0)
    level.border = Border(**memory["border"])
    level.failures = memory.get("failures", 0)


def _put_batch(columns: dict[str, np.ndarray], name: str, batch: Batch) -> None:
    columns.update({f"{name}.{field}": column for field, column in batch.columns()})


def _get_batch(columns: dict[str, np.ndarray], name: str) -> Batch:
    if f"{name}.isolation" not in columns:  # states of before have none
        columns[f"{name}.isolation"] = np.zeros(len(columns[f"{name}.session"]), np.uint8)
    return Batch(**{field: _typed(columns[f"{name}.{field}"], none.dtype) for field, none in Batch.empty().columns()})


def _put_lost(columns: dict[str, np.ndarray], name: str, lost: LostVersions) -> None:
    columns[f"{name}.start"], columns[f"{name}.end"] = lost.start, lost.end


def _get_lost(columns: dict[str, np.ndarray], name: str) -> LostVersions:
    return LostVersions(_long(columns[f"{name}.start"]), _long(columns[f"{name}.end"]))


def _fill(table: VersionTable, columns: dict[str, np.ndarray], keys: str, versions: str) -> None:
    key, version = _long(columns[keys]), _long(columns[versions])
    if len(key) != len(version) or not version.all():
        raise ValueError("a table has a version for each of its keys")
    table.put(key, version)


def _long(column: np.ndarray) -> np.ndarray:
    return _typed(column, np.dtype(np.int64))


def _typed(column: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Earlier versions had other types for some columns, which hold the same numbers."""
    same = column.astype(dtype, copy=False)
    if (same != column).any():
        raise ValueError("a number does not fit into its column")
    return same
