"""Settings: the same names in three places, and errors that say which one is wrong."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mussurana.collector.adopt_command import libpq_url
from mussurana.collector.recorder import Recorder, recorder_for
from mussurana.collector.settings import Settings, SettingsError, split_url
from tests.collector.recording.observed import quick


def test_arguments_win_over_the_url_and_the_url_over_the_environment() -> None:
    environment = {"MUSSURANA_NAME": "e", "MUSSURANA_DATABASE": "e", "MUSSURANA_SPOOL": "/e", "OTHER": "x"}
    query = {"mussurana_name": "q", "mussurana_database": "q", "sslmode": "require"}
    settings = Settings.load(query, environment, name="a")
    assert (settings.name, settings.database, settings.spool) == ("a", "q", "/e")


@pytest.mark.parametrize(
    ("url", "plain", "settings"),
    [
        (
            "postgresql:///shop?mussurana_name=a%20b&sslmode=require",
            "postgresql:///shop?sslmode=require",
            {"name": "a b"},
        ),
        ("sqlite:///shop.db?mussurana_spool=/s", "sqlite:///shop.db", {"spool": "/s"}),
        ("host=h application_name='a?mussurana_b=c'", "host=h application_name='a?mussurana_b=c'", {}),
        ("postgresql://h/shop?application_name=a%20b", "postgresql://h/shop?application_name=a%20b", {}),
    ],
)
def test_drivers_do_not_see_settings_in_a_url(url: str, plain: str, settings: dict[str, str]) -> None:
    assert split_url(url) == (plain, {f"mussurana_{name}": value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("postgresql+psycopg://u:p%40@h:5432/shop?plugin=mussurana", "postgresql://u:p%40@h:5432/shop"),
        ("postgresql:///shop?host=/tmp&mussurana_spool=/s", "postgresql:///shop?host=/tmp"),
        ("postgres://h/shop?application_name=a%20b", "postgresql://h/shop?application_name=a%20b"),
    ],
)
def test_urls_are_given_to_libpq_as_it_takes_them(url: str, taken: str) -> None:
    assert libpq_url(url) == taken


def test_texts_become_what_they_stand_for() -> None:
    environment = {
        "MUSSURANA_ENABLED": "off",
        "MUSSURANA_BATCH_TXNS_MAX": "10",
        "MUSSURANA_FENCE_INTERVAL_SECONDS": "0.5",
        "MUSSURANA_VERIFIER": "verifier.example:4100",
    }
    settings = Settings.load(environment=environment, tls="yes")
    assert settings.enabled is False
    assert settings.tls is True
    assert settings.batch_txns_max == 10
    assert settings.fence_interval_seconds == 0.5
    assert settings.verifier == "verifier.example:4100"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_txns_max": 0}, "batch_txns_max: expected at least 1, found 0"),
        ({"batch_txns_max": "many"}, "batch_txns_max: expected a whole number, found 'many'"),
        ({"batch_txns_max": True}, "batch_txns_max: expected int, found True"),
        ({"fence_interval_seconds": float("nan")}, "fence_interval_seconds: expected at least"),
        ({"enabled": "perhaps"}, "enabled: expected true or false, found 'perhaps'"),
        ({"verifier": "nowhere"}, "verifier: expected host:port or unix:/path, found 'nowhere'"),
        ({"verifier": "host:99999"}, "verifier: expected host:port"),
        ({"spool": ""}, "spool: expected a folder, found nothing"),
        ({"spool_bytes_max": 10}, "spool_bytes_max: expected at least 1048576, found 10"),
        ({"tls_key_file": "/k"}, "tls_certificate_file and tls_key_file: expected both or neither"),
        ({"speed": 1}, "speed: there is no such setting; there are enabled, database,"),
        ({"query": {"mussurana_speed": "1"}}, "mussurana_speed: there is no such setting"),
        ({"query": {"mussurana_name": ("a", "b")}}, "mussurana_name: expected one value"),
        ({"environment": {"MUSSURANA_TLS": "2"}}, "MUSSURANA_TLS: expected true or false, found '2'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.load(**{"environment": {}} | values)
    assert message in str(refused.value)


def test_equal_settings_share_a_recorder(spool: Path) -> None:
    one, other = recorder_for(quick(spool)), recorder_for(quick(spool))
    assert one is other
    assert recorder_for(quick(spool, database="another")) is not one
    one.close()
    assert recorder_for(quick(spool)) is not one


def test_the_spool_is_for_its_owner_only(make_recorder: Callable[..., Recorder], spool: Path) -> None:
    make_recorder().open_session("conn")
    for path in (spool, *spool.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_spool_of_somebody_else_is_not_used(
    make_recorder: Callable[..., Recorder], spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    recorder = make_recorder()
    recorder.open_session("conn")
    assert recorder.background is None
    assert recorder.metrics.spool_failures == 1
