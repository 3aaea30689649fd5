"""The reading end of a journal (journal.py), for whoever completes the spool of a process that was killed.

What a process wrote when it was killed is incomplete, and anything else may be in the files as well. Records that this
program did not write are passed over, whatever is in them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from mussurana.collector import marshalled
from mussurana.collector.columns import rows_in
from mussurana.collector.extraction import Extracted, columns_of
from mussurana.collector.journal import DONE, END, FILE_BYTES_LIMIT, HEADER, MAGIC, TXN, path_of
from mussurana.wire import history_pb2

STATUS_MAX, ISOLATION_MAX, SESSION_MAX = 2, 4, (1 << 31) - 1


@dataclass
class Journaled:
    """A transaction as the journal has it: the attributes of a Txn that a fragment needs."""

    session_number: int
    session_name: str
    status: int
    begin_ns: int
    begun_ns: int
    commit_ns: int
    committed_ns: int
    isolation: int
    epoch: int
    extracted: Extracted
    key_names: list[str]  # that were new
    statement_texts: list[tuple[int, str]]


def read_journal(folder: Path) -> list[Journaled]:
    """The transactions that were never said to be in the spool, in the order in which they were written."""
    found: dict[int, Journaled] = {}
    done: set[int] = set()
    for what, content in sorted(_records(folder), key=lambda record: record[0]):
        try:
            if what == TXN:
                found[_number(content[0])] = _journaled(*content)
            elif what == END and content[0] in found:
                number, status, committed_ns = content
                found[number].status, found[number].committed_ns = _number(status, STATUS_MAX), _time(committed_ns)
            elif what == DONE:
                done.update(map(_number, content))
        except (ValueError, TypeError, LookupError, OverflowError, DecodeError):
            continue  # a record that this program did not write
    return [found[number] for number in sorted(found) if number not in done]


def _journaled(
    number: Any,
    session: Any,
    name: Any,
    status: Any,
    times: Any,
    isolation: Any,
    operations: Any,
    rolled_back: Any,
    lost: Any,
    epoch: Any,
    key_names: Any,
    texts: Any,
) -> Journaled:
    """A transaction as it was written. Raises what comes of anything else."""
    begin_ns, begun_ns, commit_ns, committed_ns = map(_time, times)
    undone = columns_of(rows_in(rolled_back) if rolled_back is not None else ())
    names = history_pb2.Fragment.FromString(key_names).key_name
    return Journaled(
        session_number=_number(session, SESSION_MAX),
        session_name=_text(name),
        status=_number(status, STATUS_MAX),
        begin_ns=begin_ns,
        begun_ns=begun_ns,
        commit_ns=commit_ns,
        committed_ns=committed_ns,
        isolation=_number(isolation, ISOLATION_MAX),
        epoch=_number(epoch),
        extracted=Extracted(columns_of(rows_in(operations)), undone, list(map(_number, lost)), 0),
        key_names=[told.name for told in names],
        statement_texts=[(_number(at, SESSION_MAX), _text(text)) for at, text in texts],
    )


def _number(value: Any, most: int = (1 << 63) - 1) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(value)
    return value


def _time(value: Any) -> int:
    return _number(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(value)
    return value


def remove_journal(folder: Path) -> None:
    for turn in range(2):
        path_of(folder, turn).unlink(missing_ok=True)


def _records(folder: Path) -> Iterator[tuple[int, Any]]:
    """The records that are whole. One that was being written when the process was killed is passed over."""
    for turn in range(2):
        try:
            with open(path_of(folder, turn), "rb") as file:
                content = file.read(2 * FILE_BYTES_LIMIT)
        except FileNotFoundError:
            continue
        at = content.find(MAGIC)
        while at >= 0 and at + HEADER.size <= len(content):
            _, length, checksum, what = HEADER.unpack_from(content, at)
            payload = content[at + HEADER.size : at + HEADER.size + length]
            if len(payload) == length and zlib.crc32(payload) == checksum:
                with suppress(ValueError):
                    yield what, marshalled.loads(payload)
                at = content.find(MAGIC, at + HEADER.size + length)
            else:
                at = content.find(MAGIC, at + 1)
