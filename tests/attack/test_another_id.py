"""An id alone is of no use: it is bound to a secret, it is not shown, and nobody uses up its numbers."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import grpc
import pytest

from mussurana.verifier.daemon.ingest import JUMP_MAX
from tests.attack.collectors import Sender, ended, real
from tests.daemon.collector import fragment
from tests.daemon.conftest import Running, running
from tests.daemon.watching import is_verified, page, until

SECRET, ID = b"s" * 32, b"victim's id 1234"


def hijack(daemon: Running, secret: bytes, first_sequence: int = 1) -> tuple[grpc.StatusCode, str]:
    return ended(lambda: Sender(daemon, "e", id=ID, secret=secret, first_sequence=first_sequence))


@pytest.mark.parametrize("secret", [b"", b"x" * 32])
def test_an_id_without_its_secret_is_refused_and_the_stream_that_is_there_goes_on(data: Path, secret: bytes) -> None:
    for life in (1, 2, 3):  # what is known comes from the log's tail, a checkpoint, or an index
        with running(data, log_segment_bytes="4096", checkpoint_interval_seconds="0.1") as daemon:
            refused = daemon.service.metrics.fragments_refused.labels("secret")._value
            if life > 1:
                assert hijack(daemon, secret)[0] == grpc.StatusCode.PERMISSION_DENIED
            with Sender(daemon, "a", id=ID, secret=SECRET, first_sequence=20 * life - 19) as victim:
                for number in range(1, 21):
                    victim.send(fragment(20 * life - 20 + number))
                    victim.wait_durable(20 * life - 20 + number)
                    if number == 10:
                        code, details = hijack(daemon, secret, 2**63)
                        assert code == grpc.StatusCode.PERMISSION_DENIED
                        assert "hello.secret is not the one" in details
            assert refused.get() == 1 + (life > 1)
            until(lambda: is_verified(daemon))
        if life == 2:
            for path in (data / "checkpoints").iterdir():
                path.unlink()


def test_an_id_without_a_secret_stays_without_one(data: Path) -> None:
    with running(data) as daemon:
        with Sender(daemon, "a", id=ID) as victim:
            victim.send(fragment(1))
            victim.wait_durable(1)
            assert hijack(daemon, SECRET)[0] == grpc.StatusCode.PERMISSION_DENIED
        with Sender(daemon, "a", id=ID, first_sequence=2) as victim:
            assert victim.durable == 1


def test_who_only_said_hello_has_bound_nothing(data: Path) -> None:
    with running(data) as daemon:
        with Sender(daemon, "a", id=ID, secret=SECRET):
            assert hijack(daemon, b"other")[0] == grpc.StatusCode.PERMISSION_DENIED
        until(lambda: daemon.service.ingest.connected == 0)
        assert daemon.service.ingest.collectors() == []
        with Sender(daemon, "a", id=ID, secret=b"another"):
            pass


def test_nobody_jumps_further_than_a_collector_can_have_come(data: Path) -> None:
    with running(data) as daemon:
        code, details = hijack(daemon, SECRET, JUMP_MAX + 2)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "hello.first_sequence is 4294967298" in details
        with Sender(daemon, "a", id=ID, secret=SECRET, first_sequence=JUMP_MAX + 1) as victim:
            victim.send(fragment(JUMP_MAX + 1))
            victim.wait_durable(JUMP_MAX + 1)


def test_ids_are_not_shown(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), real(data) as daemon:
        with Sender(daemon, "a", id=ID, secret=SECRET, first_sequence=5) as victim:
            victim.sequence = 4
            victim.tell("0 x:=a1")
        until(lambda: is_verified(daemon), 60)
        overview = page(daemon.http_port, "/api/overview")[1]
        plain = json.loads(overview)
        shown = [overview, page(daemon.http_port, "/metrics")[1], str(daemon.service.query.status_now())]
        shown += [record.getMessage() + str(vars(record)) for record in caplog.records]
        assert (
            json.loads(overview)["gaps"]["latest"][0]["collector"]
            == json.loads(overview)["collectors"]["shown"][0]["id"]
        )
        assert plain["gaps"]["latest"][0]["collector"] == plain["collectors"]["shown"][0]["id"]
    for text in shown:
        assert ID.hex() not in text
        assert "victim's id" not in text
