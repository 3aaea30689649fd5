"""Settings for every test that uses hypothesis, and logs that no test leaves other than it found them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples every time, so that a failure is about the change at hand; `make fuzz` looks for new ones.
# No deadline: the first call of a kernel compiles it.
settings.register_profile("mussurana", derandomize=True, deadline=None)
settings.load_profile("mussurana")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A daemon in this process, and Alembic, set up logs in their own way; the next test may want to read them."""
    ours = logging.getLogger("mussurana")
    handlers, level = ours.handlers[:], ours.level
    ours.propagate = True
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == "mussurana" and isinstance(logger, logging.Logger):
            logger.disabled = False
    yield
    ours.handlers = handlers
    ours.setLevel(level)
