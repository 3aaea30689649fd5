"""Jepsen and Elle histories: a map for each invocation and each completion, as EDN or as JSON.

    {:index 4, :type :invoke, :process 2, :f :txn, :time 81, :value [[:append 5 1] [:r 6 nil]]}
    {:index 7, :type :ok,     :process 2, :f :txn, :time 95, :value [[:append 5 1] [:r 6 [3 4]]]}

One map per line, or one vector of maps; in JSON the same with strings for keywords, with or without their colon.
A process is a session. Without `:process`, an invocation belongs with the next completion and each transaction is a
session of its own.

`:ok` is committed and `:fail` aborted. `:info`, or no completion at all, is in doubt: the client never learned how
it ended. In both of the latter the invocation tells what was asked; what its reads saw is unknown.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mussurana.verifier.formats.carried import unsaid
from mussurana.verifier.formats.edn import Form, Keyword, Map, named, notation, parse, printed
from mussurana.verifier.formats.places import bad_text, line_and_column, read_text
from mussurana.verifier.history import (
    INITIAL,
    UNKNOWN_TIME,
    History,
    HistoryBuilder,
    HistoryError,
    Kind,
    LeftOut,
    Status,
)

NUMBERS = range(-(2**62), 2**63)
"""Values in this range stand for themselves. All others (strings, keywords, larger numbers) get numbers below it."""

TIMES = range(-(2**62), 2**62)

STATUS = {"ok": Status.COMMITTED, "fail": Status.ABORTED, "info": Status.IN_DOUBT}


@dataclass
class Call:
    """A transaction as its client saw it: what was asked, and how it ended, if it did."""

    position: int
    session: str
    asked: list[list[Form]]
    begin_ns: int = UNKNOWN_TIME
    committed_ns: int = UNKNOWN_TIME
    name: str = ""
    status: Status = Status.IN_DOUBT
    answered: list[list[Form]] | None = None


class Calls:
    """Puts invocations and completions together."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.calls: list[Call] = []
        self.other: dict[str, int] = {}
        self._open: dict[str, Call] = {}
        self._invocations = False

    def error(self, position: int, message: str) -> HistoryError:
        return bad_text(self.path, self.text, position, message)

    def add(self, position: int, op: dict[str, Form]) -> None:
        function = op.get("f")
        process = "" if op.get("process") is None else printed(op["process"])
        if function != "txn" and (function is not None or process in (":nemesis", "nemesis")):
            what = f"operations other than transactions (:f {printed(function)})"
            self.other[what] = self.other.get(what, 0) + 1
            return
        kind = op.get("type")
        if kind == "invoke":
            self._invocations = True
            if process and process in self._open:
                earlier = line_and_column(self.text, self._open[process].position)
                raise self.error(position, f"process {process} has a transaction open already: {earlier}")
            self._open[process] = self._new_call(position, process, op)
        elif isinstance(kind, str) and kind in STATUS:
            call = self._open.pop(process, None)
            if call is None:
                if self._invocations:
                    who = f"process {process}" if process else "this completion"
                    raise self.error(position, f"expected an :invoke before this: {who} has no transaction open")
                call = self._new_call(position, process, op)  # a history of completions only
                call.begin_ns = UNKNOWN_TIME
            call.status = STATUS[kind]
            if call.status == Status.COMMITTED:
                call.committed_ns = self._time(position, op)
                call.answered = self._operations(position, op)
                self._check_answer(position, call)
        else:
            raise self.error(position, f"expected :type :invoke, :ok, :fail or :info, found {printed(kind)}")

    def _new_call(self, position: int, process: str, op: dict[str, Form]) -> Call:
        call = Call(
            position,
            process or f"alone {len(self.calls)}",
            self._operations(position, op),
            begin_ns=self._time(position, op),
            name=printed(op["index"]) if op.get("index") is not None else "",
        )
        self.calls.append(call)
        return call

    def _time(self, position: int, op: dict[str, Form]) -> int:
        time = op.get("time")
        if time is None:
            return UNKNOWN_TIME
        if type(time) is not int or time not in TIMES:
            raise self.error(position, f"expected :time in nanoseconds, found {printed(time)}")
        return time

    def _operations(self, position: int, op: dict[str, Form]) -> list[list[Form]]:
        operations = op.get("value")
        if not isinstance(operations, list):
            raise self.error(position, f"expected :value to be a vector of operations, found {printed(operations)}")
        for operation in operations:
            if not isinstance(operation, list) or len(operation) != 3 or operation[0] not in ("r", "w", "append"):
                raise self.error(position, f"expected [:r k v], [:w k v] or [:append k v], found {printed(operation)}")
            if operation[0] != "r" and operation[2] is None:
                raise self.error(position, f"expected a value to write, found {printed(operation)}")
        return operations

    def _check_answer(self, position: int, call: Call) -> None:
        assert call.answered is not None
        if len(call.asked) != len(call.answered):
            what = f"expected {len(call.asked)} operations, as invoked, found {len(call.answered)}"
            raise self.error(position, f"{what}: {line_and_column(self.text, call.position)}")
        for asked, answered in zip(call.asked, call.answered, strict=True):
            if asked[:2] != answered[:2] or (asked[0] != "r" and asked[2] != answered[2]):
                what = f"expected {printed(asked)}, as invoked, found {printed(answered)}"
                raise self.error(position, f"{what}: {line_and_column(self.text, call.position)}")


class Values:
    """Numbers for the values of a history."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def number(self, form: Form) -> int:
        if type(form) is int and form in NUMBERS:
            return form
        name = printed(form)
        number = self._numbers.setdefault(name, NUMBERS.start - 1 - len(self._numbers))
        self.names[number] = name
        return number


def _build(found: Calls) -> History:
    if not found.calls:
        rest = f" among {sum(found.other.values())} operations" if found.other else ""
        raise HistoryError(f"{found.path}: expected maps with :type, :f :txn and :value, found no transaction{rest}")
    lists = _list_keys(found)
    build = HistoryBuilder(str(found.path))
    values = Values()
    for what, count in found.other.items():
        build.leave_out(what, count)
    for call in found.calls:
        build.transaction(
            call.session, call.status, begin_ns=call.begin_ns, committed_ns=call.committed_ns, name=call.name
        )
        for function, key_form, value in call.asked if call.answered is None else call.answered:
            key = printed(key_form)
            if function == "append":
                build.append(key, values.number(value))
            elif function == "w":
                build.write(key, values.number(value))
            elif value is None and call.answered is None:
                build.leave_out("reads whose result is unknown, in transactions that failed or are in doubt")
            elif isinstance(value, list):
                build.read_list(key, [values.number(element) for element in value])
            elif value is not None:
                build.read(key, values.number(value))
            elif key in lists:
                build.read_list(key, [])
            else:
                build.read(key, INITIAL)
    build.value_names = values.names
    return build.finish()


def _list_keys(found: Calls) -> set[str]:
    """The keys that hold lists. A key that is only ever read as nil holds what the others hold."""
    lists: dict[str, int] = {}
    registers: dict[str, int] = {}
    only_read: set[str] = set()
    for call in found.calls:
        for function, key_form, value in call.asked if call.answered is None else call.answered:
            key = printed(key_form)
            if function == "append" or isinstance(value, list):
                lists.setdefault(key, call.position)
            elif function == "w" or value is not None:
                registers.setdefault(key, call.position)
            else:
                only_read.add(key)
    for key in lists.keys() & registers.keys():
        places = sorted([lists[key], registers[key]])
        where = line_and_column(found.text, places[0])
        raise found.error(places[1], f"key {key} is used as a list and as a register: {where}")
    if lists:
        return lists.keys() | (only_read - registers.keys())
    return set()


def read_edn(path: Path) -> History:
    text = read_text(path)
    forms = parse(text, path)
    if len(forms) == 1 and isinstance(forms[0][1], list):
        position = forms[0][0]
        forms = [(form.position if isinstance(form, Map) else position, form) for form in forms[0][1]]
    found = Calls(path, text)
    for position, form in forms:
        if not isinstance(form, Map):
            raise found.error(position, f"expected a map, found {printed(form)[:40]}")
        found.add(position, form)
    return _build(found)


def read_json(path: Path) -> History:
    text = read_text(path)
    found = Calls(path, text)
    for position, value in _json_values(path, text):
        if not isinstance(value, dict):
            raise found.error(position, f"expected an object, found {json.dumps(value)[:40]}")
        op = {name.removeprefix(":"): value for name, value in value.items()}
        for name in ("type", "f"):
            if isinstance(op.get(name), str):
                op[name] = op[name].removeprefix(":")
        for name in ("process", "value"):
            op[name] = _with_keywords(op.get(name))
        found.add(position, op)
    return _build(found)


def _with_keywords(value: Any) -> Form:
    if isinstance(value, str) and len(value) > 1 and value[0] == ":":
        return Keyword(value[1:])
    if isinstance(value, list):
        return [element if type(element) is int else _with_keywords(element) for element in value]
    return value


def _json_values(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """The elements of the one array in the text, or all values one after the other, with their positions."""
    space = re.compile(r"\s*")
    decoder = json.JSONDecoder()

    def skip(position: int) -> int:
        match = space.match(text, position)
        return match.end() if match else position

    at = skip(0)
    in_array = text.startswith("[", at)
    if in_array:
        at = skip(at + 1)
    while at < len(text) and not (in_array and text[at] == "]"):
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise bad_text(path, text, error.pos, f"not JSON: {error.msg}") from None
        except ValueError:
            raise bad_text(path, text, at, "a number in this value has too many digits") from None
        yield at, value
        at = skip(end)
        if in_array and text.startswith(",", at):
            at = skip(at + 1)
            if text.startswith("]", at):
                raise bad_text(path, text, at, "expected another value after the comma, found ']'")
        elif in_array and not text.startswith("]", at):
            raise bad_text(path, text, at, "expected ',' or ']'")
    if in_array:
        if at == len(text):
            raise bad_text(path, text, at, "expected ']', but the file ends")
        if skip(at + 1) < len(text):
            raise bad_text(path, text, skip(at + 1), "expected the end of the file")


def write_edn(history: History, path: Path) -> tuple[LeftOut, ...]:
    lines = [
        notation({Keyword(name): value for name, value in event.items()}) + "\n"
        for event in _events(history, "elle-edn")
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return _unsaid(history)


def write_json(history: History, path: Path) -> tuple[LeftOut, ...]:
    lines = []
    for event in _events(history, "elle-json"):
        operations = [[str(operation[0]), *map(_with_colons, operation[1:])] for operation in event["value"]]
        process = _with_colons(event["process"])
        lines.append(json.dumps(event | {"value": operations, "process": process}, ensure_ascii=False))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    return _unsaid(history)


def _unsaid(history: History) -> tuple[LeftOut, ...]:
    uncommitted = np.repeat(history.status != Status.COMMITTED, np.diff(history.op_start))
    blurred = int(np.count_nonzero(uncommitted & (history.kind == Kind.READ) & (history.value == INITIAL)))
    note = (LeftOut("reads of the initial value in transactions that did not commit", blurred),) if blurred else ()
    return unsaid(history, times=True, session_names=True, empty=True) + note


def _with_colons(form: Form) -> Form:
    """Keywords that are data keep their colon in JSON; those of the format itself go without."""
    if isinstance(form, list):
        return [_with_colons(element) for element in form]
    return f":{form}" if isinstance(form, Keyword) else form


def _events(history: History, format: str) -> Iterator[dict[str, Form]]:
    """Invocations and completions, by time where it is known and without contradicting any session."""
    processes = [_form(name, "session", format) for name in history.session_names]
    keys = [_form(name, "key", format) for name in history.key_names]
    ending = {status: Keyword(name) for name, status in STATUS.items()}
    streams = []
    for session in range(len(processes)):
        events: list[tuple[int, int, int]] = []
        latest = UNKNOWN_TIME
        for t in np.flatnonzero(history.session == session).tolist():
            for part, time in enumerate((int(history.begin_ns[t]), int(history.committed_ns[t]))):
                latest = max(latest, time)
                events.append((latest, t, part))
        streams.append(events)
    for index, (_, t, part) in enumerate(heapq.merge(*streams)):
        status = Status(int(history.status[t]))
        event = {
            "index": index,
            "type": ending[status] if part else Keyword("invoke"),
            "process": processes[history.session[t]],
            "f": Keyword("txn"),
            "value": _micro_operations(history, t, keys, format, hide=part == 0 and status == Status.COMMITTED),
        }
        time = int((history.committed_ns if part else history.begin_ns)[t])
        if time != UNKNOWN_TIME and (part == 0 or status == Status.COMMITTED):
            event["time"] = time
        yield event


def _micro_operations(history: History, txn: int, keys: list[Form], format: str, *, hide: bool) -> list[Form]:
    operations = []
    for o in history.operations(txn):
        kind = history.kind[o]
        key = keys[history.key[o]]
        value = int(history.value[o])
        if kind == Kind.WRITE:
            operations.append([Keyword("w"), key, _value_form(history, value, format)])
        elif kind == Kind.APPEND:
            operations.append([Keyword("append"), key, _value_form(history, value, format)])
        elif hide or (kind == Kind.READ and value == INITIAL):
            operations.append([Keyword("r"), key, None])
        elif kind == Kind.READ:
            operations.append([Keyword("r"), key, _value_form(history, value, format)])
        else:
            seen = [_value_form(history, element, format) for element in history.list_seen(o)]
            operations.append([Keyword("r"), key, seen])
    return operations


def _value_form(history: History, value: int, format: str) -> Form:
    name = history.value_names.get(value)
    if name is None:
        return value
    form = _form(name, "value", format)
    if type(form) is int and form in NUMBERS:
        raise HistoryError(f"{format} has no way to write value {value}, which is named {name}: that is another number")
    if isinstance(form, list) or form is None:
        raise HistoryError(f"{format} has no way to write value {value}, which is named {name}")
    return form


def _form(name: str, what: str, format: str) -> Form:
    try:
        return named(name)
    except ValueError:
        raise HistoryError(f"{format} has no way to write the {what} name {name!r}") from None
