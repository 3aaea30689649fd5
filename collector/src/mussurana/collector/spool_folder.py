"""Where the spool is, and that nobody else can have written there.

By default it is a folder that lasts: systemd's $STATE_DIRECTORY, $XDG_STATE_HOME or ~/.local/state; and the folder for
temporary files if there is none of these that we may write to. What stands above it may be shared, as an emptyDir is.
The folder itself is ours and closed to others (0700), and so is all that is in it, because the shipper believes it:
whoever could put a folder there would be sent the content of any file of ours as the token for a verifier of his.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class ForeignSpool(PermissionError):
    """Somebody else can have written there. The message is a sentence that says how to go on."""


def default_spool(environment: Mapping[str, str] | None = None) -> str:
    for parent in _lasting(os.environ if environment is None else environment):
        if _is_ours_to_write(parent):
            return str(parent / own_name())
    return temporary_spool()


def temporary_spool() -> str:
    """Without a home. It was the default once, so that there may be something left in it."""
    import tempfile  # not needed where a spool is given, and it brings a dozen others

    return os.path.join(tempfile.gettempdir(), own_name())


def own_name() -> str:
    return f"mussurana-{os.geteuid()}"


def _lasting(environment: Mapping[str, str]) -> Iterator[Path]:
    states = environment.get("STATE_DIRECTORY", "").partition(":")[0]  # of a service; the first, if it has several
    for place in (states, environment.get("XDG_STATE_HOME", "")):
        if os.path.isabs(place):
            yield Path(place)
    home = environment.get("HOME") or os.path.expanduser("~")
    if os.path.isabs(home):
        yield Path(home) / ".local" / "state"


def _is_ours_to_write(folder: Path) -> bool:
    """Whether a folder is ours, or could be made in one that is. With sudo the home may be that of somebody else."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return folder.stat().st_uid == os.geteuid() and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def own_folder(place: Path) -> Path:
    """The folder of ours at a place, which is made if there is nothing, or in it, if it belongs to somebody else.

    Raises ForeignSpool if others may have written to it.
    """
    place = place.absolute()  # the application may go to another folder, and the shipper does
    _make(place)
    _refuse_link(place)
    if place.stat().st_uid != os.geteuid() and place.name != own_name():
        place = place / own_name()
        _make(place)
        _refuse_link(place)
    found = place.stat()
    if found.st_uid != os.geteuid():
        raise ForeignSpool(f"{place} belongs to somebody else (user {found.st_uid}); give mussurana another spool")
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{place} is not a folder")
    if found.st_mode & OPEN_TO_OTHERS:
        os.chmod(place, stat.S_IMODE(found.st_mode) & ~OPEN_TO_OTHERS)
    if found.st_mode & WRITABLE_BY_OTHERS and any(place.iterdir()):
        os.chmod(place, stat.S_IMODE(found.st_mode))  # so that this is said again, until somebody has looked
        raise ForeignSpool(
            f"{place} could be written by others, who may have left something there; "
            f"look at what is in it, then `chmod go-w {place}`, or give mussurana another spool"
        )
    return place


def is_own(folder: Path) -> bool:
    """Whether there is a folder that nobody but us can have written to."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & WRITABLE_BY_OTHERS


def refuse_foreign(folder: Path) -> None:
    """Raises ForeignSpool unless a folder below ours, and each file in it, is ours alone."""
    _refuse_unless_ours(folder, os.lstat(folder), stat.S_IFDIR)
    with os.scandir(folder) as entries:
        for entry in entries:
            _refuse_unless_ours(folder / entry.name, entry.stat(follow_symlinks=False), stat.S_IFREG)


def _refuse_unless_ours(path: Path, found: os.stat_result, kind: int) -> None:
    is_alone = kind == stat.S_IFDIR or found.st_nlink <= 1  # a file with two names may be anybody's
    if stat.S_IFMT(found.st_mode) != kind or found.st_uid != os.geteuid() or not is_alone:
        raise ForeignSpool(f"{path} is not what a collector makes; it is left alone")
    if found.st_mode & WRITABLE_BY_OTHERS:
        raise ForeignSpool(f"{path} could be written by others; it is left alone")


def _refuse_link(place: Path) -> None:
    found = os.lstat(place)
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise ForeignSpool(f"{place} is a link that somebody else made (user {found.st_uid})")


def _make(place: Path) -> None:
    """Make a folder, and those above it, for nobody but us."""
    if not os.path.lexists(place):
        _make(place.parent)
        place.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """For `open`: what is made is readable by nobody else."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_private(path: Path, text: str) -> None:
    with open(path, "w", opener=private) as file:
        file.write(text)
