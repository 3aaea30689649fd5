"""How kernels are compiled, and where they are kept so that this happens once.

numba compiles a cached function anew when the file that holds it changes, but not when a function that it calls from
another file does: after a partial update an old kernel would go on running. So kernels are kept in a folder named after
all of their sources together, which are found by their decorators, wherever they stand. The folder is beside the
sources; where an installation cannot be written to it is in the user's cache, and where there is none either (a service
account, a container with a read-only root) in a folder of the user's own below the temporary one. What is kept there is
executed, so a folder that others could have filled is not used.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

HERE = Path(__file__).parent
DECORATED = re.compile(rb"^@(?:inner_)?kernel$", re.MULTILINE)
IMPORTED = re.compile(rb"^\s*(?:from|import) mussurana\.verifier\.?([\w.]*)(?: import (\([^)]*\)|.*))?$", re.MULTILINE)
VERSIONS_KEPT = 3  # folders of kernels: this one and those of the last changes, which take some megabytes each


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function over arrays when it is first called."""
    return _compile(function)


def inner_kernel(function: Callable[..., Any]) -> Any:
    """The same for a function that only kernels call. Without its Python side it takes half the time to compile."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compile(function: Callable[..., Any], **options: bool) -> Any:
    options["nogil"] = True  # kernels touch nothing but arrays, and a daemon has other threads to serve meanwhile
    folder = kernel_folder()
    if folder is None:
        return numba.njit(**options)(function)
    before = numba.config.CACHE_DIR  # somebody else's kernels stay where they are
    numba.config.CACHE_DIR = str(folder)
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


@cache
def kernel_folder() -> Path | None:
    """Where the kernels of these sources are kept; None if there is no room, so that they are compiled each time."""
    try:
        root = _root()
        folder = root / sources_digest()
        folder.mkdir(0o700 if root.stat().st_mode & 0o077 == 0 else 0o777, exist_ok=True)
        os.utime(folder)
    except OSError:
        return None
    by_use = sorted((f for f in root.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    for old in by_use[VERSIONS_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def sources_digest() -> str:
    """A name for the state of everything that kernels are compiled from."""
    digest = hashlib.sha256()
    for name, content in sorted(_sources().items()):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()[:16]


def _sources() -> dict[str, bytes]:
    """The files that hold kernels, and all of ours that these import: numba compiles their constants in."""
    contents = {str(path.relative_to(HERE)): path.read_bytes() for path in HERE.rglob("*.py")}
    wanted = [name for name, content in contents.items() if DECORATED.search(content)]
    sources: dict[str, bytes] = {}
    while wanted:
        name = wanted.pop()
        if name not in sources and name in contents:
            sources[name] = contents[name]
            for module, names in IMPORTED.findall(contents[name]):
                folder = module.decode().replace(".", "/")
                wanted += [f"{folder}.py", f"{folder}/__init__.py".lstrip("/")]
                wanted += [f"{folder}/{each}.py".lstrip("/") for each in re.findall(r"\w+", names.decode())]
    return sources


def _root() -> Path:
    told = os.environ.get("NUMBA_CACHE_DIR")
    beside, user_cache = HERE / "__pycache__", Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    for folder in (Path(told) / "mussurana",) if told else (beside / "kernels",):
        if _room_in(folder, 0o777):
            return folder
    for folder in (user_cache / "mussurana", Path(tempfile.gettempdir()) / f"mussurana-{os.getuid()}"):
        if _room_in(folder, 0o700) and _only_ours(folder):
            return folder
    for_now = tempfile.mkdtemp(prefix="mussurana-")
    atexit.register(shutil.rmtree, for_now, ignore_errors=True)
    return Path(for_now)


def _room_in(folder: Path, mode: int) -> bool:
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _only_ours(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
