"""Measure one scenario: a workload through a driver, in all modes, taking turns on one server.

Turns are short and their order rotates, so that whatever else the machine does in a while meets all modes alike. Ratios
are taken within a round, between neighbours, and the median of the rounds counts. There are two sets of clients without
the collector, and ratios are those to the mean of both: that of one of them says how far the machine can be trusted.

Each round has databases and clients of its own. Where things happen to lie in memory stays as it is for as long as they
live, and makes the same work a tenth slower or faster.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path

import sqlalchemy

from bench.overhead.client import BASELINE, MODES, PLAIN, RECORDED, Order, Setup, Slice, work
from bench.overhead.sink import serve
from bench.workloads import Workload
from mussurana.collector.__main__ import main as collector_command
from mussurana.verifier.embedded_postgres import EmbeddedPostgres

CLIENTS = 8
START_SECONDS_MAX = 60.0
SERVER_SETTINGS = {
    "autovacuum": "off",  # it would start in somebody's turn
    "synchronous_commit": "off",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",  # and so would a checkpoint
}

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["bench.overhead.client", "bench.overhead.sink", "mussurana.collector.instrument", "mussurana.collector.background"]
)


ALONE = 6, 0.1  # turns in each round, and their seconds: many short ones, some of which nobody else disturbs
ALONE_QUANTILE = 0.1

HALF_TURNS = 4
"""In each round, of half the length of a turn at full load: a percentile varies more than a throughput does."""


@dataclass(frozen=True)
class Plan:
    rounds: int
    turn_seconds: float


@dataclass
class Phase:
    """All turns of one mode under one load."""

    turns: list[Slice] = field(default_factory=list)

    @property
    def throughputs(self) -> list[float]:
        return [turn.txns / turn.wall_seconds for turn in self.turns]

    @property
    def statements(self) -> int:
        return sum(turn.statements for turn in self.turns)

    @property
    def txns(self) -> int:
        return sum(turn.txns for turn in self.turns)

    @property
    def aborted(self) -> int:
        return sum(turn.aborted for turn in self.turns)

    @property
    def thread_us(self) -> float:
        """CPU of the application's thread per statement, in the turns that were least disturbed."""
        return undisturbed([1e6 * turn.thread_seconds / turn.statements for turn in self.turns if turn.statements])

    @property
    def process_us(self) -> float:
        """CPU of the whole client process per statement, likewise."""
        return undisturbed([1e6 * turn.process_seconds / turn.statements for turn in self.turns if turn.statements])

    def percentiles(self, percent: int) -> list[float]:
        """Of the latencies in each turn."""
        return [percentile(turn.latencies, percent) for turn in self.turns]

    def counted(self, name: str) -> float:
        return sum(turn.counters.get(name, 0) for turn in self.turns)

    @property
    def wall_seconds(self) -> float:
        return sum(turn.wall_seconds for turn in self.turns)


def percentile(latencies: Sequence[float], percent: int) -> float:
    return sorted(latencies)[min(len(latencies) - 1, len(latencies) * percent // 100)] if latencies else 0.0


def undisturbed(costs: list[float]) -> float:
    """The CPU that something takes does not depend on the neighbours, but for what they leave in the caches."""
    return sorted(costs)[int(len(costs) * ALONE_QUANTILE)] if costs else 0.0


@dataclass
class Measured:
    """A scenario: by mode, alone (one client), saturated (CLIENTS of them) and at half of that."""

    workload: str
    driver: str
    alone: dict[str, Phase]
    saturated: dict[str, Phase]
    half: dict[str, Phase]

    def throughput_ratio(self, phases: dict[str, Phase], mode: str) -> float:
        return ratio({each: phases[each].throughputs for each in MODES}, mode)

    def latency_ratio(self, phases: dict[str, Phase], mode: str, percent: int) -> float:
        return ratio({each: phases[each].percentiles(percent) for each in MODES}, mode)

    def added_us(self, mode: str) -> float:
        """CPU of the application's thread per statement, over that without the collector."""
        return self.alone[mode].thread_us - statistics.mean(self.alone[plain].thread_us for plain in BASELINE)

    def added_process_us(self, mode: str) -> float:
        return self.alone[mode].process_us - statistics.mean(self.alone[plain].process_us for plain in BASELINE)


def ratio(rounds: dict[str, list[float]], mode: str) -> float:
    """Of a mode to those without the collector, in the median of the rounds."""
    one, another = (rounds[plain] for plain in BASELINE)
    triples = zip(rounds[mode], one, another, strict=True)
    return statistics.median(2 * ours / (first + second) for ours, first, second in triples)


@contextmanager
def sink() -> Iterator[str]:
    ours, its = _processes.Pipe()
    process = _processes.Process(target=serve, args=(its,), daemon=True)
    process.start()
    its.close()
    try:
        yield f"127.0.0.1:{ours.recv()}"
    finally:
        ours.close()
        process.join()


@contextmanager
def clients(
    server: EmbeddedPostgres, workload: Workload, driver: str, isolation: str, sink_address: str
) -> Iterator[dict[str, list[Connection]]]:
    """A database for plain clients and an adopted one for the others, and CLIENTS of each mode waiting for orders."""
    databases = {mode: f"{workload.name}_{driver}_{mode}".replace("-", "_") for mode in MODES}
    for mode, name in databases.items():
        prepare(server, name, workload, adopted=mode in RECORDED)
    with tempfile.TemporaryDirectory(prefix="mussurana-bench-") as folder:
        pipes: dict[str, list[Connection]] = {mode: [] for mode in MODES}
        started = []
        for mode in MODES:
            for number in range(CLIENTS):
                ours, its = _processes.Pipe()
                setup = Setup(
                    workload=workload.name,
                    driver=driver,
                    mode=mode,
                    number=number,
                    url=server.url(databases[mode], "postgresql+psycopg"),
                    isolation=isolation,
                    spool=Path(folder) / mode,
                    sink=sink_address,
                )
                process = _processes.Process(target=work, args=(setup, its), daemon=True)
                process.start()
                its.close()
                started.append(process)
                pipes[mode].append(ours)
        try:
            yield pipes
        finally:
            for pipe in (pipe for of_mode in pipes.values() for pipe in of_mode):
                pipe.close()
            for process in started:
                process.join()
    with sqlalchemy.create_engine(server.url("postgres", "postgresql+psycopg")).connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        for name in databases.values():
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def prepare(server: EmbeddedPostgres, name: str, workload: Workload, adopted: bool) -> None:
    with sqlalchemy.create_engine(server.url("postgres", "postgresql+psycopg")).connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(f"CREATE DATABASE {name}")
    engine = sqlalchemy.create_engine(server.url(name, "postgresql+psycopg"))
    workload.metadata.create_all(engine)
    with engine.begin() as connection:
        for table, rows in workload.rows():
            connection.execute(table.insert(), rows)
    if adopted:
        with redirect_stdout(StringIO()) as printed:
            if collector_command(["adopt", server.url(name)]):
                raise RuntimeError(f"{name} could not be adopted: {printed.getvalue()}")
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()


def turn(pipes: Sequence[Connection], order: Order) -> Slice:
    """One order to some clients at once; their slices as one."""
    for pipe in pipes:
        pipe.send(order)
    together = Slice()
    for pipe in pipes:
        if not pipe.poll(order.seconds + START_SECONDS_MAX):
            raise TimeoutError("a client does not answer")
        part: Slice = pipe.recv()
        together.txns += part.txns
        together.aborted += part.aborted
        together.statements += part.statements
        together.wall_seconds = max(together.wall_seconds, part.wall_seconds)
        together.thread_seconds += part.thread_seconds
        together.process_seconds += part.process_seconds
        together.latencies.extend(part.latencies)
        for name, value in part.counters.items():
            together.counters[name] = together.counters.get(name, 0) + value
    return together


def take_turns(pipes: dict[str, list[Connection]], numbers: Iterable[int], order: Order) -> dict[str, Phase]:
    phases = {mode: Phase() for mode in MODES}
    for number in numbers:
        for step in range(len(MODES)):
            mode = MODES[(number + step) % len(MODES)]
            phases[mode].turns.append(turn(pipes[mode], replace(order, round=number)))
    return phases


def add(phases: dict[str, Phase], more: dict[str, Phase]) -> None:
    for mode, phase in more.items():
        phases[mode].turns += phase.turns


def measure(
    server: EmbeddedPostgres, workload: Workload, driver: str, isolation: str, plan: Plan, sink_address: str
) -> Measured:
    alone, saturated, half = ({mode: Phase() for mode in MODES} for _ in range(3))
    for number in range(plan.rounds):
        with clients(server, workload, driver, isolation, sink_address) as pipes:
            for mode in MODES:
                turn(pipes[mode], Order(min(1.0, plan.turn_seconds)))  # fills caches: SQL, plans, pages
            one_client = {mode: pipes[mode][:1] for mode in MODES}
            add(alone, take_turns(one_client, range(ALONE[0]), Order(ALONE[1])))
            add(saturated, take_turns(pipes, [number], Order(plan.turn_seconds)))
            rate = saturated[PLAIN].throughputs[-1] / 2 / CLIENTS
            numbers = range(number * HALF_TURNS, (number + 1) * HALF_TURNS)
            add(half, take_turns(pipes, numbers, Order(plan.turn_seconds / 2, rate)))
    return Measured(workload.name, driver, alone, saturated, half)
