"""`mussurana demo`: PostgreSQL, an application, its collector and the verifier, all at once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mussurana.verifier.commands.base import BAD_INPUT, INTERRUPTED, complain, listed

if TYPE_CHECKING:
    from mussurana.verifier.commands.base import Commands


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "demo",
        help="see a database being caught",
        description="Start PostgreSQL, an application with a collector in it and the verifier; run the application at "
        "SERIALIZABLE, then at REPEATABLE READ, and see what the verifier says to both.",
        epilog=listed(
            "exit codes",
            {
                "0": "all verdicts were as expected",
                "2": "one was not",
                "3": "it could not run",
                str(INTERRUPTED): "it was ended before there was a result",
            },
        ),
    )
    command.set_defaults(run=run, parser=command)
    command.add_argument("--seconds", type=float, metavar="N", help="end by itself, after about so long")
    command.add_argument("--no-browser", action="store_true", help="do not open the page of the violation")


def run(options: argparse.Namespace) -> int:
    try:
        from mussurana.verifier.demo.play import Options, demo
    except ImportError as error:
        complain(f"the demo needs {error.name}: pip install 'mussurana-verifier[demo]'")
        return BAD_INPUT
    return demo(Options(seconds=options.seconds, browser=not options.no_browser))
