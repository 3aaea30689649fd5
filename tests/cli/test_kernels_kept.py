"""Compiled kernels find a place wherever the program is installed, never one that others could have filled, and are not
used any more once a source has changed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

import mussurana.verifier
from mussurana.verifier import kernels

NOT_A_FOLDER = "/dev/null/cache"  # which even root cannot make


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """As if the package were installed where kernels cannot be kept beside it, for root as for anybody else."""
    (tmp_path / "__pycache__").touch()
    (tmp_path / "temporary").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "HERE", tmp_path)
        patch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        patch.setenv("NUMBA_CACHE_DIR", "")
        patch.setenv("XDG_CACHE_HOME", NOT_A_FOLDER)
        yield patch
    kernels.kernel_folder.cache_clear()


def found() -> Path:
    """The folder that holds those of all versions."""
    kernels.kernel_folder.cache_clear()
    folder = kernels.kernel_folder()
    assert folder is not None
    assert folder.name == kernels.sources_digest()
    return folder.parent


def test_kernels_stay_beside_the_sources_where_they_can(installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "__pycache__").unlink()
    assert found() == tmp_path / "__pycache__" / "kernels"


def test_whoever_set_the_folder_has_decided(installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed.setenv("NUMBA_CACHE_DIR", str(tmp_path / "mine"))
    assert found() == tmp_path / "mine" / "mussurana"


def test_second_choice_is_the_users_cache(installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert found() == tmp_path / "cache" / "mussurana"


def test_the_users_cache_is_at_home_unless_told_otherwise(installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed.delenv("XDG_CACHE_HOME")
    installed.setenv("HOME", str(tmp_path / "home"))
    assert found() == tmp_path / "home" / ".cache" / "mussurana"


def test_third_choice_is_a_temporary_folder_that_is_found_again(installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = found()
    assert folder == tmp_path / "temporary" / f"mussurana-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert found() == folder


def test_kernels_of_changed_sources_are_kept_apart(installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    source = tmp_path / "engine" / "arrays.py"
    folders = []
    for text in ("one", "two", "one", "three", "four"):
        source.write_text(f"@kernel\ndef {text}(): ...")
        found()
        folders.append(kernels.kernel_folder())
    assert folders[0] == folders[2]
    assert len(set(folders)) == 4
    kept = [folder for folder in set(folders) if folder is not None and folder.exists()]
    assert len(kept) == kernels.VERSIONS_KEPT


def test_every_source_that_kernels_are_compiled_from_counts(installed: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = {
        "engine/narrow/orders.py": "from mussurana.verifier.constants import NOTHING\n\n@inner_kernel\ndef deep(): ...",
        "constants.py": "    from mussurana.verifier.engine import graph",
        "engine/graph.py": "RW = 1",
        "daemon/http.py": "from mussurana.verifier.engine.narrow.orders import deep",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = kernels.sources_digest()
    for name, text in sources.items():
        (tmp_path / name).write_text(text + "\n")
        assert (kernels.sources_digest() != before) == (name != "daemon/http.py"), name
        (tmp_path / name).write_text(text)


def test_kernels_of_others_stay_where_they_were() -> None:
    before = numba.config.CACHE_DIR
    kernels.kernel(lambda x: x)
    assert before == numba.config.CACHE_DIR


@pytest.mark.parametrize("trap", ["writable", "link", "foreign"])
def test_folder_that_others_could_have_filled_is_not_used(
    trap: str, installed: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "temporary" / f"mussurana-{os.getuid()}"
    if trap == "link":
        (tmp_path / "theirs").mkdir()
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.mkdir()
        folder.chmod(0o777 if trap == "writable" else 0o700)
    if trap == "foreign":
        owner = os.getuid()
        installed.setattr(os, "getuid", lambda: owner + 1)
        folder.rename(folder.with_name(f"mussurana-{owner + 1}"))
    used = found()
    assert used.parent == tmp_path / "temporary"
    assert used.name not in (f"mussurana-{os.getuid()}", folder.name)
    assert stat.S_IMODE(used.stat().st_mode) == 0o700


def test_without_any_room_kernels_are_compiled_each_time(installed: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise FileNotFoundError("no usable temporary directory found")

    installed.setattr(tempfile, "gettempdir", none)
    kernels.kernel_folder.cache_clear()
    assert kernels.kernel_folder() is None
    assert kernels.kernel(lambda x: x + 1)(1) == 2


def test_installation_that_cannot_be_written_to_works(tmp_path: Path) -> None:
    (package,) = mussurana.verifier.__path__
    copy = tmp_path / "site" / "mussurana" / "verifier"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "__pycache__").touch()
    (tmp_path / "temporary").mkdir()
    program = (
        "import numpy\n"
        "from mussurana.verifier.formats import load\n"
        "from mussurana.verifier import check\n"
        "from mussurana.verifier.engine.arrays import group_by\n"
        "assert group_by(numpy.zeros(3, int), 1)[1].tolist() == [0, 1, 2]\n"
        "import mussurana.verifier; print(mussurana.verifier.__file__)"
    )
    variables = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    places = {"PYTHONPATH": path, "XDG_CACHE_HOME": NOT_A_FOLDER, "TMPDIR": tmp_path / "temporary"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**variables, **{name: str(place) for name, place in places.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert Path(ran.stdout.strip()) == copy / "__init__.py"
    assert list((tmp_path / "temporary" / f"mussurana-{os.getuid()}").rglob("arrays.group_by-*.nbi"))
