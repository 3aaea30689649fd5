"""The end of a command that goes on far beyond its timeout, whatever it is doing then.

The search looks at the clock, and so do pruning and explaining. What does not is linear in the history, or should be;
should it not be, the command still ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mussurana.verifier.commands.base import BAD_INPUT

OVERTIME_SECONDS = 120.0
"""What may come on top of a timeout: kernels are compiled on first use, a graph is built, a rejection explained."""


@contextmanager
def ended_by(timeout_seconds: float | None, give_up: Callable[[], int]) -> Iterator[None]:
    """When the time and the overtime are over, what is within has ended, or `give_up` says so and has the exit code.

    A thread can do that because kernels leave the interpreter to others while they run.
    """
    if timeout_seconds is None:
        yield
        return
    done = threading.Event()
    wait_seconds = min(timeout_seconds + OVERTIME_SECONDS, threading.TIMEOUT_MAX)

    def watch() -> None:
        if not done.wait(wait_seconds):
            code = BAD_INPUT
            try:
                code = give_up()
            finally:
                os._exit(code)

    threading.Thread(target=watch, name="overtime", daemon=True).start()
    try:
        yield
    finally:
        done.set()
