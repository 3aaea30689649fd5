"""`mussurana status`, `verdicts` and `explain`: questions to a running daemon."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mussurana.verifier.commands.base import Parser, duration_ns, listed, say, terminal_columns
from mussurana.verifier.levels import LEVELS

if TYPE_CHECKING:
    from mussurana.verifier.commands.base import Commands
    from mussurana.verifier.daemon.client import Target

ADDRESS = "127.0.0.1:7701"
TOKEN_VARIABLE = "MUSSURANA_TOKEN"
FINE, REJECTIONS = 0, 1


def add(commands: Commands) -> None:
    status = commands.add_parser(
        "status",
        help="how a running daemon is doing",
        description="How a running daemon is doing: lag, rounds, collectors.",
    )
    status.set_defaults(run=run_status, parser=status)
    verdicts = commands.add_parser(
        "verdicts",
        help="what a running daemon has found",
        description="The latest rounds of a running daemon, and the violations that it has found, newest last.",
        epilog=listed("exit codes", {"0": "no violation is shown", "1": "one is", "3": "no answer"}),
    )
    verdicts.set_defaults(run=run_verdicts, parser=verdicts)
    verdicts.add_argument("--limit", type=int, default=20, metavar="N", help="of each at most (default: %(default)s)")
    verdicts.add_argument("--level", choices=LEVELS, default="", metavar="LEVEL", help="only this one")
    verdicts.add_argument(
        "--verdict",
        choices=("accepted", "rejected", "unknown"),
        default="",
        metavar="VERDICT",
        help="only rounds with this verdict",
    )
    verdicts.add_argument("--since", type=duration_ns, metavar="DURATION", help="only the last 10s, 1.5s, ...")
    explain = commands.add_parser(
        "explain", help="explain a violation", description="Explain a violation that a running daemon has found."
    )
    explain.set_defaults(run=run_explain, parser=explain)
    explain.add_argument("id", metavar="ID", help="of the violation, or how it starts; `mussurana verdicts` has them")
    for command in (status, verdicts, explain):
        command.add_argument("--json", action="store_true", help="print one JSON object")
        add_target(command, "--address")


def add_target(command: Parser, option: str) -> None:
    """Where the daemon is, and how to connect."""
    command.add_argument(option, dest="address", default=ADDRESS, metavar="ADDRESS", help="default: %(default)s")
    command.add_argument("--tls-authority", type=Path, metavar="FILE", help="connect with TLS; its authority, in PEM")
    command.add_argument("--tls-certificate", type=Path, metavar="FILE", help="show this certificate (mutual TLS)")
    command.add_argument("--tls-key", type=Path, metavar="FILE", help="the key that belongs to it")
    command.add_argument(
        "--token-file", type=Path, metavar="FILE", help=f"a file with the bearer token (default: ${TOKEN_VARIABLE})"
    )


def target(options: argparse.Namespace) -> Target:
    from mussurana.verifier.daemon.client import Target

    token = options.token_file.read_text().strip() if options.token_file else os.environ.get(TOKEN_VARIABLE, "")
    return Target(options.address, options.tls_authority, options.tls_certificate, options.tls_key, token)


def run_status(options: argparse.Namespace) -> int:
    from mussurana.verifier.daemon import client
    from mussurana.verifier.render.daemon import status_json, status_text

    reply = client.status(target(options))
    say(json.dumps(status_json(reply)) + "\n" if options.json else status_text(reply))
    return FINE


def run_verdicts(options: argparse.Namespace) -> int:
    from mussurana.verifier.daemon import client
    from mussurana.verifier.render.daemon import verdicts_json, verdicts_text
    from mussurana.wire.query_pb2 import VerdictsRequest

    request = VerdictsRequest(limit=max(0, options.limit), level=options.level, verdict=options.verdict)
    if options.since is not None:
        request.since_ns = time.time_ns() - options.since
    reply = client.verdicts(target(options), request)
    say(json.dumps(verdicts_json(reply)) + "\n" if options.json else verdicts_text(reply))
    return REJECTIONS if reply.violation else FINE


def run_explain(options: argparse.Namespace) -> int:
    from mussurana.verifier.daemon import client
    from mussurana.verifier.render.daemon import explanation_json, explanation_text
    from mussurana.verifier.render.text import WIDTH, width_for

    reply = client.explain(target(options), options.id)
    columns = terminal_columns()
    text = explanation_text(reply, columns is not None, width_for(columns or WIDTH))
    say(json.dumps(explanation_json(reply)) + "\n" if options.json else text)
    return FINE
