"""dbcop's bincode: what its values mean, and where it is wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mussurana.verifier import formats
from mussurana.verifier.history import INITIAL, History, HistoryError, Kind, LeftOut, Status

HEADER = struct.pack("<5Q", 1, 1, 1, 1, 1) + struct.pack("<Q", 2) + b"db" + struct.pack("<QQ", 0, 0)
HEADER_SIZE = 66


def event(write: int, key: int, value: int, success: int = 1) -> bytes:
    return struct.pack("<BQQB", write, key, value, success)


def many(*items: bytes) -> bytes:
    return struct.pack("<Q", len(items)) + b"".join(items)


def txn(*events: bytes, success: int = 1) -> bytes:
    return many(*events) + bytes([success])


def load(path: Path, content: bytes) -> History:
    (path / "history.bincode").write_bytes(content)
    return formats.load(path)


def test_sessions_transactions_and_events_are_read(tmp_path: Path) -> None:
    sessions = many(many(txn(event(1, 7, 5), event(0, 8, 0)), txn(event(0, 7, 5), success=0)), many())
    history = load(tmp_path, HEADER + sessions)
    assert history.session.tolist() == [0, 0]
    assert list(history.session_names) == ["0", "1"]
    assert history.status.tolist() == [Status.COMMITTED, Status.ABORTED]
    assert history.kind.tolist() == [Kind.WRITE, Kind.READ, Kind.READ]
    assert [history.key_names[k] for k in history.key] == ["7", "8", "7"]
    assert history.value.tolist() == [5, INITIAL, 5]


def test_events_that_did_not_succeed_are_left_out_and_counted(tmp_path: Path) -> None:
    history = load(
        tmp_path, HEADER + many(many(txn(event(1, 7, 5, success=0), event(0, 7, 0, success=0), event(1, 7, 6))))
    )
    assert history.value.tolist() == [6]
    assert history.left_out == (LeftOut("events that did not succeed", 2),)


def test_the_file_itself_may_be_given(tmp_path: Path) -> None:
    load(tmp_path, HEADER + many())
    assert formats.load(tmp_path / "history.bincode").txn_count == 0


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"", 0, "the file ends before the length of the string 'information'"),
        (HEADER[:40] + struct.pack("<Q", 10**15), 40, "the string 'information' has 1000000000000000 bytes"),
        (HEADER + many(many(txn(event(2, 7, 5)))), HEADER_SIZE + 24, "expected a boolean, 0 or 1, found 0x02"),
        (HEADER + many(many(txn(event(1, 7, 5, 9)))), HEADER_SIZE + 41, "expected a boolean, 0 or 1, found 0x09"),
        (
            HEADER + many(many(txn(event(1, 7, 5), success=3))),
            HEADER_SIZE + 42,
            "expected a boolean, 0 or 1, found 0x03",
        ),
        (HEADER + many(many(txn(event(1, 7, 0)))), HEADER_SIZE + 33, "this value cannot be a version"),
        (HEADER + many(many()) + b"\0", HEADER_SIZE + 16, "expected the end of the file"),
        (HEADER + struct.pack("<Q", 2**63 + 5), HEADER_SIZE + 8, "but the file ends"),
    ],
)
def test_malformed_files_name_the_byte(content: bytes, place: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as caught:
        load(tmp_path, content)
    assert f"history.bincode: byte {place}: " in str(caught.value)
    assert message in str(caught.value)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    content = HEADER + many(many(txn(event(1, 7, 5), event(0, 8, 0))), many(txn(event(0, 7, 5), success=0)))
    for length in range(len(content)):
        with pytest.raises(HistoryError, match=r"history\.bincode: byte \d+: "):
            load(tmp_path, content[:length])
