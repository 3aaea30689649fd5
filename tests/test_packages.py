"""What pip would install with each of the packages, in a checkout and outside of one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

BUILD = """
from setuptools.build_meta import prepare_metadata_for_build_wheel
import sys
print(prepare_metadata_for_build_wheel(sys.argv[1]))
"""


def requirements(package: Path, out: Path) -> list[str]:
    out.mkdir()
    run = subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=package, capture_output=True, text=True, check=True, timeout=120
    )
    metadata = HeaderParser().parsestr((out / run.stdout.splitlines()[-1] / "METADATA").read_text())
    return metadata.get_all("Requires-Dist") or []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    for name in ("proto", "collector", "verifier"):
        shutil.copytree(CHECKOUT / name, tmp_path / "copy" / name, ignore=ignored)
    return tmp_path / "copy"


def test_in_a_checkout_our_own_packages_come_from_beside(copy: Path, tmp_path: Path) -> None:
    wire = f"mussurana-wire @ {(copy / 'proto').as_uri()}"
    assert wire in requirements(copy / "collector", tmp_path / "collector")
    verifier = requirements(copy / "verifier", tmp_path / "verifier")
    assert wire in verifier
    assert f'mussurana-collector @ {(copy / "collector").as_uri()} ; extra == "demo"' in verifier


def test_outside_of_one_they_come_from_the_index_like_the_others(copy: Path, tmp_path: Path) -> None:
    shutil.rmtree(copy / "proto")
    assert "mussurana-wire" in requirements(copy / "collector", tmp_path / "out")


def test_an_application_server_gets_nothing_heavy(copy: Path, tmp_path: Path) -> None:
    needed = requirements(copy / "collector", tmp_path / "collector") + requirements(copy / "proto", tmp_path / "wire")
    assert {name.split(">")[0].split(" ")[0] for name in needed} == {
        "mussurana-wire",
        "grpcio",
        "protobuf",
        "sqlglot",
        "xxhash",
    }
