"""A history as the fragments that collectors would have sent.

Versions become write ids: writes are numbered in the order in which they are sent. Versions that were read and that
nobody wrote get numbers that are settled from the start, so that a verifier knows that they will not come. All sessions
are open from the first fragment to the last and never fence, because a recorded history has no fences; so a verifier
forgets nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
import xxhash

from mussurana.verifier.history import (
    INITIAL,
    NO_ROW,
    NO_VALUE,
    UNKNOWN_TIME,
    History,
    HistoryError,
    Ints,
    Kind,
    offsets,
    ranges,
)
from mussurana.verifier.replay.lists import as_registers
from mussurana.wire import BEFORE_RECORDING, COUNTER_BITS, TAG_MAX
from mussurana.wire.history_pb2 import INSERT, READ, UPDATE, WRITE, Fragment, SessionEvent

FRAGMENT_TXNS = 1000
"""As collectors send them: larger ones make nothing cheaper."""

FRAGMENT_NS = 100_000_000
"""As recorded: a fragment covers no more than this, so that replayed traffic arrives as it happened."""


@dataclass(frozen=True)
class Sent:
    """What a collector sends next, and when it would have done so, counted from the start of the history."""

    fragment: Fragment
    after_ns: int


def streams(history: History, start_ns: int, collectors: int = 1, seed: int | None = None) -> list[Iterator[Sent]]:
    """The whole history, by collector, its first time moved to `start_ns`. HistoryError if the wire cannot say it.

    Sessions are dealt out to the collectors in turn. The seed is for the tags of their write ids.
    """
    history = as_registers(history)
    tags = Random(seed).sample(range(1, TAG_MAX + 1), collectors)
    end_ns = _end_ns(history)
    order = np.lexsort((np.arange(history.txn_count), _position(history), end_ns))
    version, previous, unwritten = _write_ids(history, order, tags)
    known = [column[column != UNKNOWN_TIME] for column in _times(history)]
    first_ns = min((int(column.min()) for column in known if len(column)), default=start_ns)

    def stream(number: int) -> Iterator[Sent]:
        mine = order[history.session[order] % collectors == number]
        sessions = list(range(number, len(history.session_names), collectors))
        settled = 1 + (unwritten if number == 0 else 0)
        maker = _Collector(tags[number], sessions, history, version, previous, start_ns - first_ns, settled)
        pieces = list(_cut(mine, end_ns))
        for at, piece in enumerate(pieces):
            last_ns = int(end_ns[piece].max(initial=UNKNOWN_TIME))
            yield Sent(maker.fragment(piece, is_last=at == len(pieces) - 1), max(0, last_ns - first_ns))

    return [stream(number) for number in range(collectors)]


def _times(history: History) -> tuple[Ints, Ints, Ints, Ints]:
    return history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns


def _position(history: History) -> Ints:
    """Of each transaction in its session: without times, sessions take turns."""
    by_session = np.argsort(history.session, kind="stable")
    start = offsets(np.bincount(history.session, minlength=1))
    position = np.empty(history.txn_count, np.int64)
    position[by_session] = np.arange(history.txn_count) - start[history.session[by_session]]
    return position


def _end_ns(history: History) -> Ints:
    """When each transaction ended, as far as known, and never before the one before it in its session."""
    end = np.full(history.txn_count, UNKNOWN_TIME)
    for column in _times(history):
        end = np.maximum(end, column)
    for session in range(len(history.session_names)):
        mine = np.flatnonzero(history.session == session)
        end[mine] = np.maximum.accumulate(end[mine])
    return end


def _cut(order: Ints, end_ns: Ints) -> Iterator[Ints]:
    """Pieces of at most so many transactions and so much time; one that is empty if there are none."""
    at = 0
    while at < len(order) or at == 0:
        piece = order[at : at + FRAGMENT_TXNS]
        if len(piece) and end_ns[piece[0]] != UNKNOWN_TIME:
            piece = piece[: max(1, int(np.searchsorted(end_ns[piece], end_ns[piece[0]] + FRAGMENT_NS, "right")))]
        yield piece
        at += max(1, len(piece))


def _write_ids(history: History, order: Ints, tags: list[int]) -> tuple[Ints, Ints, int]:
    """Per operation: the write id that it saw or wrote, and the one that it replaced (or NO_VALUE, NO_ROW).

    Also how many versions were seen that nobody wrote; they have the first numbers of the first tag.
    """
    is_write = history.kind == Kind.WRITE
    replaces = is_write & (history.previous != NO_VALUE) & (history.previous != NO_ROW)
    # Every mention of a version, as (key, value): what operations saw or wrote, then what they replaced.
    key = np.concatenate([history.key, history.key[replaces]]).astype(np.int64)
    value = np.concatenate([history.value, history.previous[replaces]])
    by_name = np.lexsort((value, key))
    is_new = np.ones(len(by_name), bool)
    is_new[1:] = (np.diff(key[by_name]) != 0) | (np.diff(value[by_name]) != 0)
    name = np.empty(len(by_name), np.int64)
    name[by_name] = np.cumsum(is_new) - 1
    count = int(name.max(initial=-1)) + 1
    of_op, of_replaced = name[: history.op_count], name[history.op_count :]

    writes = np.bincount(of_op[is_write], minlength=count)
    seen = np.zeros(count, bool)
    seen[of_op[~is_write]] = True
    seen[of_replaced] = True
    _refuse_repeated(history, is_write, of_op, seen & (writes > 1))

    write_ids = np.full(count, BEFORE_RECORDING, np.int64)
    is_initial = np.zeros(count, bool)
    is_initial[name[value == INITIAL]] = True
    unwritten = np.flatnonzero((writes == 0) & ~is_initial)
    write_ids[unwritten] = (tags[0] << COUNTER_BITS) + 1 + np.arange(len(unwritten))

    ops = ranges(history.op_start[order], history.op_start[order + 1])
    ops = ops[is_write[ops]]
    collector = np.repeat(history.session % len(tags), np.diff(history.op_start))[ops]
    version = np.empty(history.op_count, np.int64)
    for number, tag in enumerate(tags):
        mine = ops[collector == number]
        first = 1 + (len(unwritten) if number == 0 else 0)
        version[mine] = (tag << COUNTER_BITS) + first + np.arange(len(mine))
    write_ids[of_op[is_write]] = version[is_write]
    version[~is_write] = write_ids[of_op[~is_write]]
    previous = np.where(history.previous == NO_ROW, NO_ROW, NO_VALUE)
    previous[replaces] = write_ids[of_replaced]
    return version, previous, len(unwritten)


def _refuse_repeated(history: History, is_write: np.ndarray, of_op: Ints, repeated: np.ndarray) -> None:
    found = np.flatnonzero(is_write & repeated[of_op])
    if len(found):
        op = int(found[0])
        name = f"{history.key_names[int(history.key[op])]!r}: value {history.value_name(int(history.value[op]))}"
        raise HistoryError(f"key {name} was written more than once and read; the wire has one name for each version")


class _Collector:
    """Makes the fragments of one collector, in order."""

    def __init__(
        self,
        tag: int,
        sessions: list[int],
        history: History,
        version: Ints,
        previous: Ints,
        shift_ns: int,
        settled: int,
    ) -> None:
        self._tag, self._sessions, self._shift_ns, self._settled = tag, sessions, shift_ns, settled
        self._history, self._version, self._previous = history, version, previous
        self._sequence = 0
        self._key = np.zeros(len(history.key_names), np.uint64)  # on the wire; 0 for those that were not named yet

    def fragment(self, txns: Ints, is_last: bool) -> Fragment:
        history = self._history
        self._sequence += 1
        made = Fragment(sequence=self._sequence, txn_count=len(txns))
        if self._sequence == 1:
            for session in self._sessions:
                made.session_event.add(
                    what=SessionEvent.OPEN, session=session, name=history.session_names[session], fenced=False
                )
        if is_last:
            for session in self._sessions:
                made.session_event.add(what=SessionEvent.CLOSE, session=session)
        ops = ranges(history.op_start[txns], history.op_start[txns + 1])
        self._name_keys(made, history.key[ops])
        is_write = history.kind[ops] == Kind.WRITE
        previous = self._previous[ops]
        replaces = is_write & (previous != NO_VALUE) & (previous != NO_ROW)
        writes = np.where(replaces, UPDATE, np.where(previous == NO_ROW, INSERT, WRITE))
        self._settled += int(np.count_nonzero(is_write))
        made.write_ids.add(tag=self._tag, settled=self._settled, drawn=self._settled)
        made.txn_session = history.session[txns].astype("<u4").tobytes()
        made.txn_status = history.status[txns].tobytes()
        for field, column in zip(("begin", "begun", "commit", "committed"), _times(history), strict=True):
            times_ns = np.where(column[txns] == UNKNOWN_TIME, 0, column[txns] + self._shift_ns)
            setattr(made, f"txn_{field}_ns", times_ns.astype("<i8").tobytes())
        made.txn_op_count = np.diff(history.op_start)[txns].astype("<u4").tobytes()
        made.op_kind = np.where(is_write, writes, READ).astype(np.uint8).tobytes()
        made.op_key = self._key[history.key[ops]].astype("<u8").tobytes()
        made.op_version = self._version[ops].astype("<u8").tobytes()
        made.op_previous = previous[replaces].astype("<u8").tobytes()
        return made

    def _name_keys(self, made: Fragment, keys: npt.NDArray[np.int32]) -> None:
        """Names travel once, with their first use."""
        for key in np.unique(keys[self._key[keys] == 0]).tolist():
            name = self._history.key_names[key]
            self._key[key] = xxhash.xxh3_64_intdigest(name.encode(errors="surrogatepass")) or 1
            made.key_name.add(key=int(self._key[key]), name=name.encode(errors="replace").decode())
