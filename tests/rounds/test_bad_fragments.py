"""A fragment is either understood completely or refused with the field that is wrong, and then nothing of it is in."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from mussurana.verifier.rounds.bounds import TXNS_MAX
from mussurana.verifier.rounds.fragments import BadFragment
from mussurana.wire import history_pb2 as pb
from tests.rounds.feeding import Wire, tag, version

Spoil = Callable[[pb.Fragment], object]


def put(field: str, value: object) -> Spoil:
    return lambda fragment: setattr(fragment, field, value)


def longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


COLUMNS = (
    *("txn_session", "txn_status", "txn_begin_ns", "txn_begun_ns", "txn_commit_ns", "txn_committed_ns"),
    *("txn_op_count", "op_kind", "op_key", "op_version", "op_previous"),
)

WRONG = [
    *((field, put(field, b"\0" * 5)) for field in (*COLUMNS, "op_statement")),
    ("txn_count", put("txn_count", TXNS_MAX + 1)),
    ("txn_status", put("txn_status", b"\0\3")),
    ("op_kind", put("txn_op_count", struct.pack("<2I", 2, 2**32 - 1))),
    ("op_kind", put("op_kind", b"\0\6\2")),
    ("op_version", put("op_version", longs(0, version("a8"), 2**63))),
    ("op_version", put("op_version", longs(0, 0, version("a9")))),
    ("op_version", put("op_version", longs(0, version("a8"), version("z1")))),
    ("op_previous", put("op_previous", longs(2**63))),
    ("sequence", put("sequence", 0)),
    ("sequence", put("sequence", 2)),
    ("sequence", put("sequence", 4)),
]


@pytest.mark.parametrize(("field", "spoil"), WRONG)
def test_what_is_wrong_is_named_and_nothing_is_taken_in(field: str, spoil: Spoil) -> None:
    wire = Wire("serializable")
    wire.feed("a", "0 x:=a1")
    wire.feed("a", "1 x==a1")
    before = wire.machine.state()
    made = wire.make("a", "0 x==0 y:=a8", "7 x:=a9<a1")
    made.key_name.add(key=5, name="never seen")
    made.session_event.add(what=pb.SessionEvent.OPEN, session=9)
    made.gap.add(txn_count=3).write_ids.add(tag=tag("a"), first=50, end=60)
    spoil(made)
    with pytest.raises(BadFragment, match=field):
        wire.send("a", made)
    assert wire.machine.state() == before


def test_the_first_fragment_of_a_collector_may_be_bad_as_well() -> None:
    wire = Wire("serializable")
    made = wire.make("a", "0 x:=a1")
    made.op_kind = b""
    before = wire.machine.state()
    with pytest.raises(BadFragment, match="op_kind"):
        wire.send("a", made)
    assert wire.machine.state() == before
