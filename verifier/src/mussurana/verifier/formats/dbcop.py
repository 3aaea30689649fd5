"""dbcop's `history.bincode`: one little-endian file; integers and lengths have 8 bytes, booleans 1.

    five integers     id, sessions, keys, transactions per session, events per transaction (as planned, not counted)
    three strings     about the run, its start and its end: length, then UTF-8
    sessions          length, then that many of
      transactions    length, then that many of
        events        length, then that many of: write?, key (8), value (8), success?
        success?      false: the transaction was rolled back

The value is the version; 0 is the initial one. An event that did not succeed had no effect and saw nothing.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from mussurana.verifier.formats.carried import refuse, refuse_versions, unsaid
from mussurana.verifier.formats.interning import intern
from mussurana.verifier.formats.names import NumberNames, key_number
from mussurana.verifier.formats.places import bad_byte
from mussurana.verifier.history import (
    INITIAL,
    NO_VALUE,
    UNKNOWN_TIME,
    Bytes,
    History,
    Ints,
    Kind,
    LeftOut,
    Status,
    offsets,
)
from mussurana.verifier.kernels import kernel

FILE_NAME = "history.bincode"

FINE, CUT_OFF, NOT_BOOLEAN, RESERVED, TRAILING = range(5)
PROBLEMS = {
    CUT_OFF: "expected the rest of the sessions, but the file ends inside of what starts here",
    NOT_BOOLEAN: "expected a boolean, 0 or 1, found 0x{found:02x}",
    RESERVED: "this value cannot be a version: 0 is the initial one, and -2**63 and -2**63 + 1 are not supported",
    TRAILING: "expected the end of the file",
}


@kernel
def _long(data: Bytes, at: int) -> np.int64:
    number = np.int64(0)
    for i in range(7, -1, -1):
        number = (number << np.int64(8)) | np.int64(data[at + i])
    return number


@kernel
def scan(data: Bytes, at: int, txn: Ints, op: Ints) -> tuple[int, int, int, int, int, int]:
    """Read the list of sessions, which starts at `at`, into rows of `txn` and `op`.

    Pre:  `txn` has room for a row per 9 bytes: session, success?, number of operations. `op` has room for a row per
          18 bytes: write?, key, version.
    Post: (problem, its place, sessions, transactions, operations, events that did not succeed).
    """
    size = len(data)
    txns = 0
    ops = 0
    failed = 0
    if at + 8 > size:
        return CUT_OFF, at, 0, txns, ops, failed
    sessions = _long(data, at)
    at += 8
    session = 0
    while session != sessions:
        if at + 8 > size:
            return CUT_OFF, at, session, txns, ops, failed
        txns_left = _long(data, at)
        at += 8
        while txns_left != 0:
            if at + 8 > size:
                return CUT_OFF, at, session, txns, ops, failed
            events_left = _long(data, at)
            at += 8
            first_op = ops
            while events_left != 0:
                if at + 18 > size:
                    return CUT_OFF, at, session, txns, ops, failed
                if data[at] > 1:
                    return NOT_BOOLEAN, at, session, txns, ops, failed
                if data[at + 17] > 1:
                    return NOT_BOOLEAN, at + 17, session, txns, ops, failed
                value = _long(data, at + 9)
                if (data[at] == 1 and value == 0) or value in (INITIAL, NO_VALUE):
                    return RESERVED, at + 9, session, txns, ops, failed
                if data[at + 17] == 1:
                    op[ops, 0] = data[at]
                    op[ops, 1] = _long(data, at + 1)
                    op[ops, 2] = value if value != 0 else INITIAL
                    ops += 1
                else:
                    failed += 1
                at += 18
                events_left -= 1
            if at + 1 > size:
                return CUT_OFF, at, session, txns, ops, failed
            if data[at] > 1:
                return NOT_BOOLEAN, at, session, txns, ops, failed
            txn[txns, 0] = session
            txn[txns, 1] = data[at]
            txn[txns, 2] = ops - first_op
            txns += 1
            at += 1
            txns_left -= 1
        session += 1
    if at != size:
        return TRAILING, at, session, txns, ops, failed
    return FINE, at, session, txns, ops, failed


def read(path: Path) -> History:
    file = path / FILE_NAME if path.is_dir() else path
    content = file.read_bytes()
    data = np.frombuffer(content, np.uint8)
    txn = np.empty((len(data) // 9 + 1, 3), np.int64)
    op = np.empty((len(data) // 18 + 1, 3), np.int64)
    problem, place, sessions, txns, ops, failed = scan(data, _skip_header(file, content), txn, op)
    if problem != FINE:
        found = int(data[place]) if place < len(data) else 0
        raise bad_byte(file, int(place), PROBLEMS[problem].format(found=found))
    txn, op = txn[:txns], op[:ops]
    key, keys = intern(np.ascontiguousarray(op[:, 1]))
    unknown = np.full(txns, UNKNOWN_TIME, np.int64)
    return History(
        session=txn[:, 0].astype(np.int32),
        status=np.where(txn[:, 1] == 1, np.uint8(Status.COMMITTED), np.uint8(Status.ABORTED)),
        begin_ns=unknown,
        begun_ns=unknown.copy(),
        commit_ns=unknown.copy(),
        committed_ns=unknown.copy(),
        op_start=offsets(txn[:, 2]),
        kind=np.where(op[:, 0] == 1, np.uint8(Kind.WRITE), np.uint8(Kind.READ)),
        key=key,
        value=op[:, 2].copy(),
        previous=np.full(ops, NO_VALUE, np.int64),
        list_start=np.zeros(ops + 1, np.int64),
        list_value=np.zeros(0, np.int64),
        session_names=[str(session) for session in range(sessions)],
        key_names=NumberNames(keys.view(np.uint64)),
        left_out=(LeftOut("events that did not succeed", int(failed)),) if failed else (),
        source=str(path),
    )


def _skip_header(file: Path, content: bytes) -> int:
    at = 5 * 8
    for what in ("information", "start", "end"):
        if at + 8 > len(content):
            raise bad_byte(file, min(at, len(content)), f"the file ends before the length of the string '{what}'")
        (length,) = struct.unpack_from("<Q", content, at)
        if at + 8 + length > len(content):
            raise bad_byte(file, at, f"the string '{what}' has {length} bytes, more than the file has left")
        at += 8 + length
    return at


def write(history: History, path: Path) -> tuple[LeftOut, ...]:
    refuse(history, "dbcop", aborted=True)
    refuse_versions(history, "dbcop", {0: "the initial value"})
    keys = [key_number(name, "dbcop") for name in history.key_names]
    events = np.diff(history.op_start)
    in_session = np.bincount(history.session, minlength=len(history.session_names))
    parts = [
        struct.pack("<5Q", 0, len(in_session), len(keys), int(in_session.max(initial=0)), int(events.max(initial=0))),
        *(struct.pack("<Q", len(text)) + text for text in (b"Mussurana", b"", b"")),
        struct.pack("<Q", len(in_session)),
    ]
    for session in range(len(in_session)):
        txns = np.flatnonzero(history.session == session).tolist()
        parts.append(struct.pack("<Q", len(txns)))
        for t in txns:
            ops = history.operations(t)
            parts.append(struct.pack("<Q", len(ops)))
            for o in ops:
                value = int(history.value[o])
                is_write = history.kind[o] == Kind.WRITE
                parts.append(
                    struct.pack("<?Qq?", is_write, keys[history.key[o]], 0 if value == INITIAL else value, True)
                )
            parts.append(struct.pack("<?", history.status[t] == Status.COMMITTED))
    if path.suffix == ".bincode":
        file = path
    else:
        path.mkdir(parents=True, exist_ok=True)
        file = path / FILE_NAME
    file.write_bytes(b"".join(parts))
    numbered = list(history.session_names) == [str(session) for session in range(len(in_session))]
    return unsaid(history, session_names=numbered, empty=True)
