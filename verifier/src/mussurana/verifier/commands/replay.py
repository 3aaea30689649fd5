"""`mussurana replay`: stream a recorded history into a running daemon."""

from __future__ import annotations

import argparse
import heapq
import os
import time
from typing import TYPE_CHECKING

from mussurana.verifier.commands.ask import add_target, target
from mussurana.verifier.commands.base import Parser, add_database, say

if TYPE_CHECKING:
    from mussurana.verifier.commands.base import Commands


def speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; write 1, 10, 0.5 or 0")
    return value


def add(commands: Commands) -> None:
    command: Parser = commands.add_parser(
        "replay",
        help="stream a history into a running daemon",
        description="Stream a history that `check` can read into a running daemon, as if it happened now.\n"
        "It ends when the daemon has everything safely on disk; `mussurana verdicts` then says what it found.",
    )
    command.set_defaults(run=run, parser=command)
    command.add_argument("path", metavar="HISTORY", help="a file or folder with a history")
    command.add_argument("--format", metavar="FORMAT", help="its format (default: recognised from the path)")
    add_database(command, "needed if there are several")
    command.add_argument(
        "--speed",
        type=speed,
        default=1.0,
        metavar="X",
        help="times as fast as it was recorded; 0 for as fast as the daemon takes it (default: 1)",
    )
    command.add_argument("--collectors", type=int, default=1, metavar="N", help="deal sessions out to N streams")
    add_target(command, "--to")


def run(options: argparse.Namespace) -> int:
    from mussurana.verifier.formats import load
    from mussurana.verifier.replay.send import Sender
    from mussurana.verifier.replay.translate import streams

    history = load(options.path, options.format, options.database)
    where = target(options)
    started_ns = time.time_ns()
    count = max(1, min(options.collectors, len(history.session_names)))
    parts = streams(history, started_ns, count)
    senders = [
        Sender(where, os.urandom(16), f"replay/{os.getpid()}/{number}", str(options.path)) for number in range(count)
    ]
    merged = heapq.merge(
        *([(sent.after_ns, number, sent.fragment) for sent in part] for number, part in enumerate(parts)),
        key=lambda sent: sent[:2],
    )
    for after_ns, number, fragment in merged:
        if options.speed:
            time.sleep(max(0.0, after_ns / 1e9 / options.speed - (time.time_ns() - started_ns) / 1e9))
        fragment.sealed_ns = time.time_ns()
        senders[number].send(fragment)
    for sender in senders:
        sender.finish()
    seconds = (time.time_ns() - started_ns) / 1e9
    say(f"{history.txn_count:,} transactions in {len(history.session_names):,} sessions sent in {seconds:.1f} s\n")
    return 0
