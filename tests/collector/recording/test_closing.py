"""The end of a process waits for nobody: what it has spooled is shipped after it is gone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mussurana.collector import shipping
from mussurana.collector.recorder import Recorder
from mussurana.collector.settings import Settings
from mussurana.collector.shipping import Shipper
from mussurana.collector.spool import folders
from tests.collector.recording.ingest import Ingest, eventually, say_nothing
from tests.collector.recording.observed import commit, quick, txn_count

ROOT = Path(__file__).parents[3]

CLOSING_SECONDS_MAX = 0.3

SHORT = """
import sys
from pathlib import Path
from mussurana.collector.recorder import recorder_for
from mussurana.collector.settings import Settings
from tests.collector.recording.observed import commit
recorder = recorder_for(Settings(spool=sys.argv[1], verifier=sys.argv[2]))
session = recorder.open_session("conn", fenced=False)
for _ in range(100):
    commit(recorder, session, "a/1")
"""


def seconds_to_close(recorder: Recorder) -> float:
    started = time.monotonic()
    recorder.close()
    return time.monotonic() - started


def test_nothing_is_waited_for_at_the_end(spool: Path, make_recorder: Callable[..., Recorder]) -> None:
    default = Settings().close_seconds
    with Ingest(say_nothing) as silent:
        for verifier in ("127.0.0.1:9", silent.address, ""):
            took = []
            for number in range(3):  # of which the machine may be busy with something else once
                recorder = make_recorder(verifier=verifier, close_seconds=default)
                commit(recorder, recorder.open_session(f"conn {number}", fenced=False), "a/1")
                took.append(seconds_to_close(recorder))
            assert min(took) < CLOSING_SECONDS_MAX, verifier
    assert txn_count(spool) == 9


def has_got(verifier: Ingest, count: int) -> bool:
    return verifier.txn_count() == count


def test_what_a_process_spooled_at_its_end_is_shipped_after_it(spool: Path) -> None:
    with Ingest() as verifier:
        for number in range(3):
            arguments = [sys.executable, "-c", SHORT, str(spool), verifier.address]
            subprocess.run(arguments, check=True, cwd=ROOT, timeout=60)
            assert eventually(partial(has_got, verifier, 100 * (number + 1)), 30)
        assert eventually(lambda: not folders(spool))


def test_a_shipper_that_is_about_to_go_sees_who_came_meanwhile(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(shipping, "UNREACHABLE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(shipping, "LOOK_SECONDS", 0.01)

    def leave(**settings: str) -> None:
        recorder = Recorder(quick(spool, **settings))
        commit(recorder, recorder.open_session("conn", fenced=False), "a/1")
        recorder.background._helper = None  # type: ignore[union-attr]
        recorder.close()

    shipper = Shipper(spool, stays=False)
    shipper.run()
    assert not shipper.is_needed()
    leave()  # which nobody wants to have
    assert not shipper.is_needed()
    with Ingest() as verifier:
        leave(verifier=verifier.address)
        assert shipper.is_needed()
        monkeypatch.setattr(shipping, "UNREACHABLE_SECONDS_MAX", 20.0)
        shipper.run()
        assert verifier.txn_count() == 1
    assert not shipper.is_needed()
    leave(verifier="127.0.0.1:9")
    assert shipper.is_needed()
    monkeypatch.setattr(shipping, "UNREACHABLE_SECONDS_MAX", 0.0)
    shipper.run()
    assert not shipper.is_needed()  # it has tried, and leaves it to the next one
    leave(verifier="127.0.0.1:9")
    shipper.stopping.set()
    assert not shipper.is_needed()
