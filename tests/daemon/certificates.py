"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Authority:
    directory: Path

    @property
    def certificate(self) -> Path:
        return self.directory / "authority.pem"

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate for this machine, and its key."""
        certificate, key, request = (self.directory / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        extensions = self.directory / f"{name}.ext"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        _openssl("req", "-newkey", *EC, "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.directory / "authority.key"),
            *("-CAcreateserial", "-out", certificate, "-days", "2", "-extfile", extensions),
        )
        return certificate, key


EC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def authority(directory: Path) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    directory.mkdir()
    _openssl(
        *("req", "-x509", "-newkey", *EC, "-nodes", "-keyout", directory / "authority.key"),
        *("-out", directory / "authority.pem", "-subj", "/CN=authority", "-days", "2"),
    )
    return Authority(directory)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
