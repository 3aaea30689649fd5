"""What collectors left on disk: a folder of segments, or a folder with one such folder per process.

Each record is an Upload of history.proto (wire/segments.py has the bytes). All collectors below one folder that
recorded the same database are one history; `recordings` tells which there are. What a fragment means, and what of it
proves nothing, the round machine says that `mussurana serve` runs as well; so both say the same of the same bytes. Here
all fragments are fed to it, nothing waits, and all of it is one window. A history from a running system has holes, and
none of them may look like an anomaly, so a read counts only where it can be held against something:

    of a version that is here       it counts
    lost                            inside a declared gap, or by a collector of which fragments are missing
    of a row from elsewhere         written under the name of another table, or of a table that began anew
    late                            above what its collector calls settled: its transaction was still open
    of a stranger                   with a tag that no collector here declared
    else                            nobody wrote it: it counts, and the history will be rejected for it

The same holds for the versions that updates replaced. Of a table into which somebody wrote unobserved no read counts.
Sessions need not fence: nothing is forgotten before the end.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from mussurana.verifier.formats.places import bad_byte
from mussurana.verifier.history import History, HistoryError, Kind, LeftOut
from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.fences import Border, link
from mussurana.verifier.rounds.fragments import BadFragment
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.rounds.moved import unwritten
from mussurana.verifier.rounds.table import VersionTable
from mussurana.verifier.rounds.window import Names, lost_ops, make_window
from mussurana.verifier.rounds.xids import is_from_before
from mussurana.wire import BEFORE_RECORDING, COUNTER_BITS, FENCE_KEY, PROTOCOL, history_pb2, segments
from mussurana.wire.databases import are_two, is_place, may_be_one

SUFFIX = ".seg"
FOR_EVER_NS = 1 << 62  # when all is taken to have been received: nothing is of the future

LOST_READS = "reads of versions that were lost in a gap"
LATE_READS = "reads of versions whose transactions had not been recorded yet"
STRANGE_READS = "reads of versions by a collector that is not here"
ABSENT_READS = "reads of absent rows that may have been deleted"
TAINTED_READS = "reads of tables with unobserved writes"
CONTESTED_READS = "reads of versions that two collectors may have written"
OTHER_TXNS = "transactions of an earlier era of the fences, or under another collector's tag"
MOVED_READS = "reads of rows that were written under another name"
AMBIGUOUS_KEYS = "operations on keys with the same hash"
NOT_KNOWN = "a database that is not known"
CLOCKS_SET_BACK = "transactions whose own clock went back (their times do not count)"


@dataclass
class Collector:
    """What one process told, beside what the machine remembers of it."""

    name: str = ""
    last_sequence: int = 0
    is_whole: bool = True  # no fragment is missing, from the first on
    coverage: dict[tuple[str, str, int], int] = field(default_factory=dict)


class Reader:
    def __init__(self, path: Path, is_all: bool = True) -> None:
        """`is_all`: nobody else recorded this database, as far as these folders tell."""
        self.path, self.is_all = path, is_all
        self.machine = Verifier([], keeps_absent=True, names_max=sys.maxsize)
        self.collectors: dict[bytes, Collector] = {}
        self.deleted: set[int] = set()  # keys
        self.left_out: Counter[str] = Counter()

    def read_folder(self, folder: Path) -> None:
        id = b""
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
                id = upload.hello.collector
                self.collectors.setdefault(id, Collector()).name = upload.hello.name
            elif id not in self.collectors:
                raise bad_byte(path, at, "expected a Hello, with which every segment starts")
            else:
                try:
                    self._take(id, upload.fragment)
                except BadFragment as error:
                    raise bad_byte(path, at, str(error)) from None

    def _take(self, id: bytes, fragment: history_pb2.Fragment) -> None:
        collector = self.collectors[id]
        if fragment.sequence <= collector.last_sequence:
            return
        missing = collector.last_sequence + 1, fragment.sequence - 1
        if missing[0] <= missing[1]:
            collector.is_whole = False
            self.machine.lose(id, *missing, received_ns=FOR_EVER_NS)
        self.machine.feed(id, fragment, received_ns=FOR_EVER_NS)
        collector.last_sequence = fragment.sequence
        for row in fragment.coverage:
            collector.coverage[row.table, row.shape, row.observed] = row.statement_count
        for gap in fragment.gap:
            self.left_out[f"transactions lost: {gap.reason}"] += gap.txn_count
        is_delete = np.frombuffer(fragment.op_kind, "u1") == history_pb2.DELETE
        self.deleted.update(np.frombuffer(fragment.op_key, "<i8")[is_delete].tolist())

    def finish(self) -> History:
        machine = self.machine
        lost = machine.lost
        batch = link(self._without_absent(machine.everything()), Border(), lost)
        late = machine.admission.late(batch, lost)
        is_strange = late & ~np.isin(batch.seen >> COUNTER_BITS, np.array(sorted(machine.owners.of), np.int64))
        moved = self._moved(batch)
        late &= ~moved
        is_strange &= ~moved
        reasons = {
            MOVED_READS: moved,
            LOST_READS: lost_ops(batch, lost) & ~moved,
            STRANGE_READS: is_strange,
            LATE_READS: late & ~is_strange,
        }
        for reason, unknown in reasons.items():
            self.left_out[reason] += int(np.count_nonzero(unknown & (batch.kind == Kind.READ)))
            replaced = unknown & (batch.kind == Kind.WRITE)
            self.left_out[reason.replace("reads of", "replaced")] += int(np.count_nonzero(replaced))
        names = Names(self._key_name, self._session_names(batch).__getitem__, str, machine.statement, machine.known_key)
        horizons = machine.admission.progress.horizons
        window = make_window(batch.without_reads(late | moved), 0, VersionTable(), lost, [], names, horizons)
        history = window.history
        return replace(
            history,
            key_names=list(history.key_names),
            session_names=list(history.session_names),
            value_names={},
            initial_names=(),
            left_out=self._all_left_out(),
            source=str(self.path),
        )

    def _without_absent(self, batch: Batch) -> Batch:
        """A row that is absent has never been there, unless it was: somebody deleted it, or may have, out of sight."""
        absent = batch.found_no_row
        if not absent.any():
            return batch
        horizons = self.machine.admission.progress.horizons
        initial = (batch.seen == BEFORE_RECORDING) | is_from_before(batch.seen, horizons)
        was_there = np.append(batch.key[initial], np.array(sorted(self.deleted), np.int64))
        may_be_gone = absent & (np.isin(batch.key, was_there) if self._is_whole() else True)
        self.left_out[ABSENT_READS] += int(np.count_nonzero(may_be_gone))
        never_there = replace(batch, version=np.where(absent, BEFORE_RECORDING, batch.version))
        return never_there.select_ops(~may_be_gone)

    def _moved(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Which operations saw rows from elsewhere."""
        moved, at = np.zeros(len(batch.kind), bool), unwritten(batch)
        nothing = np.zeros(0, np.int64)
        moved[at] = self.machine.moved.among(batch, at, (nothing, nothing), self.machine.known_key)
        return moved

    def _is_whole(self) -> bool:
        """Whether nothing can be missing: all collectors have said all that they had to say."""
        machine = self.machine
        settled = machine.admission.progress.settled
        return (
            self.is_all
            and not len(machine.lost)
            and not machine.lost_txns
            and all(collector.is_whole for collector in self.collectors.values())
            and all(settled.get(tag) == (tag + 1) << COUNTER_BITS for tag in machine.owners.of)
        )

    def _session_names(self, batch: Batch) -> dict[int, str]:
        order = list(self.collectors)
        names, places = {}, {}
        for number in np.unique(batch.session).tolist():
            session = self.machine.sessions[number]
            names[number] = f"{self.collectors[session.collector].name} / {session.name}"
            places[number] = f"#{order.index(session.collector)}.{session.number}"
        counts = Counter(names.values())  # two processes of one name, or two connections of one process
        return {number: f"{name} {places[number]}" if counts[name] > 1 else name for number, name in names.items()}

    def _key_name(self, number: int) -> str:
        if number == FENCE_KEY:
            return "fence"
        return self.machine.key_names.get(number) or f"key {number & 0xFFFFFFFFFFFFFFFF:016x}"

    def _all_left_out(self) -> tuple[LeftOut, ...]:
        machine = self.machine
        self.left_out[AMBIGUOUS_KEYS] += machine.unchecked["colliding"]
        self.left_out[TAINTED_READS] += machine.unchecked["tainted"]
        self.left_out[STRANGE_READS] += machine.unchecked["lost"]
        self.left_out[CLOCKS_SET_BACK] += machine.clocks_set_back
        self.left_out[CONTESTED_READS] += machine.unchecked["contested"]
        self.left_out[OTHER_TXNS] += machine.unchecked["unfenced"]
        for collector in self.collectors.values():
            for (_, shape, observed), count in collector.coverage.items():
                if observed == history_pb2.Coverage.PARTIAL:
                    self.left_out[f"statements observed in part: {shape}"] += count
                elif observed != history_pb2.Coverage.FULL:
                    self.left_out[f"statements not observed: {shape}"] += count
            self.left_out["collectors of which fragments are missing"] += not collector.is_whole
        return tuple(LeftOut(what, count) for what, count in self.left_out.items() if count)


def folders_of(path: Path) -> list[Path]:
    """The folders with segments: this one, or those right below it."""
    if any(path.glob(f"*{SUFFIX}")):
        return [path]
    return sorted({segment.parent for segment in path.glob(f"*/*{SUFFIX}")})


@dataclass(frozen=True)
class Recording:
    """All that was recorded of one database below a folder."""

    path: Path
    identity: str  # as in history.proto; empty: not known
    name: str  # for people
    folders: tuple[Path, ...]
    is_all: bool = True  # nothing in the other folders can be of this database as well

    def read(self) -> History:
        reader = Reader(self.path, self.is_all)
        for folder in self.folders:
            reader.read_folder(folder)
        return reader.finish()


def recordings(path: Path) -> list[Recording]:
    """What was recorded below a folder, by database.

    Folders that do not say which database they are of belong to the only one that there is; if there are several, they
    are one of their own. So does one that only says where its database was reached, if that may be one of the others.
    """
    folders = folders_of(path) if path.is_dir() else []
    if not folders:
        raise HistoryError(f"{path}: expected a folder with *{SUFFIX} files, or with folders of them, found none")
    told = {folder: _database_of(folder) for folder in folders}
    known = sorted({database.identity for database in told.values()} - {""})
    meant = {identity: _meant(identity, known) for identity in known}
    groups = sorted(set(meant.values()))
    meant[""] = groups[0] if len(groups) == 1 else ""
    found = []
    for identity in dict.fromkeys(meant[database.identity] for database in told.values()):
        own = [folder for folder in folders if meant[told[folder].identity] == identity]
        name = next((told[folder].name for folder in own if told[folder].name), identity)
        others = [meant[told[folder].identity] for folder in folders if folder not in own]
        is_all = all(are_two(identity, other) for other in others)
        found.append(Recording(path, identity, name or NOT_KNOWN, tuple(own), is_all))
    return sorted(found, key=lambda recording: (not recording.identity, recording.name, recording.identity))


def _meant(identity: str, known: list[str]) -> str:
    """The only other database that may be this one, or this one."""
    others = [other for other in known if other != identity and may_be_one(identity, other)]
    return others[0] if len(others) == 1 and is_place(identity) else identity


def _database_of(folder: Path) -> history_pb2.Database:
    """Which database a collector says that it records: in its Hello, or if that is damaged in its fragments."""
    for found in segments.read_from(folder):
        if isinstance(found, segments.Damage):
            continue
        try:
            upload = history_pb2.Upload.FromString(found.payload)
        except DecodeError:  # whoever reads the folder says where
            break
        told = upload.hello.recorded if upload.HasField("hello") else upload.fragment.database
        if told.identity or upload.HasField("fragment"):
            return told
    return history_pb2.Database()


def read(path: Path) -> History:
    """What was recorded of the only database that there is."""
    return only(recordings(path)).read()


def only(found: list[Recording], database: str = "") -> Recording:
    """The recording of a database, by its identity, its name or the end of that. HistoryError if it is not one."""
    chosen = [each for each in found if not database or database in _names(each)]
    if len(chosen) == 1:
        return chosen[0]
    names = [each.name for each in found]
    shown = ", ".join(each.identity if names.count(each.name) > 1 else each.name for each in found)
    if database and not chosen:
        raise HistoryError(f"{found[0].path}: nothing was recorded of a database {database!r}; there is {shown}")
    raise HistoryError(
        f"{found[0].path}: {len(chosen)} databases were recorded here, and each is a history of its own. "
        f"Say which one with --database: {shown}"
    )


def _names(recording: Recording) -> set[str]:
    return {recording.identity, recording.name, recording.name.rpartition("/")[2]} - {""}
