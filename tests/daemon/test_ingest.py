"""Durable before acknowledged, each fragment once, and whoever misbehaves hears why and hurts nobody else."""

from __future__ import annotations

import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from mussurana.verifier.commands.serve import check_fragment
from mussurana.verifier.daemon.ingest import FRAGMENT_BYTES_MAX
from mussurana.verifier.daemon.log import RESUMED, Entry, Tail
from mussurana.wire.history_pb2 import Fragment, Hello, SessionEvent, Upload
from mussurana.wire.segments import Record
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.daemon.watching import until

Status = grpc.StatusCode


def stored(daemon: Running) -> list[tuple[bytes, int]]:
    log = daemon.service.log
    records = [item for item in Tail(log.directory).read_all(log.durable) if isinstance(item, Record)]
    entries = [Entry.from_bytes(record.payload) for record in records]
    return [(entry.collector, entry.sequence) for entry in entries if entry.kind != RESUMED]


def test_acknowledged_fragments_are_in_the_log_and_reach_the_machine(data: Path) -> None:
    with running(data) as daemon, TestCollector(daemon.address) as collector:
        collector.send(*(fragment(n) for n in range(1, 31)))
        collector.wait_durable(30)
        assert stored(daemon) == [(collector.id, n) for n in range(1, 31)]
        until(lambda: sum(each.txn_count for each in daemon.service.board.rounds()) == 300)


def test_a_stream_that_ends_is_acknowledged_to_the_end(data: Path) -> None:
    with running(data) as daemon, TestCollector(daemon.address) as collector:
        collector.send(*(fragment(n) for n in range(1, 6)))
        collector.finish()
        assert collector.durable == 5


def test_a_collector_that_comes_back_goes_on_where_it_was(data: Path) -> None:
    with running(data) as daemon:
        with TestCollector(daemon.address) as collector:
            collector.send(fragment(1), fragment(2))
            collector.wait_durable(2)
        with TestCollector(daemon.address, first_sequence=2) as collector:
            assert collector.durable == 2
            collector.send(fragment(2), fragment(3))
            collector.wait_durable(3)
            assert daemon.service.metrics.fragments_duplicated._value.get() == 1
    with running(data) as daemon, TestCollector(daemon.address, first_sequence=4) as collector:
        assert collector.durable == 3
        assert stored(daemon) == [(collector.id, 1), (collector.id, 2), (collector.id, 3)]


def test_duplicates_are_acknowledged_again_and_stored_once(data: Path) -> None:
    with running(data) as daemon, TestCollector(daemon.address) as collector:
        collector.send(fragment(1), fragment(1), fragment(2), fragment(1), fragment(2))
        collector.finish()
        assert collector.durable == 2
        assert stored(daemon) == [(collector.id, 1), (collector.id, 2)]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xff\xff garbage", "this is not an Upload"),
        (b"", "the first message of a stream is a Hello"),
        (Upload(fragment=Fragment(sequence=1)), "the first message of a stream is a Hello"),
        (Upload(hello=Hello(collector=b"c" * 16)), "hello.protocol is missing"),
        (Upload(hello=Hello(protocol=1, collector=b"short")), "hello.collector has 5 bytes; 16 were expected"),
    ],
)
def test_a_bad_beginning_is_named(data: Path, sent: bytes | Upload, said: str) -> None:
    with running(data) as daemon, TestCollector(daemon.address, say_hello=False) as collector:
        collector.send_bytes(sent if isinstance(sent, bytes) else sent.SerializeToString())
        code, details = collector.status()
        assert code == Status.INVALID_ARGUMENT
        assert said in details


def test_a_newer_protocol_is_refused_with_both_numbers(data: Path) -> None:
    with running(data) as daemon, TestCollector(daemon.address, say_hello=False) as collector:
        collector.send_bytes(Upload(hello=Hello(protocol=7, collector=b"c" * 16)).SerializeToString())
        code, details = collector.status()
        assert code == Status.FAILED_PRECONDITION
        assert "speaks protocol 7" in details
        assert "up to 1" in details


@pytest.mark.parametrize(
    ("bad", "code", "said"),
    [
        (b"\x12\xff\xff\xff\xff\x0fx", Status.INVALID_ARGUMENT, "not an Upload"),
        (Upload(hello=Hello(protocol=1)), Status.INVALID_ARGUMENT, "only fragments"),
        (Upload(fragment=fragment(3)), Status.FAILED_PRECONDITION, "fragment.sequence is 3; 2 was expected"),
        (Upload(fragment=fragment(0)), Status.FAILED_PRECONDITION, "fragment.sequence is 0; 2 was expected"),
        (Upload(fragment=fragment(2**64 - 1)), Status.FAILED_PRECONDITION, "2 was expected"),
        (Upload(fragment=Fragment(sequence=2, txn_count=5)), Status.INVALID_ARGUMENT, "txn_session has 0 bytes"),
    ],
)
def test_a_collector_that_sends_nonsense_is_cut_off_with_a_reason_and_nobody_else_is(
    data: Path, bad: bytes | Upload, code: grpc.StatusCode, said: str
) -> None:
    with (
        running(data, check=check_fragment()) as daemon,
        TestCollector(daemon.address, b"good" * 4) as good,
        TestCollector(daemon.address, b"evil" * 4) as evil,
    ):
        good.send(fragment(1))
        evil.send(fragment(1))
        evil.wait_durable(1)
        evil.send_bytes(bad if isinstance(bad, bytes) else bad.SerializeToString())
        assert evil.status()[0] == code
        assert said in evil.status()[1]
        good.send(fragment(2))
        good.wait_durable(2)
        with TestCollector(daemon.address, b"evil" * 4, first_sequence=2) as again:
            assert again.durable == 1
            again.send(fragment(2))
            again.wait_durable(2)
        assert sorted(stored(daemon)) == sorted((id, n) for id in (good.id, evil.id) for n in (1, 2))


def test_a_fragment_that_makes_no_sense_later_is_a_gap_and_its_sender_hears_why(data: Path) -> None:
    with running(data) as daemon:
        with TestCollector(daemon.address) as collector:
            strange = fragment(1)
            strange.session_event.append(SessionEvent(session=666))
            collector.send(strange)
            code, details = collector.status()
            assert code == Status.INVALID_ARGUMENT
            assert "session 666" in details
        with TestCollector(daemon.address, first_sequence=2) as collector:
            assert collector.durable == 1
            collector.send(fragment(2))
            collector.wait_durable(2)
            until(lambda: daemon.service.board.rounds())
        progress = daemon.service.board.progress
        assert progress.gauges is not None
        assert progress.gauges.lost_txns == 1
        assert daemon.service.metrics.gaps.labels("not understood")._value.get() == 1


def test_what_a_collector_no_longer_has_is_a_gap(data: Path) -> None:
    with running(data) as daemon, TestCollector(daemon.address, first_sequence=5) as collector:
        collector.send(fragment(5))
        collector.wait_durable(5)
        until(lambda: daemon.service.metrics.gaps.labels("not kept")._value.get() == 1)
        until(lambda: daemon.service.board.rounds())


def test_a_second_stream_of_a_collector_takes_over(data: Path) -> None:
    with running(data) as daemon, TestCollector(daemon.address) as first:
        first.send(fragment(1))
        first.wait_durable(1)
        with TestCollector(daemon.address, first_sequence=2) as second:
            assert first.status() == (Status.ABORTED, "another stream of this collector has taken over")
            second.send(fragment(2))
            second.wait_durable(2)
        until(lambda: daemon.service.ingest.connected == 0)


def test_collectors_that_go_away_at_any_moment_are_not_counted_as_connected(data: Path) -> None:
    with running(data) as daemon:
        for number in range(100):  # each ends its stream and cancels it at once, and either may be seen first
            with TestCollector(daemon.address, number.to_bytes(16, "big")) as collector:
                collector.send(fragment(1))
                collector.wait_durable(1)
        until(lambda: daemon.service.ingest.connected == 0)


def test_too_many_collectors_are_told_so(data: Path) -> None:
    with (
        running(data, ingest_collectors_max="1") as daemon,
        TestCollector(daemon.address, b"1" * 16),
        TestCollector(daemon.address, b"2" * 16, say_hello=False) as second,
    ):
        second.send_bytes(Upload(hello=Hello(protocol=1, collector=b"2" * 16)).SerializeToString())
        assert second.status() == (Status.RESOURCE_EXHAUSTED, "1 collectors are connected, and no more are taken")


def test_a_message_that_is_far_too_large_ends_only_its_stream(data: Path) -> None:
    with running(data) as daemon, TestCollector(daemon.address) as good:
        with TestCollector(daemon.address, b"big!" * 4) as big:
            big.send_bytes(bytes(FRAGMENT_BYTES_MAX + 1))
            assert big.status()[0] == Status.RESOURCE_EXHAUSTED
        good.send(fragment(1))
        good.wait_durable(1)


def test_collectors_wait_while_verification_is_too_far_behind(data: Path) -> None:
    with running(data, ingest_backlog_bytes_max=str(1 << 20)) as daemon:
        behind = [2 << 20]
        daemon.service.verification.behind_bytes = lambda: behind[0]  # type: ignore[method-assign]
        until(lambda: daemon.service.ingest.window_bytes == 0)
        with TestCollector(daemon.address) as collector:
            assert collector.window_bytes == 0
            behind[0] = 0
            collector.next()
            assert collector.window_bytes > 0


def test_a_stream_is_not_read_beyond_its_window(data: Path) -> None:
    class Slow:
        def __init__(self, daemon: Running) -> None:
            self.commit, self.held = daemon.service.log.commit, True
            daemon.service.log.commit = self  # type: ignore[assignment, method-assign]

        def __call__(self, entries: list[Entry]) -> None:
            while self.held:
                time.sleep(0.01)
            self.commit(entries)

    with running(data, ingest_window_bytes="65536") as daemon, TestCollector(daemon.address) as collector:
        slow = Slow(daemon)
        collector.send(*(fragment(n, 500) for n in range(1, 101)))
        time.sleep(0.3)
        received = daemon.service.metrics.fragments_received._value.get()
        assert 1 <= received < 20
        slow.held = False
        collector.wait_durable(100)


def test_health_and_reflection_are_there(data: Path) -> None:
    with running(data) as daemon, grpc.insecure_channel(daemon.address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check

        def status(service: str) -> int:
            return int(check(health_pb2.HealthCheckRequest(service=service)).status)

        until(lambda: status("") == status("mussurana.v1.Ingest") == 1)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([asked]))
        names = {service.name for service in next(answers).list_services_response.service}
        assert {"mussurana.v1.Ingest", "mussurana.v1.Query", "grpc.health.v1.Health"} <= names


def test_two_daemons_do_not_share_a_directory(data: Path) -> None:
    with running(data), pytest.raises(Exception, match="in use by another daemon"), running(data):
        pass
