"""Histories as one line of text, so that a test shows what it is about.

    h("[x:=1 x:=2] [y==3] | [x==2 y:=3]!")

Sessions are separated by `|` or by a line break. A session is a row of transactions in brackets, in session order.
Transactions are numbered as they are written: all of the first session, then all of the second, and so on.

    x:=1        wrote version 1 of register x
    x:=2<1      wrote version 2 of x, which replaced version 1 (x:=2<_ replaced the initial version)
    x:=2<new    wrote version 2 of x where there was no row
    x==1        read version 1 of x; x==_ read the initial version
    x+=1        appended 1 to list x
    x+=2<1      appended 2 to list x, whose last element was 1 (x+=2<_ to the empty list)
    x==(1 2)    read list x and saw 1, then 2; x==() saw it empty

After the bracket, in this order and each optional:

    !           the transaction aborted
    ?           its commit is in doubt
    @10..20     the client asked to begin at 10 seconds, and knew of the commit at 20 seconds; either may be left out
    @10-11..19-20   the same, and had the answer to begin at 11, asked to commit at 19

`show` is the way back, for failure messages: `h(show(history))` has the same sessions, transactions and operations.
"""

from __future__ import annotations

import re
from decimal import Decimal

from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, UNKNOWN_TIME, History, HistoryBuilder, Kind, Status

_TRANSACTION = re.compile(r"\s*\[(?P<ops>[^\]]*)\](?P<status>[!?]?)(?:@(?P<times>[\d.\-]+))?")
_OPERATION = re.compile(
    r"\s*(?P<key>\w+)(?:"
    r":=(?P<write>-?\d+)(?:<(?P<previous>_|new|-?\d+))?"
    r"|==(?P<read>_|-?\d+)"
    r"|\+=(?P<append>-?\d+)(?:<(?P<last>_|-?\d+))?"
    r"|==\((?P<list>[\d\s-]*)\)"
    r")(?=\s|$)"
)
_NUMBER = r"(\d+(?:\.\d+)?)?"
_TIMES = re.compile(rf"{_NUMBER}(?:-{_NUMBER})?\.\.(?:{_NUMBER}-)?{_NUMBER}")
_STATUS = {"": Status.COMMITTED, "!": Status.ABORTED, "?": Status.IN_DOUBT}
_SUFFIX = {status: suffix for suffix, status in _STATUS.items()}


def h(text: str) -> History:
    """The history that a text stands for."""
    build = HistoryBuilder(text)
    sessions = [session for session in re.split(r"[|\n]", text) if session.strip()]
    for number, session in enumerate(sessions):
        at = 0
        while session[at:].strip():
            found = _TRANSACTION.match(session, at)
            if not found:
                raise ValueError(f"expected a transaction in brackets at {session[at:]!r}")
            begin, begun, commit, committed = _times(found["times"])
            build.transaction(
                f"s{number}",
                _STATUS[found["status"]],
                begin_ns=begin,
                begun_ns=begun,
                commit_ns=commit,
                committed_ns=committed,
            )
            _operations(build, found["ops"].strip())
            at = found.end()
    return build.finish()


def _times(text: str | None) -> list[int]:
    if text is None:
        return [UNKNOWN_TIME] * 4
    found = _TIMES.fullmatch(text)
    if not found:
        raise ValueError(f"expected times like 10..20 or 10-11..19-20, not {text!r}")
    return [UNKNOWN_TIME if seconds is None else int(Decimal(seconds) * 10**9) for seconds in found.groups()]


def _operations(build: HistoryBuilder, text: str) -> None:
    at = 0
    while at < len(text):
        op = _OPERATION.match(text, at)
        if not op:
            raise ValueError(f"expected an operation such as x:=1 or x==1 at {text[at:]!r}")
        if op["write"] is not None:
            build.write(op["key"], int(op["write"]), NO_VALUE if op["previous"] is None else _version(op["previous"]))
        elif op["append"] is not None:
            build.append(op["key"], int(op["append"]), NO_VALUE if op["last"] is None else _version(op["last"]))
        elif op["list"] is not None:
            build.read_list(op["key"], [int(value) for value in op["list"].split()])
        else:
            build.read(op["key"], _version(op["read"]))
        at = op.end()


def _version(text: str) -> int:
    return INITIAL if text == "_" else NO_ROW if text == "new" else int(text)


def show(history: History) -> str:
    """The text of a history. Transactions of different sessions may be numbered differently when it is read again."""
    rows: dict[int, list[str]] = {}
    for txn, session in enumerate(history.session.tolist()):
        ops = " ".join(_show_operation(history, op) for op in history.operations(txn))
        suffix = _SUFFIX[Status(int(history.status[txn]))]
        rows.setdefault(session, []).append(f"[{ops}]{suffix}{_show_times(history, txn)}")
    return " | ".join(" ".join(rows[session]) for session in sorted(rows))


def _show_operation(history: History, op: int) -> str:
    key, value, previous = history.key_names[history.key[op]], int(history.value[op]), int(history.previous[op])
    match Kind(int(history.kind[op])):
        case Kind.READ:
            return f"{key}=={_show_version(value)}"
        case Kind.WRITE:
            return f"{key}:={value}{_show_previous(previous)}"
        case Kind.APPEND:
            return f"{key}+={value}{_show_previous(previous)}"
        case Kind.READ_LIST:
            return f"{key}==({' '.join(map(str, history.list_seen(op)))})"


def _show_previous(previous: int) -> str:
    return "" if previous == NO_VALUE else f"<{_show_version(previous)}"


def _show_version(value: int) -> str:
    return "_" if value == INITIAL else "new" if value == NO_ROW else str(value)


def _show_times(history: History, txn: int) -> str:
    columns = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
    begin, begun, commit, committed = (_show_seconds(int(column[txn])) for column in columns)
    if not begin + begun + commit + committed:
        return ""
    return f"@{begin}{'-' if begun else ''}{begun}..{commit}{'-' if commit else ''}{committed}"


def _show_seconds(time_ns: int) -> str:
    return "" if time_ns == UNKNOWN_TIME else f"{Decimal(time_ns) / 10**9:f}"
