"""All settings of a collector: one dataclass, read by the same names from three places.

    argument     Settings.load(spool="/var/spool/app")          the strongest
    URL          postgresql://...?mussurana_spool=/var/spool/app
    environment  MUSSURANA_SPOOL=/var/spool/app                 the weakest

A value that cannot be used is refused with a SettingsError that names the field and where its value came from. That is
the only error of the collector that reaches the application, and only while it starts.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from mussurana.collector.spool_folder import default_spool

ENVIRONMENT_PREFIX = "MUSSURANA_"
QUERY_PREFIX = "mussurana_"
"""In a URL the names carry a prefix, since its other names belong to the driver."""

TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

SPOOL_BYTES_MIN = 1 << 20
"""Less than this would not hold one fragment of a busy process."""


class SettingsError(ValueError):
    """A setting that cannot be used. The message names it and says what was expected."""


@dataclass(frozen=True)
class Settings:
    """What a Recorder needs to know. Frozen and hashable: connections with equal settings share one recorder."""

    enabled: bool = True
    database: str = ""  # for people: what is being recorded, without user and password
    name: str = ""  # for people: this process; host and process id if empty

    verifier: str = ""  # host:port; empty: only the spool is written
    token_file: str = ""  # its content is sent as a bearer token
    tls: bool = False  # with the system's certificates, unless tls_ca_file names others
    tls_ca_file: str = ""
    tls_certificate_file: str = ""  # with tls_key_file: the collector's own, where the verifier asks for one
    tls_key_file: str = ""

    spool: str = field(default_factory=default_spool)  # all processes of a user on a machine may share one
    spool_bytes_max: int = 256 << 20  # of one process; an hour without verifier at 300 transactions per second
    versions: str = (
        "columns"  # or "xmin", PostgreSQL's own, which needs no columns and finds less; see docs/adopting.md
    )
    journal: str = "background"  # or "commit": a killed process then loses nothing, at a cost; see journal.py

    fence_interval_seconds: float = 1.0
    fence_txns_max: int = 500  # fence after so many transactions of a session, however little time has passed
    idle_after_seconds: float = 5.0  # a quiet session holds back verdicts for so long

    batch_txns_max: int = 1000  # small fragments cost ten times as much per transaction
    batch_interval_seconds: float = 0.25
    queue_txns_max: int = 20_000  # ended transactions in memory; reached only if the background thread starves
    queue_rows_max: int = 500_000  # rows in the results that these keep alive
    close_seconds: float = 0.0  # how long the end of the process may wait for the verifier; the shipper outlives it

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            _check_type(each.name, str(each.type), getattr(self, each.name))
        _check_range("spool_bytes_max", self.spool_bytes_max, SPOOL_BYTES_MIN)
        for name in ("fence_txns_max", "batch_txns_max", "queue_txns_max", "queue_rows_max"):
            _check_range(name, getattr(self, name), 1)
        for name in ("fence_interval_seconds", "idle_after_seconds", "batch_interval_seconds"):
            _check_range(name, getattr(self, name), 0.001)
        _check_range("close_seconds", self.close_seconds, 0)
        if self.journal not in ("background", "commit"):
            raise SettingsError(f"journal: expected 'background' or 'commit', found {self.journal!r}")
        if self.versions not in ("columns", "xmin"):
            raise SettingsError(f"versions: expected 'columns' or 'xmin', found {self.versions!r}")
        if not self.spool:
            raise SettingsError("spool: expected a folder, found nothing")
        if self.verifier and not _is_address(self.verifier):
            raise SettingsError(f"verifier: expected host:port or unix:/path, found {self.verifier!r}")
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise SettingsError("tls_certificate_file and tls_key_file: expected both or neither")

    @classmethod
    def load(
        cls,
        query: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Settings:
        """Settings from arguments, then the query of a URL (other names in it are ignored), then the environment."""
        environment = os.environ if environment is None else environment
        fields = {each.name: str(each.type) for each in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, kind in fields.items():
            if (variable := ENVIRONMENT_PREFIX + name.upper()) in environment:
                values[name] = _parse(variable, kind, environment[variable])
            if query is not None and QUERY_PREFIX + name in query:
                values[name] = _parse(QUERY_PREFIX + name, kind, query[QUERY_PREFIX + name])
        for name, value in arguments.items():
            if name not in fields:
                raise SettingsError(f"{name}: there is no such setting; there are {', '.join(fields)}")
            values[name] = _parse(name, fields[name], value) if isinstance(value, str) else value
        if query is not None:
            for name in query:
                if name.startswith(QUERY_PREFIX) and name.removeprefix(QUERY_PREFIX) not in fields:
                    raise SettingsError(f"{name}: there is no such setting; there are {', '.join(fields)}")
        return cls(**values)


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """A URL as the driver shall see it, and the settings in its query. What is no URL has none."""
    head, mark, query = url.partition("?")
    parts = [part for part in query.split("&") if part]
    own = [part for part in parts if part.startswith(QUERY_PREFIX)]
    if ":" not in head or not own:
        return url, {}
    rest = "&".join(part for part in parts if part not in own)
    pairs = (part.partition("=") for part in own)
    return head + (mark + rest if rest else ""), {name: unquote(value) for name, _, value in pairs}


def _parse(name: str, kind: str, text: Any) -> Any:
    if not isinstance(text, str):
        raise SettingsError(f"{name}: expected one value, found {text!r}")
    if kind == "str":
        return text
    try:
        if kind == "bool":
            return _truth(text)
        return int(text) if kind == "int" else float(text)
    except ValueError:
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise SettingsError(f"{name}: expected {expected}, found {text!r}") from None


def _truth(text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise ValueError(text)


def _check_type(name: str, kind: str, value: Any) -> None:
    expected = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}[kind]
    if not isinstance(value, expected) or (kind != "bool" and isinstance(value, bool)):
        raise SettingsError(f"{name}: expected {kind}, found {value!r}")


def _check_range(name: str, value: float, least: float) -> None:
    if not math.isfinite(value) or value < least:
        raise SettingsError(f"{name}: expected at least {least}, found {value}")


def _is_address(text: str) -> bool:
    if text.startswith("unix:"):
        return len(text) > len("unix:")
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536
