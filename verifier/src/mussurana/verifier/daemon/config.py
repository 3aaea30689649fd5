"""The daemon's configuration: a TOML file, environment variables and flags, with the same names everywhere.

The option `window_bytes` of the table `ingest` is `[ingest] window_bytes` in the file, MUSSURANA_INGEST_WINDOW_BYTES
in the environment and --ingest-window-bytes as a flag. `configured.py` puts them together, `values.py` says what values
may be, and `reference.py` makes docs/configuration.md of it.
"""

# ruff: noqa: RUF009, `option` makes a field

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from mussurana.verifier.daemon.logs import LEVELS as LOG_LEVELS
from mussurana.verifier.daemon.values import address, flag, levels, number, one_of, optional_address, path, text, url

ENVIRONMENT_PREFIX = "MUSSURANA_"


def option(default: object, parse: Callable[[object], Any], about: str) -> Any:
    return field(default=default, metadata={"parse": parse, "about": about})


BYTES = number(0, 1 << 50)
SECONDS = number(0, 86_400 * 365, float)


@dataclass(frozen=True)
class Verify:
    levels: tuple[str, ...] = option(
        ("serializable",),
        levels,
        "What the database promises; several are verified side by side, each at its own cost. It cannot be changed "
        "for a data directory that has been in use.",
    )
    database: str = option(
        "",
        text,
        "The database that this is about, by its name or its identity, as `mussurana status` says them; collectors of "
        "another one are refused. Empty: the first one that is heard, from then on.",
    )
    clock_drift_seconds: float = option(
        0.1, number(0, 3600, float), "How far the clocks of two collectors may be apart, for levels that look at them."
    )


@dataclass(frozen=True)
class Rounds:
    interval_seconds: float = option(
        0.25, number(0.01, 60, float), "Between rounds, when something is new. Less means less lag and more work."
    )
    txns_max: int = option(50_000, number(1, 1 << 20), "A round is due at once when so many transactions are new.")
    wait_seconds_max: float = option(
        30.0, SECONDS, "How long a transaction waits for the writer of something it saw; then that is not checked."
    )
    waiting_txns_max: int = option(1_000_000, number(1, 1 << 30), "How many may wait, at about 300 bytes each.")
    retained_txns_max: int = option(
        2_000_000,
        number(1000, 1 << 30),
        "How many each level remembers, at about 400 bytes; beyond it the older half is no longer checked.",
    )
    silence_seconds_max: float = option(
        60.0,
        SECONDS,
        "A session that was not heard of for so long no longer keeps older transactions from being forgotten.",
    )
    alarm_wait_seconds_max: float = option(
        5.0,
        number(0, 5, float),
        "How long a violation that was found waits for collectors that may still take it back, by saying that they "
        "wrote unseen; usually they are heard within half a second.",
    )
    in_doubt_seconds_max: float = option(10.0, SECONDS, "How long a commit in doubt that nobody saw is remembered.")
    snapshot_age_seconds_max: float = option(
        10.0, SECONDS, "For generalized-si: reads of older snapshots are not checked."
    )
    violations_explained_max: int = option(
        8, number(1, 1000), "Counterexamples per round; further ones are only counted."
    )


@dataclass(frozen=True)
class Ingest:
    listen: str = option("127.0.0.1:7701", address, "Where collectors, and those who ask for verdicts, connect (gRPC).")
    insecure: bool = option(False, flag, "Allow `listen` to be reachable from other machines without TLS.")
    window_bytes: int = option(
        8 << 20, number(1 << 16, 1 << 30), "What each collector may have under way without an acknowledgement."
    )
    collectors_max: int = option(1000, number(1, 100_000), "Collectors connected at the same time; others are refused.")
    backlog_bytes_max: int = option(
        8 << 30, number(1 << 20, 1 << 50), "How far verification may fall behind before collectors are asked to wait."
    )


@dataclass(frozen=True)
class Tls:
    certificate_file: Path | None = option(None, path, "The server's certificate, with its chain, in PEM.")
    key_file: Path | None = option(None, path, "The key that belongs to it.")
    client_authority_file: Path | None = option(
        None, path, "Whoever connects needs a certificate from this authority (mutual TLS)."
    )


@dataclass(frozen=True)
class Auth:
    tokens_file: Path | None = option(
        None, path, "Bearer tokens, one per line: ROLE NAME TOKEN, with the role ingest or query."
    )


@dataclass(frozen=True)
class Http:
    listen: str = option(
        "127.0.0.1:7702",
        optional_address,
        "Where the web page, /metrics, /-/healthy and /-/ready are served; empty for nowhere.",
    )
    insecure: bool = option(
        False,
        flag,
        "Show the web page, with the SQL and the keys that it quotes, to whoever can reach `listen`, although there is "
        "no `auth.tokens_file`.",
    )


@dataclass(frozen=True)
class Log:
    segment_bytes: int = option(64 << 20, number(1 << 12, 1 << 30), "Size of the files that the log is kept in.")
    retention_bytes: int = option(0, BYTES, "How much of the log is kept although no checkpoint needs it any more.")
    disk_reserve_bytes: int = option(
        256 << 20, BYTES, "Nothing is acknowledged while less than this is free on the disk."
    )


@dataclass(frozen=True)
class Journal:
    retention_bytes: int = option(
        256 << 20, BYTES, "How much is kept about rounds that are over. Violations are kept apart from it."
    )


@dataclass(frozen=True)
class CheckpointOptions:
    interval_seconds: float = option(60.0, number(0.05, 86_400, float), "Between checkpoints.")
    log_bytes: int = option(
        512 << 20, number(1 << 12, 1 << 50), "A checkpoint is made earlier after this much of the log."
    )


@dataclass(frozen=True)
class Webhook:
    url: str = option("", url, "Called with each violation, as JSON; empty for nobody.")
    secret_file: Path | None = option(
        None, path, "A file with the key of the signature (HMAC-SHA256) in the header Mussurana-Signature."
    )
    timeout_seconds: float = option(10.0, number(0.1, 300, float), "For one attempt.")
    retry_seconds_max: float = option(300.0, number(0.1, 86_400, float), "The longest pause between attempts.")


@dataclass(frozen=True)
class Config:
    data: Path = option(Path("mussurana-data"), path, "The directory for everything that is kept.")
    log_level: str = option("info", one_of(*LOG_LEVELS), f"One of {', '.join(LOG_LEVELS)}.")
    drain_seconds: float = option(
        10.0, number(0, 3600, float), "How long SIGTERM waits for what has been received to be verified."
    )
    verify: Verify = field(default_factory=Verify)
    rounds: Rounds = field(default_factory=Rounds)
    ingest: Ingest = field(default_factory=Ingest)
    tls: Tls = field(default_factory=Tls)
    auth: Auth = field(default_factory=Auth)
    http: Http = field(default_factory=Http)
    log: Log = field(default_factory=Log)
    journal: Journal = field(default_factory=Journal)
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)
    webhook: Webhook = field(default_factory=Webhook)


@dataclass(frozen=True)
class Option:
    table: str  # empty at the top
    name: str
    default: object
    parse: Callable[[object], Any]
    about: str

    @property
    def key(self) -> str:
        """As in the file, and in error messages."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.key.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def attribute(self) -> str:
        """Where argparse puts the flag."""
        return self.key.replace(".", "_")


def tables() -> Iterator[tuple[str, Any]]:
    for each in fields(Config):
        if "parse" not in each.metadata:
            yield each.name, each.default_factory


def options() -> list[Option]:
    """All of them, those at the top first."""

    def of(table: str, each: Field[Any]) -> Option:
        return Option(table, each.name, each.default, each.metadata["parse"], each.metadata["about"])

    found = [of("", each) for each in fields(Config) if "parse" in each.metadata]
    return found + [of(table, each) for table, kind in tables() for each in fields(kind)]
