"""What a long check is doing, on one line of the terminal, and a word when kernels have to be compiled first."""

from __future__ import annotations

import sys
import threading
from time import perf_counter
from types import TracebackType

QUIET_SECONDS = 2.0  # quicker than this nobody asks
REFRESH_SECONDS = 0.5


class Progress:
    """Call it with the name of each phase. Silent unless the work takes long and stderr is a terminal.

    Compiling is announced everywhere, once: it happens on first use and after an upgrade, and takes far longer than
    most checks.
    """

    def __init__(self) -> None:
        self.phase = ""
        self._started = perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True) if sys.stderr.isatty() else None
        self._announced = False

    def __call__(self, phase: str) -> None:
        self.phase = phase
        if "numba" in sys.modules and not self._announced:
            self._announced = True
            self._announce_compiling()

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
                print(f"\r\033[K{self.phase} ... {elapsed:.0f} s", end="", file=sys.stderr, flush=True)
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _announce_compiling(self) -> None:
        from numba.core import event

        class Announce(event.Listener):  # type: ignore[misc]
            said = False

            def on_start(self, event: object) -> None:
                if not Announce.said:
                    Announce.said = True
                    print("compiling the checker for this machine, once; this takes up to a minute", file=sys.stderr)

            def on_end(self, event: object) -> None:
                pass

        # A pass of the compiler runs only when nothing usable is in the cache.
        event.register("numba:run_pass", Announce())
