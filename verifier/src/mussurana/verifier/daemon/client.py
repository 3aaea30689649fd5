"""A connection to a running daemon, for the commands that ask it or send to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from mussurana.verifier.commands.base import CommandError
from mussurana.wire import query_pb2 as wire

TIMEOUT_SECONDS = 10.0
"""For an answer: a daemon that takes longer is not well, and should be looked at with /-/healthy."""


ANSWER_BYTES_MAX = 64 << 20
"""A violation with hundreds of transactions, or a thousand rounds with their reasons, is more than the 4 MiB that gRPC
takes unless told otherwise. The daemon keeps no more than this of all violations together."""


class CallError(CommandError):
    """The daemon cannot be reached or said no. The message is for people."""


@dataclass(frozen=True)
class Target:
    """Where a daemon is, and how to show who one is."""

    address: str
    authority_file: Path | None = None  # TLS, with the server's authority
    certificate_file: Path | None = None  # mutual TLS
    key_file: Path | None = None
    token: str = ""

    def credentials(self) -> grpc.ChannelCredentials | None:
        if self.authority_file is None:
            return None
        read = [
            file.read_bytes() if file else None for file in (self.authority_file, self.key_file, self.certificate_file)
        ]
        return grpc.ssl_channel_credentials(*read)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self) -> grpc.Channel:
        credentials, options = self.credentials(), [("grpc.max_receive_message_length", ANSWER_BYTES_MAX)]
        if credentials:
            return grpc.secure_channel(self.address, credentials, options)
        return grpc.insecure_channel(self.address, options)


def status(target: Target) -> wire.StatusReply:
    reply: wire.StatusReply = _call(target, "Status", wire.StatusRequest(), wire.StatusReply)
    return reply


def verdicts(target: Target, request: wire.VerdictsRequest) -> wire.VerdictsReply:
    reply: wire.VerdictsReply = _call(target, "Verdicts", request, wire.VerdictsReply)
    return reply


def explain(target: Target, id: str) -> wire.ExplainReply:
    reply: wire.ExplainReply = _call(target, "Explain", wire.ExplainRequest(id=id), wire.ExplainReply)
    return reply


def _call(target: Target, method: str, request: Any, reply: Any) -> Any:
    with target.channel() as channel:
        call = channel.unary_unary(f"/mussurana.v1.Query/{method}", type(request).SerializeToString, reply.FromString)
        try:
            return call(request, timeout=TIMEOUT_SECONDS, metadata=target.metadata())
        except grpc.RpcError as error:
            raise explained(target, error) from None


def explained(target: Target, error: grpc.RpcError) -> CallError:
    """What a failed call means for whoever typed it."""
    code, details = error.code(), error.details()
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return CallError(f"{target.address}: no daemon answers there ({details})")
    return CallError(f"{target.address}: {details}")
