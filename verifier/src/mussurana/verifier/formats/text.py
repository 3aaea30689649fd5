"""The text format of PolySI, Plume and AWDIT: one operation per line.

    w(key,value,session,transaction)
    r(key,value,session,transaction)

The transactions of a session appear in its order. Transaction -1 is the one of Plume for operations that were rolled
back. The value is the version; 0 and -1 are the initial one. A transaction that writes nothing but these sets up the
initial state and is kept as it stands; any other write of them could not be told from the initial state.
"""

from __future__ import annotations

import re
from pathlib import Path

from mussurana.verifier.formats.carried import refuse, refuse_versions, unsaid
from mussurana.verifier.formats.names import transaction_ids
from mussurana.verifier.formats.places import bad_line, read_text
from mussurana.verifier.history import INITIAL, History, HistoryBuilder, HistoryError, Kind, LeftOut, Status

LINE = re.compile(r"\s*([rw])\(\s*([^\s,()]+)\s*,\s*(-?[0-9]{1,19})\s*,\s*([^\s,()]+)\s*,\s*([^\s,()]+)\s*\)\s*")
ROLLED_BACK = "-1"
INITIAL_VALUES = (0, -1)
VERSIONS = range(-(2**63) + 2, 2**63)

Operation = tuple[int, str, str, int]  # line, r or w, key, value


def read(path: Path) -> History:
    current: dict[str, str] = {}  # session -> its transaction
    transactions: dict[tuple[str, str], list[Operation]] = {}
    order: list[tuple[str, str, list[Operation]]] = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise bad_line(
                path, number, f"expected r(key,value,session,transaction) or w(...), found {line.strip()[:60]!r}"
            )
        kind, key, digits, session, txn = match.groups()
        if int(digits) not in VERSIONS:
            raise bad_line(
                path, number, f"expected a value from {VERSIONS.start} to {VERSIONS.stop - 1}, found {digits}"
            )
        if current.get(session) != txn:
            if txn != ROLLED_BACK and (session, txn) in transactions:
                began = transactions[session, txn][0][0]
                what = f"transaction {txn} of session {session} goes on after another has begun"
                raise bad_line(path, number, f"{what}; it started in line {began}")
            current[session] = txn
            transactions[session, txn] = []
            order.append((session, txn, transactions[session, txn]))
        transactions[session, txn].append((number, kind, key, int(digits)))
    return _build(path, order)


def _build(path: Path, order: list[tuple[str, str, list[Operation]]]) -> History:
    set_up: set[tuple[str, int]] = set()
    for _, _, operations in order:
        if all(kind == "w" and value in INITIAL_VALUES for _, kind, _, value in operations):
            set_up.update((key, value) for _, _, key, value in operations)
    build = HistoryBuilder(str(path))
    for session, txn, operations in order:
        build.transaction(session, Status.ABORTED if txn == ROLLED_BACK else Status.COMMITTED, name=txn)
        for line, kind, key, value in operations:
            if kind == "w":
                if value in INITIAL_VALUES and any(v not in INITIAL_VALUES or k == "r" for _, k, _, v in operations):
                    raise bad_line(path, line, f"expected a value other than {value}, which is the initial one")
                build.write(key, value)
            else:
                is_initial = value in INITIAL_VALUES and (key, value) not in set_up
                build.read(key, INITIAL if is_initial else value)
    return build.finish()


def write(history: History, path: Path) -> tuple[LeftOut, ...]:
    refuse(history, "text", aborted=True)
    refuse_versions(history, "text", dict.fromkeys(INITIAL_VALUES, "the initial value"))
    for name in (*history.key_names, *history.session_names):
        if not re.fullmatch(r"[^\s,()]+", name):
            raise HistoryError(f"text has no way to write the name {name!r}: it has spaces, commas or parentheses")
    ids, own_ids = transaction_ids(history)
    lines = []
    last: dict[str, str] = {}  # session -> its last transaction
    joined = 0
    for t in range(history.txn_count):
        if not history.operations(t):
            continue
        session = history.session_names[history.session[t]]
        txn = ROLLED_BACK if history.status[t] == Status.ABORTED else str(ids[t])
        joined += txn == ROLLED_BACK and last.get(session) == ROLLED_BACK
        last[session] = txn
        for o in history.operations(t):
            kind = "w" if history.kind[o] == Kind.WRITE else "r"
            value = 0 if history.value[o] == INITIAL else int(history.value[o])
            lines.append(f"{kind}({history.key_names[history.key[o]]},{value},{session},{txn})\n")
    path.write_text("".join(lines), encoding="utf-8")
    lost = (LeftOut("borders between rolled-back transactions", joined),) if joined else ()
    return (*unsaid(history, session_names=True, txn_names=own_ids), *lost)
