"""Recorders that are closed after the test, and a check that they leave no thread behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mussurana.collector.recorder import Recorder
from tests.collector.recording.ingest import eventually
from tests.collector.recording.observed import quick


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def make_recorder(spool: Path) -> Iterator[Callable[..., Recorder]]:
    made: list[Recorder] = []

    def make(**settings: Any) -> Recorder:
        made.append(Recorder(quick(spool, **settings)))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close()
    assert eventually(lambda: not threads_left()), threads_left()


def threads_left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mussurana")]


@pytest.fixture
def recorder(make_recorder: Callable[..., Recorder]) -> Recorder:
    return make_recorder()
