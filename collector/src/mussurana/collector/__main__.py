"""`python -m mussurana.collector`: the commands that a host needs which has only the collector installed."""

from __future__ import annotations

import argparse
import sys
import traceback

from mussurana.collector.adopt_command import FAILED, add_commands


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m mussurana.collector", description="Prepare a database for being recorded, or take that back."
    )
    add_commands(parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True))
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
    except Exception:  # Python itself would exit with 1, which means for all our commands that something was rejected
        traceback.print_exc()
        return FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
