"""From file, environment and flags to a configuration, with all that is wrong said at once.

Flags win over the environment, which wins over the file. Each mistake is reported with the name of the option and where
it was set.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mussurana.verifier.daemon.config import ENVIRONMENT_PREFIX, Config, Option, options, tables
from mussurana.verifier.daemon.values import is_loopback


class ConfigError(Exception):
    """One line for each thing that is wrong."""


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
    made = {table: kind(**values.get(table, {})) for table, kind in tables()}
    config = Config(**values.get("", {}), **made)
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
    known_tables = dict(tables())
    for name, value in written.items():
        if name in known_tables and not isinstance(value, dict):
            wrong.append(f"{name}: expected a table, [{name}] ({file})")
        keys = [f"{name}.{inner}" for inner in value] if name in known_tables and isinstance(value, dict) else [name]
        wrong += [
            _unknown(key, known | set(known_tables), str(file)) for key in keys if key not in known | set(known_tables)
        ]
    return written


def _unknown(name: str, known: set[str], where: str) -> str:
    similar = difflib.get_close_matches(name, known, 1)
    return f"{name}: there is no such option{f'; did you mean {similar[0]}?' if similar else ''} ({where})"


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Only those that belong to one of our tables: collectors have variables of their own."""
    known = {option.variable for option in options()}
    prefixes = tuple(f"{ENVIRONMENT_PREFIX}{table.upper()}_" for table, _ in tables())
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
    if not tls.certificate_file and not config.ingest.insecure and not is_loopback(config.ingest.listen):
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
