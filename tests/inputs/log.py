"""The daemon's own data directory: its log with indexes, the journal of steps, and the violations it has told of.

It is started on it as far as reading goes: the log is opened and fed to a machine, and what was told is shown.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from mussurana.verifier import Settings
from mussurana.verifier.daemon.feed import Feeder
from mussurana.verifier.daemon.journal import Journal
from mussurana.verifier.daemon.log import FRAGMENT, LOST, RESUMED, SECRET, START, Entry, IngestLog, Tail
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.sequences import Last, Sequences
from mussurana.verifier.daemon.violations import Violations
from mussurana.verifier.rounds.limits import Limits
from mussurana.verifier.rounds.machine import Verifier
from mussurana.wire.segments import Record
from tests.inputs.damage import damaged, number, spoiled, with_placeholders
from tests.inputs.fragment import NOW_NS, SECOND_NS, changed
from tests.inputs.reader import Files, Reader
from tests.inputs.samples import any_world
from tests.inputs.spool import segment_of

ROUND = {
    "number": 1, "level": "serializable", "verdict": "rejected", "reason": "", "violations": ["abc"],
    "further_violations": 0, "epoch": 0, "txn_count": 1, "retained": 1, "forgotten": 0, "finished_ns": NOW_NS,
    "lag_seconds": [0.1, 0.2, 0.3], "seconds": {"total": 0.1}, "choices": {"generated": 0}, "read_count": 1,
    "unchecked": [{"reason": "tainted", "collector": "c", "table": "t", "reads": 1}],
}  # fmt: skip
OPERATION = {"statement": "SELECT", "kind": "read", "key": "x"}
VIOLATION = {
    "id": "abc", "level": "serializable", "round": 1, "epoch": 0, "found_ns": NOW_NS, "anomaly": "write skew",
    "adya": "G2-item", "summary": "s", "counterexample": {"transactions": [{"operations": [OPERATION]}]},
}  # fmt: skip
STEP = {
    "step": 1, "log": [1, 16], "now_ns": NOW_NS, "force": False, "quiet": [[1, 16, NOW_NS]], "rounds": [ROUND],
    "violations": [VIOLATION], "alarms": [{"id": "abc", "state": "told", "reason": "", "at_ns": NOW_NS}],
}  # fmt: skip
STORED = (
    {**VIOLATION, "state": "waiting"},
    {"change": "abc", "state": "told", "reason": "", "at_ns": NOW_NS, "was_told": False},
    {"change": "abc", "state": "withdrawn", "reason": "r", "at_ns": NOW_NS, "was_told": True},
)


def make(rng: Random) -> Files:
    files = {f"log/{name}": content for name, content in log(rng).items()}
    if rng.random() < 0.5:
        plain = [{**STEP, "step": n} for n in range(1, 4)]
        files["journal/00000001.seg"] = records(rng, plain)
        files["violations/00000001.seg"] = records(rng, list(STORED))
    return files


def log(rng: Random) -> Files:
    entries: list[bytes] = []
    _, followed = any_world(rng)
    share = rng.choice((0.02, 0.1, 0.3))
    for action, some in followed:
        id = bytes([action.collector + 1]) * 16
        for fragment in some:
            content = changed(rng, fragment) if rng.random() < share else fragment.SerializeToString()
            entry = Entry(FRAGMENT, id, fragment.sequence, NOW_NS + len(entries) * SECOND_NS, content)
            entries.append(another_entry(rng, entry).to_bytes() if rng.random() < share else entry.to_bytes())
            if rng.random() < share:
                made = another_entry(rng, entry).to_bytes()
                entries.append(damaged(rng, made) if rng.random() < 0.3 else made)
    files: Files = {}
    at, count = 0, 0
    while at < len(entries) or not files:
        end = at + rng.choice((1, 5, 1_000))
        count = (count + 1 if rng.random() < 0.97 else number(rng)) % (1 << 32)
        content = segment_of(count, entries[at:end], 1 if rng.random() < 0.98 else number(rng) % (1 << 32))
        files[f"{count:08d}.seg"] = damaged(rng, content) if rng.random() < 0.1 else content
        if rng.random() < 0.3:
            files[f"{count:08d}.idx"] = index(rng)
        at = end
    return files


def another_entry(rng: Random, entry: Entry) -> Entry:
    """Of another kind, or with other numbers."""
    kind = rng.choice((FRAGMENT, LOST, LOST, RESUMED, SECRET, 5, 255))
    sequence = rng.choice((entry.sequence, entry.sequence + 1, number(rng) % (1 << 64)))
    received_ns = rng.choice((entry.received_ns, (number(rng) + (1 << 63)) % (1 << 64) - (1 << 63)))
    content = rng.choice((entry.content, b"", (number(rng) % (1 << 64)).to_bytes(8, "little") + b"why", bytes(32)))
    return Entry(kind, rng.choice((entry.collector, bytes(16))), sequence, received_ns, content)


def index(rng: Random) -> bytes:
    last = Last(number(rng) % (1 << 64), (number(rng) + (1 << 63)) % (1 << 64) - (1 << 63), rng.randbytes(32))
    content = Sequences({bytes([n]) * 16: last for n in range(rng.choice((0, 1, 3)))}).to_bytes()
    return damaged(rng, content) if rng.random() < 0.3 else content


def records(rng: Random, plain: list[Any]) -> bytes:
    """A segment of texts, some of which say something else."""
    texts = []
    for each in plain:
        tree = spoiled(rng, each) if rng.random() < 0.4 else each
        texts.append(with_placeholders(rng, json.dumps(tree), json.dumps).encode(errors="surrogatepass"))
    texts += [damaged(rng, texts[0])] * (rng.random() < 0.2)
    content = segment_of(1, texts)
    return damaged(rng, content) if rng.random() < 0.1 else content


def read(files: Files, folder: Path, rng: Random) -> str:
    journal = Journal(folder / "journal")
    newest = journal.newest()
    list(journal.read_from())
    been_at = max((step.log for step in newest), default=START)
    told(folder)
    for _ in range(2):  # what the first start leaves, the second finds
        opened = IngestLog(folder / "log", been_at=been_at)
        opened.resume(opened.sequences.latest_ns())
        settings = [Settings("serializable")]
        machine = Verifier(settings, Limits())
        feeder = Feeder(machine, Sequences(), Metrics([each.level for each in settings]))
        now_ns = 0
        for item in Tail(opened.directory).read_all(opened.durable):
            if isinstance(item, Record):
                entry = Entry.from_bytes(item.payload)
                feeder.feed(entry)
                now_ns = max(now_ns + 1, entry.received_ns)
                machine.step(now_ns)
        machine.step(now_ns + 1, force=True)
        machine.decide_alarms(now_ns + 1)
        machine.state()
        opened.close()
    return ""


def told(folder: Path) -> None:
    violations = Violations(folder / "violations")
    for summary in violations.summaries():
        violations.get(summary.id)
    list(violations.after(START))
    violations.close()


READER = Reader("log", make, read, ())
