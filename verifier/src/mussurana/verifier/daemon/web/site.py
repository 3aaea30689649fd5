"""From a path to an answer: the page's own files for everybody, data for those who may have it.

    /                          the overview
    /violations/ID             a violation
    /assets/NAME               style sheets and scripts of both
    /api/overview, /api/hour, /api/rounds, /api/violations
    /api/violations/ID         .json, .svg, .html for download, .story for its page

The two pages are the same for everybody and hold no data; their scripts ask the API, with the token. The policy allows
the daemon's own scripts and style sheets and nothing else, and no text can become markup without passing the one place
that knows which markup is expected (static/story.js).
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mussurana.verifier.daemon.http import Request, Response
from mussurana.verifier.daemon.web import assets
from mussurana.verifier.daemon.web.access import Access, Refusal
from mussurana.verifier.daemon.web.api import Api, BadQuery
from mussurana.verifier.daemon.web.documents import FORMS, Documents
from mussurana.verifier.daemon.web.hour import Hour
from mussurana.verifier.daemon.web.sampler import Sampler

if TYPE_CHECKING:
    from mussurana.verifier.daemon.service import Service

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types mussurana-story"
)
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""An answer with data that somebody opens as a page of its own can do nothing at all."""

ALWAYS = {
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
JSON = "application/json"
TIME_HEADER = "Mussurana-Time-Ns"
DOWNLOADS = ("json", "svg", "html")


class Site:
    def __init__(self, service: Service, access: Access) -> None:
        self._service, self._access = service, access
        hour = Hour()
        self.sampler = Sampler(service.board, hour, service.clock.now_ns, service.verification.lag_seconds)
        self._api, self._documents = Api(service, hour), Documents(service.violations)
        self._assets = assets.load()

    def answer(self, request: Request) -> Response | None:
        path = request.path
        if path == "/":
            return self._asset(request, "overview.html")
        if path.startswith("/violations/") and path.count("/") == 2:
            return self._asset(request, "violation.html")
        if path.startswith("/assets/"):
            return self._asset(request, path.removeprefix("/assets/"))
        if path == "/favicon.ico":
            return self._asset(request, "mark.svg")
        if path.startswith("/api/"):
            return self._data(request, path.removeprefix("/api/"))
        return None

    def _asset(self, request: Request, name: str) -> Response | None:
        asset = self._assets.get(name)
        if asset is None:
            return None
        headers = {**ALWAYS, "Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
        return _tagged(request, Response(HTTPStatus.OK, asset.kind, asset.content, headers), asset.tag)

    def _data(self, request: Request, name: str) -> Response:
        refused = self._access.refusal(request.headers)
        if refused is not None:
            if refused.status == HTTPStatus.UNAUTHORIZED and request.headers.get("authorization"):
                self._service.metrics.fragments_refused.labels("authentication").inc()
            return self._error(refused)
        if name in self._api.answers:
            try:
                content = self._api.answers[name](request.query)
            except (BadQuery, ValueError) as error:
                return self._error(Refusal(HTTPStatus.BAD_REQUEST, str(error)))
            return self._found(request, JSON, content)
        if name.startswith("violations/"):
            return self._document(request, unquote(name.removeprefix("violations/"), errors="replace"))
        return self._error(Refusal(HTTPStatus.NOT_FOUND, "There is nothing here."))

    def _document(self, request: Request, name: str) -> Response:
        id, _, form = name.rpartition(".")
        if form not in FORMS:
            return self._error(Refusal(HTTPStatus.NOT_FOUND, f"A violation can be had as {', '.join(FORMS)}."))
        found = self._documents.get(id, form)
        if found is None:
            return self._error(Refusal(HTTPStatus.NOT_FOUND, "There is no such violation, or it is no longer kept."))
        kind, content = found
        file = re.sub(r"[^A-Za-z0-9_-]+", "-", id)[:100]
        attached = {"Content-Disposition": f'attachment; filename="mussurana-{file}.{form}"'}
        return self._found(request, kind, content, attached if form in DOWNLOADS else {})

    def _found(self, request: Request, kind: str, content: bytes, more: dict[str, str] | None = None) -> Response:
        response = Response(HTTPStatus.OK, kind, content, {**self._data_headers(), **(more or {})})
        return _tagged(request, response, assets.entity_tag(content))

    def _error(self, refusal: Refusal) -> Response:
        headers = self._data_headers()
        if refusal.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = 'Bearer realm="mussurana"'
        return Response(refusal.status, JSON, json.dumps({"error": refusal.reason}).encode(), headers)

    def _data_headers(self) -> dict[str, str]:
        """Nothing that was behind a token stays on the disk of whoever looked; the page remembers by itself."""
        return {
            **ALWAYS,
            "Content-Security-Policy": DATA_POLICY,
            "Cache-Control": "no-store",
            TIME_HEADER: str(self._service.clock.now_ns()),
        }


def _tagged(request: Request, response: Response, tag: str) -> Response:
    """The response with its ETag, or that it is as before."""
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    status = HTTPStatus.NOT_MODIFIED if tag in known else response.status
    return Response(status, response.kind, response.content, {**response.headers, "ETag": tag})
