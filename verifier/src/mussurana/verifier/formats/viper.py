"""Viper's JSON logs: a folder (or its subfolder `json`), one `J*.log` file per session, one object per line and
transaction. Transactions that aborted are not in the log.

    {"preBeginTS": ms, "postBeginTS": ms, "preCommitTS": ms, "postCommitTS": ms,      all optional
     "value": [operation, ...],
     "isInitial": bool, "isFinal": bool}                                              optional

    ["r", key, version, dead?]                                read; dead: the key is deleted, the version a tombstone
    ["w", key, version, success?]                             write
    ["i", key, version, version read, dead?, success?]        insert: reads, then writes
    ["d", key, version, version read, dead?, success?]        delete: reads, then writes a tombstone
    ["range", first, last, [row, ...], [row, ...]]            live and dead rows, {"id": key, "val": version}

or, the same as objects: {"opType": "r", "key": ..., "value": ..., "isDead": ..., "succ": ..., "readValue": ...,
"liveKVs": [...], "deadKVs": [...]}.

Versions are digests of values; 0 and nil stand for a key that does not exist. What a key held before the recording is
in a transaction marked as initial, which takes no part otherwise. Where there is none, the log does not tell, and the
one version of a key that is read but never written is taken to be the initial one, as Viper does.

A range query counts as a read of each row. That it saw no other rows is left out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mussurana.verifier.formats.carried import refuse, refuse_versions, unsaid
from mussurana.verifier.formats.edn import named, printed
from mussurana.verifier.formats.places import bad_line, new_folder, numbered_files, read_text
from mussurana.verifier.history import (
    INITIAL,
    UNKNOWN_TIME,
    History,
    HistoryBuilder,
    HistoryError,
    Kind,
    LeftOut,
)

ABSENT = 0
VERSIONS = range(-(2**63) + 2, 2**63)
NS_PER_MS = 1_000_000
MS_MAX = 2**62 // NS_PER_MS

TIMES = ("preBeginTS", "postBeginTS", "preCommitTS", "postCommitTS")
LENGTHS = {"r": (4,), "w": (4,), "i": (6, 7, 8), "d": (6, 7, 8), "range": (5, 6)}
FIELDS = {
    "r": ("opType", "key", "value", "isDead"),
    "w": ("opType", "key", "value", "succ"),
    "i": ("opType", "key", "value", "readValue", "isDead", "succ"),
    "d": ("opType", "key", "value", "readValue", "isDead", "succ"),
    "range": ("opType", "key1", "key2", "liveKVs", "deadKVs"),
}


@dataclass
class Transaction:
    session: str
    times: list[int]  # nanoseconds: begin, begun, commit, committed
    operations: list[tuple[Kind, str, int]] = field(default_factory=list)


class Logs:
    """What the files of one history say, before it is known which versions are initial ones."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.initial: dict[str, int] | None = None
        self.refused_writes = 0
        self.range_queries = 0

    def read_file(self, file: Path) -> None:
        for line, content in enumerate(read_text(file).split("\n"), 1):
            if not content.strip():
                continue
            try:
                txn = json.loads(content)
            except json.JSONDecodeError as error:
                raise bad_line(file, line, f"column {error.colno}: not JSON: {error.msg}") from None
            except ValueError:
                raise bad_line(file, line, "a number has too many digits") from None
            if not isinstance(txn, dict) or not isinstance(txn.get("value"), list):
                raise bad_line(file, line, 'expected an object with a list of operations, {"value": [...]}')
            if txn.get("isInitial") is True:
                self._read_initial(file, line, txn["value"])
            else:
                self._read_transaction(file, line, txn)

    def _read_initial(self, file: Path, line: int, operations: list[Any]) -> None:
        self.initial = {} if self.initial is None else self.initial
        for operation in operations:
            kind, *rest = _as_list(file, line, operation)
            if kind == "range":
                rows = [row for live_or_dead in rest[2:4] for row in _rows(file, line, live_or_dead)]
            elif kind == "w":
                rows = [(_key(file, line, rest[0]), _version(file, line, rest[1]))]
            else:
                raise bad_line(file, line, f"expected writes or a range query in the initial state, found {kind!r}")
            self.initial.update(rows)

    def _read_transaction(self, file: Path, line: int, txn: dict[str, Any]) -> None:
        times = [_time(file, line, name, txn.get(name, -1)) for name in TIMES]
        result = Transaction(file.stem, times)
        self.transactions.append(result)
        for operation in txn["value"]:
            kind, *rest = _as_list(file, line, operation)
            if kind == "range":
                self.range_queries += 1
                for live_or_dead in rest[2:4]:
                    result.operations.extend((Kind.READ, *row) for row in _rows(file, line, live_or_dead))
                continue
            key, version = _key(file, line, rest[0]), _version(file, line, rest[1])
            if kind in ("i", "d"):
                result.operations.append((Kind.READ, key, _version(file, line, rest[2])))
            if kind == "r":
                result.operations.append((Kind.READ, key, version))
            elif not _flag(file, line, rest[4] if kind in ("i", "d") else rest[2]):
                self.refused_writes += 1
            elif version == ABSENT:
                raise bad_line(file, line, f"expected a version to write to key {key}, found {ABSENT}")
            else:
                result.operations.append((Kind.WRITE, key, version))

    def infer_initial(self) -> dict[str, int]:
        """The one version of each key that is read but never written, if there is exactly one."""
        written = {(key, version) for _, kind, key, version in self._all_operations() if kind == Kind.WRITE}
        unwritten: dict[str, set[int]] = {}
        for _, kind, key, version in self._all_operations():
            if kind == Kind.READ and (key, version) not in written:
                unwritten.setdefault(key, set()).add(version)
        return {key: versions.pop() for key, versions in unwritten.items() if len(versions) == 1}

    def _all_operations(self) -> list[tuple[Transaction, Kind, str, int]]:
        return [(txn, *operation) for txn in self.transactions for operation in txn.operations]


def _as_list(file: Path, line: int, operation: Any) -> list[Any]:
    """An operation as a list, whichever of the two ways it was written."""
    if isinstance(operation, dict) and operation.get("opType") in tuple(FIELDS):
        names = FIELDS[operation["opType"]]
        if all(name in operation for name in names):
            return [operation[name] for name in names]
    if (
        isinstance(operation, list)
        and operation
        and isinstance(operation[0], str)
        and len(operation) in LENGTHS.get(operation[0], ())
    ):
        return operation
    found = json.dumps(operation)[:80]
    raise bad_line(file, line, f"expected an operation of kind r, w, i, d or range with all its parts, found {found}")


def _rows(file: Path, line: int, rows: Any) -> list[tuple[str, int]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) and {"id", "val"} <= row.keys() for row in rows):
        raise bad_line(file, line, f'expected rows {{"id": key, "val": version}}, found {json.dumps(rows)[:80]}')
    return [(_key(file, line, row["id"]), _version(file, line, row["val"])) for row in rows]


def _key(file: Path, line: int, key: Any) -> str:
    if type(key) is not int and not isinstance(key, str):
        raise bad_line(file, line, f"expected a key, a number or a string, found {json.dumps(key)[:80]}")
    return printed(key)


def _version(file: Path, line: int, version: Any) -> int:
    if version is None or version == "nil":
        return ABSENT
    if type(version) is not int or version not in VERSIONS:
        raise bad_line(file, line, f"expected a version, a number of 64 bits, found {json.dumps(version)[:80]}")
    return version


def _flag(file: Path, line: int, flag: Any) -> bool:
    if not isinstance(flag, bool):
        raise bad_line(file, line, f"expected true or false for the success of a write, found {json.dumps(flag)[:80]}")
    return flag


def _time(file: Path, line: int, name: str, time_ms: Any) -> int:
    """A bound in nanoseconds: a clock that shows 5 ms is anywhere before 6 ms, so upper bounds are rounded up."""
    if type(time_ms) is not int or time_ms > MS_MAX:
        raise bad_line(file, line, f"expected {name} in milliseconds, found {json.dumps(time_ms)[:80]}")
    if time_ms < 0:
        return UNKNOWN_TIME
    return time_ms * NS_PER_MS + (NS_PER_MS - 1 if name.startswith("post") else 0)


def read(path: Path) -> History:
    folder = path / "json" if (path / "json").is_dir() else path
    files = numbered_files(folder, "J*.log")
    if not files:
        raise HistoryError(f"{path}: expected a folder with a J*.log file for each session, found none")
    logs = Logs()
    for file in files:
        logs.read_file(file)
    build = HistoryBuilder(str(path))
    if logs.initial is None:
        initial = logs.infer_initial()
        if initial:
            build.leave_out("keys whose initial version is not recorded but taken from reads", len(initial))
    else:
        initial = logs.initial
    if logs.refused_writes:
        build.leave_out("writes that the database refused", logs.refused_writes)
    if logs.range_queries:
        build.leave_out("range queries, as far as they saw that there are no other rows", logs.range_queries)
    for txn in logs.transactions:
        begin_ns, begun_ns, commit_ns, committed_ns = txn.times
        build.transaction(
            txn.session, begin_ns=begin_ns, begun_ns=begun_ns, commit_ns=commit_ns, committed_ns=committed_ns
        )
        for kind, key, version in txn.operations:
            if kind == Kind.WRITE:
                build.write(key, version)
            else:
                build.read(key, INITIAL if initial.get(key, ABSENT) == version else version)
    return build.finish()


def write(history: History, path: Path) -> tuple[LeftOut, ...]:
    refuse(history, "viper")
    refuse_versions(history, "viper", {ABSENT: "an absent key"})
    keys = [_key_form(name) for name in history.key_names]
    names = list(history.session_names)
    own_names = all(re.fullmatch(r"J[\w-]+", name) for name in names) and "Jinitial" not in names
    new_folder(path)
    # Without an initial state, a version that nobody wrote would be taken for it.
    (path / "Jinitial.log").write_text('{"value": [], "isInitial": true, "isFinal": false}\n', encoding="utf-8")
    columns = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
    for session, name in enumerate(names):
        lines = []
        for t in np.flatnonzero(history.session == session).tolist():
            txn: dict[str, Any] = {}
            for field_name, column in zip(TIMES, columns, strict=True):
                if column[t] != UNKNOWN_TIME:
                    txn[field_name] = int(column[t]) // NS_PER_MS
                    if txn[field_name] < 0:
                        raise HistoryError(f"viper has no way to write the time {column[t]} ns: it is before 1970")
            txn["value"] = [
                ["w", keys[history.key[o]], int(history.value[o]), True]
                if history.kind[o] == Kind.WRITE
                else [
                    "r",
                    keys[history.key[o]],
                    ABSENT if history.value[o] == INITIAL else int(history.value[o]),
                    False,
                ]
                for o in history.operations(t)
            ]
            lines.append(json.dumps(txn, ensure_ascii=False) + "\n")
        file = path / (f"{name}.log" if own_names else f"J{session}.log")
        file.write_text("".join(lines), encoding="utf-8")
    return unsaid(history, times=True, inner_times=True, session_names=own_names, empty=True)


def _key_form(name: str) -> int | str:
    try:
        key = named(name)
    except ValueError:
        key = None
    if type(key) is int or type(key) is str:
        return key
    raise HistoryError(f"viper has no way to write key {name}: its keys are numbers or strings")
