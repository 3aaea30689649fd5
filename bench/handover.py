"""What the back end of the collector costs by itself, without a database: `python -m bench.handover`.

Processor time, not wall time, and the best of several turns, so that other work on the machine matters little. An
observation is an update of one row whose extractor does nothing but tell it; a real one has a result to take apart.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.machine import this_machine
from mussurana.collector.extraction import Observation, Sink, operations_of
from mussurana.collector.fragments import FragmentBuilder
from mussurana.collector.recorder import COMMITTED, Recorder, Session, SessionInfo, Txn
from mussurana.collector.settings import Settings

OBSERVATIONS = 8
TXNS = 2_000
TURNS = 15
NAMES = [f"accounts/{number}" for number in range(10_000)]
TEXT = "UPDATE accounts SET balance = balance + %s WHERE id = %s"

IMPORT = "import time; t = time.process_time(); import {}; print((time.process_time() - t) * 1e3)"


def update(observation: Observation, sink: Sink) -> None:
    sink.statement(TEXT)
    sink.update(observation[1], observation[2], 7)


def observe(recorder: Recorder, txn: Txn, number: int) -> None:
    observations = txn.observations
    for place in range(number * OBSERVATIONS, (number + 1) * OBSERVATIONS):
        observations.append((update, NAMES[place % len(NAMES)], recorder.write_id()))


def hand_over(recorder: Recorder, session: Session) -> None:
    for number in range(TXNS):
        txn = session.begin()
        observe(recorder, txn, number)
        session.committing(txn)
        session.end(txn, COMMITTED)


def best_us(work: Callable[[], object], count: int) -> float:
    """Microseconds of this thread for each of `count` parts of the work."""
    times = []
    for _ in range(TURNS):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times) / count * 1e6


def handing_over(folder: Path, journal: str) -> float:
    """With the background asleep: what the application's thread pays."""
    queue = TXNS * TURNS + 1
    settings = Settings(
        spool=str(folder), journal=journal, batch_interval_seconds=600.0, queue_txns_max=queue, close_seconds=0.0
    )
    recorder = Recorder(settings)
    session = recorder.open_session("bench", fenced=False)
    cost = best_us(lambda: hand_over(recorder, session), TXNS)
    recorder.queue.clear()
    recorder.close()
    return cost


def background(folder: Path) -> tuple[float, float, float]:
    """Microseconds per operation to extract and to build columns, and bytes per transaction."""
    recorder = Recorder(Settings(spool=str(folder)))
    txns = [Txn(SessionInfo("bench", False), recorder.write_id()) for _ in range(TXNS)]
    for number, txn in enumerate(txns):
        observe(recorder, txn, number)
    ops = TXNS * OBSERVATIONS
    extract = best_us(lambda: [operations_of(txn, recorder.names) for txn in txns], ops)
    extracted = [operations_of(txn, recorder.names).operations for txn in txns]
    builder = FragmentBuilder(recorder.names)
    payload = b""

    def build() -> None:
        nonlocal payload
        for txn, operations in zip(txns, extracted, strict=True):
            builder.add(txn, 1, COMMITTED, operations)
        payload = builder.seal(1, 1, {1: 1})
        builder.sealed()

    cost = best_us(build, ops)
    recorder.close()
    return extract, cost, len(payload) / TXNS


def import_ms(module: str) -> float:
    command = [sys.executable, "-c", IMPORT.format(module)]
    return min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(TURNS))


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        print(this_machine().line())
        for journal in ("background", "commit"):
            cost = handing_over(Path(root, journal), journal)
            print(f"hand over {OBSERVATIONS} observations, journal={journal}: {cost:.1f} us per transaction")
        extract, build, size = background(Path(root, "columns"))
        print(f"in the background, per operation: extract {extract:.2f} us, build columns {build:.2f} us")
        print(f"in the spool: {size:.0f} bytes per transaction")
        for module in ("dataclasses, json, pathlib, threading", "mussurana.collector.recorder", "sqlalchemy"):
            print(f"import {module}: {import_ms(module):.1f} ms")


if __name__ == "__main__":
    main()
