"""From the wire to columns: a fragment is either understood completely or refused with the field that is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mussurana.verifier.history import NO_ROW, NO_VALUE, UNKNOWN_TIME, Ints, Isolation, Kind, offsets
from mussurana.verifier.rounds.batch import Batch
from mussurana.verifier.rounds.bounds import EPOCH_MAX, TIME_NS_MAX, VERSION_MAX, OutOfBounds, check_bounds
from mussurana.wire import FENCE_KEY
from mussurana.wire.history_pb2 import DELETE, INSERT, READ_ABSENT, UPDATE, WRITE, Fragment


class BadFragment(Exception):
    """A fragment that cannot be what a collector saw. The message names the field."""


@dataclass(frozen=True)
class Decoded:
    batch: Batch  # sessions by the collector's own numbers, positions not yet known
    clocks_set_back: int  # transactions whose own times went backwards, so that none of them is used


def decode(fragment: Fragment, received_ns: int, trust_clock: bool = True) -> Decoded:
    """The transactions of a fragment. Without `trust_clock` their times count as not recorded."""
    name = f"fragment {fragment.sequence}"
    try:
        check_bounds(fragment)
    except OutOfBounds as error:
        raise BadFragment(str(error)) from None
    txns = fragment.txn_count

    def column(field: str, dtype: str, count: int, optional: bool = False) -> np.ndarray:
        content: bytes = getattr(fragment, field)
        width = np.dtype(dtype).itemsize
        if optional and not content:
            return np.zeros(count, dtype)
        if len(content) != count * width:
            raise BadFragment(f"{name}: {field} has {len(content)} bytes; {count} entries of {width} were expected")
        return np.frombuffer(content, dtype)

    def expect(good: np.ndarray, field: str, what: str) -> None:
        if not good.all():
            raise BadFragment(f"{name}: {field}: entry {int(np.flatnonzero(~good)[0])} {what}")

    session = column("txn_session", "<u4", txns)
    status = column("txn_status", "u1", txns)
    expect(status <= 2, "txn_status", "is none of 0, 1, 2")
    op_count = column("txn_op_count", "<u4", txns).astype(np.int64)
    ops = int(op_count.sum())
    kind = column("op_kind", "u1", ops)
    expect(kind <= INSERT, "op_kind", "is not a kind of operation")
    key = column("op_key", "<u8", ops).view(np.int64)
    version = column("op_version", "<u8", ops)
    expect(version <= VERSION_MAX, "op_version", "is not a write id")
    replaces = (kind == UPDATE) | (kind == DELETE)
    writes = replaces | (kind == WRITE) | (kind == INSERT)
    expect(~writes | (version > 0), "op_version", "is a write without a write id")
    replaced = column("op_previous", "<u8", int(np.count_nonzero(replaces)))
    expect(replaced <= VERSION_MAX, "op_previous", "is not a write id")
    previous = np.where(kind == INSERT, NO_ROW, NO_VALUE)
    previous[replaces] = replaced.astype(np.int64)
    statement = column("op_statement", "<u4", ops, optional=True)
    on_fence = key == FENCE_KEY
    told = column("fence_epoch", "<u8", int(np.count_nonzero(on_fence)), optional=True)
    expect(told <= EPOCH_MAX, "fence_epoch", "is not an epoch")
    epoch = np.zeros(txns, np.int64)
    np.maximum.at(epoch, np.repeat(np.arange(txns), op_count)[on_fence], told.astype(np.int64))
    times = [column(f"txn_{field}_ns", "<i8", txns) for field in ("begin", "begun", "commit", "committed")]

    times, set_back = _sane(times)
    if not trust_clock:
        times = [np.full(txns, UNKNOWN_TIME)] * len(times)
    begin_ns, begun_ns, commit_ns, committed_ns = times
    isolation = column("txn_isolation", "u1", txns, optional=True)
    expect(isolation <= max(Isolation), "txn_isolation", "is not an isolation level")

    batch = Batch(
        session=session.astype(np.int64),  # the machine's own number takes its place, which is smaller
        position=np.zeros(txns, np.int64),
        status=status,
        begin_ns=begin_ns,
        begun_ns=begun_ns,
        commit_ns=commit_ns,
        committed_ns=committed_ns,
        received_ns=np.full(txns, received_ns, np.int64),
        epoch=epoch,
        isolation=isolation,
        op_start=offsets(op_count),
        kind=np.where(writes, Kind.WRITE, Kind.READ).astype(np.uint8),
        key=key,
        version=np.where(kind == READ_ABSENT, NO_ROW, version.astype(np.int64)),
        previous=previous,
        statement=statement,
    )
    return Decoded(batch, set_back)


def _sane(times: list[np.ndarray]) -> tuple[list[Ints], int]:
    """Times as a history has them. Where a transaction's own times go backwards its clock was set: none is believed.

    Returns them and how many transactions that concerns.
    """
    columns = [np.where((column <= 0) | (column > TIME_NS_MAX), UNKNOWN_TIME, column) for column in times]
    believed = np.ones(len(times[0]), bool)
    latest = np.full(len(times[0]), UNKNOWN_TIME)
    for column in columns:
        believed &= (column == UNKNOWN_TIME) | (column >= latest)
        latest = np.maximum(latest, column)
    return [np.where(believed, column, UNKNOWN_TIME) for column in columns], int(np.count_nonzero(~believed))
