"""Metrics, as Prometheus wants them: base units, zeros from the start, few and known label values.

Counters are incremented where things happen. What can be looked up (sizes, the machine's gauges) is looked up when
somebody scrapes, by `Observed`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mussurana.verifier.daemon.quotas import QUOTAS
from mussurana.verifier.daemon.statements import NAME_CHARACTERS_MAX, Statements
from mussurana.verifier.daemon.workers import NAMES as WORKERS
from mussurana.verifier.rounds.outcome import RoundOutcome
from mussurana.wire.history_pb2 import Coverage, Fragment

VERDICTS = ("accepted", "rejected", "unknown")
PHASES = ("admit", "build", "prune", "solve", "explain", "forget", "total")
REFUSALS = (
    *("authentication", "protocol", "garbage", "sequence", "capacity", "superseded", "late", "secret", "quota"),
    "database",  # of another one
)
GAP_CAUSES = ("declared", "damaged", "not understood", "not kept")
ANOMALIES = (
    "aborted read",
    "anti-dependency cycle",
    "circular information flow",
    "dirty write",
    "incompatible order",
    "intermediate read",
    "internal inconsistency",
    "long fork",
    "lost update",
    "read skew",
    "real time inverted",
    "session order broken",
    "stale read",
    "version never written",
    "write skew",
)
OTHER = "other"
"""In place of a name that is not above, so that the label has known values only."""

LAG_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
DISK_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROUND_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

COVERAGE_KEYS_MAX = 100_000
"""Of (collector, table, shape) whose last total is remembered: some megabytes. Beyond it the oldest are forgotten, and
what they count is counted again."""


class BulkHistogram(Collector):
    """A histogram that takes thousands of values at once; the library's own would cost more than verifying them."""

    def __init__(self, name: str, documentation: str, levels: Sequence[str], bounds: Sequence[float]) -> None:
        self.name, self._documentation, self._bounds = name, documentation, np.array(bounds)
        self._counts = {level: np.zeros(len(bounds) + 1, np.int64) for level in levels}
        self._sums = dict.fromkeys(levels, 0.0)
        self._lock = threading.Lock()

    def observe(self, level: str, values: npt.NDArray[np.float64]) -> None:
        places = np.searchsorted(self._bounds, values)
        with self._lock:
            self._counts[level] += np.bincount(places, minlength=len(self._bounds) + 1)
            self._sums[level] += float(values.sum())

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self.name, self._documentation, labels=["level"])
        with self._lock:
            for level, counts in self._counts.items():
                bounds = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
                buckets = list(zip(bounds, np.cumsum(counts).tolist(), strict=True))
                family.add_metric([level], buckets, self._sums[level])
        yield family


class Observed(Collector):
    """Gauges, and counters that somebody else keeps, asked for at each scrape."""

    def __init__(self) -> None:
        self._sources: list[Callable[[], Iterable[Metric]]] = []

    def add(self, source: Callable[[], Iterable[Metric]]) -> None:
        self._sources.append(source)

    def collect(self) -> Iterator[Metric]:
        for source in self._sources:
            yield from source()


def known_anomaly(name: str) -> str:
    return name if name in ANOMALIES else OTHER


def gauge(name: str, documentation: str, value: float | dict[str, float], label: str = "level") -> Metric:
    return _filled(GaugeMetricFamily, name, documentation, value, label)


def counter(name: str, documentation: str, value: float | dict[str, float], label: str = "level") -> Metric:
    """`name` without the _total, which is added."""
    return _filled(CounterMetricFamily, name, documentation, value, label)


def _filled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    documentation: str,
    value: float | dict[str, float],
    label: str,
) -> Metric:
    if isinstance(value, dict):
        family = kind(name, documentation, labels=[label])
        for labelled, each in value.items():
            family.add_metric([labelled], each)
        return family
    return kind(name, documentation, value=value)


class Metrics:
    def __init__(self, levels: Sequence[str]) -> None:
        self.registry = registry = CollectorRegistry()
        for standard in (ProcessCollector, PlatformCollector, GCCollector):
            standard(registry=registry)

        def count(name: str, documentation: str, **labels: Sequence[str]) -> Counter:
            made = Counter(f"mussurana_{name}", documentation, list(labels), registry=registry)
            for values in product(*labels.values()) if labels else ():
                made.labels(*values)
            return made

        self.fragments_received = count("fragments_received", "Fragments that collectors sent.")
        self.fragments_duplicated = count("fragments_duplicated", "Fragments that came again and were passed over.")
        self.fragments_refused = count(
            "fragments_refused", "Streams that were ended for what they sent.", reason=REFUSALS
        )
        self.quota_refusals = count(
            "quota_refusals",
            "Fragments that were refused, because their collector has too much of something.",
            quota=QUOTAS,
        )
        self.received_bytes = count("received_bytes", "Bytes of fragments that collectors sent.")
        self.log_failures = count("log_failures", "Attempts to write the log that failed.")
        self.log_damages = count("log_damages", "Places in the log that could not be read.")
        self.gaps = count("gaps", "Gaps in what is verified.", cause=GAP_CAUSES)
        self.transactions = count(
            "transactions",
            "Transactions that rounds took in, by the verdict of their round.",
            level=levels,
            verdict=VERDICTS,
        )
        self.reads = count("reads", "Reads in the transactions that rounds took in, checked or not.", level=levels)
        self.claimed_reads = count(
            "claimed_reads",
            "Reads that rounds left unchecked because of what some collector claims; its rounds name it and the table.",
            level=levels,
        )
        self.rounds = count("rounds", "Rounds that were finished.", level=levels, verdict=VERDICTS)
        self.round_phase_seconds = count(
            "round_phase_seconds", "Time spent in each phase of rounds.", level=levels, phase=PHASES
        )
        self.rejections = count("rejections", "Violations that were told.", level=levels, anomaly=(*ANOMALIES, OTHER))
        self.withdrawals = count(
            "withdrawn_violations",
            "Violations that were taken back; `told` is whether they had been told before.",
            level=levels,
            told=("yes", "no"),
        )
        self.violations_unexplained = count(
            "violations_unexplained",
            "Transactions that were set aside without a counterexample, because a round had too many.",
            level=levels,
        )
        self.round_failures = count(
            "round_failures", "Rounds that came upon an error in the verifier, and were unknown.", level=levels
        )
        self.verification_failures = count(
            "verification_failures", "How often verification began anew after an error in the verifier."
        )
        self.steps_rerun = count("steps_rerun", "Steps that were taken again after a start.")
        self.steps_different = count("steps_different", "Steps that found something else when taken again.")
        self.journal_failures = count("journal_failures", "Attempts to write the journal that failed.")
        self.checkpoint_failures = count("checkpoint_failures", "Checkpoints that could not be written.")
        self.webhook_deliveries = count("webhook_deliveries", "Attempts to call the webhook.", result=("ok", "failed"))
        self.worker_failures = count(
            "worker_failures", "Threads and tasks of the daemon that ended by mistake and began again.", worker=WORKERS
        )
        self.clock_leaps = count(
            "clock_leaps",
            "How often nobody could be heard for a while: the process was stopped, its machine slept, or its clock was "
            "set forward.",
        )
        self.unobserved_statements = count(
            "unobserved_statements",
            "Statements that collectors could not or not fully see.",
            observed=[name.lower() for name in Coverage.Observed.keys() if name != "FULL"],  # noqa: SIM118
        )
        self.observed_statements = count("observed_statements", "Statements that collectors saw fully.")
        self.fences_issued = count("fences_issued", "Fences that collectors ran.")
        self.fences_failed = count("fences_failed", "Fences that failed after all retries.")
        self.fence_seconds = count("fence_seconds", "Time that collectors spent on fences.")

        def histogram(name: str, documentation: str, bounds: Sequence[float]) -> Histogram:
            return Histogram(f"mussurana_{name}", documentation, buckets=bounds, registry=registry)

        self.log_commit_seconds = histogram("log_commit_seconds", "Appending and syncing a batch.", DISK_SECONDS)
        self.checkpoint_seconds = histogram("checkpoint_seconds", "Writing a checkpoint.", DISK_SECONDS)
        self.round_seconds = BulkHistogram("mussurana_round_seconds", "Time that a round took.", levels, ROUND_SECONDS)
        self.verification_lag_seconds = BulkHistogram(
            "mussurana_verification_lag_seconds", "From a transaction's commit to its verdict.", levels, LAG_SECONDS
        )
        self.observed = Observed()
        for collector in (self.round_seconds, self.verification_lag_seconds, self.observed):
            registry.register(collector)
        self.statements = Statements()
        # Ordered ones let go of their oldest entry at once; a plain one looks for it past all that went before.
        self._totals: OrderedDict[tuple[bytes, str, str, int], int] = OrderedDict()
        self._fences: OrderedDict[bytes, tuple[int, int, float]] = OrderedDict()

    def count_round(self, outcome: RoundOutcome, finished_ns: int) -> None:
        level = outcome.level
        self.rounds.labels(level, outcome.verdict).inc()
        self.transactions.labels(level, outcome.verdict).inc(outcome.txn_count)
        self.reads.labels(level).inc(outcome.read_count)
        self.claimed_reads.labels(level).inc(sum(each.reads for each in outcome.unchecked))
        self.violations_unexplained.labels(level).inc(outcome.further_violations)
        for phase in PHASES:
            self.round_phase_seconds.labels(level, phase).inc(outcome.seconds.get(phase, 0.0))
        self.round_seconds.observe(level, np.array([outcome.seconds.get("total", 0.0)]))
        known_ns = outcome.committed_ns[outcome.committed_ns > 0]
        self.verification_lag_seconds.observe(level, np.maximum(finished_ns - known_ns, 0) / 1e9)

    def count_rejection(self, level: str, anomaly: str) -> None:
        self.rejections.labels(level, known_anomaly(anomaly)).inc()

    def count_reports(self, collector: bytes, fragment: Fragment) -> None:
        """What a collector says about itself. Its totals since it started become increments."""
        for seen in fragment.coverage:
            key = (collector, seen.table[:NAME_CHARACTERS_MAX], seen.shape[:NAME_CHARACTERS_MAX], seen.observed)
            increase = max(0, seen.statement_count - self._totals.pop(key, 0))
            self._totals[key] = seen.statement_count
            if seen.observed == Coverage.FULL:
                self.observed_statements.inc(increase)
                self.statements.saw_fully(increase)
            elif seen.observed in Coverage.Observed.values():
                observed = Coverage.Observed.Name(seen.observed).lower()
                self.unobserved_statements.labels(observed).inc(increase)
                self.statements.missed(seen.table, seen.shape, observed, increase, fragment.sealed_ns)
        while len(self._totals) > COVERAGE_KEYS_MAX:
            self._totals.popitem(last=False)
        if fragment.HasField("fences"):
            fences = fragment.fences
            issued, failed, seconds = self._fences.pop(collector, (0, 0, 0.0))
            self.fences_issued.inc(max(0, fences.issued - issued))
            self.fences_failed.inc(max(0, fences.failed - failed))
            self.fence_seconds.inc(max(0.0, fences.seconds - seconds))
            self._fences[collector] = (fences.issued, fences.failed, fences.seconds)
            if len(self._fences) > COVERAGE_KEYS_MAX:
                self._fences.popitem(last=False)

    def text(self) -> bytes:
        return generate_latest(self.registry)
