"""Who may call: bearer tokens, each for sending histories or for asking about verdicts.

A file with a line per token, `ROLE NAME TOKEN`; the role is `ingest` or `query`, the name is for people, and lines that
start with # are passed over. Health checks and reflection are open: they tell nothing about what is verified.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from mussurana.verifier.daemon.metrics import Metrics

ROLES = ("ingest", "query")
TOKEN_CHARACTERS_MIN = 16
"""A shorter one can be guessed. `openssl rand -hex 32` makes a good one."""

OPEN_STREAMS_MAX = 100
"""Streams that need no token (watching health, reflection), of all callers together: each keeps its connection open."""

_ROLE_OF_SERVICE = {"mussurana.v1.Ingest": "ingest", "mussurana.v1.Query": "query"}
_BEARER = "Bearer "


class TokensError(Exception):
    """The message names the file and the line, and never the token."""


@dataclass
class Tokens:
    """Digests by role; empty if no token is asked for. Replaced as a whole when the file is read again."""

    digests: dict[str, dict[bytes, str]] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> Tokens:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise TokensError(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None
        digests: dict[str, dict[bytes, str]] = {role: {} for role in ROLES}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 3 or words[0] not in ROLES:
                raise TokensError(f"{path}: line {number}: expected ROLE NAME TOKEN, with the role ingest or query")
            if len(words[2]) < TOKEN_CHARACTERS_MIN:
                raise TokensError(f"{path}: line {number}: the token needs at least {TOKEN_CHARACTERS_MIN} characters")
            digests[words[0]][_digest(words[2])] = words[1]
        return Tokens(digests)

    def name(self, role: str, token: str) -> str | None:
        """Whose token it is; None if nobody's. The time that it takes tells nothing about the tokens."""
        given, found = _digest(token), None
        for digest, name in self.digests.get(role, {}).items():
            if hmac.compare_digest(digest, given):
                found = name
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]
    """Refuses calls without a token, where tokens are asked for."""

    def __init__(self, tokens: Callable[[], Tokens | None], metrics: Metrics) -> None:
        self._tokens, self._metrics = tokens, metrics
        self._open_streams = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        tokens = self._tokens()
        role = _ROLE_OF_SERVICE.get(handler_call_details.method.split("/")[1])
        if handler is None:
            return None
        if role is None:
            return self._bounded(handler) if handler.response_streaming else handler
        if tokens is None:
            return handler
        metadata = dict(handler_call_details.invocation_metadata or ())
        given = metadata.get("authorization", "")
        text = given.decode(errors="replace") if isinstance(given, bytes) else given
        if text.startswith(_BEARER) and tokens.name(role, text.removeprefix(_BEARER)) is not None:
            return handler
        self._metrics.fragments_refused.labels("authentication").inc()
        return _refusal(handler, f"this needs a bearer token for {role} in the metadata `authorization`")

    def _bounded(self, handler: Any) -> Any:
        """The same, for so many at the same time."""
        answer = handler.stream_stream or handler.unary_stream

        async def bounded(request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            if self._open_streams >= OPEN_STREAMS_MAX:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{OPEN_STREAMS_MAX} such streams are open")
            self._open_streams += 1
            try:
                answers = answer(request, context)
                if hasattr(answers, "__aiter__"):
                    async for each in answers:
                        await context.write(each)
                else:
                    await answers
            finally:
                self._open_streams -= 1

        kind = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
        )
        return kind(bounded, handler.request_deserializer, handler.response_serializer)


def _refusal(handler: Any, message: str) -> Any:
    async def refuse(_request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse)
    return grpc.unary_unary_rpc_method_handler(refuse)
