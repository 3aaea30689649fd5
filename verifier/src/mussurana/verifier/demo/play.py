"""`mussurana demo`: a database caught breaking a promise that it never made, and kept to the one it did.

First the application runs at SERIALIZABLE, and every round is accepted. Then the same application runs at REPEATABLE
READ, which PostgreSQL implements as snapshot isolation, while the verifier still expects serializable: sooner or later
two transactions each decide on what the other is about to change. That is told when it is found, and the application
runs on: the same traffic is verified as strong-session-si at the same time, and that is accepted throughout.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from mussurana.verifier.commands.base import INTERRUPTED
from mussurana.verifier.demo.screen import Screen
from mussurana.verifier.demo.stage import LEVELS, Stage, StageError
from mussurana.verifier.demo.tally import Tally
from mussurana.verifier.embedded_postgres import NoPostgres
from mussurana.verifier.render.daemon import explanation_text
from mussurana.verifier.render.text import width_for

SERIALIZABLE, SNAPSHOT = LEVELS
WORKERS = 4
SECONDS = 40.0  # of the two acts together, unless told otherwise
FIRST_VIOLATION_SECONDS_MAX = 60.0  # a write skew usually takes one or two; a busy machine needs more
LOOK_SECONDS = 0.25
SETTLE_SECONDS = 2.0  # for the last fragments of an act to be verified

AS_EXPECTED, SURPRISED, FAILED = 0, 2, 3

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, `kill` or `timeout`, a window that is closed


@dataclass(frozen=True)
class Options:
    seconds: float | None = None  # end by itself after so long; None: when the user does
    browser: bool = True


def demo(options: Options) -> int:
    """0 if everything came as it should, 2 if not, 3 if the demo could not run, 130 if it was ended before it knew."""
    screen = Screen()
    screen.say("Mussurana: does a database keep the promise of its isolation level?", "bold")
    try:
        with interrupted_once(), Stage(lambda text: screen.say(f"· {text}", "dim")) as stage:
            screen.say(f"· PostgreSQL {stage.postgres_version} is running; the verifier's page: {stage.page()}", "dim")
            return _Play(stage, screen, options).run()
    except (StageError, NoPostgres) as error:
        screen.say(str(error), "bold red")
        return FAILED
    except KeyboardInterrupt:
        screen.say("ended before there was a result", "dim")
        return INTERRUPTED


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Whatever asks us to end interrupts once: cleaning up follows, which takes a second or so and is not cut short.

    Nor is what comes after it: an interrupt that is late must not change the exit code.
    """
    was_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal was_interrupted
        was_interrupted = True
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {ending: signal.getsignal(ending) for ending in ENDINGS}
    for ending in ENDINGS:
        if before[ending] is not signal.SIG_IGN:  # such as by nohup
            signal.signal(ending, interrupt)
    try:
        yield
    finally:
        if not was_interrupted:
            for ending, handler in before.items():
                signal.signal(ending, handler)


class _Play:
    def __init__(self, stage: Stage, screen: Screen, options: Options) -> None:
        self._stage = stage
        self._screen = screen
        self._options = options
        self._act_seconds = (options.seconds or SECONDS) / 2

    def run(self) -> int:
        fine = self._first_act()
        kept = self._second_act()
        return AS_EXPECTED if fine and kept else SURPRISED

    def _first_act(self) -> bool:
        """Was all accepted?"""
        tally = Tally.of(LEVELS)
        with self._screen.act(
            "1  SERIALIZABLE, verified as serializable",
            f"{WORKERS} processes of a hospital's roster run at SERIALIZABLE. Doctors leave if a colleague stays.",
        ):
            with self._stage.workers("SERIALIZABLE", WORKERS) as workers:
                self._watch(tally, workers, self._act_seconds)
            self._watch(tally, [], SETTLE_SECONDS)
        serial = tally.levels[SERIALIZABLE]
        others = [f"{level}: {count.others}" for level, count in tally.levels.items() if not count.all_accepted]
        self._say_verdict(
            f"{serial.rounds} rounds with {serial.txns:,} transactions: "
            + (f"{'; '.join(others)}, which should not be." if others else "all accepted."),
            not others,
        )
        return not others

    def _second_act(self) -> bool:
        """Was there a violation, and none of what PostgreSQL promises?"""
        tally = Tally.of(LEVELS)
        began_ns, began = time.time_ns(), time.monotonic()
        with (
            self._screen.act(
                "2  REPEATABLE READ, still verified as serializable",
                "The same application, at a weaker level than its authors think.",
            ),
            self._stage.workers("REPEATABLE READ", WORKERS) as workers,
        ):
            limit = max(self._act_seconds, FIRST_VIOLATION_SECONDS_MAX)
            self._watch(tally, workers, limit, lambda: bool(tally.of_level(SERIALIZABLE)), "until a round is rejected")
            skews = tally.of_level(SERIALIZABLE)
            if not skews:
                self._say_verdict(f"No violation within {limit:.0f} s, which is a surprise.", False)
                return False
            self._tell(skews[0].id, (skews[0].found_ns - began_ns) / 1e9)
            self._watch(tally, workers, max(SETTLE_SECONDS, self._act_seconds - (time.monotonic() - began)))
            serial, snapshot = (tally.levels[level] for level in LEVELS)
            self._say_verdict(
                f"{serial.rounds} rounds with {serial.txns:,} transactions: {serial.others}. Verified as {SNAPSHOT}, "
                + (
                    f"the same traffic was accepted in all of {snapshot.rounds} rounds. That is what PostgreSQL "
                    "promises for REPEATABLE READ, and it kept the promise."
                    if snapshot.all_accepted
                    else f"the same traffic had {snapshot.others} as well, which should not be."
                ),
                snapshot.all_accepted,
            )
            if self._options.seconds is None and self._screen.console.is_terminal:
                self._stay(tally, workers)
        return snapshot.all_accepted

    def _stay(self, tally: Tally, workers: list[subprocess.Popen[bytes]]) -> None:
        """The user ends it from here, and there is a result already."""
        self._screen.say(f"Everything stays up so that you can look around: {self._stage.page()}")
        try:
            self._watch(tally, workers, float("inf"))
        except KeyboardInterrupt:
            return

    def _watch(
        self,
        tally: Tally,
        workers: list[subprocess.Popen[bytes]],
        seconds: float,
        enough: Callable[[], bool] = lambda: False,
        left: str = "",
    ) -> None:
        """Count what the verifier says until the time is over or enough was seen."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until and not enough():
            if any(worker.poll() is not None for worker in workers):
                raise StageError(f"a worker of the application ended:\n{self._stage.workers_log()}")
            tally.take(self._stage.verdicts(tally.since_ns))
            self._screen.show(tally, left or (f"{until - now:.0f} s left" if until < float("inf") else ""))
            time.sleep(LOOK_SECONDS)

    def _tell(self, id: str, seconds: float) -> None:
        say, address = self._screen.say, self._stage.page(id)
        try:
            alert = self._stage.alerts.get(timeout=10)
            say(f"ALERT  {seconds:.1f} s after the start, by webhook: {alert['level']}: {alert['anomaly']}", "bold red")
        except queue.Empty:
            say("The webhook was not called within 10 s, which is a surprise.", "bold red")
        say("")
        say(explanation_text(self._stage.explain(id), width=width_for(self._screen.console.width)).rstrip())
        say(f"  The same as a page: {address}", "bold")
        say("")
        if self._options.browser:
            webbrowser.open(address)

    def _say_verdict(self, text: str, fine: bool) -> None:
        self._screen.say(text, "green" if fine else "bold red")
