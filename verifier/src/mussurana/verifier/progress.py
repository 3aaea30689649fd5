"""What a long command is doing, on one line of the terminal, and a word when kernels have to be compiled first."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from types import TracebackType

QUIET_SECONDS = 2.0  # quicker than this nobody asks
REFRESH_SECONDS = 0.5

_CLEAR_LINE = "\r\033[K"


class Progress:
    """Call it with the name of each phase. Silent unless the work takes long and stderr is a terminal."""

    def __init__(self) -> None:
        self.phase = ""
        self._started = perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True) if sys.stderr.isatty() else None

    def __call__(self, phase: str) -> None:
        self.phase = phase

    def __enter__(self) -> Progress:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join()

    def _show(self) -> None:
        shown = False
        while not self._ended.wait(REFRESH_SECONDS):
            elapsed = perf_counter() - self._started
            if elapsed >= QUIET_SECONDS:
                shown = True
                _print(f"{_CLEAR_LINE}{self.phase} ... {elapsed:.0f} s")
        if shown:
            _print(_CLEAR_LINE)


def _print(text: str) -> None:
    """On stderr, if anybody can read it: nobody's work ends because nobody looks on."""
    with suppress(OSError, ValueError):
        print(text, end="", file=sys.stderr, flush=True)


@contextmanager
def compiling_announced() -> Iterator[None]:
    """Within it, a line on stderr says when kernels are compiled: on first use and after an upgrade, and then it takes
    far longer than most checks. Imports numba."""
    from numba.core import event

    class Announce(event.Listener):  # type: ignore[misc]
        said = False

        def on_start(self, event: object) -> None:
            if not self.said:
                self.said = True
                line = "compiling parts of the checker for this machine, once each; this takes up to a minute"
                _print(f"{_CLEAR_LINE if sys.stderr.isatty() else ''}{line}\n")

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:run_pass", Announce()):  # a pass runs only for what is not in the cache
        yield


@contextmanager
def working() -> Iterator[Progress]:
    """Both: how far the command is, and a word when it has to compile."""
    with Progress() as progress:
        progress("starting")
        with compiling_announced():
            yield progress
