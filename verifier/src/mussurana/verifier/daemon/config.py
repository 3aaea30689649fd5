"""The daemon's configuration: a TOML file, environment variables and flags, with the same names everywhere.

The option `window_bytes` of the table `ingest` is `[ingest] window_bytes` in the file, MUSSURANA_INGEST_WINDOW_BYTES
in the environment and --ingest-window-bytes as a flag. Flags win over the environment, which wins over the file. All
that is wrong is reported at once, each with the name of the option and where it was set. docs/configuration.md is made
from this file.
"""

# ruff: noqa: RUF009, `option` makes a field

from __future__ import annotations

import difflib
import ipaddress
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from mussurana.verifier.daemon.logs import LEVELS as LOG_LEVELS
from mussurana.verifier.levels import LEVELS

ENVIRONMENT_PREFIX = "MUSSURANA_"
ONLINE_LEVELS = tuple(name for name in LEVELS if name != "adya-si")
"""adya-si knows no order in time or session, so nothing could ever be forgotten."""


class ConfigError(Exception):
    """One line for each thing that is wrong."""


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def path(value: object) -> Path | None:
    return Path(text(value)).expanduser() if value != "" else None


def flag(value: object) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def number(minimum: float, maximum: float, kind: type[int] | type[float] = int) -> Callable[[object], int | float]:
    def parse(value: object) -> int | float:
        if isinstance(value, str):
            try:
                value = kind(value)
            except ValueError:
                value = None
        is_number = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
        if not is_number or not minimum <= value <= maximum:  # type: ignore[operator]
            what = "a number" if kind is float else "a whole number"
            raise ValueError(f"expected {what} from {minimum:,} to {maximum:,}")
        return kind(value)  # type: ignore[call-overload, arg-type]

    return parse


def one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return str(value)

    return parse


def levels(value: object) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise ValueError("expected a list of levels")
    for name in names:
        if name not in ONLINE_LEVELS:
            raise ValueError(f"{name!r} is none of {', '.join(ONLINE_LEVELS)}")
    if len(set(names)) < len(names):
        raise ValueError("a level is named twice")
    return tuple(names)


def address(value: object) -> str:
    host, _, port = text(value).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("expected HOST:PORT, such as 127.0.0.1:7701 or [::1]:7701")
    return text(value)


def optional_address(value: object) -> str:
    return address(value) if value != "" else ""


def url(value: object) -> str:
    if value != "" and not text(value).startswith(("http://", "https://")):
        raise ValueError("expected an address that starts with http:// or https://")
    return text(value)


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
    silence_seconds_max: float = option(
        60.0,
        SECONDS,
        "A session that was not heard of for so long no longer keeps older transactions from being forgotten.",
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
        "127.0.0.1:7702", optional_address, "Where /metrics, /-/healthy and /-/ready are served; empty for nowhere."
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


def _tables() -> Iterator[tuple[str, Any]]:
    for each in fields(Config):
        if "parse" not in each.metadata:
            yield each.name, each.default_factory


def options() -> list[Option]:
    """All of them, those at the top first."""

    def of(table: str, each: Field[Any]) -> Option:
        return Option(table, each.name, each.default, each.metadata["parse"], each.metadata["about"])

    found = [of("", each) for each in fields(Config) if "parse" in each.metadata]
    return found + [of(table, each) for table, kind in _tables() for each in fields(kind)]


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Config:
    """The configuration, or ConfigError with all that is wrong.

    `flags` are by `Option.attribute`, None if not given.
    """
    wrong: list[str] = []
    written = _read(file, wrong) if file else {}
    values: dict[str, dict[str, Any]] = {}
    for each in options():
        given, where = _given(each, written, file, environment, flags)
        if given is None:
            continue
        try:
            values.setdefault(each.table, {})[each.name] = each.parse(given)
        except ValueError as error:
            wrong.append(f"{each.key}: {error}, not {given!r} ({where})")
    wrong += _unknown_variables(environment)
    if wrong:
        raise ConfigError("\n".join(wrong))
    tables = {table: kind(**values.get(table, {})) for table, kind in _tables()}
    config = Config(**values.get("", {}), **tables)
    wrong = list(_contradictions(config))
    if wrong:
        raise ConfigError("\n".join(wrong))
    return config


def _given(
    option: Option,
    written: Mapping[str, Any],
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str | None],
) -> tuple[object, str]:
    if flags.get(option.attribute) is not None:
        return flags[option.attribute], option.flag
    if option.variable in environment:
        return environment[option.variable], option.variable
    table = written.get(option.table, {}) if option.table else written
    return (table.get(option.name), str(file)) if isinstance(table, dict) else (None, "")


def _read(file: Path, wrong: list[str]) -> dict[str, Any]:
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {error}") from None
    known = {option.key for option in options()}
    tables = dict(_tables())
    for name, value in written.items():
        if name in tables and not isinstance(value, dict):
            wrong.append(f"{name}: expected a table, [{name}] ({file})")
        keys = [f"{name}.{inner}" for inner in value] if name in tables and isinstance(value, dict) else [name]
        wrong += [_unknown(key, known | set(tables), str(file)) for key in keys if key not in known | set(tables)]
    return written


def _unknown(name: str, known: set[str], where: str) -> str:
    similar = difflib.get_close_matches(name, known, 1)
    return f"{name}: there is no such option{f'; did you mean {similar[0]}?' if similar else ''} ({where})"


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Only those that belong to one of our tables: collectors have variables of their own."""
    known = {option.variable for option in options()}
    prefixes = tuple(f"{ENVIRONMENT_PREFIX}{table.upper()}_" for table, _ in _tables())
    return [
        _unknown(name, known, "environment")
        for name in sorted(environment)
        if name.startswith(prefixes) and name not in known
    ]


def _contradictions(config: Config) -> Iterator[str]:
    tls = config.tls
    if (tls.certificate_file is None) != (tls.key_file is None):
        yield "tls.certificate_file, tls.key_file: one is not enough, both belong together"
    if tls.client_authority_file and not tls.certificate_file:
        yield "tls.client_authority_file: needs tls.certificate_file and tls.key_file as well"
    if not tls.certificate_file and not config.ingest.insecure and not _is_loopback(config.ingest.listen):
        yield (
            f"ingest.listen: {config.ingest.listen} can be reached from other machines; "
            "set tls.certificate_file and tls.key_file, or ingest.insecure = true"
        )
    if config.webhook.secret_file and not config.webhook.url:
        yield "webhook.secret_file: there is no webhook.url to sign for"
    for key, file in (
        ("tls.certificate_file", tls.certificate_file),
        ("tls.key_file", tls.key_file),
        ("tls.client_authority_file", tls.client_authority_file),
        ("auth.tokens_file", config.auth.tokens_file),
        ("webhook.secret_file", config.webhook.secret_file),
    ):
        if file is not None and not file.is_file():
            yield f"{key}: there is no file {file}"
    if config.data.exists() and not config.data.is_dir():
        yield f"data: {config.data} is not a directory"


def _is_loopback(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reference() -> str:
    """docs/configuration.md."""
    lines = [
        "# Configuration of the daemon",
        "",
        "Made by `make docs` from `verifier/src/mussurana/verifier/daemon/config.py`; a test compares the two.",
        "",
        "`mussurana serve --config FILE` reads a TOML file. Every option can also be set by an environment variable",
        "and by a flag: `window_bytes` in the table `[ingest]` is `MUSSURANA_INGEST_WINDOW_BYTES` and",
        "`--ingest-window-bytes`. Flags win over variables, and variables win over the file. Units are in the names.",
        "`mussurana serve --check-config` says what is wrong, option by option, and starts nothing.",
        "",
        "SIGHUP reads `log_level`, certificates and tokens again; everything else takes a restart.",
    ]
    for table in ("", *(name for name, _ in _tables())):
        lines += ["", f"## `[{table}]`" if table else "## At the top of the file", ""]
        lines += ["| option | default | |", "|---|---|---|"]
        for each in options():
            if each.table == table:
                lines.append(f"| `{each.name}` | {_shown(each.default)} | {each.about} |")
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    if default is None or default == "":
        return "none"
    if isinstance(default, tuple):
        return f"`[{', '.join(repr(item) for item in default)}]`".replace("'", '"')
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if isinstance(default, int | float) else f'`"{default}"`'


if __name__ == "__main__":
    print(reference(), end="")
