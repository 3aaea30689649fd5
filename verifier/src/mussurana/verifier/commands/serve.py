"""`mussurana serve`: run the daemon, or only look at its configuration."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mussurana.verifier.commands.base import BAD_INPUT, Parser, complain, say
from mussurana.verifier.daemon.config import options
from mussurana.verifier.daemon.configured import ConfigError, load

if TYPE_CHECKING:
    from mussurana.verifier.commands.base import Commands
    from mussurana.verifier.daemon.config import Config, Rounds
    from mussurana.verifier.daemon.machine import FragmentCheck, Machine, MachineFactory
    from mussurana.verifier.rounds.limits import Limits
    from mussurana.wire.history_pb2 import Fragment


def add(commands: Commands) -> None:
    command = commands.add_parser(
        "serve",
        help="run the daemon that verifies all the time",
        description="Take in what collectors record, and verify it in rounds, until SIGTERM.",
        epilog="Every option can also be set in the file and by an environment variable; see docs/configuration.md.",
    )
    command.set_defaults(run=run, parser=command)
    command.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with options")
    command.add_argument("--check-config", action="store_true", help="say whether the options make sense, and end")
    add_flags(command)


def add_flags(command: Parser) -> None:
    for option in options():
        about = option.about.replace("%", "%%")
        command.add_argument(option.flag, dest=f"option_{option.attribute}", metavar="VALUE", help=about)


def flags_of(parsed: argparse.Namespace) -> dict[str, str | None]:
    return {option.attribute: getattr(parsed, f"option_{option.attribute}") for option in options()}


def flags_from(arguments: Sequence[str]) -> dict[str, str | None]:
    """The same from a command line that has nothing else."""
    command = Parser()
    add_flags(command)
    return flags_of(command.parse_args(arguments))


def run(parsed: argparse.Namespace) -> int:
    def configured() -> Config:
        return load(parsed.config, os.environ, flags_of(parsed))

    try:
        config = configured()
    except ConfigError as error:
        complain(str(error))
        return BAD_INPUT
    from mussurana.verifier.daemon.service import StartError, check_files, serve

    try:
        if parsed.check_config:
            check_files(config)
            say(f"the configuration is fine: {', '.join(config.verify.levels)}, data in {config.data}\n")
        else:
            serve(configured, machine_factory(config), check_fragment())
    except StartError as error:
        complain(str(error))
        return BAD_INPUT
    return 0


def machine_factory(config: Config) -> MachineFactory:
    """Imports the machine, and numba with it, when it is called: in the verifying thread, while fragments come in."""

    def make(state: bytes | None) -> Machine:
        from mussurana.verifier.rounds.machine import Verifier
        from mussurana.verifier.rounds.warm import warm_up
        from mussurana.verifier.verdict import Settings

        drift_ns = round(config.verify.clock_drift_seconds * 1e9)
        levels = [Settings(level, clock_drift_ns=drift_ns) for level in config.verify.levels]
        warm_up(levels)
        limits = limits_of(config.rounds)
        return Verifier(levels, limits) if state is None else Verifier.from_state(levels, limits, state)

    return make


def limits_of(rounds: Rounds) -> Limits:
    from mussurana.verifier.rounds.limits import Limits

    return Limits(
        round_interval_ns=round(rounds.interval_seconds * 1e9),
        round_txns_max=rounds.txns_max,
        wait_ns_max=round(rounds.wait_seconds_max * 1e9),
        waiting_txns_max=rounds.waiting_txns_max,
        retained_txns_max=rounds.retained_txns_max,
        silence_ns_max=round(rounds.silence_seconds_max * 1e9),
        alarm_wait_ns_max=round(rounds.alarm_wait_seconds_max * 1e9),
        in_doubt_ns_max=round(rounds.in_doubt_seconds_max * 1e9),
        snapshot_age_ns_max=round(rounds.snapshot_age_seconds_max * 1e9),
        violations_explained_max=rounds.violations_explained_max,
    )


def check_fragment() -> FragmentCheck:
    from mussurana.verifier.rounds.fragments import decode

    def check(fragment: Fragment) -> None:
        decode(fragment, 0)

    return check
