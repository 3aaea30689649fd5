"""kill -9 at any moment: load runs against a daemon in a process of its own, which is killed and started again.

What has to hold at the end, and is checked:

- everything that was acknowledged is in the log, each fragment once;
- a round that anybody saw looks the same whenever it is asked for again;
- no step that was taken again found anything else, and the log fed to a new machine from the beginning, with the steps
  of the journal, finds all that was journaled over all lives;
- each transaction was verified exactly once, none was left out, and few reads were.

`python -m tests.daemon.crash --kills 200` runs it for long; some kills are part of the tests. A seed gives the same
moments, but not the same scheduling.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bench.online.ports import free_port
from bench.online.workload import Shape, Workload
from mussurana.verifier.commands.base import CommandError
from mussurana.verifier.commands.serve import machine_factory
from mussurana.verifier.daemon import client
from mussurana.verifier.daemon.client import Target
from mussurana.verifier.daemon.configured import load
from mussurana.verifier.daemon.feed import Feeder
from mussurana.verifier.daemon.journal import Journal, Round, Step, difference, violation_json
from mussurana.verifier.daemon.log import FRAGMENT, Entry, Tail
from mussurana.verifier.daemon.machine import MachineFactory
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.sequences import Sequences
from mussurana.verifier.daemon.violations import WAITING
from mussurana.verifier.replay.send import Sender
from mussurana.wire import query_pb2 as wire
from mussurana.wire.history_pb2 import READ, Fragment
from mussurana.wire.segments import Position, Record, segment_numbers, segment_path
from tests.daemon.fake_machine import FakeMachine

ROOT = Path(__file__).parents[2]
READY_SECONDS_MAX = 30.0
SPOIL_BLOCKS = 100
"""Between two violations. With more than some per round, all that is on cycles is set aside, and little is verified."""

UNCHECKED_SHARE_MAX = 0.02
"""Of all reads: those of what violations wrote, until it is overwritten."""

OPERATIONS = 4
SETTINGS = {
    "log_retention_bytes": str(1 << 40),  # so that everything can be verified again at the end
    "journal_retention_bytes": str(1 << 40),
    "log_segment_bytes": str(1 << 20),
    "log_disk_reserve_bytes": "0",
    "checkpoint_interval_seconds": "0.3",
    "http_listen": "",
}


@dataclass
class Report:
    kills: int = 0
    killed_before_ready: int = 0
    fragments: int = 0
    resent: int = 0
    txns: int = 0
    rounds: int = 0
    steps_rerun: int = 0
    violations: int = 0
    unchecked_reads: int = 0  # of what violations wrote
    ready_seconds_max: float = 0.0
    problems: list[str] = field(default_factory=list)


class Daemon:
    """One life of a daemon."""

    def __init__(self, command: list[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115, closed in `lines`
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=self._errors)
        self.started = time.monotonic()

    def wait_ready(self) -> float:
        while time.monotonic() - self.started < READY_SECONDS_MAX:
            if b'"event": "ready"' in os.pread(self._errors.fileno(), 1 << 20, 0):
                return time.monotonic() - self.started
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError("not ready: " + "\n".join(map(str, self.lines())))

    def end(self, number: signal.Signals) -> list[dict[str, Any]]:
        self.process.send_signal(number)
        self.process.wait(120)
        return self.lines()

    def lines(self) -> list[dict[str, Any]]:
        """What it logged; what is not JSON is a traceback."""
        self._errors.seek(0)
        found = []
        for line in self._errors.read().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"level": "error", "event": "not JSON", "message": line.decode(errors="replace")})
        self._errors.close()
        return found


def command(data: Path, port: int, is_real: bool) -> list[str]:
    flags = {"data": str(data), "ingest_listen": f"127.0.0.1:{port}", **SETTINGS}
    arguments = [part for name, value in flags.items() for part in ("--" + name.replace("_", "-"), value)]
    real = ["-c", "from mussurana.verifier.cli import main; main()", "serve"]
    return [sys.executable, *(real if is_real else ["-m", "tests.daemon.process"]), *arguments]


class Watcher:
    """Asks for verdicts all the time, and notices when one that was seen before has changed."""

    def __init__(self, target: Target) -> None:
        self.seen: dict[tuple[str, int], bytes] = {}
        self.changed: list[str] = []
        self._target, self._closing = target, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(0.02):
            try:
                reply = client.verdicts(self._target, wire.VerdictsRequest())
            except CommandError:
                continue
            for each in reply.round:
                if each.reason.startswith(WAITING):
                    continue  # it is shown as unknown until its alarm is told
                before = self.seen.setdefault((each.level, each.number), each.SerializeToString(deterministic=True))
                if before != each.SerializeToString(deterministic=True):
                    self.changed.append(f"{wire.Round.FromString(before)} became {each}")

    def close(self) -> None:
        self._closing.set()
        self._thread.join()


def load_fragments(shape: Shape, block_txns: int, seed: int, ended: threading.Event) -> Iterator[tuple[int, Fragment]]:
    """Endless; now and then a read sees something that has long been replaced."""
    workload, rng = Workload(shape), Random(seed)
    block = 0
    while not ended.is_set():
        block += 1
        now_ns = time.time_ns()
        for made in workload.block(block_txns, now_ns - 10**7, now_ns):
            if block % SPOIL_BLOCKS == 0 and made.collector == 0:
                _spoil(made.fragment, rng)
            yield made.collector, made.fragment
    for made in workload.last():
        yield made.collector, made.fragment


def _spoil(fragment: Fragment, rng: Random) -> None:
    kind = np.frombuffer(fragment.op_kind, np.uint8)
    version = np.frombuffer(fragment.op_version, "<u8").copy()
    reads = np.flatnonzero((kind == READ) & (version > 0) & (np.frombuffer(fragment.op_key, "<u8") > 0))
    if len(reads):
        version[rng.choice(reads.tolist())] = 0
        fragment.op_version = version.tobytes()


def crash(data: Path, kills: int, seed: int, is_real: bool, seconds_max: float) -> Report:
    """Kill so many times, each at a moment within `seconds_max` of being ready, or before."""
    rng, report, port = Random(seed), Report(), free_port()
    target = Target(f"127.0.0.1:{port}")
    shape = Shape(sessions=6, collectors=3, keys=500, seed=seed, operations=OPERATIONS)
    ended = threading.Event()
    acknowledged: dict[bytes, int] = {}
    workload_ids = [each.id for each in Workload(shape).collectors]

    def note(id: bytes, sequence: int) -> None:
        acknowledged[id] = max(acknowledged.get(id, 0), sequence)

    senders = [
        Sender(target, id, f"crash {n}", "", True, lambda sequence, id=id: note(id, sequence))  # type: ignore[misc]
        for n, id in enumerate(workload_ids)
    ]
    watcher = Watcher(target)

    def send() -> None:
        for number, fragment in load_fragments(shape, 60, seed, ended):
            senders[number].send(fragment)
            report.fragments += 1
            report.txns += fragment.txn_count
            time.sleep(0.002)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    while report.kills < kills:
        daemon = Daemon(command(data, port, is_real))
        if rng.random() < 0.15:
            time.sleep(rng.uniform(0.0, 0.5))
            report.killed_before_ready += 1
        else:
            report.ready_seconds_max = max(report.ready_seconds_max, daemon.wait_ready())
            time.sleep(rng.uniform(0.0, seconds_max))
        _look_at(daemon.end(signal.SIGKILL), report)
        report.kills += 1
    daemon = Daemon(command(data, port, is_real))
    daemon.wait_ready()
    ended.set()
    sending.join()
    for sender in senders:
        sender.finish()
        report.resent += sender.resent
    until_verified(target)
    watcher.close()
    _look_at(daemon.end(signal.SIGTERM), report)
    report.problems += watcher.changed
    report.problems += again(data, is_real, acknowledged, watcher, report)
    return report


def until_verified(target: Target) -> None:
    while True:
        status = client.status(target)
        if status.state == "verifying" and not status.lag_seconds and not status.log_behind_bytes:
            return
        time.sleep(0.05)


def _look_at(lines: list[dict[str, Any]], report: Report) -> None:
    """Anything that is an error in the daemon's own eyes is a problem here."""
    report.problems += [f"logged: {line}" for line in lines if line["level"] == "error"]


def again(data: Path, is_real: bool, acknowledged: dict[bytes, int], watcher: Watcher, report: Report) -> list[str]:
    """Everything from the beginning, in one life."""
    problems: list[str] = []
    make: MachineFactory = machine_factory(load(None, {}, {})) if is_real else FakeMachine
    machine, metrics, fed = make(None), Metrics(["serializable"]), Sequences()
    feeder = Feeder(machine, fed, metrics)
    steps = [step for step in Journal(data / "journal").read_from() if isinstance(step, Step)]
    last = segment_numbers(data / "log")[-1]
    end = Position(last, segment_path(data / "log", last).stat().st_size)
    stored: list[tuple[bytes, int]] = []

    def take_steps(before: Position) -> None:
        while steps and steps[0].log <= before:
            step = steps.pop(0)
            for log, now_ns in step.quiet:
                assert log <= before
                machine.step(now_ns)
            outcomes = machine.step(step.now_ns, step.force)
            rounds = tuple(Round.of(outcome, 0) for outcome in outcomes)
            found = tuple(violation_json(each) for outcome in outcomes for each in outcome.violations)
            alarms = tuple(machine.decide_alarms(step.now_ns))
            again = Step(step.number, step.log, step.now_ns, step.force, (), rounds, found, alarms)
            different = difference(step, again)
            if different or list(found) != list(step.violations):
                problems.append(f"step {step.number}: {different or 'other violations'}")
            for each in step.rounds:
                report.rounds += 1
                report.violations += len(each.violations)
                verified[each.level] = verified.get(each.level, 0) + each.txn_count
                journaled[each.level, each.number] = each

    verified: dict[str, int] = {}
    journaled: dict[tuple[str, int], Round] = {}
    for item in Tail(data / "log").read_all(end):
        assert isinstance(item, Record)
        take_steps(item.position)
        entry = Entry.from_bytes(item.payload)
        if entry.kind == FRAGMENT:
            stored.append((entry.collector, entry.sequence))
        feeder.feed(entry)
    take_steps(end)
    gauges = machine.gauges()
    report.unchecked_reads = sum(gauges.unchecked_reads.values())
    if report.unchecked_reads > UNCHECKED_SHARE_MAX * report.txns * OPERATIONS:
        problems.append(f"{report.unchecked_reads} reads were left out")
    if gauges.unknown_txns or gauges.waiting:
        problems.append(f"{gauges.unknown_txns} transactions were left out, {gauges.waiting} wait")
    if len(set(stored)) < len(stored):
        problems.append("a fragment is in the log twice")
    for id, sequence in acknowledged.items():
        if fed.last(id) < sequence or metrics.gaps.labels("damaged")._value.get():
            problems.append(f"fragment {sequence} was acknowledged, and the log ends at {fed.last(id)}")
    if set(verified.values()) != {report.txns}:
        problems.append(f"{report.txns} transactions were sent, and verified were {verified}")
    for place, content in watcher.seen.items():
        shown, kept = wire.Round.FromString(content), journaled.get(place)
        if kept is None or (kept.verdict, kept.txn_count, list(kept.violations)) != (
            shown.verdict,
            shown.txn_count,
            list(shown.violation),
        ):
            problems.append(f"{place} was shown as {shown}, and the journal has {kept}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0, help="that a daemon lives at most")
    parser.add_argument("--machine", choices=("real", "fake"), default="real")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        data, is_real = Path(directory) / "data", options.machine == "real"
        report = crash(data, options.kills, options.seed, is_real, options.seconds)
    print(
        f"{report.kills} kills in {time.monotonic() - started:.0f} s, {report.killed_before_ready} before it was ready;"
    )
    print(
        f"{report.fragments} fragments, {report.resent} sent again; {report.txns} transactions, {report.rounds} rounds,"
    )
    print(
        f"{report.violations} violations, {report.unchecked_reads} reads of what they wrote left out; "
        f"ready within {report.ready_seconds_max:.2f} s; {'PROBLEMS' if report.problems else 'all is well'}"
    )
    for problem in report.problems:
        print("PROBLEM:", problem)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
