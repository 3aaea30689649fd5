"""Spools of processes that are gone, found by their free lock: completed, so that they can be shipped and deleted.

A process that was closed has left a complete history. One that was killed has not: what it had in memory is lost, and
its sessions were never closed. Its last fragment says up to which write ids all was spooled, so everything above is
declared as a gap: whoever read one of those cannot be checked, and nobody is accused. With a journal (journal.py) next
to nothing is lost: the transactions in it that the spool does not have are added before. A folder without any fragment
is that of a process killed in its first quarter of a second; its name tells the tag, all of which is the gap.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from time import time, time_ns

from mussurana.collector.extraction import written
from mussurana.collector.fragments import FragmentBuilder
from mussurana.collector.journal_reader import Journaled, read_journal, remove_journal
from mussurana.collector.metrics import Metrics
from mussurana.collector.names import Names, printable
from mussurana.collector.recorder import ABORTED
from mussurana.collector.spool import SEGMENT_BYTES_MAX, UNFINISHED, read_database
from mussurana.collector.spool_reader import Numbers, gap, name_of, upload_in
from mussurana.collector.write_ids import COUNTER_END
from mussurana.wire import PROTOCOL, history_pb2, segments

UNFINISHED_SECONDS_MAX = 60.0
"""A folder is complete after a millisecond. One that is not after so long never will be."""

SESSIONS_BYTES_MAX = 1 << 20
"""A hundred thousand numbers, one for each connection of a process."""
SESSION_DIGITS_MAX = 10

KILLED = "process killed"

RESCUED = 1 << 31
"""Where the numbers of sessions from a journal begin, so that none of them is one that was announced."""


def complete(folder: Path) -> int:
    """Append what the process would have said at its end, unless it has; return its last sequence number.

    Pre: the folder's lock is held, so that nobody else writes to it.
    """
    collector, first_tag = name_of(folder)
    settled = {first_tag: 1}
    is_open: set[int] = set()
    numbers = Numbers()
    has_segment = False
    last_written: set[int] = set()  # of the last fragment: the journal may not have heard of it
    for found in segments.read_from(folder):
        upload = upload_in(found)
        if upload is None or not numbers.take(upload):
            continue
        if upload.HasField("hello"):
            if not has_segment:
                is_open.update(_sessions_at(folder, found.position.segment))
            has_segment = True
            continue
        fragment = upload.fragment
        settled = {ids.tag: ids.settled for ids in fragment.write_ids}
        count = len(fragment.op_version) // 8
        last_written = set(struct.unpack_from(f"<{count}Q", fragment.op_version))
        for event in fragment.session_event:
            if event.what == history_pb2.SessionEvent.CLOSE:
                is_open.discard(event.session)
            elif event.what == history_pb2.SessionEvent.OPEN:
                is_open.add(event.session)
    last_sequence = numbers.last
    if not has_segment:  # it may have begun one, and said which sessions are open, but not have come to its Hello
        is_open.update(_sessions_at(folder, 1))
    rescued = [txn for txn in read_journal(folder) if not last_written.intersection(_written(txn))]
    if not rescued and not is_open and all(counter == COUNTER_END for counter in settled.values()):
        return last_sequence
    records = []
    if not has_segment:
        hello = history_pb2.Hello(
            protocol=PROTOCOL,
            collector=collector,
            name="killed at its start",
            recorded=read_database(folder),
            first_sequence=last_sequence + 1,
        )
        records.append(history_pb2.Upload(hello=hello).SerializeToString())
    if rescued:
        last_sequence += 1
        records.append(_fragment_of(rescued, last_sequence, settled))
    last_sequence += 1
    kept = {version for txn in rescued for version in _written(txn)}
    records.append(gap(last_sequence, KILLED, settled, sorted(is_open), kept))
    # All in one segment: only the writer begins one, with a Hello.
    appender = segments.Appender(folder, SEGMENT_BYTES_MAX + sum(map(len, records)) + (1 << 10))
    try:
        appender.append(records)
        appender.sync()
    finally:
        appender.close()
    remove_journal(folder)
    return last_sequence


def _written(txn: Journaled) -> list[int]:
    return written(txn.extracted.operations) + written(txn.extracted.rolled_back)


def _fragment_of(txns: list[Journaled], sequence: int, settled: dict[int, int]) -> bytes:
    """The transactions that only the journal has. They get sessions of their own: which ones they continue is lost."""
    names = Names(Metrics())
    builder = FragmentBuilder(names)
    event = history_pb2.SessionEvent
    for number, name in {txn.session_number: txn.session_name for txn in txns}.items():
        builder.events.append(event(what=event.OPEN, session=RESCUED + number, name=printable(name)))
        builder.events.append(event(what=event.CLOSE, session=RESCUED + number))
    for name in (name for txn in txns for name in txn.key_names):
        names.key(name)
    names.new_statements = list(dict(pair for txn in txns for pair in txn.statement_texts).items())
    for txn in txns:
        number = RESCUED + txn.session_number
        if txn.extracted.rolled_back:
            builder.add(txn, number, ABORTED, txn.extracted.rolled_back)
        builder.add(txn, number, txn.status, txn.extracted.operations)
    return builder.seal(sequence, time_ns(), settled)


def remove_unfinished(root: Path) -> None:
    """Delete folders of processes that were killed before they had made them; nothing is in them."""
    for path in root.glob(UNFINISHED + "*"):
        if time() - path.stat().st_mtime > UNFINISHED_SECONDS_MAX:
            shutil.rmtree(path, ignore_errors=True)


def _sessions_at(folder: Path, segment: int) -> list[int]:
    """The sessions that were open when a segment began."""
    try:
        with open(segments.segment_path(folder, segment).with_suffix(".sessions"), "rb") as file:
            words = file.read(SESSIONS_BYTES_MAX).split()
    except FileNotFoundError:
        return []
    numbers = [int(word) for word in words if word.isdigit() and len(word) <= SESSION_DIGITS_MAX]
    return [number for number in numbers if number < 1 << 32]
