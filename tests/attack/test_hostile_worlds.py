"""Random collectors that say what the bounds let through never bring the machine to an error, nor to no end."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

from tests.attack.hostile import Hostile

SECONDS_MAX = 120.0
"""For one world, which takes a tenth of a second: then all ends, with a trace of where it stood."""


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    faulthandler.cancel_dump_traceback_later()


def errors(seeds: range) -> dict[int, list[str]]:
    found = {}
    for seed in seeds:
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
        world = Hostile(seed)
        world.run()
        if world.errors:
            found[seed] = world.errors
    return found


def test_no_claim_of_a_collector_is_an_error_of_the_machine() -> None:
    assert errors(range(100)) == {}


@pytest.mark.attack
def test_no_claim_of_a_collector_is_an_error_of_the_machine_for_minutes() -> None:
    assert errors(range(100, 4000)) == {}
