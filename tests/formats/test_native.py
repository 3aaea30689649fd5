"""Our own format: damage of any kind is noticed, and named with its place."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mussurana.verifier import formats
from mussurana.verifier.formats import native
from mussurana.verifier.history import INITIAL, NO_VALUE, History, HistoryBuilder, HistoryError, Kind, Status
from tests.formats.samples import Shape, canonical, random_history

HEADER = b"\x89MUS\r\n\x1a\n" + struct.pack("<I", 1)


def pad(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 8)


def names(*texts: str) -> bytes:
    encoded = [text.encode() for text in texts]
    lengths = b"".join(struct.pack("<I", len(text)) for text in encoded)
    return struct.pack("<Q", len(texts)) + pad(lengths) + pad(b"".join(encoded))


def column(code: str, *values: int) -> bytes:
    return pad(struct.pack(f"<{len(values)}{code}", *values))


def put_together(*blocks: tuple[bytes, bytes], header: bytes = HEADER) -> bytes:
    """A file, written without numpy, as the document says."""
    parts = [header, struct.pack("<I", zlib.crc32(header))]
    for number, (kind, payload) in enumerate(blocks):
        head = kind + struct.pack("<IQI", number, len(payload), zlib.crc32(payload))
        parts += [head, struct.pack("<I", zlib.crc32(head)), payload]
    return b"".join(parts)


SESSIONS = (b"SESS", names("web-1", "web-2"))
KEYS = (b"KEYS", names("x", "日本"))
DONE = (b"DONE", struct.pack("<5Q", 2, 4, 2, 2, 2))


def transactions(
    *,
    present: int = native.BEGIN | native.PREVIOUS | native.LISTS,
    sessions: tuple[int, int] = (0, 1),
    statuses: tuple[int, int] = (0, 2),
    op_counts: tuple[int, int] = (3, 1),
    kinds: tuple[int, ...] = (1, 2, 3, 0),
    keys: tuple[int, ...] = (0, 1, 1, 0),
    values: tuple[int, ...] = (7, 8, 9, INITIAL),
    previous: tuple[int, ...] = (6, NO_VALUE, NO_VALUE, NO_VALUE),
    lengths: tuple[int, ...] = (0, 0, 2, 0),
    elements: tuple[int, ...] = (8, 9),
) -> tuple[bytes, bytes]:
    payload = (
        struct.pack("<IIQQ", 2, present, 4, len(elements))
        + column("I", *sessions)
        + column("B", *statuses)
        + column("I", *op_counts)
        + column("q", 100, 200)
        + column("B", *kinds)
        + column("I", *keys)
        + column("q", *values)
        + column("q", *previous)
        + column("I", *lengths)
        + column("q", *elements)
    )
    return b"TXNS", payload


def load(path: Path, content: bytes) -> History:
    return native.read_stream(io.BytesIO(content), path)


def test_a_file_written_without_numpy_is_read(tmp_path: Path) -> None:
    history = load(tmp_path / "h.mus", put_together(SESSIONS, KEYS, transactions(), DONE))
    assert list(history.session_names) == ["web-1", "web-2"]
    assert list(history.key_names) == ["x", "日本"]
    assert history.status.tolist() == [Status.COMMITTED, Status.IN_DOUBT]
    assert history.begin_ns.tolist() == [100, 200]
    assert history.op_start.tolist() == [0, 3, 4]
    assert history.kind.tolist() == [Kind.WRITE, Kind.APPEND, Kind.READ_LIST, Kind.READ]
    assert history.value.tolist() == [7, 8, 9, INITIAL]
    assert history.previous.tolist() == [6, NO_VALUE, NO_VALUE, NO_VALUE]
    assert history.list_seen(2) == [8, 9]


def test_the_example_in_the_document_is_what_is_written(tmp_path: Path) -> None:
    build = HistoryBuilder()
    build.transaction("a")
    build.write("x", 5)
    formats.save(build.finish(), tmp_path / "h.mus")
    one_write = column("I", 0) + column("B", 0) + column("I", 1) + column("B", 1) + column("I", 0) + column("q", 5)
    expected = put_together(
        (b"SESS", names("a")),
        (b"KEYS", names("x")),
        (b"TXNS", struct.pack("<IIQQ", 1, 0, 1, 0) + one_write),
        (b"DONE", struct.pack("<5Q", 1, 1, 0, 1, 1)),
    )
    assert (tmp_path / "h.mus").read_bytes() == expected
    assert len(expected) == 272


def test_blocks_of_names_and_transactions_continue_each_other(tmp_path: Path) -> None:
    def one_write(key: int, value: int) -> bytes:
        per_txn = column("I", 0) + column("B", 0) + column("I", 1)
        return struct.pack("<IIQQ", 1, 0, 1, 0) + per_txn + column("B", 1) + column("I", key) + column("q", value)

    blocks = [
        (b"SESS", names("a")),
        (b"KEYS", names("x")),
        (b"TXNS", one_write(0, 5)),
        (b"KEYS", names("y")),
        (b"TXNS", one_write(1, 6)),
        (b"DONE", struct.pack("<5Q", 2, 2, 0, 1, 2)),
    ]
    history = load(tmp_path / "h.mus", put_together(*blocks))
    assert [history.key_names[k] for k in history.key] == ["x", "y"]
    assert history.value.tolist() == [5, 6]


def test_many_transactions_take_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "TXNS_PER_BLOCK", 2)
    for seed in range(20):
        history = random_history(random.Random(seed), Shape())
        formats.save(history, tmp_path / "h.mus")
        assert canonical(formats.load(tmp_path / "h.mus")) == canonical(history)


def test_columns_that_say_nothing_take_no_room(tmp_path: Path) -> None:
    path = tmp_path / "h.mus"
    formats.save(random_history(random.Random(3), Shape(times="none", previous=False, lists=False)), path)
    bare = path.stat().st_size
    history = formats.load(path)
    history.begin_ns[0] = 5
    formats.save(history, path)
    assert path.stat().st_size == bare + 8 * history.txn_count


@pytest.fixture
def sample(tmp_path: Path) -> bytes:
    formats.save(random_history(random.Random(11), Shape()), tmp_path / "sample.mus")
    return (tmp_path / "sample.mus").read_bytes()


def test_every_truncation_is_noticed(sample: bytes, tmp_path: Path) -> None:
    for length in range(len(sample)):
        with pytest.raises(HistoryError, match=r"h\.mus: byte \d+: "):
            load(tmp_path / "h.mus", sample[:length])


def test_every_flipped_bit_is_noticed(sample: bytes, tmp_path: Path) -> None:
    rng = random.Random(5)
    for place in range(len(sample)):
        damaged = bytearray(sample)
        damaged[place] ^= 1 << rng.randrange(8)
        with pytest.raises(HistoryError, match=r"h\.mus: byte \d+: "):
            load(tmp_path / "h.mus", bytes(damaged))


def test_bytes_after_the_end_are_noticed(sample: bytes, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=f"byte {len(sample)}: the file ends within the header of a block"):
        load(tmp_path / "h.mus", sample + b"\0")


def test_random_payloads_with_right_checksums_raise_nothing_else(tmp_path: Path) -> None:
    """Whoever computes checksums over nonsense gets an error about the nonsense."""
    rng = random.Random(8)
    refused = 0
    for _ in range(800):
        blocks = [list(block) for block in (SESSIONS, KEYS, transactions(), DONE)]
        block = rng.choice(blocks)
        payload = bytearray(block[1])
        for _ in range(rng.randint(1, 3)):
            payload[rng.randrange(len(payload))] = rng.choice([0, 1, 2, 127, 128, 255])
        block[1] = bytes(payload)
        try:
            load(tmp_path / "h.mus", put_together(*[(kind, payload) for kind, payload in blocks]))
        except HistoryError:
            refused += 1
    assert refused > 200


def block_start(index: int, *blocks: tuple[bytes, bytes]) -> int:
    """Where the payload of a block begins."""
    return 16 + sum(24 + len(payload) for _, payload in blocks[:index]) + 24


TXNS_AT = block_start(2, SESSIONS, KEYS)
# Offsets of the columns in the payload of `transactions()`: 24 bytes of counts, then each column in steps of 8.
SESSION, STATUS, OP_COUNT, KIND, KEY, VALUE, PREVIOUS, LENGTH, ELEMENT = 24, 32, 40, 64, 72, 88, 120, 152, 168


@pytest.mark.parametrize(
    ("block", "place", "message"),
    [
        (lambda: transactions(sessions=(0, 2)), SESSION + 4, "this session has no name"),
        (lambda: transactions(statuses=(0, 3)), STATUS + 1, "expected a status from 0 to 2"),
        (lambda: transactions(op_counts=(3, 2)), OP_COUNT, "the transactions have other than 4 operations"),
        (lambda: transactions(kinds=(1, 2, 3, 4)), KIND + 3, "expected a kind of operation from 0 to 3"),
        (lambda: transactions(keys=(0, 1, 2, 0)), KEY + 8, "this key has no name"),
        (lambda: transactions(values=(INITIAL, 8, 9, 1)), VALUE, "this number cannot be a version"),
        (lambda: transactions(values=(7, 8, 9, NO_VALUE)), VALUE + 24, "this number cannot be a version"),
        (lambda: transactions(values=(7, 8, 8, 1)), VALUE + 16, "expected the last element of the list that was read"),
        (lambda: transactions(previous=(6, 6, NO_VALUE, 6)), PREVIOUS + 24, "only a write can replace a version"),
        (lambda: transactions(lengths=(1, 0, 1, 0)), LENGTH, "only a read of a list can see one"),
        (lambda: transactions(lengths=(0, 0, 1, 0)), LENGTH, "the reads of lists see other than 2 elements"),
        (lambda: transactions(elements=(INITIAL, 9)), ELEMENT, "this number cannot be a version"),
        (lambda: transactions(present=128), 0, "expected a sum of the bits 1 to 64"),
        (lambda: (b"TXNS", transactions()[1] + bytes(8)), 0, "expected 184 bytes, found 192"),
        (lambda: (b"TXNS", transactions()[1][:-8]), ELEMENT, "it is too short for 2 entries of 8 bytes"),
        (lambda: (b"LATE", transactions()[1]), 0, "LATE block: expected SESS, KEYS"),
        (lambda: (b"TXNN", names("a", "b", "c")), 0, "expected names for 0 transactions, found 3"),
    ],
)
def test_contradictions_are_named_with_their_place(
    block: Callable[[], tuple[bytes, bytes]], place: int, message: str, tmp_path: Path
) -> None:
    kind, payload = block()
    done = (b"DONE", struct.pack("<5Q", 0, 0, 0, 2, 2)) if kind == b"TXNN" else DONE
    at = block_start(3, SESSIONS, KEYS, (kind, payload)) if kind == b"TXNN" else TXNS_AT + place
    with pytest.raises(HistoryError) as caught:
        load(tmp_path / "h.mus", put_together(SESSIONS, KEYS, (kind, payload), done))
    assert f"h.mus: byte {at}: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ((SESSIONS, transactions(), KEYS, DONE), "this key has no name"),
        ((SESSIONS, KEYS, transactions()), "the file ends without a DONE block"),
        ((SESSIONS, KEYS, DONE), "expected 2 transactions, found 0"),
        ((SESSIONS, KEYS, transactions(), DONE, KEYS), "expected nothing after the DONE block"),
        ((SESSIONS, KEYS, transactions(), (b"TXNN", names("a", "b")), DONE), "names of transactions come before"),
        ((SESSIONS, KEYS, (b"TXNN", names("a")), transactions(), DONE), "either all have one or none"),
        (((b"SESS", names("a", "a")), KEYS, transactions(), DONE), "two sessions have the same name"),
        ((SESSIONS, (b"KEYS", names("x", "x")), transactions(), DONE), "two keys have the same name"),
        ((SESSIONS, (b"VALS", struct.pack("<Qqq", 2, 5, 5) + bytes(8)), DONE), "value 5 is named twice"),
    ],
)
def test_blocks_that_do_not_fit_together_are_refused(
    blocks: tuple[tuple[bytes, bytes], ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(HistoryError, match=message):
        load(tmp_path / "h.mus", put_together(*blocks))


def test_a_name_that_is_not_utf8_is_named_with_its_place(tmp_path: Path) -> None:
    keys = struct.pack("<QII", 2, 2, 1) + pad(b"ab\xff")
    with pytest.raises(
        HistoryError, match=rf"byte {block_start(1, SESSIONS) + 16 + 2}: KEYS block: expected names in UTF-8"
    ):
        load(tmp_path / "h.mus", put_together(SESSIONS, (b"KEYS", keys), DONE))


def test_a_name_cannot_end_within_a_character(tmp_path: Path) -> None:
    keys = struct.pack("<QII", 2, 1, 1) + pad("é".encode())
    with pytest.raises(HistoryError, match="a name ends within a character"):
        load(tmp_path / "h.mus", put_together(SESSIONS, (b"KEYS", keys), DONE))


def test_swapped_blocks_are_noticed(tmp_path: Path) -> None:
    content = put_together(SESSIONS, KEYS, transactions(), DONE)
    first, second = 16, 16 + 24 + len(SESSIONS[1])
    end = second + 24 + len(KEYS[1])
    swapped = content[:first] + content[second:end] + content[first:second] + content[end:]
    with pytest.raises(HistoryError, match="byte 20: expected block 0, found block 1"):
        load(tmp_path / "h.mus", swapped)


def test_another_version_is_refused(tmp_path: Path) -> None:
    header = HEADER[:8] + struct.pack("<I", 2)
    with pytest.raises(HistoryError, match="byte 8: expected version 1, found 2"):
        load(tmp_path / "h.mus", put_together(DONE, header=header))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"byte 0: expected .* with which every mussurana file starts"):
        load(tmp_path / "h.mus", b"w(1,2,3,4)\n")


def test_two_keys_of_one_name_are_not_written(tmp_path: Path) -> None:
    history = random_history(random.Random(1), Shape())
    twice = History(**{**history.__dict__, "key_names": ["x"] * len(history.key_names)})
    with pytest.raises(HistoryError, match="two keys of the same name"):
        formats.save(twice, tmp_path / "h.mus")
