"""What is looked up when metrics are scraped: where the machine stands, and how much is on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mussurana.verifier.daemon.metrics import ANOMALIES, OTHER, counter, gauge, known_anomaly
from mussurana.verifier.rounds.outcome import Gauges

if TYPE_CHECKING:
    from mussurana.verifier.daemon.service import Service

UNCHECKED_REASONS = ("absent", "lost", "tainted", "contested", "colliding", "repeated")
"""Why the machine may leave a read unchecked."""


def machine_metrics(service: Service, levels: Sequence[str]) -> Iterator[Metric]:
    progress = service.board.progress
    gauges = progress.gauges

    def by_level(values: Callable[[Gauges], dict[str, int]], divisor: float = 1.0) -> dict[str, float]:
        found = values(gauges) if gauges else {}
        return {level: found.get(level, 0) / divisor for level in levels}

    yield gauge(
        "mussurana_verification_running",
        "Whether transactions are verified: 0 after an error in the machine, or while the journal cannot be written.",
        float(
            progress.state in ("catching up", "verifying")
            and not progress.trouble
            and not service.verification.worker.trouble
        ),
    )
    yield gauge(
        "mussurana_verification_heartbeat_timestamp_seconds",
        "When the verifying thread last said where it stands; many times a second unless a round is long.",
        progress.said_ns / 1e9,
    )
    yield gauge(
        "mussurana_verification_lag_current_seconds",
        "Age of the oldest fragment that has no verdict yet; 0 if all have.",
        service.verification.lag_seconds(),
    )
    yield gauge(
        "mussurana_log_behind_bytes",
        "Bytes of the log that have not been verified.",
        service.verification.behind_bytes(),
    )
    yield gauge(
        "mussurana_retained_transactions",
        "Transactions that the next round will look at again.",
        by_level(lambda gauges: gauges.retained),
    )
    yield gauge(
        "mussurana_agreed_epoch",
        "The last epoch that all sessions have passed.",
        by_level(lambda gauges: gauges.epoch),
    )
    yield gauge(
        "mussurana_agreed_epoch_timestamp_seconds",
        "When the agreed epoch was reached.",
        by_level(lambda gauges: gauges.epoch_reached_ns, 1e9),
    )
    yield gauge(
        "mussurana_version_table_keys", "Keys in the version table.", by_level(lambda gauges: gauges.table_keys)
    )
    yield gauge(
        "mussurana_waiting_transactions",
        "Transactions that wait for the writer of something they read.",
        gauges.waiting if gauges else 0,
    )
    yield gauge(
        "mussurana_waiting_oldest_timestamp_seconds",
        "When the oldest of the waiting transactions arrived; 0 if none waits.",
        gauges.waiting_since_ns / 1e9 if gauges else 0,
    )
    yield gauge(
        "mussurana_sessions_open", "Sessions that hold the agreed epoch.", gauges.sessions_open if gauges else 0
    )
    yield gauge(
        "mussurana_sessions_idle", "Sessions that are idle, closed or given up.", gauges.sessions_idle if gauges else 0
    )
    yield gauge(
        "mussurana_in_doubt_transactions",
        "Transactions whose commit is in doubt and that nobody was seen to have read from.",
        gauges.in_doubt if gauges else 0,
    )
    yield gauge(
        "mussurana_alarms_waiting",
        "Violations that are found and wait to be told, since collectors may still take them back.",
        gauges.alarms_waiting if gauges else 0,
    )
    yield counter(
        "mussurana_unknown_transactions",
        "Transactions with a read that could not be checked.",
        gauges.unknown_txns if gauges else 0,
    )
    yield counter(
        "mussurana_lost_transactions", "Transactions in gaps, as far as known.", gauges.lost_txns if gauges else 0
    )
    yield counter(
        "mussurana_lost_fragments",
        "Fragments that are gone: not kept by their collector, damaged, or not understood.",
        gauges.lost_fragments if gauges else 0,
    )
    yield counter(
        "mussurana_clashing_tags",
        "Tags of write ids that two collectors use; what the later of the two wrote under them cannot be checked.",
        gauges.clashing_tags if gauges else 0,
    )
    yield counter(
        "mussurana_ignored_claims",
        "What collectors said of versions that are not theirs, and that therefore was ignored.",
        gauges.ignored_claims if gauges else 0,
    )
    yield counter(
        "mussurana_clocks_set_back",
        "Transactions whose own clock went back while they ran; none of their times is used.",
        gauges.clocks_set_back if gauges else 0,
    )
    yield counter(
        "mussurana_begun_anew",
        "How often all that was known was let go: the fence row was a new one, or no fence could prove its place.",
        gauges.begun_anew if gauges else 0,
    )
    unchecked = dict.fromkeys((*UNCHECKED_REASONS, OTHER), 0.0)
    for reason, reads in (gauges.unchecked_reads if gauges else {}).items():
        unchecked[reason if reason in unchecked else OTHER] += reads
    yield counter("mussurana_unchecked_reads", "Reads that could not be checked.", unchecked, "reason")
    yield tainted_reads(gauges)


def tainted_reads(gauges: Gauges | None) -> Metric:
    family = CounterMetricFamily(
        "mussurana_tainted_reads",
        "Reads that were left unchecked because a collector wrote to their table unseen; `other`: beyond a hundred.",
        labels=["collector", "table"],
    )
    for (collector, table), reads in (gauges.unchecked_by if gauges else {}).items():
        family.add_metric([collector, table], reads)
    tainted = gauges.unchecked_reads.get("tainted", 0) if gauges else 0
    family.add_metric([OTHER, OTHER], tainted - sum(gauges.unchecked_by.values() if gauges else ()))
    return family


def storage_metrics(service: Service) -> Iterator[Metric]:
    yield gauge("mussurana_log_bytes", "Size of the ingest log.", service.log.size_bytes())
    yield gauge("mussurana_journal_bytes", "Size of the journal of rounds.", service.journal.size_bytes())
    yield gauge("mussurana_violations_bytes", "Size of the stored violations.", service.violations.size_bytes())
    yield violation_times(service)
    yield gauge("mussurana_checkpoint_bytes", "Size of the last checkpoint.", service.checkpoints.size_bytes)
    yield gauge(
        "mussurana_checkpoint_timestamp_seconds",
        "When the last checkpoint was made; 0 if there is none.",
        service.checkpoints.written_ns / 1e9,
    )
    yield gauge(
        "mussurana_disk_free_bytes", "Free on the disk of the data directory.", shutil.disk_usage(service.data).free
    )
    yield gauge(
        "mussurana_acknowledging",
        "Whether fragments are acknowledged: 0 while the log cannot be written.",
        float(not service.committer.trouble),
    )
    yield gauge("mussurana_collectors_connected", "Collectors that are connected.", service.ingest.connected)
    yield gauge(
        "mussurana_collectors_silent",
        "Collectors whose stream broke off, and that have not come back; after a day they no longer count.",
        service.ingest.silent,
    )
    yield gauge(
        "mussurana_clock_ahead_seconds",
        "How far the machine's clock was set back and has not caught up yet.",
        service.clock.ahead_seconds(),
    )


def violation_times(service: Service) -> Metric:
    """From what is stored, so that a restart neither forgets a violation nor makes an old one look new."""
    family = GaugeMetricFamily(
        "mussurana_violation_timestamp_seconds",
        "When the last violation was found that was told and not withdrawn; 0 if none is stored.",
        labels=["level", "anomaly"],
    )
    found = {(level, anomaly): 0 for level in service.config.verify.levels for anomaly in (*ANOMALIES, OTHER)}
    for each in service.violations.summaries():
        key = each.level, known_anomaly(each.anomaly)
        if key in found and each.state == "told":
            found[key] = max(found[key], each.found_ns)
    for labels, found_ns in found.items():
        family.add_metric(labels, found_ns / 1e9)
    return family
