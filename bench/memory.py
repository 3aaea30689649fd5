"""Memory of this process, as the kernel counts it."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

_RESET_PEAK = "5"  # proc(5), clear_refs: set the peak to what is resident now


def resident_bytes() -> int:
    return _status_bytes("VmRSS")


def peak_bytes() -> int:
    """The most that was resident since the last reset."""
    return _status_bytes("VmHWM")


def reset_peak() -> None:
    # Where the kernel does not allow it, the peak is one since the start, which is never too favourable.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def give_back_unused() -> None:
    """Return freed memory to the kernel, so that what loading left over does not hide what a check takes."""
    gc.collect()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")
