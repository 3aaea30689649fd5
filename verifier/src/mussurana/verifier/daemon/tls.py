"""Certificates of the gRPC server, read again on SIGHUP without closing a connection."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import grpc


class TlsError(Exception):
    """The message names the file."""


class Certificates:
    """The files, and what was last read of them. With a client authority every client needs a certificate from it."""

    def __init__(self, certificate: Path, key: Path, client_authority: Path | None) -> None:
        self._certificate, self._key, self._client_authority = certificate, key, client_authority
        self._lock = threading.Lock()
        self._current = self._read()
        self._changed = False

    def reload(self) -> None:
        """TlsError if they cannot be used; then those from before stay."""
        read = self._read()
        with self._lock:
            self._current, self._changed = read, True

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._current,
            self._fetch,  # type: ignore[arg-type]  # None is allowed, says its documentation
            require_client_authentication=self._client_authority is not None,
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC for each new connection; None for no change."""
        with self._lock:
            if not self._changed:
                return None
            self._changed = False
            return self._current

    def _read(self) -> grpc.ServerCertificateConfiguration:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
        except ssl.SSLError as error:
            raise TlsError(f"{self._certificate} and {self._key} do not go together: {error.reason}") from None
        except OSError as error:
            raise TlsError(f"{self._certificate}, {self._key}: {error.strerror}") from None
        authority = None
        if self._client_authority is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(self._client_authority)
                authority = self._client_authority.read_bytes()
            except (OSError, ssl.SSLError) as error:
                raise TlsError(f"{self._client_authority}: {error.strerror or 'not a certificate'}") from None
        pair = (self._key.read_bytes(), self._certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=authority)
