"""Small files that are either the old ones or the new ones, whenever the machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mussurana.wire.segments import sync_directory


def write_atomically(path: Path, parts: Iterable[bytes], *, durably: bool = True) -> None:
    """Put content in place of a file. `durably` waits for the disk; without it a checksum has to tell afterwards."""
    temporary = path.with_name(path.name + ".new")
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk should not also keep half a file
        raise
    if durably:
        sync_directory(path.parent)


def size_bytes(directory: Path) -> int:
    """Of all files in a directory; those that vanish meanwhile do not count."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue
    return total
