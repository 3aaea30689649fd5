"""What collectors left on disk: a folder of segments, or a folder with one such folder per process.

Each record is an Upload of history.proto (wire/segments.py has the bytes). All collectors below one folder are one
history. A history from a running system has holes, and none of them may look like an anomaly, so a read counts only
where it can be held against something:

    of a version that is here       it counts
    lost                            inside a declared gap, or by a collector of which fragments are missing
    late                            above what its collector calls settled: its transaction was still open
    of a stranger                   with a tag that no collector here declared
    else                            nobody wrote it: it counts, and the history will be rejected for it

The same holds for the versions that updates replaced. Of a table into which somebody wrote unobserved no read counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from mussurana.verifier.formats.places import bad_byte
from mussurana.verifier.history import (
    INITIAL,
    NO_ROW,
    NO_VALUE,
    UNKNOWN_TIME,
    Bytes,
    History,
    HistoryError,
    Ints,
    Kind,
    LeftOut,
    offsets,
)
from mussurana.wire import BEFORE_RECORDING, COUNTER_BITS, FENCE_KEY, PROTOCOL, XID_TAG, history_pb2, segments

SUFFIX = ".seg"
READ, WRITE, UPDATE, DELETE, READ_ABSENT, INSERT = range(6)

FIRST_XID = 3  # smaller ones stand for rows that have been there for ever

LOST_READS = "reads of versions that were lost in a gap"
LATE_READS = "reads of versions whose transactions had not been recorded yet"
STRANGE_READS = "reads of versions by a collector that is not here"
ABSENT_READS = "reads of absent rows that may have been deleted"
TAINTED_READS = "reads of tables with unobserved writes"
AMBIGUOUS_KEYS = "operations on keys with the same hash"

TXN_COLUMNS = {
    "txn_session": "<u4",
    "txn_status": "u1",
    "txn_begin_ns": "<i8",
    "txn_begun_ns": "<i8",
    "txn_commit_ns": "<i8",
    "txn_committed_ns": "<i8",
    "txn_op_count": "<u4",
}
OP_COLUMNS = {"op_kind": "u1", "op_key": "<u8", "op_version": "<u8"}
Column = npt.NDArray[Any]


@dataclass
class Collector:
    """What one process told."""

    name: str = ""
    last_sequence: int = 0
    is_whole: bool = True  # no fragment is missing, from the first on
    settled: dict[int, int] = field(default_factory=dict)  # tag -> counter
    xid_horizon: int = 0
    session_names: dict[int, str] = field(default_factory=dict)
    coverage: dict[tuple[str, str, int], int] = field(default_factory=dict)


class Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.collectors: dict[bytes, Collector] = {}
        self.columns: dict[str, list[Column]] = {name: [] for name in (*TXN_COLUMNS, *OP_COLUMNS, "previous", "owner")}
        self.key_names: dict[int, str] = {}
        self.ambiguous: set[int] = set()
        self.gaps: list[tuple[int, int]] = []  # write ids, first and end
        self.left_out: Counter[str] = Counter()

    def read_folder(self, folder: Path) -> None:
        collector: Collector | None = None
        for found in segments.read_from(folder):
            if isinstance(found, segments.Damage):
                self.left_out["damaged parts of segments"] += 1
                continue
            path, at = segments.segment_path(folder, found.position.segment), found.position.offset
            try:
                upload = history_pb2.Upload.FromString(found.payload)
            except DecodeError:
                raise bad_byte(path, at, "expected an Upload of history.proto") from None
            if upload.WhichOneof("message") == "hello":
                if upload.hello.protocol > PROTOCOL:
                    what = (
                        f"expected protocol {PROTOCOL}, found {upload.hello.protocol}; read it with a newer mussurana"
                    )
                    raise bad_byte(path, at, what)
                collector = self.collectors.setdefault(upload.hello.collector, Collector())
                collector.name = upload.hello.name
            elif collector is None:
                raise bad_byte(path, at, "expected a Hello, with which every segment starts")
            else:
                try:
                    self._take(collector, upload.fragment)
                except ValueError as error:
                    raise bad_byte(path, at, f"fragment {upload.fragment.sequence}: {error}") from None

    def _take(self, collector: Collector, fragment: history_pb2.Fragment) -> None:
        if fragment.sequence <= collector.last_sequence:
            return
        if fragment.sequence != collector.last_sequence + 1:
            collector.is_whole = False
        collector.last_sequence = fragment.sequence
        for event in fragment.session_event:
            if event.what == history_pb2.SessionEvent.OPEN:
                collector.session_names[event.session] = event.name
        collector.xid_horizon = collector.xid_horizon or fragment.xid_horizon
        for ids in fragment.write_ids:
            collector.settled[ids.tag] = ids.settled
        for name in fragment.key_name:
            if self.key_names.setdefault(name.key, name.name) != name.name:
                self.ambiguous.add(name.key)
        for row in fragment.coverage:
            collector.coverage[row.table, row.shape, row.observed] = row.statement_count
        for gap in fragment.gap:
            self.left_out[f"transactions lost: {gap.reason}"] += gap.txn_count
            for lost in gap.write_ids:
                base = lost.tag << COUNTER_BITS
                self.gaps.append((base + lost.first, base + lost.end))
        self._take_columns(collector, fragment)

    def _take_columns(self, collector: Collector, fragment: history_pb2.Fragment) -> None:
        columns = {name: _column(fragment, name, dtype) for name, dtype in (TXN_COLUMNS | OP_COLUMNS).items()}
        for name in TXN_COLUMNS:
            if len(columns[name]) != fragment.txn_count:
                raise ValueError(f"expected {fragment.txn_count} entries in {name}, found {len(columns[name])}")
        op_count = int(columns["txn_op_count"].sum())
        for name in OP_COLUMNS:
            if len(columns[name]) != op_count:
                raise ValueError(f"expected {op_count} entries in {name}, found {len(columns[name])}")
        kind = columns["op_kind"]
        if len(kind) and int(kind.max()) > INSERT:
            raise ValueError(f"expected a kind of operation up to {INSERT}, found {int(kind.max())}")
        if fragment.txn_count and int(columns["txn_status"].max()) > 2:
            raise ValueError(f"expected a status up to 2, found {int(columns['txn_status'].max())}")
        replaced = _column(fragment, "op_previous", "<u8")
        has_previous = (kind == UPDATE) | (kind == DELETE)
        if len(replaced) != np.count_nonzero(has_previous):
            raise ValueError(f"expected {np.count_nonzero(has_previous)} entries in op_previous, found {len(replaced)}")
        previous = np.where(kind == INSERT, NO_ROW, NO_VALUE)
        previous[has_previous] = _versions(replaced)
        written = columns["op_version"][(kind != READ) & (kind != READ_ABSENT)]
        if len(written) and int(written.min()) == BEFORE_RECORDING:
            raise ValueError("expected a write id in op_version, found 0, which nobody can write")
        columns["previous"] = previous
        columns["op_version"] = _versions(columns["op_version"])
        number = list(self.collectors.values()).index(collector)
        columns["owner"] = np.full(fragment.txn_count, number, np.int64)
        for name, column in columns.items():
            self.columns[name].append(column)

    def finish(self) -> History:
        joined = {name: np.concatenate([np.zeros(0, np.int64), *parts]) for name, parts in self.columns.items()}
        kind = joined["op_kind"].astype(np.uint8)
        version = joined["op_version"].astype(np.int64)
        previous = joined["previous"].astype(np.int64)
        key_hashes, key = _dense(self.columns["op_key"])
        counts = joined["txn_op_count"].astype(np.int64)
        session, session_names = self._sessions(
            joined["owner"].astype(np.int64), joined["txn_session"].astype(np.int64)
        )

        keep = self._weaken(kind, key, version, previous, key_hashes)
        txn_of_op = np.repeat(np.arange(len(counts)), counts)
        kept = np.bincount(txn_of_op[keep], minlength=len(counts))
        reads = (kind == READ) | (kind == READ_ABSENT)
        names = [self._key_name(int(number)) for number in key_hashes]
        return History(
            session=session,
            status=joined["txn_status"].astype(np.uint8),
            begin_ns=_times(joined["txn_begin_ns"]),
            begun_ns=_times(joined["txn_begun_ns"]),
            commit_ns=_times(joined["txn_commit_ns"]),
            committed_ns=_times(joined["txn_committed_ns"]),
            op_start=offsets(kept),
            kind=np.where(reads, np.uint8(Kind.READ), np.uint8(Kind.WRITE))[keep],
            key=key[keep].astype(np.int32),
            value=version[keep],
            previous=previous[keep],
            list_start=np.zeros(int(kept.sum()) + 1, np.int64),
            list_value=np.zeros(0, np.int64),
            session_names=session_names,
            key_names=names,
            left_out=self._all_left_out(),
            source=str(self.path),
        )

    def _weaken(
        self, kind: Bytes, key: Ints, version: Ints, previous: Ints, key_hashes: Column
    ) -> npt.NDArray[np.bool_]:
        """Which operations count. Replaced versions that do not are forgotten in `previous`."""
        is_read, is_absent = kind == READ, kind == READ_ABSENT
        is_write = ~is_read & ~is_absent
        keep = np.ones(len(kind), bool)

        ambiguous = np.isin(key_hashes, np.array(sorted(self.ambiguous), np.uint64))[key]
        self._leave_out(keep, ambiguous, AMBIGUOUS_KEYS)
        tainted = self._tainted(key_hashes)[key]
        self._leave_out(keep, tainted & ~is_write, TAINTED_READS)
        previous[tainted & (previous != NO_ROW)] = NO_VALUE

        self._find_initial_xids(kind, key, version, previous)
        # A row that is absent has never been there, unless it was: somebody deleted it, or may have, out of sight.
        was_there = np.zeros(len(key_hashes), bool)
        was_there[key[(kind == DELETE) | (is_read & (version == INITIAL)) | (previous == INITIAL)]] = True
        may_be_gone = was_there[key] if not self.gaps and self._is_whole() else np.ones(len(kind), bool)
        self._leave_out(keep, is_absent & may_be_gone, ABSENT_READS)

        # Which reads find what they saw: pairs of version and key among the writes.
        saw = np.where(is_read, version, previous)
        looks = keep & (saw != NO_VALUE) & (saw != NO_ROW) & (saw != INITIAL) & ~is_absent
        _, dense = np.unique(np.concatenate([version, saw]), return_inverse=True)
        written = dense[: len(version)] * len(key_hashes) + key
        seen = dense[len(version) :] * len(key_hashes) + key
        missing = looks & ~np.isin(seen, written[is_write])
        for reason, unknown in self._why_missing(saw, missing).items():
            self._leave_out(keep, unknown & is_read, reason)
            previous[unknown] = NO_VALUE
            self.left_out[reason.replace("reads of", "replaced")] += int(np.count_nonzero(unknown & is_write))
        return keep

    def _find_initial_xids(self, kind: Bytes, key: Ints, version: Ints, previous: Ints) -> None:
        """Where versions are the database's own ids: those from before anybody recorded are initial versions.

        Each key has one of them at most; if there seem to be more, somebody wrote whose recording is not here.
        """
        horizons = [collector.xid_horizon for collector in self.collectors.values()]
        saw = np.where(kind == READ, version, previous)
        is_xid = (saw > 0) & (saw >> COUNTER_BITS == XID_TAG)
        if not is_xid.any() or not all(horizons):
            return
        writes = (kind != READ) & (kind != READ_ABSENT) & (version >> COUNTER_BITS == XID_TAG)
        old = is_xid.copy()
        old[is_xid] = ~np.isin(saw[is_xid] * len(key) + key[is_xid], version[writes] * len(key) + key[writes])
        for horizon in horizons:
            age = (horizon - saw) % (1 << COUNTER_BITS)  # ids come round
            old &= (saw < FIRST_XID) | ((age > 0) & (age < 1 << (COUNTER_BITS - 1)))
        pairs = np.unique(np.stack([key[old], saw[old]]), axis=1)
        keys, counts = np.unique(pairs[0], return_counts=True)
        old &= np.isin(key, keys[counts == 1])
        version[old & (kind == READ)] = INITIAL
        previous[old & (kind != READ)] = INITIAL

    def _why_missing(self, saw: Ints, missing: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[np.bool_]]:
        """For versions that nobody here wrote: those that somebody may have written all the same, by reason."""
        tag, counter = saw >> COUNTER_BITS, saw & ((1 << COUNTER_BITS) - 1)
        lost = np.zeros(len(saw), bool)
        for first, end in self.gaps:
            lost |= (saw >= first) & (saw < end)
        declared = np.zeros(len(saw), bool)
        late = np.zeros(len(saw), bool)
        for collector in self.collectors.values():
            for own_tag, settled in collector.settled.items():
                own = tag == own_tag
                declared |= own
                if not collector.is_whole:
                    lost |= own
                late |= own & (counter >= settled)
        return {
            STRANGE_READS: missing & ~declared,
            LOST_READS: missing & declared & lost,
            LATE_READS: missing & declared & ~lost & late,
        }

    def _leave_out(self, keep: npt.NDArray[np.bool_], which: npt.NDArray[np.bool_], what: str) -> None:
        self.left_out[what] += int(np.count_nonzero(keep & which))
        keep &= ~which

    def _is_whole(self) -> bool:
        """Whether nothing can be missing: all collectors have said all that they had to say."""
        return all(
            collector.is_whole and all(settled == 1 << COUNTER_BITS for settled in collector.settled.values())
            for collector in self.collectors.values()
        )

    def _tainted(self, key_hashes: Column) -> npt.NDArray[np.bool_]:
        """Which keys belong to tables that somebody wrote to without being observed."""
        unobserved = history_pb2.Coverage.UNOBSERVED_WRITE
        tables = {
            table
            for collector in self.collectors.values()
            for (table, _, observed), count in collector.coverage.items()
            if observed == unobserved and count
        }
        if not tables:
            return np.zeros(len(key_hashes), bool)
        prefixes = tuple(f"{table}/" for table in tables)
        return np.array(
            [
                number != FENCE_KEY
                and ("" in tables or number not in self.key_names or self.key_names[number].startswith(prefixes))
                for number in map(int, key_hashes)
            ],
            bool,
        )

    def _sessions(self, owner: Ints, number: Ints) -> tuple[npt.NDArray[np.int32], list[str]]:
        pairs, session = np.unique((owner << 32) | number, return_inverse=True)
        collectors = list(self.collectors.values())
        names: list[str] = []
        for pair in map(int, pairs):
            collector, own_number = collectors[pair >> 32], pair & 0xFFFF_FFFF
            names.append(f"{collector.name} / {collector.session_names.get(own_number) or f'session {own_number}'}")
        repeated = {name for name, count in Counter(names).items() if count > 1}
        for index, pair in enumerate(map(int, pairs)):
            if names[index] in repeated:  # two processes of one name, or two connections of one process
                names[index] += f" #{pair >> 32}.{pair & 0xFFFF_FFFF}"
        return session.astype(np.int32), names

    def _key_name(self, number: int) -> str:
        if number == FENCE_KEY:
            return "fence"
        name = self.key_names.get(number, f"key {number:016x}")
        return f"{name} ({number:016x})" if number in self.ambiguous else name

    def _all_left_out(self) -> tuple[LeftOut, ...]:
        for collector in self.collectors.values():
            for (_, shape, observed), count in collector.coverage.items():
                if observed == history_pb2.Coverage.PARTIAL:
                    self.left_out[f"statements observed in part: {shape}"] += count
                elif observed != history_pb2.Coverage.FULL:
                    self.left_out[f"statements not observed: {shape}"] += count
            self.left_out["collectors of which fragments are missing"] += not collector.is_whole
        return tuple(LeftOut(what, count) for what, count in self.left_out.items() if count)


def _column(fragment: history_pb2.Fragment, name: str, dtype: str) -> Column:
    content: bytes = getattr(fragment, name)
    if len(content) % np.dtype(dtype).itemsize:
        raise ValueError(f"{name}: {len(content)} bytes are no whole number of entries")
    return np.frombuffer(content, dtype)


def _versions(column: Column) -> Ints:
    """Write ids as versions of a history."""
    if len(column) and int(column.max()) >= 1 << 63:
        raise ValueError("expected write ids below 2**63")
    return np.where(column == BEFORE_RECORDING, INITIAL, column.astype(np.int64))


def _times(column: Column) -> Ints:
    return np.where(column == 0, UNKNOWN_TIME, column.astype(np.int64))


def _dense(parts: Iterable[Column]) -> tuple[Column, Ints]:
    hashes, index = np.unique(np.concatenate([np.zeros(0, np.uint64), *parts]), return_inverse=True)
    return hashes, index.astype(np.int64)


def folders_of(path: Path) -> list[Path]:
    """The folders with segments: this one, or those right below it."""
    if any(path.glob(f"*{SUFFIX}")):
        return [path]
    return sorted({segment.parent for segment in path.glob(f"*/*{SUFFIX}")})


def read(path: Path) -> History:
    folders = folders_of(path) if path.is_dir() else []
    if not folders:
        raise HistoryError(f"{path}: expected a folder with *{SUFFIX} files, or with folders of them, found none")
    reader = Reader(path)
    for folder in folders:
        reader.read_folder(folder)
    return reader.finish()
