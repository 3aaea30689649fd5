"""Metrics reach prometheus-client where the host uses it, and nobody needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from mussurana.collector import metrics
from mussurana.collector.recorder import Recorder
from tests.collector.recording.observed import commit

ROOT = Path(__file__).parents[3]

LIGHT = """
import sys
import mussurana.collector, mussurana.collector.recorder, mussurana.collector.kv
from mussurana.collector.recorder import Recorder
from mussurana.collector.settings import Settings
recorder = Recorder(Settings(spool=sys.argv[1], verifier="127.0.0.1:9", close_seconds=0.1))
recorder.open_session("conn")
recorder.close()
heavy = {"grpc", "numpy", "numba", "prometheus_client", "mussurana.verifier"} & set(sys.modules)
assert not heavy, heavy
"""

WORKER = """
import os, sys
from pathlib import Path
from prometheus_client import Counter
from mussurana.collector.recorder import recorder_for
from tests.collector.recording.observed import commit, quick
recorder = recorder_for(quick(Path(sys.argv[1])))
for _ in range(3):
    if os.fork() == 0:
        session = recorder.open_session("conn", fenced=False)
        for _ in range(10):
            commit(recorder, session, "a/1")
        sys.exit()
for _ in range(3):
    os.wait()
"""


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    metrics.unregister()
    yield
    metrics.unregister()


def test_what_is_counted_is_published(make_recorder: Callable[..., Recorder]) -> None:
    recorder = make_recorder()
    session = recorder.open_session("conn", fenced=False)
    for _ in range(7):
        commit(recorder, session, "a/1")
    session.fenced(wrote=True, seconds=0.5)
    recorder.close()
    assert REGISTRY.get_sample_value("mussurana_collector_txns_recorded_total") == 7
    assert REGISTRY.get_sample_value("mussurana_collector_fence_seconds_total") == 0.5
    assert REGISTRY.get_sample_value("mussurana_collector_txns_lost_total") == 0
    assert REGISTRY.get_sample_value("mussurana_collector_spool_bytes") == 0
    metrics.unregister()
    assert REGISTRY.get_sample_value("mussurana_collector_txns_recorded_total") is None


def test_every_name_is_a_metric_with_a_text() -> None:
    named = {name for name in metrics.Metrics.__annotations__ if not name.startswith("_")}
    assert named == set(metrics.COUNTERS) | set(metrics.GAUGES)


def test_nothing_heavy_comes_into_the_host(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LIGHT, str(tmp_path / "spool")], check=True, timeout=60)


def test_forked_workers_add_up_in_multiprocess_mode(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    command = [sys.executable, "-c", WORKER, str(tmp_path / "spool")]
    subprocess.run(command, check=True, timeout=60, env=environment, cwd=ROOT)
    collect = (
        "from prometheus_client import CollectorRegistry, multiprocess\n"
        "registry = CollectorRegistry()\n"
        "multiprocess.MultiProcessCollector(registry)\n"
        "print(registry.get_sample_value('mussurana_collector_txns_recorded_total'))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", collect], check=True, timeout=60, env=environment, capture_output=True, text=True
    )
    assert float(ran.stdout) == 30
