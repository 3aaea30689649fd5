"""Cobra logs: what each record means, and where it is wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mussurana.verifier import formats
from mussurana.verifier.history import INITIAL, UNKNOWN_TIME, History, HistoryError, Kind, LeftOut, Status

LOADED, ABSENT = 0xBEBEEBEE, 0xDEADBEEF


def start(txn: int, *time: int) -> bytes:
    return struct.pack(f">c{1 + len(time)}q", b"S", txn, *time)


def commit(txn: int, *time: int) -> bytes:
    return struct.pack(f">c{1 + len(time)}q", b"C", txn, *time)


def wrote(wid: int, key: int, value: int = 0) -> bytes:
    return struct.pack(">cqQq", b"W", wid, key, value)


def saw(writer: int, wid: int, key: int, value: int = 0) -> bytes:
    return struct.pack(">cqqQq", b"R", writer, wid, key, value)


def load(folder: Path, *sessions: bytes) -> History:
    for number, content in enumerate(sessions):
        (folder / f"T{number}.log").write_bytes(content)
    (folder / "T0.debug").write_text("not part of the history")
    return formats.load(folder)


def refused(folder: Path, *sessions: bytes) -> str:
    with pytest.raises(HistoryError) as caught:
        load(folder, *sessions)
    return str(caught.value).removeprefix(f"{folder}/")


def test_the_write_id_is_the_version(tmp_path: Path) -> None:
    history = load(
        tmp_path,
        start(10) + wrote(501, 7, value=99) + commit(10),
        start(20) + saw(10, 501, 7, value=99) + wrote(502, 2**64 - 1) + commit(20),
    )
    assert history.value.tolist() == [501, 501, 502]
    assert history.kind.tolist() == [Kind.WRITE, Kind.READ, Kind.WRITE]
    assert [history.key_names[k] for k in history.key] == ["7", "7", str(2**64 - 1)]
    assert list(history.txn_names) == ["10", "20"]
    assert list(history.session_names) == ["T0", "T1"]
    assert (history.begin_ns == UNKNOWN_TIME).all()


def test_files_are_sessions_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    history = load(tmp_path, *[start(n + 1) + commit(n + 1) for n in range(12)])
    assert list(history.session_names) == [f"T{n}" for n in range(12)]


@pytest.mark.parametrize("mark", [LOADED, ABSENT])
def test_marked_reads_saw_the_initial_state(mark: int, tmp_path: Path) -> None:
    assert load(tmp_path, start(1) + saw(mark, mark, 7) + commit(1)).value.tolist() == [INITIAL]


def test_reads_of_the_collection_flag_are_left_out_and_counted(tmp_path: Path) -> None:
    history = load(
        tmp_path, start(1) + saw(LOADED, 0x23332333, 7) + saw(LOADED, 0x66666666, 7) + wrote(5, 8) + commit(1)
    )
    assert history.op_count == 1
    assert history.left_out == (LeftOut("reads of the flag of Cobra's garbage collection", 2),)


def test_without_write_ids_the_value_is_the_version(tmp_path: Path) -> None:
    none = 0xABDDEFEE
    history = load(
        tmp_path,
        start(1) + wrote(none, 7, value=31) + commit(1),
        start(2) + wrote(none, 7, value=31) + saw(none, none, 7, value=31) + commit(2),
    )
    assert history.value.tolist() == [31, 31, 31]


def test_nanoseconds_are_kept(tmp_path: Path) -> None:
    history = load(tmp_path, start(1, 5_000) + wrote(5, 8) + commit(1, 7_000), start(2) + commit(2))
    assert history.begin_ns.tolist() == [5_000, UNKNOWN_TIME]
    assert history.committed_ns.tolist() == [7_000, UNKNOWN_TIME]


def test_milliseconds_become_the_widest_interval(tmp_path: Path) -> None:
    at = 1_600_000_000_000
    history = load(tmp_path, start(1, at) + commit(1, at))
    assert history.begin_ns.tolist() == [at * 10**6]
    assert history.committed_ns.tolist() == [at * 10**6 + 999_999]


def test_a_session_that_ends_in_a_transaction_leaves_it_in_doubt(tmp_path: Path) -> None:
    history = load(tmp_path, start(1) + commit(1) + start(2) + wrote(5, 8), start(3, 10) + wrote(6, 8))
    assert history.status.tolist() == [Status.COMMITTED, Status.IN_DOUBT, Status.IN_DOUBT]
    assert history.begin_ns.tolist() == [UNKNOWN_TIME, UNKNOWN_TIME, 10]


def test_a_read_of_what_nobody_wrote_is_kept_for_the_checker(tmp_path: Path) -> None:
    assert load(tmp_path, start(1) + saw(77, 505, 8) + commit(1)).value.tolist() == [505]


def test_a_read_that_names_another_writer_is_contradictory(tmp_path: Path) -> None:
    message = refused(
        tmp_path, start(16) + wrote(0x505, 7) + commit(16), start(32) + wrote(6, 9) + saw(32, 0x505, 7) + commit(32)
    )
    assert message == (
        "T1.log: byte 34: the read names transaction 0x20 as the writer of 0x505, "
        "but transaction 0x10 wrote that: T0.log, byte 9"
    )


def test_one_of_several_writers_of_an_id_is_enough(tmp_path: Path) -> None:
    both = [start(n) + wrote(5, 7) + commit(n) for n in (1, 2)]
    for n in (1, 2):
        assert load(tmp_path, *both, start(3) + saw(n, 5, 7) + commit(3)).op_count == 3


def test_a_transaction_id_is_used_once(tmp_path: Path) -> None:
    message = refused(tmp_path, start(1) + commit(1), start(9) + commit(9) + start(1) + commit(1))
    assert message == "T1.log: byte 18: transaction id 0x1 is taken already: T0.log, byte 0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (start(1) + wrote(5, 7) + b"\x7f" + commit(1), "byte 34: expected S, C, R or W, found 0x7f"),
        (start(1) + wrote(5, 7)[:-1], "byte 9: the file ends inside this W record"),
        (start(1) + saw(1, 5, 7)[:20], "byte 9: the file ends inside this R record"),
        (start(1) + commit(1)[:4], "byte 9: the file ends inside this C record"),
        (start(1)[:3], "byte 0: the file ends inside this S record"),
        (start(1) + start(2) + commit(2), "byte 9: expected R, W or C, found S while a transaction is open"),
        (wrote(5, 7), "byte 0: expected S, found W outside of a transaction"),
        (start(1) + commit(1) + commit(1), "byte 18: expected S, found C outside of a transaction"),
        (start(1) + commit(2), "byte 9: expected C with the id of the open transaction, found another id"),
        (start(1) + wrote(LOADED, 7) + commit(1), "byte 9: this write id stands for the initial state"),
        (start(1, 10**18) + wrote(5, 7) + commit(1, 10**18)[:-1], "byte 42: the file ends inside this C record"),
    ],
)
def test_malformed_logs_name_file_and_byte(content: bytes, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, start(99) + commit(99), content).startswith(f"T1.log: {message}")


def test_every_truncation_loads_less_or_names_its_place(tmp_path: Path) -> None:
    content = start(1) + wrote(5, 7) + saw(1, 5, 7) + commit(1) + start(2) + commit(2)
    ends = {0, 9, 34, 67, 76, 85, 94}
    for length in range(len(content)):
        if length in ends:
            load(tmp_path, content[:length])
        else:
            assert refused(tmp_path, content[:length]).startswith(
                f"T0.log: byte {max(e for e in ends if e < length)}: "
            )


def test_a_folder_with_files_is_not_written_into(tmp_path: Path) -> None:
    history = load(tmp_path, start(1) + commit(1))
    with pytest.raises(HistoryError, match="the folder is not empty"):
        formats.save(history, tmp_path, "cobra")
