"""`mussurana demo`: a database caught breaking a promise that it never made, and kept to the one it did.

First the application runs at SERIALIZABLE, and every round is accepted. Then the same application runs at REPEATABLE
READ, which PostgreSQL implements as snapshot isolation, while the verifier still expects serializable: sooner or later
two transactions each decide on what the other is about to change. The same traffic is verified as strong-session-si at
the same time, and that is accepted throughout.
"""

from __future__ import annotations

import queue
import subprocess
import time
import webbrowser
from dataclasses import dataclass

from mussurana.verifier.demo.screen import Screen
from mussurana.verifier.demo.stage import LEVELS, Stage, StageError
from mussurana.verifier.demo.tally import Tally
from mussurana.verifier.embedded_postgres import NoPostgres
from mussurana.verifier.render.daemon import explanation_text

WORKERS = 4
SECONDS = 40.0  # of the two acts together, unless told otherwise
SECOND_ACT_SECONDS_MAX = 60.0  # a write skew usually takes one or two; a busy machine needs more
LOOK_SECONDS = 0.25
SETTLE_SECONDS = 2.0  # for the last fragments of an act to be verified

AS_EXPECTED, SURPRISED, FAILED = 0, 1, 3


@dataclass(frozen=True)
class Options:
    seconds: float | None = None  # end by itself after so long; None: when the user does
    browser: bool = True


def demo(options: Options) -> int:
    """0 if everything came as it should, 1 if not, 3 if the demo could not run."""
    screen = Screen()
    screen.say("Mussurana: does a database keep the promise of its isolation level?", "bold")
    try:
        with Stage(lambda text: screen.say(f"· {text}", "dim")) as stage:
            screen.say(f"· PostgreSQL {stage.postgres_version} is running; the verifier's page: {stage.page()}", "dim")
            return _play(stage, screen, options)
    except (StageError, NoPostgres) as error:
        screen.say(str(error), "bold red")
        return FAILED
    except KeyboardInterrupt:
        screen.say("ended", "dim")
        return AS_EXPECTED


def _play(stage: Stage, screen: Screen, options: Options) -> int:
    half = (options.seconds or SECONDS) / 2
    first = Tally.of(LEVELS)
    with screen.act(
        "1  SERIALIZABLE, verified as serializable",
        f"{WORKERS} processes of a hospital's roster run at SERIALIZABLE. Doctors leave if a colleague stays.",
    ):
        _run(stage, screen, "SERIALIZABLE", first, half, until_rejected=False)
    serial, snapshot = (first.levels[level] for level in LEVELS)
    fine = not serial.rejected and not snapshot.rejected and serial.accepted > 0
    screen.say(
        f"{serial.accepted} rounds with {serial.txns:,} transactions: "
        + ("all accepted." if fine else f"{serial.rejected} rejected, which should not be."),
        "green" if fine else "bold red",
    )

    second = Tally.of(LEVELS)
    with screen.act(
        "2  REPEATABLE READ, still verified as serializable",
        "The same application, at a weaker level than its authors think.",
    ):
        _run(stage, screen, "REPEATABLE READ", second, max(half, SECOND_ACT_SECONDS_MAX), until_rejected=True)
    skews = [violation for violation in second.violations if violation.level == "serializable"]
    if not skews:
        screen.say(f"No violation within {max(half, SECOND_ACT_SECONDS_MAX):.0f} s, which is a surprise.", "bold red")
        return SURPRISED
    _tell(stage, screen, skews[0].id)
    kept = not second.levels["strong-session-si"].rejected
    screen.say(
        "Verified as strong-session-si, the same traffic was accepted in all of "
        f"{second.levels['strong-session-si'].accepted} rounds. That is what PostgreSQL promises for REPEATABLE READ, "
        "and it kept the promise."
        if kept
        else "Verified as strong-session-si the same traffic was rejected as well, which should not be.",
        "green" if kept else "bold red",
    )
    address = stage.page(skews[0].id)
    screen.say(f"\nThe same as a page: {address}")
    if options.browser:
        webbrowser.open(address)
    if options.seconds is None and screen.console.is_terminal:
        screen.say("The verifier stays up so that you can look around; Ctrl-C ends the demo.", "dim")
        while True:
            time.sleep(1)
    return AS_EXPECTED if fine and kept else SURPRISED


def _run(stage: Stage, screen: Screen, isolation: str, tally: Tally, seconds: float, until_rejected: bool) -> None:
    """Let the application run, and count what the verifier says, until the time is over or enough was seen."""
    since_ns = time.time_ns()
    until = time.monotonic() + seconds
    with stage.workers(isolation, WORKERS) as workers:
        while time.monotonic() < until:
            _look(stage, screen, tally, since_ns, until, workers)
            if until_rejected and tally.levels["serializable"].violations:
                break
    settled = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < settled:
        _look(stage, screen, tally, since_ns, until, [])


def _look(
    stage: Stage, screen: Screen, tally: Tally, since_ns: int, until: float, workers: list[subprocess.Popen[bytes]]
) -> None:
    if any(worker.poll() is not None for worker in workers):
        raise StageError(f"a worker of the application ended:\n{stage.workers_log()}")
    tally.take(stage.verdicts(since_ns))
    screen.show(tally, until - time.monotonic())
    time.sleep(LOOK_SECONDS)


def _tell(stage: Stage, screen: Screen, id: str) -> None:
    try:
        alert = stage.alerts.get(timeout=10)
        screen.say(f"ALERT  webhook called: {alert.get('level')}: {alert.get('anomaly')}", "bold red")
    except queue.Empty:
        screen.say("The webhook was not called within 10 s, which is a surprise.", "bold red")
    screen.say("")
    screen.say(explanation_text(stage.explain(id), False).rstrip())
    screen.say("")
