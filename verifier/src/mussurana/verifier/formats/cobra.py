"""Cobra's client logs: a folder, one `*.log` file per session, big-endian.

    offset  size  S, C                W                R
    0       1     kind: ASCII letter  kind             kind
    1       8     transaction id      write id         id of the transaction that wrote what was read
    9       8     time (optional)     key              write id of what was read
    17      8                         value digest     key
    25      8                                          value digest

S starts a transaction and C commits it; a transaction that aborted is not in the log. Whether S and C carry a time
is not marked: it is the record size with which the whole file makes sense. Cobra's recorder writes milliseconds of
wall clock time (thirteen digits in our age), others write nanoseconds.

The write id is the version. Ids with a meaning of their own are below.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np

from mussurana.verifier.formats.carried import refuse, refuse_versions, unsaid, written_versions
from mussurana.verifier.formats.interning import first_false_claim, intern
from mussurana.verifier.formats.names import NumberNames, key_number, transaction_ids
from mussurana.verifier.formats.places import bad_byte, new_folder, numbered_files
from mussurana.verifier.history import (
    INITIAL,
    NO_VALUE,
    UNKNOWN_TIME,
    Bytes,
    History,
    HistoryError,
    Ints,
    Kind,
    LeftOut,
    Status,
    offsets,
)
from mussurana.verifier.kernels import kernel

LOADED = 0xBEBEEBEE
"""Read of a value that was there before the recording began."""
ABSENT = 0xDEADBEEF
"""Read of a key that did not exist."""
COLLECTING, NOT_COLLECTING = 0x23332333, 0x66666666
"""Read of the flag with which Cobra's verifier tells clients that it is about to collect garbage. The verifier sets
it from outside of the history, so these reads say nothing about the transactions in it."""
NO_WRITE_ID = 0xABDDEFEE
"""Recorded without write ids (VeriStrong's workloads): the value digest is the version, and it may repeat."""

MILLISECONDS = range(10**12, 10**13)
"""Times in this range are milliseconds since 1970 (the years 2001 to 2286)."""
NS_PER_MS = 1_000_000
TIME_END = 2**62
"""No time reaches it before the year 2116, and a letter where a time would start is above it."""

FINE, UNKNOWN_KIND, CUT_OFF, OPEN_TWICE, NOT_OPEN, OTHER_COMMIT, RESERVED, NO_TIME = range(8)
PROBLEMS = {
    UNKNOWN_KIND: "expected S, C, R or W, found {found}",
    CUT_OFF: "the file ends inside this {found} record",
    OPEN_TWICE: "expected R, W or C, found S while a transaction is open",
    NOT_OPEN: "expected S, found {found} outside of a transaction",
    OTHER_COMMIT: "expected C with the id of the open transaction, found another id",
    NO_TIME: "expected a time from 0 to 2**62 in this {found} record",
    RESERVED: "this write id stands for the initial state and cannot be written",
}


@kernel
def _long(data: Bytes, at: int) -> np.int64:
    number = np.int64(0)
    for i in range(8):
        number = (number << np.int64(8)) | np.int64(data[at + i])
    return number


@kernel
def scan(
    data: Bytes,
    stamp_bytes: int,
    txn: Ints,
    op: Ints,
) -> tuple[int, int, int, int, bool, int]:
    """Read one file into rows of `txn` and `op`.

    Pre:  `stamp_bytes` is 8 where S and C carry a time, else 0. `txn` has room for a row per 9 bytes: id, place,
          begin, commit, number of operations. `op` has room for a row per 25 bytes: write?, version, key, claimed
          writer, place, whether the claim and the version are write ids.
    Post: (problem, its place, transactions, operations, whether the last transaction is open, reads of Cobra's own
          flag); rows beyond the counts are undefined.
    """
    size = len(data)
    at = 0
    txns = 0
    ops = 0
    flag_reads = 0
    is_open = False
    while at < size:
        kind = data[at]
        if kind == 83 or kind == 67:  # S, C
            record = 9 + stamp_bytes
        elif kind == 87:  # W
            record = 25
        elif kind == 82:  # R
            record = 33
        else:
            return UNKNOWN_KIND, at, txns, ops, is_open, flag_reads
        if at + record > size:
            return CUT_OFF, at, txns, ops, is_open, flag_reads
        number = _long(data, at + 1)
        stamp = _long(data, at + 9) if record >= 17 else np.int64(UNKNOWN_TIME)
        if kind in (83, 67) and stamp_bytes and not 0 <= stamp < TIME_END:
            return NO_TIME, at, txns, ops, is_open, flag_reads
        if kind == 83:
            if is_open:
                return OPEN_TWICE, at, txns, ops, is_open, flag_reads
            txn[txns, 0] = number
            txn[txns, 1] = at
            txn[txns, 2] = stamp
            txn[txns, 3] = UNKNOWN_TIME
            txn[txns, 4] = 0
            txns += 1
            is_open = True
        elif not is_open:
            return NOT_OPEN, at, txns, ops, is_open, flag_reads
        elif kind == 67:
            if txn[txns - 1, 0] != number:
                return OTHER_COMMIT, at, txns, ops, is_open, flag_reads
            txn[txns - 1, 3] = stamp
            is_open = False
        elif kind == 87:
            version = number
            by_id = version != NO_WRITE_ID
            if not by_id:
                version = _long(data, at + 17)
            if version in (INITIAL, NO_VALUE) or (by_id and version in (LOADED, ABSENT)):
                return RESERVED, at, txns, ops, is_open, flag_reads
            op[ops, 0] = 1
            op[ops, 1] = version
            op[ops, 2] = _long(data, at + 9)
            op[ops, 3] = 0
            op[ops, 4] = at
            op[ops, 5] = by_id
            ops += 1
            txn[txns - 1, 4] += 1
        else:
            version = stamp
            by_id = False
            if version == NO_WRITE_ID:
                version = _long(data, at + 25)
            elif version in (LOADED, ABSENT):
                version = INITIAL
            elif number in (LOADED, ABSENT) and version in (COLLECTING, NOT_COLLECTING):
                flag_reads += 1
                at += record
                continue
            else:
                by_id = True
                if version in (INITIAL, NO_VALUE):
                    return RESERVED, at, txns, ops, is_open, flag_reads
            op[ops, 0] = 0
            op[ops, 1] = version
            op[ops, 2] = _long(data, at + 17)
            op[ops, 3] = number
            op[ops, 4] = at
            op[ops, 5] = by_id
            ops += 1
            txn[txns - 1, 4] += 1
        at += record
    return FINE, size, txns, ops, is_open, flag_reads


def _read_session(file: Path) -> tuple[Ints, Ints, bool, int]:
    data = np.frombuffer(file.read_bytes(), np.uint8)
    txn = np.empty((len(data) // 9 + 1, 5), np.int64)
    op = np.empty((len(data) // 25 + 1, 6), np.int64)
    furthest = (UNKNOWN_KIND, -1)
    for stamp_bytes in (0, 8):
        problem, place, txns, ops, is_open, flag_reads = scan(data, stamp_bytes, txn, op)
        if problem == FINE:
            return txn[:txns].copy(), op[:ops].copy(), bool(is_open), int(flag_reads)
        if place > furthest[1]:  # the size that made sense for longer is the one that was meant
            furthest = (problem, place)
    problem, place = furthest
    letter = int(data[place])
    found = chr(letter) if chr(letter) in "SCRW" else f"0x{letter:02x}"
    raise bad_byte(file, place, PROBLEMS[problem].format(found=found))


def read(path: Path) -> History:
    files = numbered_files(path, "*.log")
    if not files:
        raise HistoryError(f"{path}: expected a folder with a *.log file for each session, found none")
    sessions = [_read_session(file) for file in files]
    txn_counts = [len(session[0]) for session in sessions]
    op_counts = [len(session[1]) for session in sessions]
    txn = np.concatenate([session[0] for session in sessions])
    op = np.concatenate([session[1] for session in sessions])
    flag_reads = sum(session[3] for session in sessions)
    status = np.full(len(txn), Status.COMMITTED, np.uint8)
    for end, (_, _, is_open, _) in zip(np.cumsum(txn_counts), sessions, strict=True):
        if is_open:
            status[end - 1] = Status.IN_DOUBT
    _check_ids(files, txn, txn_counts)
    _check_claims(files, txn, op, op_counts)
    key, keys = intern(np.ascontiguousarray(op[:, 2]))
    begin_ns, committed_ns = _nanoseconds(txn[:, 2], txn[:, 3])
    return History(
        session=np.repeat(np.arange(len(files), dtype=np.int32), txn_counts),
        status=status,
        begin_ns=begin_ns,
        begun_ns=np.full(len(txn), UNKNOWN_TIME, np.int64),
        commit_ns=np.full(len(txn), UNKNOWN_TIME, np.int64),
        committed_ns=committed_ns,
        op_start=offsets(txn[:, 4]),
        kind=np.where(op[:, 0] == 1, np.uint8(Kind.WRITE), np.uint8(Kind.READ)),
        key=key,
        value=op[:, 1].copy(),
        previous=np.full(len(op), NO_VALUE, np.int64),
        list_start=np.zeros(len(op) + 1, np.int64),
        list_value=np.zeros(0, np.int64),
        session_names=[file.stem for file in files],
        key_names=NumberNames(keys.view(np.uint64)),
        txn_names=NumberNames(txn[:, 0].copy()),
        left_out=(LeftOut("reads of the flag of Cobra's garbage collection", flag_reads),) if flag_reads else (),
        source=str(path),
    )


def _check_ids(files: list[Path], txn: Ints, txn_counts: list[int]) -> None:
    order = np.argsort(txn[:, 0], kind="stable")
    again = np.flatnonzero(np.diff(txn[order, 0]) == 0)
    if len(again):
        first, second = int(order[again[0]]), int(order[again[0] + 1])
        elsewhere = f"{_file_of(files, txn_counts, first).name}, byte {txn[first, 1]}"
        raise bad_byte(
            _file_of(files, txn_counts, second),
            int(txn[second, 1]),
            f"transaction id {txn[second, 0]:#x} is taken already: {elsewhere}",
        )


def _check_claims(files: list[Path], txn: Ints, op: Ints, op_counts: list[int]) -> None:
    """A read names the writer beside the write id. Both come out of one stored value, so they cannot disagree."""
    columns = np.ascontiguousarray(op.T)
    by_id = columns[5] == 1
    is_write = columns[0] == 1
    txn_of_op = np.repeat(txn[:, 0], txn[:, 4])
    found = first_false_claim(columns[1], txn_of_op, columns[3], by_id & ~is_write, by_id & is_write)
    if found is not None:
        reader, writer = found
        raise bad_byte(
            _file_of(files, op_counts, reader),
            int(op[reader, 4]),
            f"the read names transaction {op[reader, 3]:#x} as the writer of {op[reader, 1]:#x}, but transaction "
            f"{txn_of_op[writer]:#x} wrote that: {_file_of(files, op_counts, writer).name}, byte {op[writer, 4]}",
        )


def _file_of(files: list[Path], counts: list[int], row: int) -> Path:
    return files[int(np.searchsorted(np.cumsum(counts), row, side="right"))]


def _are_milliseconds(times: Ints) -> bool:
    known = times[times != UNKNOWN_TIME]
    return len(known) > 0 and int(known.min()) in MILLISECONDS and int(known.max()) in MILLISECONDS


def _nanoseconds(begin: Ints, commit: Ints) -> tuple[Ints, Ints]:
    if not _are_milliseconds(np.concatenate([begin, commit])):
        return begin.copy(), commit.copy()
    # A clock that shows 5 ms is anywhere before 6 ms: the begin is no earlier than 5, the commit no later than 6.
    return (
        np.where(begin == UNKNOWN_TIME, UNKNOWN_TIME, begin * NS_PER_MS),
        np.where(commit == UNKNOWN_TIME, UNKNOWN_TIME, commit * NS_PER_MS + (NS_PER_MS - 1)),
    )


def write(history: History, path: Path) -> tuple[LeftOut, ...]:
    refuse(history, "cobra", in_doubt=True)
    refuse_versions(
        history, "cobra", {LOADED: "the initial state", ABSENT: "an absent key", NO_WRITE_ID: "no write id"}
    )
    ids, own_ids = transaction_ids(history, frozenset({LOADED, ABSENT, NO_WRITE_ID, 0}))
    keys = [key_number(name, "cobra") for name in history.key_names]
    writer = written_versions(history)
    writer_of_id = {version: txn for (_, version), txn in reversed(writer.items())}
    times = np.concatenate([history.begin_ns, history.committed_ns])
    misread = _are_milliseconds(times) or bool(np.any((times != UNKNOWN_TIME) & ((times < 0) | (times >= TIME_END))))
    names = list(history.session_names)
    own_names = all(re.fullmatch(r"[\w-]+", name) for name in names)
    new_folder(path)
    untimed = 0
    for session, name in enumerate(names):
        txns = np.flatnonzero(history.session == session)
        in_doubt = history.status[txns] == Status.IN_DOUBT
        if in_doubt[:-1].any():
            raise HistoryError("cobra has no way to write an in-doubt transaction that is not the last of its session")
        begins_known = bool((history.begin_ns[txns] != UNKNOWN_TIME).all())
        commits_known = bool(((history.committed_ns[txns] != UNKNOWN_TIME) | in_doubt).all())
        stamped = begins_known and commits_known and not misread
        untimed += 0 if stamped else len(txns)
        parts = []
        for t in txns.tolist():
            stamp = struct.pack(">q", history.begin_ns[t]) if stamped else b""
            parts.append(struct.pack(">cq", b"S", ids[t]) + stamp)
            for o in history.operations(t):
                key, version = int(history.key[o]), int(history.value[o])
                if history.kind[o] == Kind.WRITE:
                    parts.append(struct.pack(">cqQq", b"W", version, keys[key], version))
                elif version == INITIAL:
                    parts.append(struct.pack(">cqqQq", b"R", LOADED, LOADED, keys[key], 0))
                else:
                    by = writer.get((key, version), writer_of_id.get(version, -1))
                    parts.append(struct.pack(">cqqQq", b"R", ids[by] if by >= 0 else 0, version, keys[key], version))
            if history.status[t] == Status.COMMITTED:
                stamp = struct.pack(">q", history.committed_ns[t]) if stamped else b""
                parts.append(struct.pack(">cq", b"C", ids[t]) + stamp)
        (path / (f"{name}.log" if own_names else f"T{session}.log")).write_bytes(b"".join(parts))
    return unsaid(history, times=untimed == 0, session_names=own_names, txn_names=own_ids, empty=True)
