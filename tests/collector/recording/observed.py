"""Recorders with a spool of their own, observations in one line, and what came out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from mussurana.collector.extraction import Observation, Sink
from mussurana.collector.recorder import COMMITTED, Recorder, Session, Txn
from mussurana.collector.settings import Settings
from mussurana.wire import history_pb2, segments


def quick(spool: Path, **others: Any) -> Settings:
    """Settings with short times, so that tests do not wait."""
    short: dict[str, Any] = {"batch_interval_seconds": 0.01, "close_seconds": 5.0, "journal": "background"}
    return Settings(spool=str(spool), **short | others)


def tell(observation: Observation, sink: Sink) -> None:
    """An extractor: the observation says which method of the sink to call."""
    _, what, *arguments = observation
    getattr(sink, what)(*arguments)


def fail(observation: Observation, sink: Sink) -> None:
    raise RuntimeError("not understood")


def see(txn: Txn, what: str, *arguments: object) -> None:
    txn.observations.append((tell, what, *arguments))


def commit(recorder: Recorder, session: Session, *keys: str, status: int = COMMITTED) -> list[int]:
    """A transaction that writes these keys; returns the versions."""
    txn = session.begin()
    versions = []
    for key in keys:
        versions.append(recorder.write_id())
        see(txn, "write", key, versions[-1])
    session.committing(txn)
    session.end(txn, status)
    return versions


def uploads(spool: Path) -> Iterator[tuple[bytes, history_pb2.Upload]]:
    """Everything in a spool, with the collector that wrote it."""
    for folder in sorted(path for path in spool.iterdir() if path.is_dir()):
        collector = b""
        for record in segments.read_from(folder):
            assert isinstance(record, segments.Record), record
            upload = history_pb2.Upload.FromString(record.payload)
            if upload.WhichOneof("message") == "hello":
                collector = upload.hello.collector
            yield collector, upload


def fragments(spool: Path) -> list[history_pb2.Fragment]:
    return [upload.fragment for _, upload in uploads(spool) if upload.WhichOneof("message") == "fragment"]


def txn_count(spool: Path) -> int:
    return sum(fragment.txn_count for fragment in fragments(spool))


def events(found: list[history_pb2.Fragment]) -> list[tuple[str, int, bool]]:
    """What happened to sessions: OPEN, IDLE, CLOSE, whose, and whether it begins with a fence."""
    names = history_pb2.SessionEvent.What.Name
    return [(names(event.what), event.session, event.fenced) for fragment in found for event in fragment.session_event]


def column(content: bytes, size: int) -> list[int]:
    return [int.from_bytes(content[at : at + size], "little") for at in range(0, len(content), size)]


def settled(fragment: history_pb2.Fragment) -> dict[int, int]:
    return {ids.tag: ids.settled for ids in fragment.write_ids}


def gap_ids(found: list[history_pb2.Fragment]) -> list[tuple[int, int]]:
    """The write ids in all gaps: first and end."""
    return [
        ((lost.tag << 32) + lost.first, (lost.tag << 32) + lost.end)
        for fragment in found
        for gap in fragment.gap
        for lost in gap.write_ids
    ]


def lost_of(versions: Iterable[int], found: list[history_pb2.Fragment]) -> set[int]:
    """Those of the versions that a gap declares."""
    gaps = sorted(gap_ids(found))
    ends = list(accumulate((end for _, end in gaps), max))
    places = ((version, bisect_right(gaps, version, key=lambda gap: gap[0])) for version in versions)
    return {version for version, place in places if place and version < ends[place - 1]}


def is_lost(version: int, found: list[history_pb2.Fragment]) -> bool:
    return bool(lost_of([version], found))
