"""Who may have data from the page: whoever has a token for `query`, where tokens are configured.

The token comes in the header `Authorization: Bearer TOKEN`, as for gRPC, and never in an address, where it would end up
in logs and tickets. Nothing that a browser sends by itself (cookies, basic authentication) lets anybody in, so a
foreign page has nothing to abuse.

Without tokens, the page is for this machine only. A foreign page could have its own name resolve to 127.0.0.1 and then
talk to the daemon as its own origin; so `Host` must be an address or localhost, which no foreign page can be.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from mussurana.verifier.daemon.auth import Tokens
from mussurana.verifier.daemon.values import is_loopback

ROLE = "query"
_BEARER = "bearer "


@dataclass(frozen=True)
class Refusal:
    status: HTTPStatus
    reason: str  # in a sentence


class Access:
    def __init__(self, tokens: Callable[[], Tokens | None], listen: str, insecure: bool) -> None:
        self._tokens, self._insecure = tokens, insecure
        self._is_loopback = is_loopback(listen)

    def refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """Why whoever sent these headers, with names in lower case, gets nothing; None if they may."""
        tokens = self._tokens()
        if tokens is not None:
            given = headers.get("authorization", "")
            if not given:
                return Refusal(HTTPStatus.UNAUTHORIZED, "This needs a token.")
            is_known = given[: len(_BEARER)].lower() == _BEARER and tokens.name(ROLE, given[len(_BEARER) :].strip())
            return None if is_known else Refusal(HTTPStatus.UNAUTHORIZED, "This is not a token for queries.")
        if self._insecure:
            return None
        if not self._is_loopback:
            return Refusal(
                HTTPStatus.FORBIDDEN,
                "The page quotes SQL and keys, it can be reached from other machines, and no tokens are configured: "
                "set auth.tokens_file, or http.insecure = true if something else keeps strangers away.",
            )
        if not _is_address(headers.get("host", "")):
            return Refusal(
                HTTPStatus.FORBIDDEN,
                "Without tokens the page answers to localhost and to addresses only: set auth.tokens_file, or "
                "http.insecure = true if something else keeps strangers away.",
            )
        return None


def _is_address(host: str) -> bool:
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
