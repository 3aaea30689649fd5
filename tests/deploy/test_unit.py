"""The systemd unit: systemd understands it, it is confined, and the daemon reads the configuration beside it."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mussurana.verifier.commands.base import BAD_INPUT
from mussurana.verifier.daemon.config import options
from mussurana.verifier.daemon.configured import load

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = SYSTEMD / "mussurana.service"
EXPOSURE_MAX = 15
"""Tenths, as `systemd-analyze security` counts. The network and compiled code in memory cost what is left."""


def service() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    section = UNIT.read_text().split("[Service]")[1].split("[Install]")[0]
    for name, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not (found := shutil.which("systemd-analyze")):
        pytest.skip("there is no systemd-analyze here; Debian has it: apt-get install systemd")
    return subprocess.run([found, *arguments], capture_output=True, text=True)


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name  # with a program that is there
    copy.write_text(UNIT.read_text().replace("/opt/mussurana/bin/mussurana", "/bin/true"))
    verified = analyze("verify", str(copy))
    assert verified.returncode == 0
    assert UNIT.name not in verified.stderr, verified.stderr


def test_the_service_is_confined() -> None:
    assessed = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(UNIT))
    assert assessed.returncode == 0, assessed.stdout


def test_the_daemon_is_waited_for_and_watched() -> None:
    assert service()["Type"] == ["notify"]
    assert service()["WatchdogSec"] == ["60s"]
    assert service()["RestartPreventExitStatus"] == [str(BAD_INPUT)]


def test_compiled_code_is_allowed_and_kept() -> None:
    assert "MemoryDenyWriteExecute" not in service()
    assert "ProcSubset" not in service(), "process_start_time_seconds is read from /proc/stat"
    assert "NUMBA_CACHE_DIR=%C/mussurana" in service()["Environment"]


def test_variables_in_the_unit_are_options() -> None:
    names = {each.split("=")[0] for each in service()["Environment"]} - {"NUMBA_CACHE_DIR"}
    assert names <= {option.variable for option in options()}


def test_the_configuration_beside_it_is_valid() -> None:
    config = load(SYSTEMD / "mussurana.toml", {}, {})
    assert config.verify.levels == ("serializable",)
    commented = re.findall(r"^# (\w+) = ", (SYSTEMD / "mussurana.toml").read_text(), re.MULTILINE)
    assert set(commented) <= {option.name for option in options()}


def test_the_unit_parses_as_an_ini_file() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    assert parser.sections() == ["Unit", "Service", "Install"]
