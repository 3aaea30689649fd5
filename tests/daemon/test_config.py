"""The same names in file, environment and flags; every mistake named with its option; the reference is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier.commands.serve import limits_of
from mussurana.verifier.daemon.config import options
from mussurana.verifier.daemon.configured import ConfigError, load
from mussurana.verifier.daemon.reference import reference
from mussurana.verifier.rounds.limits import Limits
from tests.cli.command import Command, in_a_process
from tests.cli.conftest import mussurana

__all__ = ["mussurana"]  # a fixture

ROOT = Path(__file__).parents[2]


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def wrong(tmp_path: Path, text: str = "", environment: dict[str, str] | None = None, **flags: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path / "c.toml", text), environment or {}, flags)
    return str(error.value).splitlines()


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path / "c.toml", 'data = "d"\n[ingest]\nwindow_bytes = 100000\ncollectors_max = 1\n')
    environment = {"MUSSURANA_INGEST_WINDOW_BYTES": "200000", "MUSSURANA_INGEST_COLLECTORS_MAX": "2"}
    config = load(file, environment, {"ingest_collectors_max": "3"})
    assert (config.data, config.ingest.window_bytes, config.ingest.collectors_max) == (Path("d"), 200_000, 3)
    assert config.drain_seconds == 10.0


def test_several_levels_can_be_named_everywhere(tmp_path: Path) -> None:
    file = written(tmp_path / "c.toml", '[verify]\nlevels = ["serializable", "strong-si"]')
    assert load(file, {}, {}).verify.levels == ("serializable", "strong-si")
    assert load(None, {"MUSSURANA_VERIFY_LEVELS": "strong-si, serializable"}, {}).verify.levels == (
        "strong-si",
        "serializable",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[ingest]\nwindow_bytes = -1",
            "ingest.window_bytes: expected a whole number from 65,536 to 1,073,741,824, not -1",
        ),
        ('[ingest]\nwindow_bytes = "8 MB"', "ingest.window_bytes: expected a whole number"),
        ("[ingest]\nwindow_bytes = true", "ingest.window_bytes: expected a whole number"),
        ('[ingest]\nlisten = "7701"', "ingest.listen: expected HOST:PORT"),
        ('[ingest]\ninsecure = "maybe"', "ingest.insecure: expected true or false"),
        ('[verify]\nlevels = ["serialisable"]', "verify.levels: 'serialisable' is none of serializable"),
        ('[verify]\nlevels = ["adya-si"]', "verify.levels: 'adya-si' is none of"),
        ('[verify]\nlevels = ["strong-si", "strong-si"]', "verify.levels: a level is named twice"),
        ("[checkpoint]\ninterval_seconds = 0", "checkpoint.interval_seconds: expected a number"),
        ('log_level = "loud"', "log_level: expected one of debug, info, warning, error, not 'loud'"),
        ("[ingest]\nwindow_byte = 1", "ingest.window_byte: there is no such option; did you mean ingest.window_bytes?"),
        ("[ingst]\nlisten = 1", "ingst: there is no such option; did you mean ingest?"),
        ("ingest = 5", "ingest: expected a table, [ingest]"),
        ('[webhook]\nurl = "ftp://x"', "webhook.url: expected an address that starts with http"),
        ('[ingest]\nlisten = "0.0.0.0:7701"', "ingest.listen: 0.0.0.0:7701 can be reached from other machines"),
        ('[tls]\ncertificate_file = "c.pem"', "tls.certificate_file, tls.key_file: one is not enough"),
        ('[auth]\ntokens_file = "nowhere"', "auth.tokens_file: there is no file nowhere"),
        ('[webhook]\nsecret_file = "x"', "webhook.secret_file: there is no webhook.url to sign for"),
        ("[ingest", "c.toml: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert any(said in line for line in wrong(tmp_path, text)), wrong(tmp_path, text)


def test_all_that_is_wrong_is_said_at_once_with_where_it_was_set(tmp_path: Path) -> None:
    environment = {"MUSSURANA_LOG_SEGMENT_BYTES": "many", "MUSSURANA_INGEST_LISTN": "x"}
    lines = wrong(tmp_path, "drain_seconds = -1", environment, http_listen="nowhere")
    assert len(lines) == 4
    for name, where in (
        ("drain_seconds", "c.toml"),
        ("log.segment_bytes", "MUSSURANA_LOG_SEGMENT_BYTES"),
        ("http.listen", "--http-listen"),
        ("MUSSURANA_INGEST_LISTN", "did you mean MUSSURANA_INGEST_LISTEN?"),
    ):
        assert any(line.startswith(name) and where in line for line in lines), (name, lines)


def test_variables_of_collectors_are_none_of_its_business() -> None:
    load(None, {"MUSSURANA_COLLECTOR_SPOOL": "x", "MUSSURANA_TOKEN": "x"}, {})


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_no_tls(listen: str) -> None:
    load(None, {}, {"ingest_listen": listen})


def test_other_addresses_can_be_had_without_tls_by_asking_for_it() -> None:
    load(None, {}, {"ingest_listen": "0.0.0.0:1", "ingest_insecure": "true"})


def test_limits_of_rounds_are_what_the_machine_would_take_by_itself() -> None:
    assert limits_of(load(None, {}, {}).rounds) == Limits()


def test_names_are_unique_everywhere() -> None:
    for names in (
        [each.key for each in options()],
        [each.variable for each in options()],
        [each.flag for each in options()],
    ):
        assert len(set(names)) == len(names)


def test_reference_is_current() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference(), "make docs/configuration.md anew with: make docs"


def test_check_config_says_what_is_wrong_and_starts_nothing(tmp_path: Path, mussurana: Command) -> None:
    file = written(tmp_path / "c.toml", f'data = "{tmp_path / "data"}"')
    ran = mussurana("serve", "--check-config", "--config", file)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("the configuration is fine: serializable, data in")
    assert not (tmp_path / "data").exists()
    ran = mussurana("serve", "--check-config", "--config", file, "--log-level", "loud")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "log_level: expected one of debug, info, warning, error, not 'loud' (--log-level)\n"
    tokens = written(tmp_path / "tokens", "ingest web short")
    ran = mussurana("serve", "--check-config", "--auth-tokens-file", tokens)
    assert ran.code == 3
    assert "auth.tokens_file" in ran.err
    assert "line 1: the token needs at least 16 characters" in ran.err
    assert "short" not in ran.err.replace(str(tmp_path), "")


def test_serve_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    busy = written(tmp_path / "data", "not a directory")
    ran = in_a_process("serve", "--data", busy)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr == f"data: {busy} is not a directory\n"
