"""The stream to the verifier: everything arrives once and in order, whatever the verifier does."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from mussurana.collector import sender
from mussurana.collector.abandoned import complete
from mussurana.collector.recorder import Recorder
from mussurana.collector.sender import Sender
from mussurana.collector.spool import Destination, folders, make_folder
from mussurana.collector.spool_reader import SpoolReader
from mussurana.wire import history_pb2
from tests.collector.recording.ingest import Ingest, eventually, say_nothing
from tests.collector.recording.observed import commit, quick, txn_count


def sequences(verifier: Ingest) -> list[int]:
    return [fragment.sequence for fragment in verifier.fragments()]


def test_what_ends_arrives_and_leaves_no_spool(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    with Ingest() as verifier:
        recorder = make_recorder(verifier=verifier.address, name="web-1", database="postgresql://db/shop")
        session = recorder.open_session("conn 1", fenced=False)
        for _ in range(500):
            commit(recorder, session, "a/1", "a/2")
        assert recorder.flush(10)
        assert verifier.txn_count() == 500
        recorder.close()
        assert verifier.hellos[0].name == "web-1"
        assert verifier.hellos[0].database == "postgresql://db/shop"
        assert sequences(verifier) == list(range(1, len(sequences(verifier)) + 1))
        assert eventually(lambda: not folders(spool))


def test_one_that_has_nothing_to_send_yet_does_not_connect_without_its_name(
    make_recorder: Callable[..., Recorder], spool: Path
) -> None:
    with Ingest() as verifier:
        first = make_recorder(verifier=verifier.address, name="web-1")
        commit(first, first.open_session("conn 1", fenced=False), "a/1")
        assert first.flush(10)  # a shipper is at work, and looks for others
        folder, lock = make_folder(quick(spool, verifier=verifier.address), os.urandom(16), tag=1)
        time.sleep(1)
        assert [hello.name for hello in verifier.hellos] == ["web-1"]
        os.close(lock)  # its process has ended without a word
        assert eventually(lambda: not folder.exists())
        first.close()


def test_a_broken_stream_goes_on_where_it_was(make_recorder: Callable[..., Recorder]) -> None:
    with Ingest() as verifier:
        verifier.break_after = 3
        recorder = make_recorder(verifier=verifier.address, batch_txns_max=1)
        session = recorder.open_session("conn 1", fenced=False)
        for _ in range(10):
            commit(recorder, session, "a/1")
            time.sleep(0.02)
        assert recorder.flush(10)
        assert verifier.txn_count() == 10
        assert sequences(verifier) == list(range(1, len(sequences(verifier)) + 1))
        assert len(verifier.hellos) >= 2
        assert eventually(lambda: recorder.metrics.connections_failed >= 1)
        recorder.close()


def test_a_verifier_that_comes_late_gets_everything(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    with Ingest() as gone:
        address = gone.address
    recorder = make_recorder(verifier=address)
    session = recorder.open_session("conn 1", fenced=False)
    for _ in range(100):
        commit(recorder, session, "a/1")
    assert not recorder.flush(0.5)
    assert txn_count(spool) == 100
    with Ingest(address=address) as verifier:
        assert recorder.flush(20)
        assert verifier.txn_count() == 100
        recorder.close()


def test_a_verifier_that_never_answers_is_not_noticed(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    with Ingest(say_nothing) as verifier:
        recorder = make_recorder(verifier=verifier.address, close_seconds=0.3)
        session = recorder.open_session("conn 1", fenced=False)
        for _ in range(100):
            commit(recorder, session, "a/1")
        assert eventually(lambda: len(verifier.hellos) > 0)
        before = time.monotonic()
        recorder.close()
        assert time.monotonic() - before < 3
        assert txn_count(spool) == 100


def test_no_more_is_under_way_than_the_window_allows(make_recorder: Callable[..., Recorder]) -> None:
    with Ingest() as verifier:
        verifier.window_bytes = 1  # one fragment at a time
        verifier.delay_seconds = 0.01
        recorder = make_recorder(verifier=verifier.address, batch_txns_max=1)
        session = recorder.open_session("conn 1", fenced=False)
        for _ in range(30):
            commit(recorder, session, "a/1")
        assert recorder.flush(10)
        assert verifier.txn_count() == 30
        recorder.close()


def test_a_slow_verifier_is_not_noticed(make_recorder: Callable[..., Recorder]) -> None:
    with Ingest() as verifier:
        verifier.delay_seconds = 0.2
        recorder = make_recorder(verifier=verifier.address, close_seconds=0.2)
        session = recorder.open_session("conn 1", fenced=False)
        before = time.monotonic()
        for _ in range(1000):
            commit(recorder, session, "a/1")
        assert time.monotonic() - before < 1
        recorder.close()


def test_the_token_is_sent_and_read_anew(make_recorder: Callable[..., Recorder], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with Ingest() as verifier:
        recorder = make_recorder(verifier=verifier.address, token_file=str(tmp_path / "token"))
        commit(recorder, recorder.open_session("conn 1", fenced=False), "a/1")
        assert recorder.flush(10)
        assert verifier.tokens == ["Bearer secret"]
        recorder.close()


def test_a_token_file_that_is_missing_costs_nothing_but_the_stream(
    make_recorder: Callable[..., Recorder], spool: Path
) -> None:
    with Ingest() as verifier:
        recorder = make_recorder(verifier=verifier.address, token_file="/nowhere", close_seconds=0.2)
        commit(recorder, recorder.open_session("conn 1", fenced=False), "a/1")
        assert eventually(lambda: recorder.metrics.connections_failed > 0)
        recorder.close()
        assert txn_count(spool) == 1


def test_acknowledged_segments_are_deleted_while_others_follow(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mussurana.collector.background.SEGMENT_BYTES_MAX", 2000)
    with Ingest() as verifier:
        recorder = make_recorder(verifier=verifier.address, batch_txns_max=5)
        session = recorder.open_session("conn 1", fenced=False)
        for _ in range(200):
            commit(recorder, session, "a/1")
        assert recorder.flush(10)
        assert eventually(lambda: len(list(spool.glob("*/*.seg"))) == 1)
        segments = sorted(path.name for path in spool.glob("*/*.seg"))
        assert len(segments) == 1
        assert int(segments[0][:8]) > 3
        assert verifier.txn_count() == 200
        recorder.close()


def test_a_verifier_that_falls_silent_is_asked_again(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "ANSWER_SECONDS_MAX", 0.2)
    folder, lock = make_folder(quick(spool), os.urandom(16), tag=1)
    complete(folder)
    with Ingest(say_nothing) as verifier:
        sending = Sender(Destination.of(quick(spool, verifier=verifier.address)), SpoolReader(folder), lambda _: None)
        sending.start()
        assert eventually(lambda: len(verifier.hellos) >= 2)
        sending.stop(5)
        assert sending.connections_failed >= 1
    os.close(lock)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_the_stream_is_encrypted_and_both_sides_know_each_other(
    make_recorder: Callable[..., Recorder], tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), certificate.read_bytes())], certificate.read_bytes(), require_client_auth=True
    )
    with Ingest(address="localhost:0", credentials=credentials) as verifier:
        recorder = make_recorder(
            verifier=verifier.address,
            tls_ca_file=str(certificate),
            tls_certificate_file=str(certificate),
            tls_key_file=str(key),
        )
        commit(recorder, recorder.open_session("conn", fenced=False), "a/1")
        assert recorder.flush(10)
        assert verifier.txn_count() == 1
        recorder.close()


def test_a_secret_of_its_own_goes_with_each_collector_also_when_its_process_is_gone(
    make_recorder: Callable[..., Recorder], spool: Path
) -> None:
    with Ingest() as verifier:
        recorder = make_recorder(verifier=verifier.address)
        commit(recorder, recorder.open_session("conn 1", fenced=False), "a/1")
        assert recorder.flush(10)
        (folder,) = folders(spool)
        secret = (folder / "secret").read_bytes()
        assert len(secret) == 32
        assert (folder / "secret").stat().st_mode & 0o777 == 0o600
        assert verifier.hellos[0].secret == secret
        abandoned, lock = make_folder(quick(spool, verifier=verifier.address), os.urandom(16), tag=1)
        others = (abandoned / "secret").read_bytes()
        os.close(lock)  # its process has ended without a word
        assert eventually(lambda: others in [hello.secret for hello in verifier.hellos])
        assert others != secret
        recorder.close()


def test_a_folder_of_before_there_were_secrets_is_shipped_without_one(tmp_path: Path) -> None:
    folder, lock = make_folder(quick(tmp_path), bytes(16), tag=1)
    (folder / "secret").unlink()
    assert history_pb2.Upload.FromString(SpoolReader(folder).hello(1)).hello.secret == b""
    os.close(lock)
