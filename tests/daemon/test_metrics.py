"""Metrics keep the conventions, are there before anything happened, and count what happened."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from mussurana.verifier.daemon.http import CONNECTIONS_MAX
from mussurana.verifier.daemon.metrics import ANOMALIES, OTHER, BulkHistogram, Metrics
from mussurana.wire.history_pb2 import Coverage, Fences, Fragment, Gap
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.daemon.watching import is_verified, page, send, until

ASKED_FOR = {
    "mussurana_verification_lag_seconds",
    "mussurana_verification_lag_current_seconds",
    "mussurana_transactions",
    "mussurana_rounds",
    "mussurana_round_phase_seconds",
    "mussurana_retained_transactions",
    "mussurana_waiting_transactions",
    "mussurana_agreed_epoch",
    "mussurana_agreed_epoch_timestamp_seconds",
    "mussurana_version_table_keys",
    "mussurana_log_bytes",
    "mussurana_checkpoint_bytes",
    "mussurana_collectors_connected",
    "mussurana_fragments_received",
    "mussurana_fragments_duplicated",
    "mussurana_gaps",
    "mussurana_unknown_transactions",
    "mussurana_rejections",
    "mussurana_unobserved_statements",
}
UNITS = ("_seconds", "_bytes", "_total", "_info", "_timestamp_seconds")


def scraped(daemon: Running) -> dict[str, dict[tuple[str, ...], float]]:
    """By name, by the values of the labels."""
    families = text_string_to_metric_families(page(daemon.http_port, "/metrics")[1])
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in families:
        for sample in family.samples:
            labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "le")
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_everything_is_there_from_the_start_and_is_zero(data: Path) -> None:
    with running(data, settings={"verify_levels": "serializable,strong-si"}) as daemon:
        text = page(daemon.http_port, "/metrics")[1]
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert set(families) >= ASKED_FOR
        ours = {name: family for name, family in families.items() if name.startswith("mussurana_")}
        for name, family in ours.items():
            assert family.documentation.endswith("."), name
            assert family.samples, name
        values = scraped(daemon)
        for level in ("serializable", "strong-si"):
            for verdict in ("accepted", "rejected", "unknown"):
                assert values["mussurana_rounds_total"][level, verdict] == 0
        assert len(values["mussurana_rejections_total"]) == 2 * (len(ANOMALIES) + 1)
        assert values["mussurana_unobserved_statements_total"] == {
            ("partial",): 0,
            ("unobserved_read",): 0,
            ("unobserved_write",): 0,
        }


def test_names_keep_the_conventions(data: Path) -> None:
    with running(data) as daemon:
        families = list(text_string_to_metric_families(page(daemon.http_port, "/metrics")[1]))
    for family in families:
        if family.name.startswith("mussurana_"):
            assert not family.name.endswith(("_ms", "_millis", "_mb", "_kb", "_count", "_sum"))
            assert (family.type == "counter") == any(sample.name.endswith("_total") for sample in family.samples)


def test_what_happened_is_counted(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 10, marks=[3])
        with TestCollector(daemon.address, first_sequence=11) as collector:
            told = fragment(11)
            told.gap.append(Gap(reason="spool full", txn_count=5))
            collector.send(fragment(10), told)
            collector.wait_durable(11)
            assert scraped(daemon)["mussurana_collectors_connected"][()] == 1
        until(lambda: is_verified(daemon))
        values = scraped(daemon)
        assert sum(values["mussurana_transactions_total"].values()) == 210
        assert values["mussurana_fragments_received_total"][()] == 12
        assert values["mussurana_fragments_duplicated_total"][()] == 1
        assert values["mussurana_gaps_total"][("declared",)] == 1
        assert values["mussurana_rejections_total"]["write skew", "serializable"] == 1
        assert values["mussurana_verification_lag_seconds_count"][("serializable",)] == 210
        assert values["mussurana_log_bytes"][()] > 1000
        assert values["mussurana_verification_running"][()] == 1


def test_totals_of_collectors_become_increments() -> None:
    metrics = Metrics(["serializable"])
    unseen = metrics.unobserved_statements.labels("unobserved_read")._value

    def told(id: bytes, count: int, fences: int) -> None:
        coverage = [Coverage(table="t", shape="COPY", observed=Coverage.UNOBSERVED_READ, statement_count=count)]
        metrics.count_reports(id, Fragment(coverage=coverage, fences=Fences(issued=fences, seconds=fences / 10)))

    told(b"a", 5, 1)
    told(b"a", 7, 4)
    told(b"b", 2, 1)
    told(b"a", 7, 4)
    assert unseen.get() == 9
    assert metrics.fences_issued._value.get() == 5
    assert abs(metrics.fence_seconds._value.get() - 0.5) < 1e-9


def test_an_anomaly_without_a_name_of_its_own_is_counted_as_other() -> None:
    metrics = Metrics(["serializable"])
    metrics.count_rejection("serializable", "something new")
    assert metrics.rejections.labels("serializable", OTHER)._value.get() == 1


def test_values_counted_at_once_are_counted_as_one_by_one() -> None:
    bounds = (0.1, 0.5, 1.0)
    values = np.random.default_rng(0).random(1000) * 1.5
    bulk = BulkHistogram("h", "H.", ["a"], bounds)
    for part in np.array_split(values, 7):
        bulk.observe("a", part)
    (family,) = bulk.collect()
    counted = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
    assert counted == {**{str(bound): (values <= bound).sum() for bound in bounds}, "+Inf": 1000}


def test_connections_are_bounded_and_the_rest_is_closed(data: Path) -> None:
    with running(data) as daemon:
        idle = [socket.create_connection(("127.0.0.1", daemon.http_port)) for _ in range(CONNECTIONS_MAX)]
        until(lambda: is_refused(daemon.http_port))
        for connection in idle:
            connection.close()
        until(lambda: not is_refused(daemon.http_port))


def is_refused(port: int) -> bool:
    try:
        return page(port, "/-/healthy")[0] != 200
    except OSError:
        return True


def test_pages_that_do_not_exist_are_not_found_and_healthy_is(data: Path) -> None:
    with running(data) as daemon:
        assert page(daemon.http_port, "/nothing") == (404, "there is no such page\n")
        assert page(daemon.http_port, "/-/healthy?x=1") == (200, "the daemon is running\n")
        assert page(daemon.http_port, "/-/ready") == (200, "fragments are taken\n")
