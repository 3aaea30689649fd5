"""Who may connect: TLS, mutual TLS, bearer tokens; and how they change while the daemon runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import pytest

from mussurana.verifier.daemon import client
from mussurana.verifier.daemon.auth import Tokens, TokensError
from mussurana.verifier.daemon.client import CallError, Target
from mussurana.verifier.daemon.config import Config
from mussurana.verifier.daemon.configured import load
from tests.daemon.certificates import Authority, authority
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.conftest import Running, running
from tests.daemon.watching import until

INGEST, QUERY = "ingest-token-0123456789", "query-token-0123456789"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls") / "theirs")


def credentials(trusted: Authority, pair: tuple[Path, Path] | None = None) -> grpc.ChannelCredentials:
    key, certificate = (pair[1].read_bytes(), pair[0].read_bytes()) if pair else (None, None)
    return grpc.ssl_channel_credentials(trusted.certificate.read_bytes(), key, certificate)


def sends(daemon: Running, id: bytes, made: grpc.ChannelCredentials | None, token: str = "") -> bool:
    """Whether a fragment is taken."""
    try:
        with TestCollector(daemon.address, id, credentials=made, token=token) as collector:
            collector.send(fragment(1))
            collector.wait_durable(1)
            return True
    except grpc.RpcError:
        return False


def settings(pair: tuple[Path, Path], client_authority: Authority | None = None) -> dict[str, str]:
    made = {"tls_certificate_file": str(pair[0]), "tls_key_file": str(pair[1])}
    return {**made, **({"tls_client_authority_file": str(client_authority.certificate)} if client_authority else {})}


def test_tls_takes_those_who_trust_it_and_nobody_without(data: Path, ours: Authority, theirs: Authority) -> None:
    with running(data, settings=settings(ours.issue("server"))) as daemon:
        assert sends(daemon, b"a" * 16, credentials(ours))
        assert not sends(daemon, b"b" * 16, credentials(theirs))
        assert not sends(daemon, b"c" * 16, None)


def test_mutual_tls_takes_only_those_with_a_certificate(data: Path, ours: Authority, theirs: Authority) -> None:
    with running(data, settings=settings(ours.issue("server"), ours)) as daemon:
        assert sends(daemon, b"a" * 16, credentials(ours, ours.issue("client")))
        assert not sends(daemon, b"b" * 16, credentials(ours))
        assert not sends(daemon, b"c" * 16, credentials(ours, theirs.issue("client")))


def test_a_new_certificate_is_used_after_a_reload_and_a_bad_one_is_not(
    data: Path, tmp_path: Path, ours: Authority, theirs: Authority
) -> None:
    pair = (tmp_path / "server.pem", tmp_path / "server.key")
    for source, place in zip(ours.issue("server"), pair, strict=True):
        shutil.copy(source, place)
    made = settings(pair)
    with running(data, settings=made) as daemon:

        def configured() -> Config:
            return load(None, {}, {"data": str(data), **made})

        assert sends(daemon, b"a" * 16, credentials(ours))
        with TestCollector(daemon.address, b"b" * 16, credentials=credentials(ours)) as open_before:
            for source, place in zip(theirs.issue("server"), pair, strict=True):
                shutil.copy(source, place)
            assert not sends(daemon, b"c" * 16, credentials(theirs))
            daemon.call(lambda: daemon.service.reload(configured))
            until(lambda: sends(daemon, b"d" * 16, credentials(theirs)))
            open_before.send(fragment(1))
            open_before.wait_durable(1)
        pair[0].write_text("not a certificate")
        daemon.call(lambda: daemon.service.reload(configured))
        assert sends(daemon, b"e" * 16, credentials(theirs))


def test_tokens_are_for_one_purpose_each(data: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who may do what\ningest web {INGEST}\n\nquery ops {QUERY}\n")
    with running(data, settings={"auth_tokens_file": str(tokens)}) as daemon:
        assert sends(daemon, b"a" * 16, None, INGEST)
        for token in ("", QUERY, "wrong"):
            assert not sends(daemon, b"b" * 16, None, token)
        assert client.status(Target(daemon.address, token=QUERY)).version
        for token in ("", INGEST):
            with pytest.raises(CallError, match="needs a bearer token for query"):
                client.status(Target(daemon.address, token=token))
        assert daemon.service.metrics.fragments_refused.labels("authentication")._value.get() == 5


def test_tokens_are_read_again(data: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"query ops {QUERY}\n")
    flags = {"data": str(data), "auth_tokens_file": str(tokens)}
    with running(data, settings=flags) as daemon:
        other = Target(daemon.address, token="another-token-0123456789")
        with pytest.raises(CallError):
            client.status(other)
        tokens.write_text("query ops another-token-0123456789\n")
        daemon.call(lambda: daemon.service.reload(lambda: load(None, {}, flags)))
        until(lambda: answers(other))
        assert not answers(Target(daemon.address, token=QUERY))
        tokens.write_text("nonsense\n")
        daemon.call(lambda: daemon.service.reload(lambda: load(None, {}, flags)))
        assert answers(other)


def answers(target: Target) -> bool:
    try:
        return bool(client.status(target).version)
    except CallError:
        return False


@pytest.mark.parametrize("line", ["ingest web", "admin web 0123456789abcdef", "ingest web short"])
def test_bad_tokens_are_named_by_line_and_never_shown(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# fine\n{line}\n")
    with pytest.raises(TokensError, match="line 2") as error:
        Tokens.read(path)
    assert line.split()[-1] not in str(error.value).replace(str(path), "") or line.endswith("web")
