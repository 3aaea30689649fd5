"""Files of the data directory that are whole, and that this program did not write: what is in them is passed over."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from mussurana.verifier.daemon.checkpoint import Checkpoint, CheckpointError, Checkpoints
from mussurana.verifier.daemon.config import Webhook as WebhookConfig
from mussurana.verifier.daemon.journal import Journal, Step
from mussurana.verifier.daemon.log import FRAGMENT, LOST, START, Entry, IngestLog, Tail
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.sequences import Last, Sequences, write_index
from mussurana.verifier.daemon.violations import Violations
from mussurana.verifier.daemon.webhook import Webhook
from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.wire.segments import SEGMENT_MAX, Appender, Damage, Position, Record

A = b"a" * 16
GOOD = Entry(FRAGMENT, A, 1, 10**18, b"x")
FAR = 1 << 63

NO_ENTRIES = {
    "nothing": b"",
    "too short": GOOD.to_bytes()[:30],
    "a sequence that is none": replace(GOOD, sequence=FAR).to_bytes(),
    "a time that is none": replace(GOOD, received_ns=-1).to_bytes(),
    "lost, and not which": Entry(LOST, A, 3, 5, b"\1").to_bytes(),
    "lost, from after the last one": Entry.lost(A, 9, 3, "why", 5).to_bytes(),
}


@pytest.mark.parametrize("what", NO_ENTRIES)
def test_a_record_of_the_log_that_is_no_entry_is_damage(what: str, tmp_path: Path) -> None:
    appender = Appender(tmp_path, 1 << 20)
    appender.append([NO_ENTRIES[what], GOOD.to_bytes()])
    appender.close()
    log = IngestLog(tmp_path)
    damage, record = Tail(tmp_path).read_all(log.durable)
    assert isinstance(damage, Damage)
    assert isinstance(record, Record)
    assert log.sequences.last(A) == 1


@pytest.mark.parametrize("last", [Last(FAR, 1), Last(1, FAR - 1), Last(1, -1)])
def test_an_index_that_nobody_wrote_is_none(last: Last, tmp_path: Path) -> None:
    log = IngestLog(tmp_path, 60)
    for sequence in range(1, 5):
        log.commit([replace(GOOD, sequence=sequence)])
    log.close()
    write_index(tmp_path, 3, Sequences({A: last}))
    assert IngestLog(tmp_path).sequences.last(A) == 4


def test_a_file_with_a_number_that_no_segment_has_is_none(tmp_path: Path) -> None:
    (tmp_path / f"{SEGMENT_MAX + 1}.seg").write_bytes(b"")
    log = IngestLog(tmp_path)
    log.commit([GOOD])
    assert log.durable.segment == 1


ROUND: dict[str, Any] = {
    "number": 1, "level": "serializable", "verdict": "accepted", "reason": "", "violations": [],
    "further_violations": 0, "epoch": 0, "txn_count": 1, "retained": 1, "forgotten": 0, "finished_ns": 5,
    "lag_seconds": None, "seconds": {"total": 1}, "choices": {},
}  # fmt: skip
OPERATIONS = [{"statement": "SELECT"}]
VIOLATION: dict[str, Any] = {
    "id": "abc", "level": "serializable", "round": 1, "epoch": 0, "found_ns": 5, "anomaly": "write skew",
    "adya": "G2", "summary": "s", "counterexample": {"transactions": [{"operations": OPERATIONS}]},
}  # fmt: skip
STEP: dict[str, Any] = {
    "step": 1, "log": [1, 16], "now_ns": 5, "force": False, "quiet": [[1, 16, 5]], "rounds": [ROUND],
    "violations": [VIOLATION], "alarms": [asdict(AlarmChange("abc", "told", "", 5))],
}  # fmt: skip
ODD: tuple[Any, ...] = ("1", None, [], 1 << 70, 0.5)
NO_STEPS: list[dict[str, Any]] = [
    *({name: value} for name in ("step", "now_ns", "force", "log") for value in ODD),
    {"quiet": [["1", 2, 3]]},
    {"quiet": 7},
    {"log": [SEGMENT_MAX, 16]},
    {"log": [1, -16]},
    {"rounds": [{**ROUND, "number": "1"}]},
    {"rounds": [{**ROUND, "seconds": {"total": "1"}}]},
    {"rounds": [{**ROUND, "seconds": {"total": 10**400}}]},
    {"rounds": [{**ROUND, "lag_seconds": [0.1, 0.2, float("nan")]}]},
    {"rounds": [7]},
    {"violations": [{**VIOLATION, "found_ns": "x"}]},
    {"violations": [{**VIOLATION, "counterexample": {"transactions": [{"operations": [{}]}]}}]},
    {"violations": [[]]},
    {"alarms": [{"id": "abc"}]},
    {"alarms": [{**asdict(AlarmChange("abc", "told", "", 5)), "state": "shouted"}]},
]


def segment_with(directory: Path, *texts: Any) -> None:
    appender = Appender(directory, 1 << 20)
    appender.append([text if isinstance(text, bytes) else json.dumps(text).encode() for text in texts])
    appender.close()


@pytest.mark.parametrize("change", NO_STEPS, ids=str)
def test_a_step_that_nobody_took_is_passed_over(change: dict[str, Any], tmp_path: Path) -> None:
    segment_with(tmp_path, {**STEP, **change}, b"[" * 100_000, b"9" * 5_000, [], {**STEP, "step": 2})
    found = list(Journal(tmp_path).read_from())
    assert [each.number for each in found if isinstance(each, Step)] == [2]
    assert sum(isinstance(each, Damage) for each in found) == 4


def test_violations_that_nobody_found_are_passed_over(tmp_path: Path) -> None:
    told = {"change": "abc", "state": "told", "reason": "", "at_ns": 5, "was_told": False}
    strange = [{**VIOLATION, "id": 7}, {**VIOLATION, "summary": None}, {}, [], 7, b"[" * 100_000, b"\xff"]
    odd = [{**told, "change": ["abc"]}, {**told, "change": "nobody"}, {**told, "state": 1}, {"change": "abc"}]
    segment_with(tmp_path, *strange, {**VIOLATION, "state": "waiting"}, *strange, *odd, told)
    violations = Violations(tmp_path)
    assert [(each.id, each.state) for each in violations.summaries()] == [("abc", "told")]
    assert violations.get("abc")
    assert [violation["id"] for violation, _ in violations.after(START)] == ["abc"]


CHECKPOINT = Checkpoint(Position(1, 16), Position(1, 16), 5, 7, 7, ["serializable"], Sequences({A: Last(1, 5)}), b"")
NO_CHECKPOINTS: list[dict[str, Any]] = [
    {"log": [1 << 40, 16]},
    {"log": [1, -1]},
    {"journal": ["1", 16]},
    {"step": 1 << 70},
    {"step": None},
    {"now_ns": 1 << 63},
    {"machine_ns": "7"},
    {"levels": "serializable"},
    {"fed": [[A.hex(), "1", 5]]},
    {"fed": [[A.hex(), 1, -5]]},
    {"fed": [[A.hex(), FAR, 5]]},
]


@pytest.mark.parametrize("change", NO_CHECKPOINTS, ids=str)
def test_a_checkpoint_that_nobody_made_is_refused(change: dict[str, Any]) -> None:
    content = CHECKPOINT.to_bytes()
    assert Checkpoint.from_bytes(b"".join(content)).log == CHECKPOINT.log
    description = json.dumps(json.loads(content[3]) | change).encode()
    length = struct.pack("<Q", len(description))
    crc32 = zlib.crc32(description, zlib.crc32(length))
    with pytest.raises(CheckpointError, match="its description is not one"):
        Checkpoint.from_bytes(content[0] + struct.pack("<II", 1, crc32) + length + description)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"9" * 5_000,
        b"[]",
        b"\xff",
        *(b'{"segment": %s, "offset": 0}' % n for n in (b"1e999", b'"1"', b"7")),
    ],
    ids=range(7),
)
def test_a_webhook_that_has_been_where_nothing_is_begins_again(content: bytes, tmp_path: Path) -> None:
    """And does not wait until as many violations are found."""
    violations = Violations(tmp_path / "violations")
    violations.add([VIOLATION])
    (tmp_path / "webhook.json").write_bytes(content)
    webhook = Webhook(WebhookConfig(url="http://127.0.0.1:1"), violations, tmp_path / "webhook.json", Metrics([]))
    assert webhook._delivered_to() == Position(0, 0)


@pytest.mark.parametrize(
    "description", [b"[" * 100_000, b"{}", b'{"log": ["1", 2], "journal": [1, 2]}', b'{"log": [], "journal": 1}']
)
def test_a_checkpoint_that_is_only_kept_in_case_may_be_anything(description: bytes, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(CHECKPOINT)
    length = struct.pack("<Q", len(description))
    (tmp_path / "00000000.ckpt").write_bytes(CHECKPOINT.to_bytes()[0] + bytes(8) + length + description)
    again = Checkpoints(tmp_path)
    found = again.load()
    assert found is not None
    assert again.log_needed == START
    again.write(found)
    assert again.log_needed == CHECKPOINT.log
