"""Where compiled kernels are kept, so that they are compiled once.

numba keeps them beside the sources. Where an installation cannot be written to, they go to the user's cache, and
where there is none either (a service account, a container with a read-only root) to a folder of the user's own below
the temporary one. What is kept there is executed, so a folder that anybody else could have filled is not used.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"  # numba looks at it; whoever sets it has decided


def find_room() -> None:
    """Tell numba where to keep what it compiles, unless it can do so beside the sources. Comes before any kernel."""
    if os.environ.get(VARIABLE) or _room_in(Path(__file__).parent / "engine" / "__pycache__", 0o777):
        return
    with suppress(OSError):  # no room anywhere: numba says so when it is needed
        os.environ[VARIABLE] = str(_private_folder())
        if "numba" in sys.modules:  # it has looked already
            sys.modules["numba"].config.reload_config()


def _private_folder() -> Path:
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
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
